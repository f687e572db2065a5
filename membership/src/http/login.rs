//! A browser sends no bearer token: it logs in with one, and gets a cookie that holds 12 hours.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, HOST, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ring::hmac;

use super::answer::{Problem, typed};
use super::guard::Guard;
use super::token::{Token, hex};

/// How the name of the cookie begins; the port follows. A browser has one cookie of each name for all
/// ports of a host, and two servers must not take each other's.
pub(super) const COOKIE: &str = "membership-session";
/// 12 h, in seconds.
const LASTS: u64 = 12 * 3600;
/// A form with one token.
const LONGEST: usize = 4096;

/// Signs sessions. Those of another process, or of this one before its last start, have ended.
pub(super) struct Sessions(Option<hmac::Key>);

impl Sessions {
    pub(super) fn new() -> Self {
        let mut bytes = [0; 32];
        let key = getrandom::fill(&mut bytes).ok();
        Self(key.map(|()| hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    fn open(&self, token: &str) -> Option<String> {
        let said = format!("{}.{token}", seconds() + LASTS);
        let tag = hmac::sign(self.0.as_ref()?, said.as_bytes());
        Some(format!("{said}.{}", hex(tag.as_ref())))
    }

    /// Whether it is a session that has not ended, of a token that is still one.
    pub(super) fn accepts(&self, session: &str, token: &Token) -> bool {
        let parts = || {
            let (said, tag) = session.rsplit_once('.')?;
            let (ends, id) = said.split_once('.')?;
            let expected = hmac::sign(self.0.as_ref()?, said.as_bytes());
            // Compared by codes of both, so that the time tells nothing.
            let key = self.0.as_ref()?;
            let tag = hmac::sign(key, tag.as_bytes());
            hmac::verify(key, hex(expected.as_ref()).as_bytes(), tag.as_ref()).ok()?;
            Some((ends.parse::<u64>().ok()?, id))
        };
        parts().is_some_and(|(ends, id)| ends > seconds() && token.knows(id))
    }
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let port = host.and_then(|host| host.rsplit_once(':')?.1.parse::<u16>().ok());
    match port {
        Some(port) => format!("{COOKIE}-{port}"),
        None => COOKIE.to_owned(),
    }
}

fn page(status: StatusCode, note: &'static str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Log in</title>\
         <h1>Log in</h1><p>{note}</p><form method=\"post\" action=\"/login\">\
         <label>Token <input type=\"password\" name=\"token\" autocomplete=\"current-password\" required></label> \
         <button>Log in</button></form></html>"
    );
    let mut response = typed("text/html; charset=utf-8", html.into());
    *response.status_mut() = status;
    let policy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
    let policy = HeaderValue::from_static(policy);
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// `GET /login`.
pub(super) async fn form(State(guard): State<Arc<Guard>>, request: Request) -> Response {
    match guard.check_host(&request) {
        Ok(()) => page(
            StatusCode::OK,
            "Give a token of the file that the server was started with.",
        ),
        Err(problem) => problem.into_response(),
    }
}

/// `POST /login` with `token=…`.
pub(super) async fn submit(State(guard): State<Arc<Guard>>, request: Request) -> Response {
    if let Err(problem) = guard.check_host(&request) {
        return problem.into_response();
    }
    let name = cookie_name(request.headers());
    let Ok(body) = axum::body::to_bytes(request.into_body(), LONGEST).await else {
        return Problem::bad_request("send `token=…` as a form").into_response();
    };
    let mut pairs = form_urlencoded::parse(&body);
    let shown = pairs.find(|(name, _)| name == "token");
    let session = guard
        .token()
        .zip(shown)
        .and_then(|(token, (_, shown))| token.id(shown.trim()))
        .and_then(|id| guard.sessions.open(&id));
    let Some(session) = session else {
        return page(
            StatusCode::UNAUTHORIZED,
            "This is no token of the server's file.",
        );
    };
    let secure = if guard.secure { "; Secure" } else { "" };
    let cookie =
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={LASTS}{secure}");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}
