//! Errors as clients get them: a status, a code for programs, a message for people.

use std::time::Duration;

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use berth_model::control::Refusal;
use serde::{Deserialize, Serialize};

/// The body of every answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Stable: `not_found`, `method_not_allowed`, `bad_request`, `not_ready`, `stalled`, `stopping`,
    /// `too_many_connections`, `no_history`, `internal`; and those of [`Refusal::code`].
    pub code: String,
    pub message: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("there is nothing at {0}: GET /v1/openapi.json lists what there is")]
    NotFound(Uri),
    #[error("{0} {1} is not offered: GET /v1/openapi.json lists what is")]
    MethodNotAllowed(Method, Uri),
    #[error("{path}: {reason}")]
    BadRequest { path: String, reason: String },
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the kernel does not say who is asking")]
    Stranger,
    #[error("the daemon is stopping")]
    Stopping,
    #[error("the daemon answered something else than it was asked")]
    Unexpected,
    #[error("no look at the host has been finished yet: try again in a moment")]
    NotReady,
    #[error("the last look at the host was {} s ago: the daemon no longer watches, restart it", age.as_secs())]
    Stalled { age: Duration },
    #[error("{most} clients are connected, and no more are answered at a time: end some, or try again")]
    Full { most: usize },
    #[error("the history cannot be read: {reason}")]
    NoHistory { reason: String },
    #[error("writing the metrics page: {0}")]
    Metrics(#[from] std::fmt::Error),
}

impl ApiError {
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            ApiError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            ApiError::MethodNotAllowed(..) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            ApiError::BadRequest { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
            ApiError::Refused(refusal) => (status_of(refusal), refusal.code()),
            ApiError::Stranger => (StatusCode::FORBIDDEN, "forbidden"),
            ApiError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            ApiError::Unexpected => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            ApiError::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            ApiError::Stalled { .. } => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
            ApiError::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_connections"),
            ApiError::NoHistory { .. } => (StatusCode::SERVICE_UNAVAILABLE, "no_history"),
            ApiError::Metrics(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NoSuchTenant { .. } | Refusal::NoSuchGpu { .. } => StatusCode::NOT_FOUND,
        Refusal::NotYours { .. }
        | Refusal::DecidedByAnother { .. }
        | Refusal::PolicyDecides { .. }
        | Refusal::AdminsOnly => StatusCode::FORBIDDEN,
        Refusal::Ambiguous { .. } | Refusal::PausedByOthers { .. } => StatusCode::CONFLICT,
        Refusal::NotOffered { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::NoHolds { .. } | Refusal::NotKept { .. } | Refusal::SlosNotKept { .. } | Refusal::NoKernels { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Refusal::NotWritten { .. } => StatusCode::INSUFFICIENT_STORAGE,
        Refusal::SaidTooOften { .. } => StatusCode::TOO_MANY_REQUESTS,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        let error = ErrorDetail { code: code.to_owned(), message: self.to_string() };
        (status, Json(ErrorBody { error })).into_response()
    }
}
