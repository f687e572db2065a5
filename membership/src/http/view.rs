//! `/api/v1/view`: the newest view, at once or when there is a newer one.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::{Stream, StreamExt as _};
use membership_core::ClusterView;

use super::Site;
use super::answer::{Problem, json_shared};
use super::query::Query;

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
        json_shared(site.journal.whole(&newest))
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

/// The first view that is newer than this version, or that takes the place of one of this silo's which
/// was withdrawn; the newest one when the time is over or the silo has ended.
async fn newer_than(site: &Site, known: u64, timeout: Duration) -> Result<ClusterView, Problem> {
    let _place = site.room.waits.take()?;
    let newer = first_newer(site.observed.views(), known);
    let found = tokio::time::timeout(timeout, newer).await.ok().flatten();
    Ok(found.unwrap_or_else(|| site.observed.view()))
}

async fn first_newer(
    mut views: impl Stream<Item = ClusterView> + Unpin,
    known: u64,
) -> Option<ClusterView> {
    let mut last: Option<ClusterView> = None;
    loop {
        let view = views.next().await?;
        let replaces = |last: &ClusterView| view.version() <= last.version() && view != *last;
        if view.version() > known || last.as_ref().is_some_and(replaces) {
            return Some(view);
        }
        last = Some(view);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::stream::{iter, pending};
    use membership_core::{Rows, SharedSettings, Snapshot, TableId, VersionRow};

    use super::*;

    fn view(version: u64) -> ClusterView {
        let mut row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        row.version = version;
        ClusterView::new(Snapshot::new(row.token(&[]), row, Rows::new()))
    }

    #[test]
    fn whoever_knows_a_withdrawn_view_is_told_what_stands_in_its_place() {
        let first = |versions: &[u64]| {
            let views: Vec<ClusterView> = versions.iter().copied().map(view).collect();
            let found = first_newer(iter(views).chain(pending()), 14).now_or_never();
            found.flatten().map(|view| view.version())
        };
        assert_eq!(first(&[12, 13, 14]), None);
        assert_eq!(first(&[14, 14]), None);
        assert_eq!(first(&[14, 13]), Some(13));
        assert_eq!(first(&[13, 15]), Some(15));
    }
}
