//! A made-up cluster and its table, for the tests of the checkers.

use std::time::Duration;

use super::super::*;
use crate::ground_truth::ProcessRecord;
use membership_core::{
    CommitId, Config, Evidence, InstanceId, MembershipEntry, Row, Rows, SharedSettings, Suspicion,
    SuspicionReason, TableId, VersionRow, WallTime,
};

pub(in crate::checks) const S: fn(u64) -> Duration = Duration::from_secs;
/// When the made-up deaths happen: late enough that the start has no influence.
pub(in crate::checks) const NOON: Duration = Duration::from_secs(10_000);

/// A made-up cluster: silos 0.. with one process each, which write heartbeats and reach each other.
pub(in crate::checks) struct Stage {
    pub(in crate::checks) truth: GroundTruth,
    pub(in crate::checks) table: Snapshot,
}

pub(in crate::checks) fn silo(n: usize) -> SiloAddress {
    SiloAddress::new([10, 0, 0, u8::try_from(n).unwrap()].into(), 7100, 1)
}

impl Stage {
    pub(in crate::checks) fn with(silos: usize) -> Self {
        let mut truth = GroundTruth::new(Config::default());
        truth.now = NOON;
        let mut rows = Rows::new();
        for n in 0..silos {
            let (name, endpoint) = (format!("s{n}"), silo(n).endpoint());
            truth.records.push(ProcessRecord {
                silo: Some(silo(n)),
                ..ProcessRecord::new(name, n, endpoint, S(0))
            });
            truth.owners.insert(silo(n), ProcessId(n));
            truth.heartbeats.insert(
                silo(n),
                [Some(NOON - S(5)), Some(NOON - S(15)), Some(NOON - S(25))],
            );
            rows.insert(Row::encode(entry(n, SiloStatus::Active)));
        }
        let mut row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        row.row_count = silos as u64;
        Self {
            truth,
            table: Snapshot::new(row.token(&[]), row, rows),
        }
    }

    /// The commit of these entries, made by silo 0.
    pub(in crate::checks) fn commit(
        &self,
        inserts: Vec<MembershipEntry>,
        updates: Vec<MembershipEntry>,
        removes: Vec<String>,
    ) -> (Snapshot, CommitRequest) {
        let id = CommitId::new(u128::from(self.table.version()) + 1);
        let request = CommitRequest::new(
            self.table.token.clone(),
            id,
            Some(silo(0)),
            inserts,
            updates,
            removes,
        );
        (
            request.apply_to(&self.table, request.next_token(&[])),
            request,
        )
    }

    /// Passes a commit to a checker and returns its verdict. The commit becomes the present table.
    pub(in crate::checks) fn commits(
        &mut self,
        check: &mut dyn Check,
        inserts: Vec<MembershipEntry>,
        updates: Vec<MembershipEntry>,
    ) -> Result<(), String> {
        let (after, request) = self.commit(inserts, updates, Vec::new());
        let before = std::mem::replace(&mut self.table, after.clone());
        check.observe(
            &Fact::Committed {
                before: &before,
                after: &after,
                request: &request,
            },
            &self.truth,
        )
    }

    /// A silo that never wrote a heartbeat.
    pub(in crate::checks) fn silence(&mut self, n: usize) {
        self.truth.heartbeats.remove(&silo(n));
    }

    pub(in crate::checks) fn block(&mut self, a: usize, b: usize) {
        self.truth.any_block.set(true, NOON - S(30));
        self.truth
            .blocks
            .entry((a, b))
            .or_default()
            .set(true, NOON - S(30));
    }
}

pub(in crate::checks) fn entry(n: usize, status: SiloStatus) -> MembershipEntry {
    let mut e = MembershipEntry::new(silo(n), InstanceId::new(n as u128), WallTime::default());
    e.status = status;
    e
}

pub(in crate::checks) fn dead(
    n: usize,
    cause: CauseOfDeath,
    accusers: &[usize],
) -> MembershipEntry {
    let mut e = entry(n, SiloStatus::Dead);
    e.death = Some(Death::new(cause, WallTime::default(), None, 1));
    let truth = Stage::with(1).truth;
    e.suspicions = accusers
        .iter()
        .map(|a| {
            // Silo 0 writes all these commits.
            let mut evidence = Evidence::missed(3, 0);
            evidence.via = (*a != 0).then(|| silo(0));
            let at = truth.wall(&silo(0), truth.now);
            Suspicion::new(silo(*a), at, SuspicionReason::Silent, evidence)
        })
        .collect();
    e
}

pub(in crate::checks) fn voted(n: usize, accusers: &[usize]) -> Vec<MembershipEntry> {
    vec![dead(n, CauseOfDeath::Voted, accusers)]
}

pub(in crate::checks) fn evicted(n: usize) -> Vec<MembershipEntry> {
    vec![dead(
        n,
        CauseOfDeath::Evicted {
            by: silo(0).to_string(),
            reason: "because".to_owned(),
        },
        &[],
    )]
}

/// Checks the eviction of silo 1: without an order it is judged like a death by votes, with an
/// order it is not.
pub(in crate::checks) fn judges_evictions(mut stage: Stage, check: &mut dyn Check) {
    stage.truth.evictions.insert((silo(1), silo(2).to_string()));
    let before = stage.table.clone();
    assert!(
        stage
            .commits(check, vec![], evicted(1))
            .unwrap_err()
            .contains("is declared dead")
    );
    stage.table = before;
    stage.truth.evictions.insert((silo(1), silo(0).to_string()));
    stage.commits(check, vec![], evicted(1)).unwrap();
}
