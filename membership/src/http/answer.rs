//! Answers: JSON, text, and errors that say what to do.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::kept::Parts;
use crate::words::misleads;

/// JSON that means nothing within HTML or to a terminal either: everything from the table is text of
/// others.
pub(super) fn text_of(value: &impl Serialize) -> Bytes {
    let text = serde_json::to_string(value).unwrap_or_default();
    // These occur within strings alone, where an escape means the same.
    let special = |c: char| matches!(c, '<' | '>' | '&') || misleads(c);
    if !text.contains(special) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if special(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe.into()
}

pub(super) fn json(value: &impl Serialize) -> Response {
    json_bytes(text_of(value))
}

pub(super) fn json_bytes(body: Bytes) -> Response {
    typed("application/json", body)
}

/// How many bytes of an answer are kept once for all who get it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared(pub(super) usize);

/// An answer that others get too.
pub(super) fn json_shared(body: Bytes) -> Response {
    let shared = Shared(body.len());
    let mut response = json_bytes(body);
    response.extensions_mut().insert(shared);
    response
}

/// An object with one more field, whose value others get too: it is not copied.
pub(super) fn json_with(object: &Bytes, name: &str, value: Bytes) -> Response {
    let shared = Shared(value.len());
    let open = object.slice(..object.len().saturating_sub(1));
    let name = format!(",\"{name}\":");
    let parts = [open, name.into(), value, Bytes::from_static(b"}")];
    let mut response = json_bytes(Bytes::new());
    *response.body_mut() = Body::new(Parts::from(parts));
    response.extensions_mut().insert(shared);
    response
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = typed("text/plain; charset=utf-8", text.into());
    *response.status_mut() = status;
    response
}

pub(super) fn typed(kind: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An answer that is an error: a word for programs, and a sentence that says what to do.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    word: &'static str,
    message: String,
}

impl Problem {
    fn new(status: StatusCode, word: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            word,
            message: message.into(),
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn read_only() -> Self {
        Self::forbidden(
            "everything here is read-only: start `membership dashboard --allow-changes`",
        )
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "everything here is read-only: send GET or HEAD";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            message,
        )
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "send a token of the server's token file as `Authorization: Bearer TOKEN`, or log in at /login",
        )
    }

    pub(super) fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    pub(super) fn host(message: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", message)
    }

    pub(super) fn joining() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "joining",
            "this silo is still joining: ask again, or ask another silo",
        )
    }

    pub(super) fn stopped(why: impl std::fmt::Display) -> Self {
        let message = format!("this silo has stopped ({why}): ask another one");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", message)
    }

    pub(super) fn too_many(what: &str, most: usize) -> Self {
        let message = format!("{most} {what} are open, which is the most: ask another silo");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many", message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json(&json!({"error": self.word, "message": self.message}));
        *response.status_mut() = self.status;
        let (name, value) = match self.status {
            StatusCode::UNAUTHORIZED => (WWW_AUTHENTICATE, "Bearer"),
            StatusCode::SERVICE_UNAVAILABLE => (RETRY_AFTER, "1"),
            StatusCode::METHOD_NOT_ALLOWED => (ALLOW, "GET, HEAD"),
            _ => return response,
        };
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup() {
        let hostile = "</script><script>alert(1)</script>&\u{2028}\"\n\u{7f}\u{9b}31m\u{202e}\u{200b}\u{e0001}";
        let text = text_of(&json!({ "name": hostile }));
        let text = std::str::from_utf8(&text).unwrap();
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert!(!text.contains(misleads), "{text}");
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(read["name"], hostile);
    }
}
