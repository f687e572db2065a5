//! Evict and clean up from the page, where the dashboard allows it.
//!
//! A page of another server can make a browser send requests here, with the cookies of this server.
//! So a change needs all of this: the browser says that the request comes from this page
//! (`Origin`, `Sec-Fetch-Site`), its body is JSON, and it has a token that only this page can read,
//! made for the cookie that this browser got with the page.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use membership_core::{CleanupPolicy, MembershipTable, SiloAddress, SiloStatus};
use ring::hmac;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json as object};

use super::super::answer::{Problem, json};
use super::super::query::Query;
use super::super::token::hex;
use super::Page;
use super::source::{Source, wall};
use crate::admin::{Admin, ChangeError, TokioRuntime};
use crate::words::{ago, count};

const COOKIE_NAME: &str = "membership-page";
const TOKEN: HeaderName = HeaderName::from_static("membership-token");
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Silos never remove a row within two minutes of its death either.
const YOUNGEST: Duration = Duration::from_secs(120);

/// Who may change what, and on whose behalf.
pub(super) struct Changes {
    key: hmac::Key,
    /// Who is written into the table: `user@host`.
    by: String,
    tables: Vec<Arc<dyn MembershipTable>>,
}

impl Changes {
    /// None if the system gives no random numbers: then nothing can be changed.
    pub(super) fn new(by: String, tables: Vec<Arc<dyn MembershipTable>>) -> Option<Self> {
        let key = random()?;
        Some(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            by,
            tables,
        })
    }

    fn token_of(&self, session: &str) -> String {
        hex(hmac::sign(&self.key, session.as_bytes()).as_ref())
    }

    /// For a browser that has none yet: the cookie to which its token is bound.
    pub(super) fn cookie(&self, headers: &HeaderMap, secure: bool) -> Option<HeaderValue> {
        if session(headers).is_some() {
            return None;
        }
        let (value, secure) = (hex(&random()?), if secure { "; Secure" } else { "" });
        let text = format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::from_str(&text).ok()
    }

    /// The token of the browser that asks, if it has the cookie.
    pub(super) fn token(&self, headers: &HeaderMap) -> Option<String> {
        session(headers).map(|session| self.token_of(session))
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(&HOST).unwrap_or_default();
        let origin = text(&ORIGIN).unwrap_or_default();
        let from = origin.split_once("://").map(|(_, authority)| authority);
        if host.is_empty() || !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
            return Err(Problem::forbidden(
                "this does not come from the page of this server (Origin), so nothing was done",
            ));
        }
        if text(&SITE).is_some_and(|site| site != "same-origin") {
            return Err(Problem::forbidden(
                "this does not come from the page of this server (Sec-Fetch-Site), so nothing was done",
            ));
        }
        if text(&CONTENT_TYPE) != Some("application/json") {
            return Err(Problem::forbidden(
                "send JSON (application/json); nothing was done",
            ));
        }
        let (shown, session) = (text(&TOKEN), session(headers));
        let is_right = shown.zip(session).is_some_and(|(shown, session)| {
            // Codes of both are compared, so that the time tells nothing.
            let expected = self.token_of(session);
            let tag = hmac::sign(&self.key, shown.as_bytes());
            hmac::verify(&self.key, expected.as_bytes(), tag.as_ref()).is_ok()
        });
        match is_right {
            true => Ok(()),
            false => Err(Problem::forbidden(
                "the token of this page is missing or of another session: load the page again; nothing was done",
            )),
        }
    }

    fn table(&self, source: &Source) -> Result<&dyn MembershipTable, Problem> {
        let mut found = self.tables.iter();
        let found = found.find(|table| *table.cluster() == source.cluster);
        found.map(AsRef::as_ref).ok_or_else(super::no_cluster)
    }
}

fn random() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

/// The cookie of this browser.
fn session(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter();
    let mut pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(name, value)| *name == COOKIE_NAME && value.len() == 64)
        .map(|(_, value)| value)
}

fn parsed<T: for<'a> Deserialize<'a>>(body: &Bytes, wanted: &str) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|_| Problem::bad_request(format!("send {wanted}; nothing was done")))
}

/// How a change ended, as an answer: it happened, it did not, or it may have happened.
fn outcome(status: StatusCode, outcome: &str, message: String, more: Value) -> Response {
    let mut value = object!({"outcome": outcome, "message": message});
    if let (Some(fields), Value::Object(more)) = (value.as_object_mut(), more) {
        fields.extend(more);
    }
    let mut response = json(&value);
    *response.status_mut() = status;
    response
}

fn failed<E: std::fmt::Display>(error: &ChangeError<E>) -> Response {
    let text = error.to_string();
    let (status, word, text) = match error {
        ChangeError::Refused(_) => (StatusCode::CONFLICT, "refused", text),
        ChangeError::MayHaveHappened(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            "may_have_happened",
            format!(
                "It may have happened, or may yet happen: look at the table before you try again. {text}"
            ),
        ),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not_done",
            format!("It was not done. {text}"),
        ),
    };
    outcome(status, word, text, Value::Null)
}

impl Page {
    /// What a request asks for, if whoever sends it may change something.
    fn asked<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        fields: &str,
    ) -> Result<(&Changes, T), Problem> {
        let changes = self.changes.as_ref().ok_or_else(Problem::read_only)?;
        changes.check(headers)?;
        Ok((changes, parsed(body, fields)?))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evict {
    cluster: String,
    silo: String,
    reason: String,
}

/// `POST /act/evict`: declares a silo dead without a vote.
pub(super) async fn evict(
    State(page): State<Arc<Page>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let (changes, asked) = page.asked::<Evict>(&headers, &body, "cluster, silo and reason")?;
    let source = page.source_of(Some(&asked.cluster))?;
    let silo: SiloAddress = asked
        .silo
        .parse()
        .map_err(|_| Problem::bad_request("give the silo as ip:port@epoch; nothing was done"))?;
    if asked.reason.trim().is_empty() || asked.reason.chars().count() > 500 {
        let text = "the reason must have 1 to 500 characters; nothing was done";
        return Err(Problem::bad_request(text));
    }
    let mut runtime = TokioRuntime;
    let mut admin = Admin::new(changes.table(source)?, &mut runtime);
    let done = admin.evict(silo, &changes.by, &asked.reason, wall()).await;
    source.again.notify_one();
    Ok(match done {
        Ok(Some(version)) => outcome(
            StatusCode::OK,
            "done",
            format!("{silo} is Dead (evicted) as of version {version}"),
            object!({ "version": version }),
        ),
        Ok(None) => {
            let text = format!("{silo} is already Dead");
            outcome(StatusCode::OK, "nothing_to_do", text, Value::Null)
        }
        Err(error) => failed(&error),
    })
}

/// What an eviction does, for the confirmation; none for a silo that is Dead.
pub(super) fn warning(source: &Source, silo: &SiloAddress) -> Option<String> {
    let picture = source.picture()?;
    let entry = picture.snapshot.rows.get(silo)?;
    if entry.status == SiloStatus::Dead {
        return None;
    }
    let beat = picture.heartbeats.as_ref()?.silos.get(silo);
    let period = picture.settings().i_am_alive_period;
    let fresh = beat.filter(|beat| picture.now.since(beat.at) < period * 2);
    let alive = match fresh {
        Some(beat) => format!(
            " It wrote a heartbeat {}: it is alive, and will stop.",
            ago(beat.at, picture.now)
        ),
        None => String::new(),
    };
    Some(format!(
        "This evicts {silo}, which is {}, for good: it stops as soon as it learns of that, and its epoch never comes back.{alive}",
        entry.status
    ))
}

fn policy(older_than: Option<Duration>, keep: Option<u64>) -> Result<CleanupPolicy, Problem> {
    let older_than = older_than.unwrap_or(Duration::from_secs(7 * 86_400));
    if older_than < YOUNGEST {
        return Err(Problem::bad_request(
            "older_than must be at least 2min: some silos may not have seen a younger death yet",
        ));
    }
    let keep = usize::try_from(keep.unwrap_or(25)).unwrap_or(usize::MAX);
    Ok(CleanupPolicy::new(wall(), older_than, keep))
}

/// `GET /api/v1/cleanup`: what a cleanup would remove now.
pub(super) async fn defunct(State(page): State<Arc<Page>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["cluster", "older_than", "keep"])?;
    let source = page.source(&query)?;
    let policy = policy(query.duration("older_than")?, query.number("keep")?)?;
    let picture = source.picture().ok_or_else(super::not_read)?;
    let keys = policy.defunct(&picture.snapshot);
    Ok(json(
        &object!({ "version": picture.snapshot.version(), "rows": keys }),
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cleanup {
    cluster: String,
    older_than_seconds: Option<u64>,
    keep: Option<u64>,
}

/// `POST /act/cleanup`: removes rows of silos that are long dead.
pub(super) async fn cleanup(
    State(page): State<Arc<Page>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let fields = "cluster, older_than_seconds and keep";
    let (changes, asked) = page.asked::<Cleanup>(&headers, &body, fields)?;
    let source = page.source_of(Some(&asked.cluster))?;
    let policy = policy(
        asked.older_than_seconds.map(Duration::from_secs),
        asked.keep,
    )?;
    let mut runtime = TokioRuntime;
    let mut admin = Admin::new(changes.table(source)?, &mut runtime);
    let done = admin.cleanup(&policy).await;
    source.again.notify_one();
    Ok(match done {
        Ok(rows) => {
            let text = format!("{} removed", count(rows.len(), "row"));
            outcome(StatusCode::OK, "done", text, object!({ "rows": rows }))
        }
        Err(error) => failed(&error),
    })
}
