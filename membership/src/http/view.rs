//! `/api/v1/view`: the newest view, at once or when there is a newer one.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use membership_core::ClusterView;

use super::answer::{Problem, json_bytes};
use super::query::Query;
use super::{MAX_WAITS, Site};

/// Without `timeout`.
const USUAL: Duration = Duration::from_secs(30);
/// Longer ones end here.
const LONGEST: Duration = Duration::from_secs(300);

impl Site {
    /// A silo that has ended knows nothing new: its last view would be taken for the newest.
    pub(super) fn check_running(&self) -> Result<(), Problem> {
        match self.observed.ended() {
            Some(end) => Err(Problem::stopped(end)),
            None => Ok(()),
        }
    }
}

pub(super) async fn view(
    State(site): State<Arc<Site>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["wait", "timeout"])?;
    let timeout = query.duration("timeout")?.unwrap_or(USUAL).min(LONGEST);
    let newest = match query.number("wait")? {
        Some(known) => newer_than(&site, known, timeout).await?,
        None => site.observed.view(),
    };
    site.check_running()?;
    // The digest is for a view that was announced and withdrawn: the same version has another one.
    let tag = format!("\"{}-{:016x}\"", newest.version(), newest.short_digest());
    let has = |value: &HeaderValue| {
        let names = value.to_str().unwrap_or_default().split(',').map(str::trim);
        let mut names = names.map(|name| name.strip_prefix("W/").unwrap_or(name));
        names.any(|name| name == tag || name == "*")
    };
    let mut response = if headers.get_all(IF_NONE_MATCH).iter().any(has) {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        json_bytes(site.journal.whole(&newest))
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

/// The first view that is newer than this version; the newest one when the time is over or the silo
/// has ended.
async fn newer_than(site: &Site, known: u64, timeout: Duration) -> Result<ClusterView, Problem> {
    let Ok(_permit) = site.waits.try_acquire() else {
        return Err(Problem::too_many("waiting requests", MAX_WAITS));
    };
    let mut views = site.observed.views();
    let newer = async {
        loop {
            match views.next().await {
                Some(view) if view.version() > known => return Some(view),
                Some(_) => {}
                None => return None,
            }
        }
    };
    let found = tokio::time::timeout(timeout, newer).await.ok().flatten();
    Ok(found.unwrap_or_else(|| site.observed.view()))
}
