//! Deadlines over HTTP: saying which one counts, who has which, and whether one more would be met.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use berth_model::GpuIndex;
use berth_model::cluster::Past;
use berth_model::control::{Admission, Answer, Candidate, DeadlineAsk, DeadlineStanding, What};
use berth_model::deadline::{Deadline, Unit};
use serde::{Deserialize, Serialize};

use super::control::{Body, Caller, bad, peer_of};
use super::paths;
use crate::control::Served;
use crate::error::ApiError;

/// Which deadline is to count for a tenant: exactly one of `deadline`, `clear` and `reset`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeadlineRequest {
    /// Name, beginning of the container's id, cgroup path, user, or key.
    pub tenant: String,
    pub deadline: Option<Deadline>,
    /// None, whatever its labels say.
    pub clear: bool,
    /// What its labels say.
    pub reset: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadlinesQuery {
    tenant: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdmitQuery {
    deadline: Deadline,
    unit: Option<Unit>,
    image: Option<String>,
    command: Option<String>,
    owner: Option<String>,
    takes: Option<Deadline>,
    gpu: Option<GpuIndex>,
}

pub(crate) async fn set_deadline(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<DeadlineRequest>,
) -> Result<Json<DeadlineStanding>, ApiError> {
    let DeadlineRequest { tenant, deadline, clear, reset } = request;
    let ask = match (deadline, clear, reset) {
        (Some(_), false, false) | (None, true, false) => DeadlineAsk::Set { tenant, deadline },
        (None, false, true) => DeadlineAsk::Reset { tenant },
        _ => return Err(bad(paths::DEADLINE, "give `tenant`, and one of `deadline`, `clear`: true and `reset`: true")),
    };
    let standings = standings(served.ask(peer_of(peer), What::Deadline(ask)).await?)?;
    standings.into_iter().next().map(Json).ok_or(ApiError::Unexpected)
}

pub(crate) async fn deadlines(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<DeadlinesQuery>, QueryRejection>,
) -> Result<Json<Vec<DeadlineStanding>>, ApiError> {
    let Query(DeadlinesQuery { tenant }) = query.map_err(|error| bad(paths::DEADLINES, &error.body_text()))?;
    let ask = DeadlineAsk::Show { tenant };
    standings(served.ask(peer_of(peer), What::Deadline(ask)).await?).map(Json)
}

pub(crate) async fn admit(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<AdmitQuery>, QueryRejection>,
) -> Result<Json<Admission>, ApiError> {
    let Query(query) = query.map_err(|error| bad(paths::ADMIT, &error.body_text()))?;
    let AdmitQuery { deadline, unit, image, command, owner, takes, gpu } = query;
    let unit = unit.unwrap_or(Unit::Task);
    let ask = DeadlineAsk::Admit(Candidate { deadline, unit, image, command, owner, takes, gpu });
    match served.ask(peer_of(peer), What::Deadline(ask)).await? {
        Answer::Admission(admission) => Ok(Json(*admission)),
        _ => Err(ApiError::Unexpected),
    }
}

pub(crate) async fn pasts(State(served): State<Served>, peer: Caller) -> Result<Json<Vec<Past>>, ApiError> {
    match served.ask(peer_of(peer), What::Deadline(DeadlineAsk::Pasts)).await? {
        Answer::Pasts(pasts) => Ok(Json(pasts)),
        _ => Err(ApiError::Unexpected),
    }
}

fn standings(answer: Answer) -> Result<Vec<DeadlineStanding>, ApiError> {
    match answer {
        Answer::Deadlines(standings) => Ok(standings),
        _ => Err(ApiError::Unexpected),
    }
}
