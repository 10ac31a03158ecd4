//! The level of kernels over HTTP: which policy plans there, and which goals count.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use berth_model::Slo;
use berth_model::control::{Answer, KernelAsk, SloStanding, What};
use berth_model::settings::KernelPolicyName;
use serde::{Deserialize, Serialize};

use super::control::{Body, Caller, bad, peer_of};
use super::paths;
use crate::control::Served;
use crate::error::ApiError;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelPolicyRequest {
    pub policy: KernelPolicyName,
    /// Index or UUID of the one it is for; all, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// Which goals are to count for a tenant: exactly one of `goals`, `clear` and `reset`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SloRequest {
    /// Name, beginning of the container's id, cgroup path, user, or key.
    pub tenant: String,
    /// By the last part of their labels, such as `latency`, and written as in those.
    pub goals: BTreeMap<String, String>,
    /// None, whatever its labels say.
    pub clear: bool,
    /// What its labels say.
    pub reset: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlosQuery {
    tenant: Option<String>,
}

pub(crate) async fn set_policy(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<KernelPolicyRequest>,
) -> Result<Json<KernelPolicyRequest>, ApiError> {
    let KernelPolicyRequest { policy, gpu } = request;
    let ask = KernelAsk::SetPolicy { policy, gpu: gpu.clone() };
    match served.ask(peer_of(peer), What::Kernels(ask)).await? {
        Answer::KernelPolicy(policy) => Ok(Json(KernelPolicyRequest { policy, gpu })),
        _ => Err(ApiError::Unexpected),
    }
}

pub(crate) async fn set_slo(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<SloRequest>,
) -> Result<Json<SloStanding>, ApiError> {
    let SloRequest { tenant, goals, clear, reset } = request;
    let ask = match (goals.is_empty(), clear, reset) {
        (false, false, false) => KernelAsk::SetSlo { tenant, slo: Box::new(read(goals)?) },
        (true, true, false) => KernelAsk::SetSlo { tenant, slo: Box::default() },
        (true, false, true) => KernelAsk::ResetSlo { tenant },
        _ => return Err(bad(paths::SLO, "give `tenant`, and one of `goals`, `clear`: true and `reset`: true")),
    };
    let standings = standings(served.ask(peer_of(peer), What::Kernels(ask)).await?)?;
    standings.into_iter().next().map(Json).ok_or(ApiError::Unexpected)
}

pub(crate) async fn slos(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<SlosQuery>, QueryRejection>,
) -> Result<Json<Vec<SloStanding>>, ApiError> {
    let Query(SlosQuery { tenant }) = query.map_err(|error| bad(paths::SLOS, &error.body_text()))?;
    standings(served.ask(peer_of(peer), What::Kernels(KernelAsk::ShowSlo { tenant })).await?).map(Json)
}

/// Here nothing is taken that is wrong in part: whoever says it is there to be told.
fn read(goals: BTreeMap<String, String>) -> Result<Slo, ApiError> {
    let labels = goals.into_iter().map(|(goal, value)| (format!("berth.slo.{goal}"), value)).collect();
    let (slo, wrong) = Slo::from_labels(&labels);
    match wrong.first() {
        Some(wrong) => Err(bad(paths::SLO, &wrong.to_string())),
        None => Ok(slo),
    }
}

fn standings(answer: Answer) -> Result<Vec<SloStanding>, ApiError> {
    match answer {
        Answer::Slos(standings) => Ok(standings),
        _ => Err(ApiError::Unexpected),
    }
}
