//! Writers that continue during any failure of the servers, each with one handle from beginning to
//! end, and the conditions on the table that they leave behind. Clauses T1, T3, T5, T16.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use membership_core::{
    CommitOutcome, MembershipTable, NextStep, ReadAnswer, ReadRequest, Snapshot, TableError,
    TableErrorKind, VersionToken,
};
use membership_redis::RedisTable;
use tokio::task::JoinSet;

use super::until;
use conformance_tests::helpers::*;

/// Before the failure, during it, and afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Before,
    Trouble,
    After,
    /// The writers end.
    Over,
}

struct Common {
    phase: AtomicU64,
    /// The next silo to insert.
    next: AtomicU64,
    /// How often a writer got the error that the table is not the one that it knew.
    told: AtomicU64,
    /// How many times each writer has committed in this phase.
    committed: Vec<AtomicU64>,
}

impl Common {
    fn phase(&self) -> Phase {
        [Phase::Before, Phase::Trouble, Phase::After, Phase::Over]
            [usize::try_from(self.phase.load(Ordering::SeqCst)).unwrap()]
    }
}

#[derive(Debug)]
enum Said {
    Committed(VersionToken),
    Unknown,
    /// A conflict, or an error with the same meaning.
    CertainlyNot,
}

/// A commit that inserts one row, sent once.
#[derive(Debug)]
struct Attempt {
    row: u64,
    began: Phase,
    ended: Phase,
    said: Said,
}

pub struct Load {
    common: Arc<Common>,
    writers: JoinSet<Vec<Attempt>>,
}

impl Load {
    /// Starts the writers on an empty table.
    pub fn start(tables: Vec<RedisTable>) -> Self {
        let common = Arc::new(Common {
            phase: AtomicU64::new(0),
            next: AtomicU64::new(0),
            told: AtomicU64::new(0),
            committed: tables.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        let mut writers = JoinSet::new();
        for (n, table) in tables.into_iter().enumerate() {
            writers.spawn(write(common.clone(), n, table));
        }
        Self { common, writers }
    }

    /// Waits until every writer has committed this many times since the phase began.
    pub async fn everybody_commits(&self, times: u64) {
        until("everybody commits", async || {
            self.common
                .committed
                .iter()
                .all(|n| n.load(Ordering::SeqCst) >= times)
        })
        .await;
    }

    pub fn enter(&self, phase: Phase) {
        self.common.phase.store(phase as u64, Ordering::SeqCst);
        for commits in &self.common.committed {
            commits.store(0, Ordering::SeqCst);
        }
    }

    /// Ends the writers. No other client may have written to the table, which is read through
    /// `table`.
    pub async fn end(mut self, table: &RedisTable) -> Ended {
        self.enter(Phase::Over);
        let mut attempts = Vec::new();
        while let Some(done) = self.writers.join_next().await {
            attempts.extend(done.unwrap());
        }
        let ended = Ended {
            attempts,
            told: self.common.told.load(Ordering::SeqCst),
            last: read(table).await.0,
        };
        ended.check();
        ended
    }
}

/// Reads and commits, again and again.
async fn write(common: Arc<Common>, me: usize, table: RedisTable) -> Vec<Attempt> {
    let (mut attempts, mut known) = (Vec::new(), None);
    while common.phase() != Phase::Over {
        let request = ReadRequest::all()
            .with_known(known.clone())
            .with_heartbeats(false);
        let token = match (table.read(&request).await, &known) {
            (Ok(ReadAnswer::Unchanged { .. }), Some(known)) => known.clone(),
            (Ok(ReadAnswer::Snapshot { snapshot, .. }), known) => {
                is_of_the_same_history(known.as_ref(), &snapshot);
                snapshot.token
            }
            (Ok(other), _) => panic!("{other:?} to a client that knows {known:?}"),
            (Err(e), _) => {
                if another_table(&common, &e) {
                    known = None;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
        };
        let row = common.next.fetch_add(1, Ordering::SeqCst);
        let began = common.phase();
        let answer = table.commit(&insert(&token, [row])).await;
        let ended = common.phase();
        known = Some(token);
        let said = match answer {
            Ok(CommitOutcome::Committed(token)) => {
                known = Some(token.clone());
                if began == ended {
                    common.committed[me].fetch_add(1, Ordering::SeqCst);
                }
                Said::Committed(token)
            }
            Err(e) if another_table(&common, &e) => {
                known = None;
                Said::CertainlyNot
            }
            Err(e) if e.next_step() == NextStep::FindOut => Said::Unknown,
            Ok(CommitOutcome::Conflict(_)) | Err(_) => Said::CertainlyNot,
            Ok(other) => panic!("{other:?}"),
        };
        attempts.push(Attempt {
            row,
            began,
            ended,
            said,
        });
    }
    attempts
}

/// True for the error that the table is not the one that was known; any other error must be
/// temporary.
fn another_table(common: &Common, e: &TableError) -> bool {
    let another = matches!(
        e.kind(),
        TableErrorKind::TableRolledBack | TableErrorKind::TableReplaced
    );
    assert!(another || e.next_step() != NextStep::GiveUp, "{e}");
    common.told.fetch_add(u64::from(another), Ordering::SeqCst);
    another
}

/// A table that went back in time is never taken for the known one, as far as its last sixteen
/// commits show.
fn is_of_the_same_history(known: Option<&VersionToken>, now: &Snapshot) {
    let Some(known) = known else { return };
    assert!(
        now.version() >= known.version(),
        "after {known:?} a read shows version {}",
        now.version()
    );
    if known.version() > 0 && now.version() < known.version() + 16 {
        let record = now.version_row.record(known.version());
        assert_eq!(
            record.map(|record| record.id),
            Some(known.commit()),
            "after {known:?} a read shows another history"
        );
    }
}

/// The result.
pub struct Ended {
    attempts: Vec<Attempt>,
    /// How often a writer got the error that the table is not the one that it knew.
    pub told: u64,
    pub last: Snapshot,
}

impl Ended {
    fn rows(&self) -> BTreeMap<u64, u64> {
        self.last
            .rows
            .entries()
            .map(|e| (e.address.epoch() - 1, e.written_at))
            .collect()
    }

    /// Rows and versions of acknowledged commits that are missing.
    pub fn lost(&self) -> Vec<u64> {
        self.lost_until(Phase::Over)
    }

    fn lost_until(&self, last: Phase) -> Vec<u64> {
        let rows = self.rows();
        let acknowledged = |a: &Attempt| match &a.said {
            Said::Committed(token) if !rows.contains_key(&a.row) => Some(token.version()),
            _ => None,
        };
        let attempts = self.attempts.iter().filter(|a| a.ended <= last);
        attempts.filter_map(acknowledged).collect()
    }

    fn check(&self) {
        let rows = self.rows();
        assert_eq!(
            rows.len() as u64,
            self.last.version(),
            "each version is one commit, and each commit one row"
        );
        let mut kept = 0;
        for attempt in &self.attempts {
            let there = rows.get(&attempt.row);
            match &attempt.said {
                Said::Committed(token) => {
                    assert!(
                        there.is_none_or(|version| *version == token.version()),
                        "{attempt:?} is there as version {there:?}"
                    );
                    assert!(
                        attempt.began < Phase::After || there.is_some(),
                        "committed by the successor, and lost: {attempt:?}"
                    );
                    if there.is_some() && attempt.ended == Phase::Before {
                        kept = kept.max(token.version());
                    }
                }
                Said::CertainlyNot => {
                    assert_eq!(there, None, "certainly not applied, and there: {attempt:?}")
                }
                Said::Unknown => {}
            }
        }
        let inserted = |row: &u64| self.attempts.iter().any(|a| a.row == *row);
        assert!(rows.keys().all(inserted), "a row that no writer inserted");
        // The lost commits are the last ones that the dead server acknowledged, without a gap.
        let lost = self.lost_until(Phase::Before);
        assert!(
            lost.iter().all(|version| *version > kept),
            "of {lost:?} all are lost, and version {kept} is not"
        );
    }
}
