//! What is remembered, over HTTP. Reading it means reading files, which is done beside the other answers and one at a time:
//! clients in a hurry wait for each other, and not the others for them.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as FromQuery, State};
use berth_model::history::{MOST_TOLD, Query, Told, USUAL_LIMIT};
use jiff::Timestamp;
use serde::Deserialize;

use super::paths;
use crate::control::Served;
use crate::error::ApiError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    tenant: Option<String>,
    since: Option<Timestamp>,
    limit: Option<usize>,
}

pub(crate) async fn history(
    State(served): State<Served>,
    query: Result<FromQuery<HistoryQuery>, QueryRejection>,
) -> Result<Json<Told>, ApiError> {
    let bad = |reason: String| ApiError::BadRequest { path: paths::HISTORY.to_owned(), reason };
    let FromQuery(HistoryQuery { tenant, since, limit }) = query.map_err(|error| bad(error.body_text()))?;
    let limit = limit.unwrap_or(USUAL_LIMIT);
    if !(1..=MOST_TOLD).contains(&limit) {
        return Err(bad(format!("`limit` is {limit}: it must be from 1 to {MOST_TOLD}")));
    }
    let query = Query { whom: tenant, since, limit };
    let _turn = served.reading.lock().await;
    let control = Arc::clone(&served.control);
    let told = tokio::task::spawn_blocking(move || control.history(&query)).await.map_err(|_| ApiError::Stopping)?;
    told.map(Json).map_err(|reason| ApiError::NoHistory { reason })
}
