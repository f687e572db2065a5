//! Who owns a key, what happened, and why a silo is dead: answers from one view.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use membership_core::{ClusterView, FencingToken, MembershipEntry, SiloAddress, SiloStatus};
use serde_json::json as object;

use super::Site;
use super::answer::{Problem, json};
use super::model::member;
use super::query::{self, Query};
use crate::history;

/// `/api/v1/owner?key=`: by the confirmed view, whose token fences the writes of the owner.
pub(super) async fn owner(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["key", "role", "zone"])?;
    let Some(key) = query.get("key") else {
        return Err(Problem::bad_request("give the key: ?key=customer/42"));
    };
    site.check_running()?;
    let (role, zone) = (query.get("role"), query.get("zone"));
    let may_own = |silo: &MembershipEntry| {
        role.is_none_or(|role| silo.info.role == role)
            && zone.is_none_or(|zone| silo.info.zone == zone)
    };
    let view = site.observed.confirmed_view();
    let owner = view.owner_among(key, may_own);
    let token = FencingToken {
        table_id: view.table_id(),
        version: view.version(),
    };
    Ok(json(&object!({
        "key": key,
        "owner": owner.map(|silo| silo.address),
        "member": owner.map(member),
        "fencing_token": token,
    })))
}

/// `/api/v1/history?since=`.
pub(super) async fn history(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["since"])?;
    let now = site.observed.now().wall;
    let since = query.time("since", now)?.unwrap_or_default();
    site.check_running()?;
    let view = site.observed.view();
    let mut events = history::events(view.snapshot());
    events.retain(|event| event.at >= since);
    let mut commits = history::commits(view.snapshot());
    commits.retain(|commit| commit.at >= since);
    Ok(json(&object!({
        "version": view.version(),
        "events": events,
        "commits": commits,
    })))
}

/// `/api/v1/why/{silo}`: by full address, by `ip:port` (the latest there), or by name; a dead one
/// first, because the question is why it died.
pub(super) async fn why(
    State(site): State<Arc<Site>>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    Query::of(&uri, &[])?;
    let text = query::named(path)?;
    site.check_running()?;
    let view = site.observed.view();
    let found = named(&view, &text);
    let dead = found.iter().rfind(|e| e.status == SiloStatus::Dead);
    let Some(entry) = dead.or(found.last()) else {
        return Err(Problem::not_found(
            "there is no such silo in the view: give ip:port@epoch, ip:port or a name, as /api/v1/view has them",
        ));
    };
    let others: Vec<SiloAddress> = found
        .iter()
        .map(|other| other.address)
        .filter(|other| *other != entry.address)
        .collect();
    let member = member(entry);
    Ok(json(&object!({
        "silo": entry.address,
        "status": entry.status,
        "cause": member["cause"],
        "death": entry.death,
        "votes": entry.suspicions,
        "member": member,
        "others": others,
    })))
}

/// Every silo that `text` can mean, the latest start last.
pub(super) fn named<'a>(view: &'a ClusterView, text: &str) -> Vec<&'a MembershipEntry> {
    if let Ok(silo) = text.parse::<SiloAddress>() {
        return view.get(&silo).into_iter().collect();
    }
    if let Ok(endpoint) = text.parse::<SocketAddr>() {
        return view.snapshot().rows.at_endpoint(endpoint).collect();
    }
    let mut named: Vec<_> = view
        .members()
        .filter(|e| e.info.silo_name == text)
        .collect();
    named.sort_by_key(|e| (e.address.epoch(), e.address));
    named
}
