//! Holds over HTTP: asking for them, taking them back, and why somebody waits. Bodies are small and come in time.

use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, FromRequest, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use berth_model::control::{Answer, Explanation, PolicyView, Standing, What};
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::snapshot::{HoldStage, QueueRow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{latest, paths};
use crate::control::{Peer, Served};
use crate::error::ApiError;

/// Bytes of a body that are read; what can be asked for fits many times.
const MOST_BODY: usize = 4 << 10;
/// A body is in by then.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// Keep a tenant off the GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Name, beginning of the container's id, cgroup path, user, or key.
    pub tenant: String,
    /// By which means; what suits the tenant if it is not given.
    #[serde(default)]
    pub by: Option<Means>,
    #[serde(default)]
    pub reason: Option<String>,
}

/// Let one tenant run, or all that are held.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReleaseRequest {
    pub tenant: Option<String>,
    /// Everybody whom the caller may release, instead of one tenant.
    pub all: bool,
    /// Leave the tenant to the policy again, which may hold it at once; otherwise policies leave it alone.
    pub to_policy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    pub policy: PolicyName,
    /// Whether it only says what it would do; as it is if not given.
    #[serde(default)]
    pub dry_run: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    tenant: String,
}

/// Everybody berth does something to, and who waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holds {
    /// `None` where this daemon holds nobody.
    pub policy: Option<PolicyName>,
    /// The policy only says what it would do.
    pub dry_run: bool,
    pub queue: Vec<QueueRow>,
    pub tenants: Vec<Standing>,
}

pub(super) type Caller = Option<Extension<Peer>>;

pub(crate) async fn hold(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<HoldRequest>,
) -> Result<Response, ApiError> {
    let HoldRequest { tenant, by, reason } = request;
    let what = What::Hold { tenant, means: by, reason };
    let standing = one(served.ask(peer_of(peer), what).await?)?;
    Ok((status_of(&[&standing]), Json(standing)).into_response())
}

pub(crate) async fn release(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<ReleaseRequest>,
) -> Result<Response, ApiError> {
    let what = match request {
        ReleaseRequest { tenant: Some(tenant), all: false, to_policy: false } => What::Release { tenant },
        ReleaseRequest { tenant: Some(tenant), all: false, to_policy: true } => What::HandBack { tenant },
        ReleaseRequest { tenant: None, all: true, to_policy: false } => What::ReleaseAll,
        _ => return Err(bad(paths::RELEASE, "give either `tenant`, with `to_policy` or without, or `all`: true")),
    };
    let standings = match served.ask(peer_of(peer), what).await? {
        Answer::Released(standings) => standings,
        answer => vec![one(answer)?],
    };
    Ok((status_of(&standings.iter().collect::<Vec<_>>()), Json(standings)).into_response())
}

pub(crate) async fn set_policy(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<PolicyRequest>,
) -> Result<Json<PolicyView>, ApiError> {
    let PolicyRequest { policy, dry_run } = request;
    policy_view(served.ask(peer_of(peer), What::SetPolicy { policy, dry_run }).await?)
}

pub(crate) async fn policy(State(served): State<Served>, peer: Caller) -> Result<Json<PolicyView>, ApiError> {
    policy_view(served.ask(peer_of(peer), What::ShowPolicy).await?)
}

pub(crate) async fn explain(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Explanation>, ApiError> {
    let Query(ExplainQuery { tenant }) = query.map_err(|error| bad(paths::EXPLAIN, &error.body_text()))?;
    match served.ask(peer_of(peer), What::Explain { tenant }).await? {
        Answer::Explained(explanation) => Ok(Json(*explanation)),
        _ => Err(ApiError::Unexpected),
    }
}

pub(crate) async fn holds(State(served): State<Served>) -> Result<Json<Holds>, ApiError> {
    let snapshot = latest(&served.feed)?;
    let mut tenants: Vec<Standing> = Vec::new();
    for row in snapshot.tasks.iter().filter(|row| row.hold.is_some()) {
        if tenants.iter().all(|known| known.tenant != row.tenant) {
            let is_settled = row.hold.as_ref().is_none_or(|hold| hold.stage != HoldStage::Moving);
            let (tenant, name, hold) = (row.tenant.clone(), row.container_name.clone(), row.hold.clone());
            tenants.push(Standing { tenant, name, hold, is_settled });
        }
    }
    let management = snapshot.management.as_ref();
    let queue = management.map(|management| management.queue.clone()).unwrap_or_default();
    let policy = management.map(|management| management.policy);
    let dry_run = management.is_some_and(|management| management.dry_run);
    Ok(Json(Holds { policy, dry_run, queue, tenants }))
}

fn policy_view(answer: Answer) -> Result<Json<PolicyView>, ApiError> {
    match answer {
        Answer::Policy(view) => Ok(Json(*view)),
        _ => Err(ApiError::Unexpected),
    }
}

pub(super) fn peer_of(peer: Caller) -> Option<Peer> {
    peer.map(|Extension(peer)| peer)
}

fn one(answer: Answer) -> Result<Standing, ApiError> {
    match answer {
        Answer::Stands(standing) => Ok(*standing),
        _ => Err(ApiError::Unexpected),
    }
}

/// What is still under way has been accepted, and is not done yet.
fn status_of(standings: &[&Standing]) -> StatusCode {
    if standings.iter().all(|standing| standing.is_settled) { StatusCode::OK } else { StatusCode::ACCEPTED }
}

pub(super) fn bad(path: &'static str, reason: &str) -> ApiError {
    ApiError::BadRequest { path: path.to_owned(), reason: reason.to_owned() }
}

/// JSON, whatever the client calls it; unknown keys are refused by name.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let path = request.uri().path().to_owned();
        let refused = |reason: String| ApiError::BadRequest { path: path.clone(), reason };
        let read = tokio::time::timeout(BODY_WITHIN, to_bytes(request.into_body(), MOST_BODY)).await;
        let bytes = read.map_err(|_| refused(format!("no body came within {} s", BODY_WITHIN.as_secs())))?.map_err(
            |error| refused(format!("the body cannot be read, or has more than {MOST_BODY} bytes: {error}")),
        )?;
        let value = serde_json::from_slice(&bytes);
        value.map(Body).map_err(|error| refused(format!("the body is not what is asked for here: {error}")))
    }
}
