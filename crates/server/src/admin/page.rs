//! HTTP responses with JSON or plain text.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// Returns a response with a JSON value, indented for readers.
pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{value:#}\n")).into_response()
}

/// Returns a response with plain text.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}
