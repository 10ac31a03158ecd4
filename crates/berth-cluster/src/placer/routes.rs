//! The placer over HTTP on a Unix socket: what `berth nodes`, `berth place` and `berth run --cluster` ask.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use berth_model::cluster::PlacementId;
use berth_model::cluster::api::PlaceRequest;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::{NotPlaced, Placer};

/// Paths, for whoever asks.
pub mod paths {
    pub const NODES: &str = "/v1/nodes";
    pub const PLACE: &str = "/v1/place";
    pub const RESERVATIONS: &str = "/v1/reservations";
    pub const HEALTH: &str = "/v1/health";
    pub const METRICS: &str = "/metrics";
}

/// Of a question: thousands of constraints.
const MOST_BYTES: usize = 1 << 20;
/// What is too long is read to its end and forgotten as it comes, up to here: who is hung up on in the middle reads no answer.
const MOST_IGNORED: usize = 1 << 30;

/// Why a question is not read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("the question is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("the question does not arrive")]
    Cut(#[source] axum::Error),
    #[error("the question cannot be read: {0}")]
    Words(serde_json::Error),
    #[error("the question cannot be read: {}", .0.body_text())]
    Query(QueryRejection),
}

/// Answers until it is dropped; places that are kept for those who are connected are then the engine's to tell of.
pub async fn serve(listener: UnixListener, placer: Arc<Placer>) -> std::io::Result<()> {
    axum::serve(listener, router(placer)).await
}

pub(super) fn router(placer: Arc<Placer>) -> Router {
    Router::new()
        .route(paths::NODES, get(nodes))
        .route(paths::PLACE, post(place))
        .route(paths::RESERVATIONS, post(reserve))
        .route(&format!("{}/{{id}}", paths::RESERVATIONS), delete(release))
        .route(paths::HEALTH, get(health))
        .route(paths::METRICS, get(metrics))
        .with_state(placer)
}

/// A question may stand in the query: `?deadline=9s&memory_bytes=1024`.
async fn nodes(State(placer): State<Arc<Placer>>, question: Result<Query<PlaceRequest>, QueryRejection>) -> Response {
    match question {
        Ok(question) => answer(placer.nodes(&question)),
        Err(why) => Unread::Query(why).into_response(),
    }
}

async fn place(State(placer): State<Arc<Placer>>, body: Body) -> Response {
    match read(body).await {
        Ok(request) => answer(placer.place(&request)),
        Err(why) => why.into_response(),
    }
}

/// The answer is one line of JSON; after it the connection stays open for as long as the place is to be kept.
async fn reserve(State(placer): State<Arc<Placer>>, body: Body) -> Response {
    let request = match read(body).await {
        Ok(request) => request,
        Err(why) => return why.into_response(),
    };
    let result = placer.reserve(&request).await;
    placer.counters.reserved(result.is_ok());
    let (kept, reserved) = match result {
        Ok(reserved) => reserved,
        Err(why) => return why.into_response(),
    };
    let line = format!("{}\n", json!(reserved));
    let body = stream::once(async { Ok::<_, Infallible>(line) }).chain(stream::pending());
    // Dropped with the body, when whoever asked hangs up.
    let body = body.map(move |line| {
        let _kept = &kept;
        line
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

/// Whoever has it is sure that nothing was made of it.
async fn release(State(placer): State<Arc<Placer>>, Path(id): Path<PlacementId>) -> StatusCode {
    placer.book().release(id);
    StatusCode::NO_CONTENT
}

async fn health(State(placer): State<Arc<Placer>>) -> Response {
    let why_idle = placer.why_idle();
    Json(json!({ "status": "ok", "is_acting": why_idle.is_none(), "why_idle": why_idle })).into_response()
}

async fn metrics(State(placer): State<Arc<Placer>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], placer.metrics()).into_response()
}

async fn read(body: Body) -> Result<PlaceRequest, Unread> {
    let (mut chunks, mut text, mut length) = (body.into_data_stream(), Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(Unread::Cut)?;
        length = length.saturating_add(chunk.len());
        if length > MOST_IGNORED {
            break;
        }
        if length <= MOST_BYTES {
            text.extend_from_slice(&chunk);
        }
    }
    if length > MOST_BYTES {
        return Err(Unread::TooLong);
    }
    serde_json::from_slice(&text).map_err(Unread::Words)
}

fn told(code: &str, message: &str) -> Json<Value> {
    Json(json!({ "error": { "code": code, "message": message } }))
}

fn answer<T: serde::Serialize>(result: Result<T, NotPlaced>) -> Response {
    result.map_or_else(IntoResponse::into_response, |answer| Json(answer).into_response())
}

impl IntoResponse for Unread {
    fn into_response(self) -> Response {
        let (status, code) = match self {
            Unread::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "too_long"),
            Unread::Cut(_) | Unread::Words(_) | Unread::Query(_) => (StatusCode::BAD_REQUEST, "bad_request"),
        };
        (status, told(code, &self.to_string())).into_response()
    }
}

impl IntoResponse for NotPlaced {
    fn into_response(self) -> Response {
        let message = self.to_string();
        match self {
            NotPlaced::Constraint(_) => (StatusCode::BAD_REQUEST, told("bad_request", &message)).into_response(),
            NotPlaced::Nobody(answer) => (StatusCode::CONFLICT, Json(answer)).into_response(),
            NotPlaced::NotActing { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, told("not_acting", &message)).into_response()
            }
        }
    }
}
