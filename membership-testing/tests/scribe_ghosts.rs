//! Changes that a scribe holds when it loses the table, and what becomes of them when their silo is
//! long gone. All invariants are checked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use membership_core::hooks::ProtocolVariant;
use membership_core::protocol::{Command, RequestId};
use membership_core::{MembershipEntry, SiloStatus};
use membership_testing::{Cluster, ProcessId, UnknownOutcome};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

fn cluster(seed: u64, silos: usize) -> Cluster {
    let mut cluster = Cluster::builder()
        .seed(seed)
        .silos(silos)
        .variant(ProtocolVariant::SCRIBE)
        .build()
        .unwrap();
    cluster.run_until_agreed(S(120)).unwrap();
    cluster.run_for(S(60)).unwrap();
    cluster
}

/// Lets a silo that is not the leader make the last commit: others ask it to write.
fn appoint(cluster: &mut Cluster) -> ProcessId {
    let leader = cluster
        .view(ProcessId(0))
        .unwrap()
        .leader()
        .unwrap()
        .address;
    let others = (0..).map(ProcessId);
    let mut others = others.filter(|silo| cluster.address(*silo) != Some(leader));
    let (scribe, evicted) = (others.next().unwrap(), others.next().unwrap());
    let evict = Command::Evict {
        request: RequestId(1),
        silo: cluster.address(evicted).unwrap(),
        reason: "to make a commit".to_owned(),
    };
    cluster.command(scribe, evict);
    cluster.run_for(S(30)).unwrap();
    let last = cluster.table().unwrap().version_row.recent.last().cloned();
    assert_eq!(last.unwrap().committer, cluster.address(scribe));
    scribe
}

/// The scribe has sent a commit that holds the row of a newcomer, and does not know its outcome: it was
/// not applied, and it reaches the table no more.
fn hold_a_join(cluster: &mut Cluster) -> (ProcessId, ProcessId) {
    let scribe = appoint(cluster);
    cluster.unknown_outcomes_of(Some(UnknownOutcome::NotApplied), 1.0);
    let newcomer = cluster.start(1)[0];
    let before = cluster.stats().unknown;
    while cluster.stats().unknown == before {
        cluster.run_for(MS(1)).unwrap();
    }
    assert!(cluster.row(newcomer).is_none());
    cluster.cut_from_table(scribe, true);
    cluster.unknown_outcomes(0.0);
    (scribe, newcomer)
}

fn is(status: SiloStatus) -> impl Fn(Option<&MembershipEntry>) -> bool {
    move |entry| entry.is_some_and(|e| e.status == status)
}

#[test]
fn a_join_that_was_held_for_long_brings_nobody_back() {
    for seed in 0..4 {
        let mut cluster = cluster(seed, 7);
        let (scribe, newcomer) = hold_a_join(&mut cluster);
        let active = is(SiloStatus::Active);
        let joined = cluster.run_until(S(60), |c| active(c.row(newcomer)));
        assert!(joined.unwrap(), "seed {seed}");
        cluster.leave(newcomer);
        // The row of a silo that has left goes after ten minutes.
        let gone = cluster.run_until(S(900), |c| c.row(newcomer).is_none());
        assert!(gone.unwrap(), "seed {seed}");
        assert!(cluster.is_running(scribe), "seed {seed}");
        cluster.cut_from_table(scribe, false);
        cluster.run_for(S(60)).unwrap();
        assert!(cluster.row(newcomer).is_none(), "seed {seed}");
        cluster.settle().unwrap();
    }
}

#[test]
fn a_join_of_a_process_that_is_gone_does_not_hold_up_its_address() {
    for seed in 0..8 {
        let mut cluster = cluster(seed, 7);
        let (scribe, newcomer) = hold_a_join(&mut cluster);
        cluster.run_for(MS(300 * seed)).unwrap();
        cluster.kill(newcomer);
        cluster.run_for(S(2)).unwrap();
        let next = cluster.restart(newcomer);
        if seed % 2 == 0 {
            cluster.cut_from_table(scribe, false);
        }
        let active = is(SiloStatus::Active);
        assert!(
            cluster.run_until(S(60), |c| active(c.row(next))).unwrap(),
            "seed {seed}"
        );
        cluster.cut_from_table(scribe, false);
        cluster.settle().unwrap();
        assert!(cluster.row(next).is_some());
    }
}
