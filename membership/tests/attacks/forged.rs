//! Views that the table never had, as a member could send them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use membership::protocol::{Header, Message};
use membership::transport::Encoder;
use membership::{
    CauseOfDeath, ChangedKeys, ClusterView, CommitId, CommitRecord, CommitRequest, Death, Delta,
    Evidence, InstanceId, MembershipEntry, RECENT_COMMITS, Row, SiloAddress, SiloStatus, Suspicion,
    SuspicionReason, VersionRow,
};

/// An id that no commit has had.
fn fresh_id() -> CommitId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let next = LAST.fetch_add(1, Ordering::Relaxed);
    CommitId::new((0xbad << 100) + u128::from(next))
}

pub fn message(delta: Delta) -> Message {
    Message::Delta(Box::new(delta))
}

/// The delta to the version that a commit of these rows would make.
pub fn next(
    view: &ClusterView,
    by: SiloAddress,
    updates: Vec<MembershipEntry>,
    removes: Vec<String>,
) -> Message {
    let (token, id) = (view.token().clone(), fresh_id());
    let commit = CommitRequest::new(token, id, Some(by), [], updates, removes);
    made_by(view, &commit)
}

/// The delta that a commit would make.
pub fn made_by(view: &ClusterView, commit: &CommitRequest) -> Message {
    let next = commit.apply_to(view.snapshot(), commit.next_token(&[]));
    let next = ClusterView::new(next);
    message(next.delta_since(view.version()).unwrap())
}

/// The next version, in which one silo has a note that it never wrote.
pub fn next_with_a_note(view: &ClusterView, by: SiloAddress, about: SiloAddress) -> Message {
    let mut entry = view.get(&about).unwrap().clone();
    let note = fresh_id().to_string();
    entry.info.metadata.insert("note".to_owned(), note);
    next(view, by, vec![entry], vec![])
}

/// Versions each of which follows the one before and could follow this one; the table has none of
/// them.
pub fn chain(
    view: &ClusterView,
    by: SiloAddress,
    about: SiloAddress,
) -> impl Iterator<Item = Message> {
    let next = move |last: &ClusterView| {
        let mut entry = last.get(&about).unwrap().clone();
        let note = fresh_id().to_string();
        entry.info.metadata.insert("note".to_owned(), note);
        let (token, id) = (last.token().clone(), fresh_id());
        let commit = CommitRequest::new(token, id, Some(by), [], [entry], []);
        let snapshot = commit.apply_to(last.snapshot(), commit.next_token(&[]));
        Some(ClusterView::new(snapshot))
    };
    let first = next(view);
    std::iter::successors(first, next).map(|view| message(Delta::whole(&view)))
}

/// The next version after a commit that the table never had.
pub fn after_another_commit(view: &ClusterView, by: SiloAddress) -> Message {
    let mut row = VersionRow::clone(&view.snapshot().version_row);
    row.recent.last_mut().unwrap().id = fresh_id();
    row.version += 1;
    row.recent.push(record(row.version, by));
    if row.recent.len() > RECENT_COMMITS {
        row.recent.remove(0);
    }
    same_rows(view, row)
}

/// A version some commits later, with the same rows.
pub fn at_version(view: &ClusterView, by: SiloAddress, version: u64) -> Message {
    let mut row = VersionRow::clone(&view.snapshot().version_row);
    row.version = version;
    let first = version - RECENT_COMMITS as u64 + 1;
    row.recent = (first..=version).map(|v| record(v, by)).collect();
    same_rows(view, row)
}

fn record(version: u64, by: SiloAddress) -> CommitRecord {
    CommitRecord::new(version, fresh_id(), Some(by), ChangedKeys::Keys(Vec::new()))
}

fn same_rows(view: &ClusterView, row: VersionRow) -> Message {
    let (from, token, digest) = (Some(view.version()), row.token(&[]), view.digest());
    message(Delta::new(from, row, token, digest, vec![], vec![]))
}

/// All rows of a table that went another way some commits ago: only a row shows it.
pub fn of_another_path(view: &ClusterView, by: SiloAddress, changed: SiloAddress) -> Message {
    let Message::Delta(mut delta) = at_version(view, by, view.version() + 20) else {
        unreachable!("a delta")
    };
    let mut rows = view.snapshot().rows.clone();
    let mut entry = rows.get(&changed).unwrap().clone();
    let note = "of another path".to_owned();
    entry.info.metadata.insert("note".to_owned(), note);
    rows.insert(Row::encode(entry));
    (delta.from, delta.digest) = (None, rows.digest());
    delta.rows = rows.iter().cloned().collect();
    Message::Delta(delta)
}

/// A silo's row with another status.
pub fn with_status(view: &ClusterView, silo: SiloAddress, status: SiloStatus) -> MembershipEntry {
    let mut entry = view.get(&silo).unwrap().clone();
    entry.status = status;
    entry
}

/// A silo's row that says how it died.
pub fn dead(view: &ClusterView, silo: SiloAddress, cause: CauseOfDeath) -> MembershipEntry {
    let mut entry = with_status(view, silo, SiloStatus::Dead);
    let version = view.version() + 1;
    entry.death = Some(Death::new(cause, entry.start_time, None, version));
    entry
}

/// A silo's row that says that all others voted against it.
pub fn voted_out(view: &ClusterView, silo: SiloAddress) -> MembershipEntry {
    let mut entry = dead(view, silo, CauseOfDeath::Voted);
    let others = view.active().map(|e| e.address).filter(|s| *s != silo);
    let vote = |accuser| {
        let evidence = Evidence::missed(3, 250);
        Suspicion::new(accuser, entry.start_time, SuspicionReason::Silent, evidence)
    };
    entry.suspicions = others.map(vote).collect();
    entry
}

/// The delta to the next version, with rows of any text, as the body of a message. Only their
/// hashes are computed here: whoever decodes them pays for it.
pub fn next_with_rows(view: &ClusterView, by: SiloAddress, rows: &[(String, String)]) -> Bytes {
    let mut row = VersionRow::clone(&view.snapshot().version_row);
    row.version += 1;
    row.row_count += rows.len() as u64;
    let mut last = record(row.version, by);
    last.changed = ChangedKeys::Count(rows.len() as u64);
    row.recent.push(last);
    let digest = rows.iter().fold(view.digest(), |sum, (key, body)| {
        sum.wrapping_add(Row::decode(key.as_str(), body.as_str()).hash())
    });
    let (from, token) = (Some(view.version()), row.token(&[]));
    let delta = Delta::new(from, row, token, digest, vec![], vec![]);
    let header = Header::new(0, by, InstanceId::new(0));
    let encoded = Encoder::default().encode(&header, &Arc::new(message(delta)));
    // The rows and the removed keys are its last two fields: two empty lists.
    let mut body = encoded.unwrap().body().to_vec();
    assert!(body.ends_with(&[0, 0]));
    body.truncate(body.len() - 2);
    body.extend(postcard::to_stdvec(rows).unwrap());
    body.push(0);
    body.into()
}
