//! Who may ask, by the name in the request and by a token; and what every answer says to browsers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::answer::Problem;
use super::login::{self, Sessions};
use super::token::Token;

pub(super) struct Guard {
    names: Vec<String>,
    token: Option<Token>,
    pub(super) sessions: Sessions,
    /// Whether clients speak TLS.
    pub(super) secure: bool,
}

impl Guard {
    pub(super) fn new(names: Vec<String>, token: Option<Token>, secure: bool) -> Self {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase());
        Self {
            names: names.collect(),
            token,
            sessions: Sessions::new(),
            secure,
        }
    }

    pub(super) const fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) const fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// A page of somebody else reaches a loopback address by a name that leads there; it cannot make a
    /// browser name an IP address, nor `localhost`.
    pub(super) fn check_host(&self, request: &Request) -> Result<(), Problem> {
        let line = request.uri().authority().map(|a| a.as_str());
        let mut named = request.headers().get_all(HOST).iter();
        let header = named.next().map(HeaderValue::to_str);
        let header = match (header, named.next()) {
            (Some(Ok(host)), None) => Some(host),
            (None, None) => None,
            _ => return Err(Problem::bad_request("send one Host header")),
        };
        let hosts: Vec<&str> = line.into_iter().chain(header).collect();
        if hosts.is_empty() {
            return Err(Problem::bad_request("send a Host header"));
        }
        let stranger = hosts.into_iter().find(|host| !self.allows(host));
        match stranger {
            None => Ok(()),
            Some(host) => {
                let host: String = host.chars().take(80).collect();
                Err(Problem::host(format!(
                    "this server is not known as `{host}`: ask it by its IP address, or allow the name (--http-name)"
                )))
            }
        }
    }

    fn allows(&self, host: &str) -> bool {
        let name = without_port(host);
        let inner = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
        let name = name.to_ascii_lowercase();
        inner.unwrap_or(&name).parse::<IpAddr>().is_ok()
            || name == "localhost"
            || self.names.contains(&name)
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let mut bearers = headers.get_all(AUTHORIZATION).iter().filter_map(bearer);
        if bearers.any(|shown| token.accepts(shown)) {
            return Ok(());
        }
        let cookies = headers.get_all(COOKIE).iter();
        let mut sessions = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| name.starts_with(login::COOKIE));
        if sessions.any(|(_, session)| self.sessions.accepts(session, token)) {
            return Ok(());
        }
        Err(Problem::unauthorized())
    }
}

/// What a client showed that may ask: a stream ends when it is no longer enough.
#[derive(Clone)]
pub(super) struct Shown {
    guard: Arc<Guard>,
    headers: HeaderMap,
}

impl Shown {
    fn of(guard: Arc<Guard>, all: &HeaderMap) -> Self {
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, COOKIE] {
            for value in all.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        Self { guard, headers }
    }

    /// Whether its token is still one of the file, and its session has not ended.
    pub(super) fn is_enough(&self) -> bool {
        self.guard.check_token(&self.headers).is_ok()
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Refuses whoever may not ask.
pub(super) async fn check(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let checked = guard.check_host(&request);
    match checked.and_then(|()| guard.check_token(request.headers())) {
        Ok(()) => {
            if guard.needs_token() {
                let shown = Shown::of(guard, request.headers());
                request.extensions_mut().insert(shown);
            }
            next.run(request).await
        }
        // A person in front of a browser.
        Err(problem) if problem.is_unauthorized() && request.uri().path() == "/" => {
            Redirect::to("/login").into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What an answer says to a browser, unless it says something else itself.
pub(super) async fn headers(mut response: Response) -> Response {
    for (name, value) in [
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_allowed_names_are_known() {
        let guard = Guard::new(vec!["Silo.example".into()], None, false);
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "10.0.0.1:9700",
            "[::1]:9700",
            "[::1]",
            "LOCALHOST:1",
            "silo.example:9700",
        ] {
            assert!(guard.allows(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9700",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "silo.example.evil",
            "[evil]:1",
            "localhost:9700@evil.example",
            "127.0.0.1:evil",
            "a:b:c",
        ] {
            assert!(!guard.allows(host), "{host}");
        }
    }
}
