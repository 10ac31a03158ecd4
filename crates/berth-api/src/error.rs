//! Errors as clients get them: a status, a code for programs, a message for people.

use std::time::Duration;

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// The body of every answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Stable: `not_found`, `method_not_allowed`, `bad_request`, `not_ready`, `stalled`,
    /// `too_many_connections`, `internal`.
    pub code: String,
    pub message: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("there is nothing at {0}: GET /v1/openapi.json lists what there is")]
    NotFound(Uri),
    #[error("{0} {1} is not offered: every path answers GET only")]
    MethodNotAllowed(Method, Uri),
    #[error("query of {path}: {reason}")]
    BadQuery { path: &'static str, reason: String },
    #[error("no look at the host has been finished yet: try again in a moment")]
    NotReady,
    #[error("the last look at the host was {} s ago: the daemon no longer watches, restart it", age.as_secs())]
    Stalled { age: Duration },
    #[error("{most} clients are connected, and no more are answered at a time: end some, or try again")]
    Full { most: usize },
    #[error("writing the metrics page: {0}")]
    Metrics(#[from] std::fmt::Error),
}

impl ApiError {
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            ApiError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            ApiError::MethodNotAllowed(..) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            ApiError::BadQuery { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
            ApiError::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            ApiError::Stalled { .. } => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
            ApiError::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_connections"),
            ApiError::Metrics(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        let error = ErrorDetail { code: code.to_owned(), message: self.to_string() };
        (status, Json(ErrorBody { error })).into_response()
    }
}
