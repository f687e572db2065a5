//! The page at `/`: a cluster at a glance, of a silo or of a table without any silo.
//!
//! The HTML is complete without a script. With one it is live: the script waits for
//! `/api/v1/status?wait=REVISION`, and shows everything as text. Script and style are in the
//! binary; the page asks no other server for anything.

mod act;
mod asking;
mod dashboard;
mod follow;
mod html;
mod panels;
mod picture;
mod reader;
mod source;
mod timeline;
mod words;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use membership_core::protocol::successors;
use membership_core::{MembershipEntry, SiloAddress, SiloStatus};
use serde_json::{Value, json as object};

pub use self::dashboard::Dashboard;

use self::picture::Picture;
use self::source::Source;
use super::answer::{Problem, json, typed};
use super::query::{Query, named};
use super::room::Places;
use super::{Exporter, lookups, model};
use crate::silo::Observed;

/// Without `timeout`.
const USUAL: Duration = Duration::from_secs(30);
/// Longer ones end here.
const LONGEST: Duration = Duration::from_secs(300);
/// The default of `num_probed_silos`; each silo may have another one, which the table does not tell.
const RINGS: u32 = 10;
/// Above this number of silos, it takes too long to find out who probes one.
const MANY: usize = 1_000;
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the handlers of the page share.
pub(super) struct Page {
    /// At least one; the first is shown if none is asked for.
    sources: Vec<Arc<Source>>,
    /// The silo, if it is the page of one.
    live: Option<(Observed, Option<Exporter>)>,
    waits: Places,
    changes: Option<act::Changes>,
    /// Whether clients speak TLS.
    secure: bool,
}

impl Page {
    /// The page of a silo. Needs a tokio runtime, on which a task follows the silo.
    pub(super) fn of_silo(
        observed: &Observed,
        exporter: Option<Exporter>,
        waits: Places,
    ) -> Arc<Self> {
        Arc::new(Self {
            sources: vec![follow::start(observed)],
            live: Some((observed.clone(), exporter)),
            waits,
            changes: None,
            secure: false,
        })
    }

    pub(super) fn routes(self: Arc<Self>) -> Router {
        let mut routes = Router::new();
        if self.changes.is_some() {
            routes = routes
                .route("/act/evict", post(act::evict))
                .route("/act/cleanup", post(act::cleanup))
                .route("/api/v1/cleanup", get(act::defunct));
        }
        routes
            .route("/", get(page))
            .route("/silo/{silo}", get(about_page))
            .route("/page/page.css", get(style))
            .route("/page/icon.svg", get(icon))
            .route("/page/{script}", get(script))
            .route("/api/v1/status", get(status))
            .route("/api/v1/about/{silo}", get(about))
            .with_state(self)
    }

    fn source(&self, query: &Query) -> Result<&Arc<Source>, Problem> {
        self.source_of(query.get("cluster"))
    }

    fn source_of(&self, cluster: Option<&str>) -> Result<&Arc<Source>, Problem> {
        let mut sources = self.sources.iter();
        let is_it = |source: &&Arc<Source>| {
            cluster.is_none_or(|cluster| source.cluster.to_string() == cluster)
        };
        sources.find(is_it).ok_or_else(no_cluster)
    }

    /// What is not of one source.
    fn rest(&self, headers: &HeaderMap) -> Vec<(&'static str, Value)> {
        let clusters: Vec<String> = self.sources.iter().map(|s| s.cluster.to_string()).collect();
        let token = self
            .changes
            .as_ref()
            .and_then(|changes| changes.token(headers));
        vec![
            ("clusters", object!(clusters)),
            ("may_change", object!(self.changes.is_some())),
            ("change_token", object!(token)),
        ]
    }
}

fn no_cluster() -> Problem {
    Problem::not_found(
        "this server does not show such a cluster: /api/v1/status lists those it shows",
    )
}

fn html(text: String) -> Response {
    let mut response = typed("text/html; charset=utf-8", text.into());
    let policy = HeaderValue::from_static(POLICY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// `/`.
async fn page(
    State(page): State<Arc<Page>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["cluster"])?;
    let source = page.source(&query)?;
    page.measure(source);
    let mut response = html(html::page(&page, source));
    let changes = page.changes.as_ref();
    if let Some(cookie) = changes.and_then(|changes| changes.cookie(&headers, page.secure)) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `/silo/{silo}`.
async fn about_page(
    State(page): State<Arc<Page>>,
    silo: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let (source, picture, entry) = found(&page, &uri, &named(silo)?)?;
    Ok(html(html::about(source, &entry, &picture)))
}

async fn style() -> Response {
    typed("text/css; charset=utf-8", include_str!("page.css").into())
}

async fn icon() -> Response {
    typed("image/svg+xml", include_str!("icon.svg").into())
}

async fn script(name: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let text = match named(name)?.as_str() {
        "page.js" => include_str!("page.js"),
        "rows.js" => include_str!("rows.js"),
        "panels.js" => include_str!("panels.js"),
        "change.js" => include_str!("change.js"),
        "dialogs.js" => include_str!("dialogs.js"),
        "words.js" => include_str!("words.js"),
        _ => return Err(Problem::not_found("there is no such script")),
    };
    Ok(typed("text/javascript; charset=utf-8", text.into()))
}

/// `/api/v1/status`: the state at once, or with `wait` when there is a later one. `have` is the
/// digest of the rows that the client has, which are left out then.
async fn status(
    State(page): State<Arc<Page>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["cluster", "wait", "timeout", "have"])?;
    let source = page.source(&query)?;
    let timeout = query.duration("timeout")?.unwrap_or(USUAL).min(LONGEST);
    if let Some(known) = query.number("wait")? {
        let _place = page.waits.take()?;
        source.later_than(known, timeout).await;
    }
    page.measure(source);
    Ok(source.document(query.get("have"), &page.rest(&headers)))
}

/// `/api/v1/about/{silo}`: what its row tells, in sentences, and its neighbours on the hash rings.
async fn about(
    State(page): State<Arc<Page>>,
    silo: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let (source, picture, entry) = found(&page, &uri, &named(silo)?)?;
    let (entry, silo) = (&entry, entry.address);
    let changes = page.changes.as_ref();
    let eviction = changes.and_then(|_| act::warning(source, &silo));
    let (headline, lines) = words::explain(entry, &picture);
    let (probes, probed_by) = neighbours(&picture, &silo);
    Ok(json(&object!({
        "silo": silo,
        "status": entry.status,
        "headline": headline,
        "lines": lines,
        "rings": RINGS,
        "probes": probes,
        "probed_by": probed_by,
        "member": model::member(entry),
        "eviction": eviction,
    })))
}

fn not_read() -> Problem {
    Problem::not_found("the table has not been read yet: /api/v1/status says why")
}

fn no_silo() -> Problem {
    Problem::not_found(
        "there is no such silo: give ip:port@epoch, ip:port or a name, as /api/v1/status has them",
    )
}

/// The silo that a path names, in the cluster that the query names. A dead one first, because the
/// question is why it died.
fn found<'a>(
    page: &'a Page,
    uri: &Uri,
    text: &str,
) -> Result<(&'a Source, Picture, MembershipEntry), Problem> {
    let query = Query::of(uri, &["cluster"])?;
    let source: &Source = page.source(&query)?;
    let picture = source.picture().ok_or_else(not_read)?;
    let view = picture.view();
    let all = lookups::named(&view, text);
    let dead = all.iter().rfind(|e| e.status == SiloStatus::Dead);
    let entry = dead.or(all.last()).map(|e| (*e).clone());
    Ok((source, picture, entry.ok_or_else(no_silo)?))
}

/// Whom a silo probes by ring order, and who probes it; none if it is not Active. The second is
/// none for a very large cluster.
fn neighbours(
    picture: &Picture,
    silo: &SiloAddress,
) -> (Vec<SiloAddress>, Option<Vec<SiloAddress>>) {
    let view = picture.view();
    let active: Vec<SiloAddress> = view.active().map(|entry| entry.address).collect();
    if !active.contains(silo) {
        return (Vec::new(), Some(Vec::new()));
    }
    let probes = successors(silo, &active, RINGS);
    let probed_by = (active.len() <= MANY).then(|| {
        let others = active.iter().filter(|other| *other != silo);
        others
            .filter(|other| successors(other, &active, RINGS).contains(silo))
            .copied()
            .collect()
    });
    (probes, probed_by)
}

impl Page {
    /// Takes what a silo has measured.
    fn measure(&self, source: &Source) {
        if let Some((observed, exporter)) = &self.live {
            follow::measure(source, observed, exporter.as_ref());
        }
    }
}
