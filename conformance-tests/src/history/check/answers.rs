//! Compares every answer with the states of the table, and with the time in which it was given.

use std::collections::BTreeMap;

use membership_core::{
    ChangedKeys, CommitOutcome, CommitRequest, Conflict, ReadAnswer, SiloAddress, Snapshot,
    VersionRow,
};

use super::super::record::{Answer, Asked, Event};
use super::chain::{Checker, fits, index};
use crate::Clause;

/// The figures of a checked history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Versions.
    pub commits: u64,
    /// Answered reads.
    pub reads: u64,
    /// Conflicts.
    pub conflicts: u64,
    /// Commits whose outcome stayed unknown.
    pub open: u64,
    /// Versions whose commit is not known, because several commits of unknown outcome can have made
    /// them.
    pub ambiguous: u64,
}
impl Checker<'_> {
    /// Compares every answer with the states, and with the time in which it was given.
    pub fn sweep(&mut self) -> Checked {
        let history = self.history;
        let mut began: Vec<&Event> = history.events.iter().collect();
        let mut ended = began.clone();
        began.sort_unstable_by_key(|e| e.began);
        ended.sort_unstable_by_key(|e| e.ended);
        let mut ended = ended.into_iter().peekable();
        let (mut all, mut own) = (Floor::default(), BTreeMap::<usize, Floor>::new());
        let beats: BTreeMap<(SiloAddress, u64), u64> = history
            .events
            .iter()
            .filter_map(|e| {
                if let Asked::Beat(silo, counter) = e.asked {
                    Some(((silo, counter), e.began))
                } else {
                    None
                }
            })
            .collect();
        let mut checked = Checked {
            commits: self.chain.len() as u64,
            ..Checked::default()
        };
        checked.open = self
            .operations
            .values()
            .filter(|op| op.open && !op.committed && !op.conflict)
            .count() as u64;
        for event in began {
            while let Some(before) = ended.next_if(|e| e.ended < event.began) {
                all.raise(before);
                own.entry(before.client).or_default().raise(before);
            }
            let mine = own.entry(event.client).or_default();
            match (&event.asked, &event.answer) {
                (Asked::Read(request), Answer::Read(Ok(answer))) => {
                    checked.reads += 1;
                    let floor = if history.linearizable || request.barrier {
                        &all
                    } else {
                        &*mine
                    };
                    self.read(event, answer, floor, &beats);
                }
                (Asked::Commit(request), Answer::Commit(Ok(CommitOutcome::Conflict(conflict)))) => {
                    checked.conflicts += 1;
                    self.conflict(event, request, conflict);
                }
                (Asked::Commit(request), Answer::Commit(Ok(CommitOutcome::Committed(_))))
                    if all.version >= request.next_version()
                    // A commit that is sent again may be answered much later; its first sending
                    // counts.
                    && self.operations.get(&request.id).is_some_and(|op| op.began == event.began) =>
                {
                    let what = format!(
                        "a commit made version {} after version {} was shown",
                        request.next_version(),
                        all.version
                    );
                    self.broken_at(request.next_version(), Clause::T1, what);
                }
                _ => {}
            }
        }
        checked
    }

    fn read(
        &mut self,
        event: &Event,
        answer: &ReadAnswer,
        floor: &Floor,
        beats: &BTreeMap<(SiloAddress, u64), u64>,
    ) {
        let (version, heartbeats) = match answer {
            ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            } => {
                self.shows(event, snapshot);
                (snapshot.version(), heartbeats.as_ref())
            }
            ReadAnswer::Unchanged { heartbeats } => match &event.asked {
                Asked::Read(request) => (
                    request.known.as_ref().map_or(0, |t| t.version()),
                    heartbeats.as_ref(),
                ),
                _ => return,
            },
            _ => return,
        };
        if version < floor.version {
            self.broken_at(
                version,
                Clause::T6,
                format!(
                    "a read shows version {version} when version {} was known",
                    floor.version
                ),
            );
        }
        for (silo, beat) in heartbeats.iter().flat_map(|h| &h.silos) {
            let low = floor.beats.get(silo).copied().unwrap_or(0);
            if beat.counter < low {
                self.broken(
                    Clause::T8,
                    format!(
                        "the heartbeat of {silo} fell from {low} to {}",
                        beat.counter
                    ),
                );
            }
            if beats
                .get(&(*silo, beat.counter))
                .is_none_or(|began| *began > event.ended)
            {
                self.broken(
                    Clause::T8,
                    format!(
                        "the heartbeat {} of {silo} is shown before it was written",
                        beat.counter
                    ),
                );
            }
        }
    }

    /// A shown snapshot must be a state of the table that existed by then.
    fn shows(&mut self, event: &Event, snapshot: &Snapshot) {
        let version = snapshot.version();
        if let Some(Some(state)) = self.states.get(index(version)) {
            let rows = state.rows.digest() == snapshot.rows.digest()
                && state.rows.len() == snapshot.rows.len();
            if !rows {
                let differ = differing(state, snapshot);
                self.broken_at(
                    version,
                    Clause::T6,
                    format!(
                        "version {version} is shown with rows that are not its own: {differ:?}"
                    ),
                );
            } else if !same_version_row(&state.version_row, &snapshot.version_row)
                || !state.token.same_commit(&snapshot.token)
            {
                let what = format!(
                    "version {version} is shown as {:?} {:?}",
                    snapshot.token, snapshot.version_row
                );
                self.broken_at(version, Clause::T6, what);
            }
        }
        let maker = index(version)
            .checked_sub(1)
            .and_then(|n| *self.chain.get(n)?)
            .and_then(|id| self.operations.get(&id));
        if maker.is_some_and(|op| op.began > event.ended) {
            self.broken_at(
                version,
                Clause::T6,
                format!("version {version} is shown before its commit began"),
            );
        }
    }

    /// A conflict needs a cause: a commit that began before the answer, or the rows.
    fn conflict(&mut self, event: &Event, request: &CommitRequest, conflict: &Conflict) {
        if let Some(snapshot) = &conflict.snapshot {
            self.shows(event, snapshot);
        }
        let next = self.chain.get(index(request.expected.version())).copied();
        let explained = match next {
            // A commit of unknown outcome made the version.
            Some(None) => true,
            Some(Some(id)) => {
                id != request.id
                    && self
                        .operations
                        .get(&id)
                        .is_some_and(|op| op.began < event.ended)
            }
            None => false,
        };
        let rows = || match self.states.get(index(request.expected.version())) {
            Some(Some(base)) => request.changes.iter().any(|c| !fits(base, c)),
            _ => true,
        };
        if !explained && !rows() {
            let what = format!(
                "commit {} on version {} conflicts without a cause",
                request.id,
                request.expected.version()
            );
            self.broken_at(request.next_version(), Clause::T4, what);
        }
    }
}

/// What was certain at one moment.
#[derive(Default)]
struct Floor {
    version: u64,
    beats: BTreeMap<SiloAddress, u64>,
}

impl Floor {
    fn raise(&mut self, event: &Event) {
        let version = match (&event.asked, &event.answer) {
            (Asked::Commit(request), Answer::Commit(Ok(CommitOutcome::Committed(_)))) => {
                request.next_version()
            }
            (Asked::Commit(_), Answer::Commit(Ok(CommitOutcome::Conflict(c)))) => {
                c.newest.as_ref().map_or(0, |r| r.version)
            }
            (Asked::Read(_), Answer::Read(Ok(ReadAnswer::Snapshot { snapshot, .. }))) => {
                snapshot.version()
            }
            _ => 0,
        };
        self.version = self.version.max(version);
        if let (Asked::Beat(silo, counter), Answer::Beat(Ok(()))) = (&event.asked, &event.answer) {
            self.beat(*silo, *counter);
        }
        if let Answer::Read(Ok(
            ReadAnswer::Snapshot { heartbeats, .. } | ReadAnswer::Unchanged { heartbeats },
        )) = &event.answer
        {
            for (silo, beat) in heartbeats.iter().flat_map(|h| &h.silos) {
                self.beat(*silo, beat.counter);
            }
        }
    }

    fn beat(&mut self, silo: SiloAddress, counter: u64) {
        let low = self.beats.entry(silo).or_default();
        *low = counter.max(*low);
    }
}
/// A store may list the keys of a commit or only count them.
fn same_version_row(a: &VersionRow, b: &VersionRow) -> bool {
    let bare = |row: &VersionRow| {
        let mut row = row.clone();
        for record in &mut row.recent {
            record.changed = ChangedKeys::Count(0);
        }
        row
    };
    bare(a) == bare(b)
}

fn differing<'s>(a: &'s Snapshot, b: &'s Snapshot) -> Vec<&'s str> {
    let missing = a.rows.iter().filter(|r| b.rows.by_key(r.key()) != Some(*r));
    let extra = b.rows.iter().filter(|r| a.rows.by_key(r.key()).is_none());
    missing.chain(extra).map(|r| r.key()).take(8).collect()
}
