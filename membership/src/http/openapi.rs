//! `/api/v1/openapi.json`: this interface for programs. A test compares it with the answers.

use axum::response::Response;
use bytes::Bytes;

use super::answer::json_bytes;

/// OpenAPI 3.1.
const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response {
    json_bytes(Bytes::from_static(DOCUMENT.as_bytes()))
}
