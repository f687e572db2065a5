//! `commit`: one entity group transaction on the ETag of the version row. Clauses T1 to T5.

use std::collections::BTreeSet;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, RowChange, Settled, Snapshot, TableError,
    TableErrorKind, VersionToken, encoding::LAYOUT,
};
use tokio::time::Instant;

use crate::STORE;
use crate::batch::{Action, Outcome, Properties, Step};
use crate::client::{Inner, LIMITS, Read};
use crate::codec::{self, Base, Version, no_version_row};
use crate::error::{error, no_etag};
use crate::keys::{self, HEARTBEAT, VERSION};

/// How often a commit is sent again within one call, after answers that were certainly no commits.
const COLLISIONS: usize = 8;

/// The judgement on a commit.
enum Judged {
    /// It is next, on this version row.
    Next(Base),
    /// This is its outcome.
    Outcome(Box<CommitOutcome>),
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let deadline = self.client.deadline();
        // The token has all that a commit needs, because the service compares the ETag. Without it
        // the version row is read first.
        let mut base = Base::of(&request.expected);
        let mut without_heartbeat = BTreeSet::new();
        let mut collisions = 0;
        while collisions < COLLISIONS {
            let on = match base.take() {
                Some(base) => base,
                None => match self.judge(request, deadline, None).await? {
                    Judged::Next(base) => base,
                    Judged::Outcome(outcome) => return Ok(*outcome),
                },
            };
            let rows = on.row_count.saturating_add_signed(request.added_rows());
            if let Err(full) = request.check_room(on.row_count, &LIMITS, STORE) {
                // That is certain only if the token is still the newest one.
                return match self.judge(request, deadline, None).await? {
                    Judged::Outcome(outcome) => Ok(*outcome),
                    Judged::Next(_) => Err(full),
                };
            }
            let steps = steps(request, &on, &without_heartbeat);
            let sent = self.client.transaction(deadline, &self.partition, &steps);
            match sent.await {
                Ok(Outcome::Done(etags)) => {
                    let etag = etags.last().cloned().flatten();
                    let next = etag.filter(|etag| codec::usable(etag)).map(|etag| Base {
                        etag,
                        row_count: rows,
                        layout: on.layout.max(LAYOUT),
                    });
                    let base = next.as_ref().map(Base::to_bytes);
                    let token = request.next_token(&base.unwrap_or_default());
                    self.committed(request, &token);
                    return Ok(CommitOutcome::Committed(token));
                }
                Ok(Outcome::Refused(refusal)) => {
                    let step = refusal.step.and_then(|step| steps.get(step));
                    let heartbeat = step.and_then(|step| step.row_key.strip_prefix(HEARTBEAT));
                    if let (404, Some(name)) = (refusal.status, heartbeat) {
                        // Somebody removed the heartbeat by hand, which must not keep the row. Each
                        // missing one is reported once.
                        collisions += usize::from(!without_heartbeat.insert(name.to_owned()));
                        base = Some(on);
                        continue;
                    }
                    collisions += 1;
                    let of_row = step.map_or(refusal.status != 412, |step| step.row_key != VERSION);
                    match self.judge(request, deadline, Some(of_row)).await? {
                        Judged::Outcome(outcome) => return Ok(*outcome),
                        Judged::Next(fresh) => base = Some(fresh),
                    }
                }
                Ok(Outcome::Unclear(why)) => {
                    return Err(error(TableErrorKind::OutcomeUnknown, why));
                }
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    let why = "the table that was known is gone";
                    return Err(error(TableErrorKind::TableReplaced, why));
                }
                Err(e) => return Err(e),
            }
        }
        let why = "the version row changed under every attempt";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Judges a commit that was not sent, or was certainly refused, by the current version row.
    /// `of_row`: whether a row was the reason, if that is known.
    async fn judge(
        &self,
        request: &CommitRequest,
        deadline: Instant,
        of_row: Option<bool>,
    ) -> Result<Judged, TableError> {
        let (version, snapshot) = match self.read_current(request, deadline).await {
            Ok(found) => found,
            Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                return Err(no_version_row(None, Some(&request.expected)));
            }
            Err(e) => return Err(e),
        };
        let row = &version.row;
        let conflict = || {
            Judged::Outcome(Box::new(CommitOutcome::Conflict(Conflict::new(
                row.recent.last().cloned(),
                snapshot,
            ))))
        };
        match request.settle(row, STORE)? {
            Settled::Apply if of_row == Some(true) => Ok(conflict()),
            Settled::Apply => version.base.map(Judged::Next).ok_or_else(no_etag),
            Settled::Committed => {
                let token = match row.version == request.next_version() {
                    true => version.token(),
                    false => request.next_token(&[]),
                };
                Ok(Judged::Outcome(Box::new(CommitOutcome::Committed(token))))
            }
            Settled::Conflict => Ok(conflict()),
        }
    }

    /// The current version row. If this handle has the version that the commit was made on, the
    /// changes since come with the same query: then the whole table, so that the loser of a
    /// conflict need not read it.
    async fn read_current(
        &self,
        request: &CommitRequest,
        deadline: Instant,
    ) -> Result<(Version, Option<Snapshot>), TableError> {
        let reader = self.reader(deadline, None, false);
        if let Some(base) = self.base(&request.expected)
            && let Some(read) = reader.since(&base.read).await?
        {
            self.remember(base.changed(read.clone()));
            let version = Version {
                row: (*read.snapshot.version_row).clone(),
                base: Base::of(&read.snapshot.token),
            };
            return Ok((version, Some(read.snapshot)));
        }
        Ok((reader.version_and_heartbeats().await?.0, None))
    }

    /// Brings the snapshot of this handle up to date after a commit.
    fn committed(&self, request: &CommitRequest, token: &VersionToken) {
        if let Some(cached) = self.cache.of(&request.expected) {
            let snapshot = request.apply_to(&cached.read.snapshot, token.clone());
            let read = Read {
                snapshot,
                ..cached.read.clone()
            };
            self.remember(cached.changed(read));
        }
    }
}

/// The operations of a commit. The version row comes last: a reader that sees half of a transaction
/// sees rows of a later version, which it can tell, and never a version without its rows.
fn steps(request: &CommitRequest, on: &Base, without_heartbeat: &BTreeSet<String>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(request.changes.len() * 2 + 1);
    let mut step = |row_key: String, action| steps.push(Step { row_key, action });
    let any = || "*".to_owned();
    for change in &request.changes {
        let row_key = keys::row_key(change.key());
        let heartbeat = keys::heartbeat(&row_key);
        match change {
            RowChange::Insert(row) => {
                step(row_key, Action::Insert(codec::row_properties(row)));
                // An orphan heartbeat stays: no commit moves one back (clause T8).
                step(heartbeat, Action::InsertOrMerge(Properties::new()));
            }
            RowChange::Update(row) => step(row_key, Action::Replace(codec::row_properties(row))),
            RowChange::Remove(_) => {
                let has_heartbeat = !without_heartbeat.contains(&row_key);
                step(row_key, Action::Delete(any()));
                if has_heartbeat {
                    step(heartbeat, Action::Delete(any()));
                }
            }
        }
    }
    let version = codec::commit_properties(request, on);
    step(VERSION.to_owned(), Action::Merge(version, on.etag.clone()));
    steps
}
