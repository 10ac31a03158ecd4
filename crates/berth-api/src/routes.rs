//! What is served where. The table here, the router made of it and `openapi.json` name the same paths; a test holds it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use berth_model::cluster::Report;
use berth_model::snapshot::{EndedTask, SourceView};
use berth_model::{GpuView, Snapshot, TaskRow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::control::Served;
use crate::error::ApiError;
use crate::events::{self, EventsQuery};
use crate::feed::Feed;
use crate::metrics;
use crate::usage::Usage;
pub use control::{HoldRequest, Holds, PolicyRequest, ReleaseRequest};
pub use deadline::DeadlineRequest;
pub use kernels::{KernelPolicyRequest, SloRequest};
pub use watch::FeedbackRequest;

mod control;
mod deadline;
mod history;
mod kernels;
mod watch;

const OPENAPI: &str = include_str!("../openapi.json");

/// Far more than the engine ever lets pass between two snapshots.
const STALLED_AFTER: Duration = Duration::from_secs(15);

/// Every path there is.
pub mod paths {
    pub const SNAPSHOT: &str = "/v1/snapshot";
    pub const TASKS: &str = "/v1/tasks";
    pub const GPUS: &str = "/v1/gpus";
    pub const ENDED: &str = "/v1/ended";
    pub const SOURCES: &str = "/v1/sources";
    pub const HOLDS: &str = "/v1/holds";
    pub const HOLD: &str = "/v1/hold";
    pub const RELEASE: &str = "/v1/release";
    pub const POLICY: &str = "/v1/policy";
    /// With the query `tenant`.
    pub const EXPLAIN: &str = "/v1/explain";
    pub const DEADLINE: &str = "/v1/deadline";
    /// With the query `tenant`.
    pub const DEADLINES: &str = "/v1/deadlines";
    pub const KERNEL_POLICY: &str = "/v1/kernels/policy";
    pub const SLO: &str = "/v1/slo";
    /// With the query `tenant`.
    pub const SLOS: &str = "/v1/slos";
    /// With the queries `deadline`, `unit`, `image`, `command`, `owner`, `takes` and `gpu`.
    pub const ADMIT: &str = "/v1/admit";
    /// With the queries `tenant`, `since` and `limit`.
    pub const HISTORY: &str = "/v1/history";
    pub const FEEDBACK: &str = "/v1/feedback";
    /// With the query `tenant`.
    pub const FINDINGS: &str = "/v1/findings";
    /// With the queries `tenant`, `metric`, `since`, `until` and `step`.
    pub const SERIES: &str = "/v1/series";
    pub const REPORT: &str = "/v1/report";
    pub const PASTS: &str = "/v1/pasts";
    pub const EVENTS: &str = "/v1/events";
    pub const VERSION: &str = "/v1/version";
    pub const HEALTH: &str = "/v1/health";
    pub const OPENAPI: &str = "/v1/openapi.json";
    pub const METRICS: &str = "/metrics";
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: String,
    /// The major version of this interface; the first part of every path.
    pub api: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok` while snapshots are being made.
    pub status: String,
    /// When the newest one was.
    pub taken_at: Timestamp,
}

type Shared = Arc<Feed>;
type Answer<T> = Result<Json<T>, ApiError>;

pub(crate) fn router(served: Served) -> Router {
    let routes = table().into_iter().fold(Router::new(), |router, (path, route)| {
        router.route(path, route.fallback(|method: Method, uri: Uri| async { ApiError::MethodNotAllowed(method, uri) }))
    });
    routes.fallback(|uri: Uri| async { ApiError::NotFound(uri) }).with_state(served)
}

/// For whoever may read metrics and nothing else.
pub(crate) fn metrics_router(served: Served) -> Router {
    let not_found = |uri: Uri| async { ApiError::NotFound(uri) };
    Router::new().route(paths::METRICS, get(metrics_page)).fallback(not_found).with_state(served)
}

fn table() -> Vec<(&'static str, MethodRouter<Served>)> {
    vec![
        (paths::SNAPSHOT, get(snapshot)),
        (paths::TASKS, get(tasks)),
        (paths::GPUS, get(gpus)),
        (paths::ENDED, get(ended)),
        (paths::SOURCES, get(sources)),
        (paths::HOLDS, get(control::holds)),
        (paths::HOLD, post(control::hold)),
        (paths::RELEASE, post(control::release)),
        (paths::POLICY, get(control::policy).post(control::set_policy)),
        (paths::EXPLAIN, get(control::explain)),
        (paths::DEADLINE, post(deadline::set_deadline)),
        (paths::DEADLINES, get(deadline::deadlines)),
        (paths::KERNEL_POLICY, post(kernels::set_policy)),
        (paths::SLO, post(kernels::set_slo)),
        (paths::SLOS, get(kernels::slos)),
        (paths::ADMIT, get(deadline::admit)),
        (paths::HISTORY, get(history::history)),
        (paths::FEEDBACK, get(watch::mood).post(watch::feedback)),
        (paths::FINDINGS, get(watch::findings)),
        (paths::SERIES, get(watch::series)),
        (paths::REPORT, get(report)),
        (paths::PASTS, get(deadline::pasts)),
        (paths::EVENTS, get(follow)),
        (paths::VERSION, get(version)),
        (paths::HEALTH, get(health)),
        (paths::OPENAPI, get(openapi)),
        (paths::METRICS, get(metrics_page)),
    ]
}

fn latest(feed: &Feed) -> Result<Arc<Snapshot>, ApiError> {
    feed.latest().ok_or(ApiError::NotReady)
}

async fn snapshot(State(feed): State<Shared>) -> Answer<Snapshot> {
    Ok(Json(latest(&feed)?.as_ref().clone()))
}

async fn tasks(State(feed): State<Shared>) -> Answer<Vec<TaskRow>> {
    Ok(Json(latest(&feed)?.tasks.clone()))
}

async fn gpus(State(feed): State<Shared>) -> Answer<Vec<GpuView>> {
    Ok(Json(latest(&feed)?.gpus.clone()))
}

async fn ended(State(feed): State<Shared>) -> Answer<Vec<Arc<EndedTask>>> {
    Ok(Json(latest(&feed)?.ended.clone()))
}

async fn sources(State(feed): State<Shared>) -> Answer<Vec<SourceView>> {
    Ok(Json(latest(&feed)?.sources.clone()))
}

async fn report(State(served): State<Served>) -> Answer<Report> {
    Ok(Json(served.control.report(latest(&served.feed)?.as_ref())))
}

async fn follow(
    State(feed): State<Shared>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let Query(query) =
        query.map_err(|error| ApiError::BadRequest { path: paths::EVENTS.to_owned(), reason: error.body_text() })?;
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    Ok(events::stream(&feed, &query, last_seen))
}

async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), api: "v1".to_owned() })
}

async fn health(State(feed): State<Shared>) -> Answer<Health> {
    if let Some(age) = feed.age().filter(|age| *age > STALLED_AFTER) {
        return Err(ApiError::Stalled { age });
    }
    Ok(Json(Health { status: "ok".to_owned(), taken_at: latest(&feed)?.taken_at }))
}

async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], OPENAPI)
}

/// OpenMetrics for those who ask for it, Prometheus' own text format for the rest.
async fn metrics_page(State(served): State<Served>, headers: HeaderMap) -> Result<impl IntoResponse, ApiError> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = metrics::Format::for_accept(accept);
    let (usage, reports) = (Usage::of_this_process(), served.control.reports());
    let page = metrics::page(latest(&served.feed)?, usage, reports, format)?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(format.content_type()))], page))
}

#[cfg(test)]
pub(crate) mod samples;

#[cfg(test)]
mod tests;
