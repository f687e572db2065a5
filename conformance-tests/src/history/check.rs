//! Whether one table can have given all these answers.
//!
//! The versions order everything, so no search is needed: put every commit at its version, compute the state after each, and hold every
//! answer against the states and against the time it was given in. Costs O(n log n) for n operations.

use std::collections::BTreeMap;
use std::fmt;

use membership_core::{
    ChangedKeys, CommitId, CommitOutcome, CommitRequest, Conflict, NextStep, ReadAnswer, RowChange,
    SiloAddress, Snapshot, TableError, VersionRow,
};

use super::record::{Answer, Asked, Event, History};
use crate::Clause;

/// One answer that no table can have given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The clause it breaks.
    pub clause: Clause,
    /// Which answer, and why not.
    pub what: String,
    /// The version it is about, where it is about one; see [`History::around`].
    pub version: Option<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.clause, self.what)
    }
}

/// What a checked history was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Versions.
    pub commits: u64,
    /// Answered reads.
    pub reads: u64,
    /// Conflicts.
    pub conflicts: u64,
    /// Commits whose outcome was never told.
    pub open: u64,
    /// Versions of which nobody can say who made them, because only commits of unknown outcome can have.
    pub ambiguous: u64,
}

/// Checks a history that ends with a read of the whole table.
///
/// # Errors
/// Every violation, at most 50.
pub fn check(history: &History) -> Result<Checked, Vec<Violation>> {
    let mut checker = Checker {
        history,
        violations: Vec::new(),
        operations: BTreeMap::new(),
        chain: Vec::new(),
        states: Vec::new(),
    };
    checker.gather();
    checker.order();
    let ambiguous = checker.states();
    let mut checked = checker.sweep();
    checked.ambiguous = ambiguous;
    if checker.violations.is_empty() {
        Ok(checked)
    } else {
        Err(checker.violations)
    }
}

/// One commit id: everything that was sent and said under it.
struct Op<'a> {
    request: &'a CommitRequest,
    began: u64,
    committed: bool,
    conflict: bool,
    open: bool,
}

struct Checker<'a> {
    history: &'a History,
    violations: Vec<Violation>,
    operations: BTreeMap<CommitId, Op<'a>>,
    /// The commit that made each version from 1 on, where that is known.
    chain: Vec<Option<CommitId>>,
    /// The table after each version from 0 on, where that is known.
    states: Vec<Option<Snapshot>>,
}

fn index(version: u64) -> usize {
    usize::try_from(version).unwrap_or(usize::MAX)
}

impl<'a> Checker<'a> {
    fn broken(&mut self, clause: Clause, what: impl Into<String>) {
        self.broken_at(None, clause, what);
    }

    fn broken_at(
        &mut self,
        version: impl Into<Option<u64>>,
        clause: Clause,
        what: impl Into<String>,
    ) {
        if self.violations.len() < 50 {
            self.violations.push(Violation {
                clause,
                what: what.into(),
                version: version.into(),
            });
        }
    }

    /// Where the history begins in the chain: what was before is not its business.
    fn first(&self) -> usize {
        index(self.history.start.version()).min(self.chain.len())
    }

    /// Every commit under its id.
    fn gather(&mut self) {
        let history = self.history;
        for event in &history.events {
            let error: Option<&TableError> = match &event.answer {
                Answer::Commit(answer) => answer.as_ref().err(),
                Answer::Read(answer) => answer.as_ref().err(),
                Answer::Beat(answer) => answer.as_ref().err(),
            };
            if let Some(e) = error.filter(|e| e.next_step() == NextStep::GiveUp) {
                self.broken(Clause::T4, format!("an error that nobody provoked: {e}"));
            }
            let (Asked::Commit(request), Answer::Commit(answer)) = (&event.asked, &event.answer)
            else {
                continue;
            };
            let op = self.operations.entry(request.id).or_insert(Op {
                request,
                began: event.began,
                committed: false,
                conflict: false,
                open: false,
            });
            op.began = op.began.min(event.began);
            match answer {
                Ok(CommitOutcome::Committed(token)) => {
                    op.committed = true;
                    let due = (
                        request.expected.table_id(),
                        request.next_version(),
                        request.id,
                    );
                    if (token.table_id(), token.version(), token.commit()) != due {
                        self.broken(
                            Clause::T1,
                            format!(
                                "commit {} of version {} was given {token:?}",
                                request.id,
                                request.next_version()
                            ),
                        );
                    }
                }
                Ok(CommitOutcome::Conflict(_)) => op.conflict = true,
                Err(e) => op.open |= e.next_step() == NextStep::FindOut,
            }
        }
    }

    /// Who made which version.
    fn order(&mut self) {
        let history = self.history;
        let shown = history
            .events
            .iter()
            .filter_map(Event::shown)
            .map(|(s, _)| s.version())
            .max();
        let told = self
            .operations
            .values()
            .filter(|op| op.committed)
            .map(|op| op.request.next_version())
            .max();
        let last = shown.max(told).unwrap_or(0);
        if told > shown {
            self.broken(
                Clause::T2,
                format!("version {told:?} was acknowledged, but the table ends at {shown:?}"),
            );
        }
        self.chain = vec![None; index(last)];
        let mut claims: Vec<(u64, CommitId, &str)> = Vec::new();
        claims.extend(
            self.operations
                .values()
                .filter(|op| op.committed)
                .map(|op| (op.request.next_version(), op.request.id, "acknowledged")),
        );
        for (snapshot, _) in history.events.iter().filter_map(Event::shown) {
            claims.extend(
                snapshot
                    .version_row
                    .recent
                    .iter()
                    .map(|r| (r.version, r.id, "shown")),
            );
        }
        for (version, id, how) in claims {
            let Some(slot) = index(version)
                .checked_sub(1)
                .and_then(|n| self.chain.get_mut(n))
            else {
                continue;
            };
            match *slot {
                None => *slot = Some(id),
                Some(other) if other == id => {}
                Some(other) => self.broken_at(
                    version,
                    Clause::T1,
                    format!("version {version} was made by {other}, and {id} is {how} too"),
                ),
            }
        }
        self.fill_gaps();
        for n in self.first()..self.chain.len() {
            let (version, Some(id)) = (n as u64 + 1, self.chain[n]) else {
                continue;
            };
            match self.operations.get(&id) {
                None => self.broken_at(
                    version,
                    Clause::T1,
                    format!("version {version} was made by {id}, which nobody sent"),
                ),
                Some(op) if op.request.next_version() != version => {
                    let based = op.request.expected.version();
                    self.broken_at(
                        version,
                        Clause::T3,
                        format!("version {version} was made by a commit based on version {based}"),
                    );
                }
                Some(op) if op.conflict => {
                    self.broken_at(
                        version,
                        Clause::T5,
                        format!(
                            "commit {id} made version {version} and was answered with a conflict"
                        ),
                    );
                }
                Some(op) if !op.committed && !op.open => {
                    self.broken_at(
                        version,
                        Clause::T5,
                        format!("commit {id} made version {version} and was said to have certainly not happened"),
                    );
                }
                Some(_) => {}
            }
        }
    }

    /// A version that no read shows can only have been made by a commit of unknown outcome.
    fn fill_gaps(&mut self) {
        let mut open: BTreeMap<u64, Vec<CommitId>> = BTreeMap::new();
        for op in self
            .operations
            .values()
            .filter(|op| op.open && !op.committed && !op.conflict)
        {
            open.entry(op.request.next_version())
                .or_default()
                .push(op.request.id);
        }
        for n in self.first()..self.chain.len() {
            if self.chain[n].is_none() {
                match open.get(&(n as u64 + 1)).map(Vec::as_slice) {
                    None | Some([]) => self.broken_at(
                        n as u64 + 1,
                        Clause::T1,
                        format!("nobody made version {}", n + 1),
                    ),
                    Some([one]) => self.chain[n] = Some(*one),
                    Some(_) => {}
                }
            }
        }
    }

    /// The table after each version; gives the number of versions whose maker is not known.
    fn states(&mut self) -> u64 {
        let history = self.history;
        let mut seen: BTreeMap<u64, &Snapshot> = BTreeMap::new();
        for (snapshot, _) in history.events.iter().filter_map(Event::shown) {
            seen.entry(snapshot.version()).or_insert(snapshot);
        }
        let mut ambiguous = 0;
        self.states = vec![None; self.first()];
        self.states.push(Some(history.start.clone()));
        for n in self.first()..self.chain.len() {
            let version = n as u64 + 1;
            let op = self.chain[n].and_then(|id| self.operations.get(&id));
            let state = match (&self.states[n], op) {
                (Some(base), Some(op)) => {
                    let request = op.request;
                    if let Some(change) = request.changes.iter().find(|c| !fits(base, c)) {
                        let what = format!(
                            "version {version} holds {change:?}, which its base does not allow"
                        );
                        self.broken_at(version, Clause::T3, what);
                    }
                    self.states[n]
                        .as_ref()
                        .map(|base| request.apply_to(base, request.next_token(&[])))
                }
                // Begin anew from what was read there.
                _ => {
                    ambiguous += u64::from(self.chain[n].is_none());
                    seen.get(&version).map(|s| Snapshot::clone(s))
                }
            };
            self.states.push(state);
        }
        ambiguous
    }

    /// Every answer against the states and the time it was given in.
    fn sweep(&mut self) -> Checked {
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
                    // Sent again it may be told much later; what counts is when it was sent first.
                    && self.operations.get(&request.id).is_some_and(|op| op.began == event.began) =>
                {
                    let what = format!(
                        "a commit made version {} when version {} had been shown already",
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
                        "the heartbeat {} of {silo} is shown, and nobody had written it",
                        beat.counter
                    ),
                );
            }
        }
    }

    /// What is shown must be a state of the table that can have been reached by then.
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
                format!("version {version} is shown before anybody began to make it"),
            );
        }
    }

    /// A conflict is explained by a commit that began before the answer, or by the rows.
    fn conflict(&mut self, event: &Event, request: &CommitRequest, conflict: &Conflict) {
        if let Some(snapshot) = &conflict.snapshot {
            self.shows(event, snapshot);
        }
        let next = self.chain.get(index(request.expected.version())).copied();
        let explained = match next {
            // Somebody of unknown outcome was there.
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
                "commit {} on version {} conflicts with nobody",
                request.id,
                request.expected.version()
            );
            self.broken_at(request.next_version(), Clause::T4, what);
        }
    }
}

/// What was known for certain by a moment.
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

fn fits(base: &Snapshot, change: &RowChange) -> bool {
    matches!(change, RowChange::Insert(_)) != base.rows.by_key(change.key()).is_some()
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
