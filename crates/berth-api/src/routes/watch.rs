//! Figures over time, what is noticed in them, and what owners say, over HTTP. Of a tenant only its owner and administrators are told
//! anything: who asks is the kernel's word, and whose a figure is was written down with it.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use berth_model::Span;
use berth_model::control::{Answer, FindingRow, Heard, MoodRow, WatchAsk, What};
use berth_model::watch::feedback::Feedback;
use berth_model::watch::series::{Metric, SeriesQuery, SeriesTold};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::control::{Body, Caller, bad, peer_of};
use super::paths;
use crate::control::Served;
use crate::error::ApiError;

/// How a tenant does, by its owner's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedbackRequest {
    /// Name, beginning of the container's id, cgroup path, user, or key.
    pub tenant: String,
    pub said: Feedback,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoodQuery {
    tenant: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindingsQuery {
    tenant: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FiguresQuery {
    tenant: Option<String>,
    metric: Option<Metric>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    step: Option<Span>,
}

pub(crate) async fn feedback(
    State(served): State<Served>,
    peer: Caller,
    Body(request): Body<FeedbackRequest>,
) -> Result<Json<Heard>, ApiError> {
    let FeedbackRequest { tenant, said } = request;
    match served.ask(peer_of(peer), What::Watch(WatchAsk::Feedback { tenant, said })).await? {
        Answer::Heard(heard) => Ok(Json(*heard)),
        _ => Err(ApiError::Unexpected),
    }
}

pub(crate) async fn mood(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<MoodQuery>, QueryRejection>,
) -> Result<Json<MoodRow>, ApiError> {
    let Query(MoodQuery { tenant }) = query.map_err(|error| bad(paths::FEEDBACK, &error.body_text()))?;
    match served.ask(peer_of(peer), What::Watch(WatchAsk::Mood { tenant })).await? {
        Answer::Mood(mood) => Ok(Json(*mood)),
        _ => Err(ApiError::Unexpected),
    }
}

pub(crate) async fn findings(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<FindingsQuery>, QueryRejection>,
) -> Result<Json<Vec<FindingRow>>, ApiError> {
    let Query(FindingsQuery { tenant }) = query.map_err(|error| bad(paths::FINDINGS, &error.body_text()))?;
    match served.ask(peer_of(peer), What::Watch(WatchAsk::Findings { tenant })).await? {
        Answer::Findings(rows) => Ok(Json(rows)),
        _ => Err(ApiError::Unexpected),
    }
}

/// Read from files, as the history is, and in turn with it.
pub(crate) async fn series(
    State(served): State<Served>,
    peer: Caller,
    query: Result<Query<FiguresQuery>, QueryRejection>,
) -> Result<Json<SeriesTold>, ApiError> {
    let Query(query) = query.map_err(|error| bad(paths::SERIES, &error.body_text()))?;
    let FiguresQuery { tenant, metric, since, until, step } = query;
    let step_ms = step.map(|step| u32::try_from(step.get().as_millis())).transpose();
    let query = SeriesQuery {
        whom: tenant,
        metric,
        from_ms: since.map(Timestamp::as_millisecond),
        until_ms: until.map(Timestamp::as_millisecond),
        step_ms: step_ms.map_err(|_| bad(paths::SERIES, "`step` is longer than 49 days"))?,
    };
    let caller = peer_of(peer).ok_or(ApiError::Stranger)?.caller();
    let _turn = served.reading.lock().await;
    let control = Arc::clone(&served.control);
    let told = tokio::task::spawn_blocking(move || control.series(&caller, &query));
    told.await.map_err(|_| ApiError::Stopping)?.map(Json).map_err(|reason| ApiError::NoHistory { reason })
}
