//! The silo that is asked to write falls ill in one of many ways while others join. All invariants are
//! checked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros
)]

use std::time::Duration;

use membership_core::SiloStatus;
use membership_core::hooks::ProtocolVariant;
use membership_testing::{Cluster, ProcessId, UnknownOutcome};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;
const SILOS: usize = 12;
const NEWCOMERS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Dies,
    Crashes,
    Pauses(u64),
    Hangs(u64),
    /// It loses the table, and answers everybody.
    LosesTheTable,
    /// It loses the network, and its heartbeats go on.
    LosesTheNetwork,
    Leaves,
    /// The outcome of all commits is unknown for ten seconds.
    Unknown(UnknownOutcome),
    /// Other writers are faster than half of all commits.
    Conflicts,
    /// The leader dies at the same moment.
    DiesWithTheLeader,
    /// It and the leader lose the table.
    TwoLoseTheTable,
}

fn cluster(seed: u64) -> Cluster {
    let variant = ProtocolVariant {
        full_check_limit: Some(5),
        flood_above: Some(5),
        ..ProtocolVariant::SCRIBE
    };
    let mut cluster = Cluster::builder()
        .seed(seed)
        .silos(SILOS)
        .variant(variant)
        .build()
        .unwrap();
    cluster.run_until_agreed(S(120)).unwrap();
    cluster.run_for(S(30)).unwrap();
    cluster
}

fn scribe(cluster: &Cluster) -> ProcessId {
    let recent = &cluster.table().unwrap().version_row.recent;
    cluster.truth().owners[&recent.last().unwrap().committer.unwrap()]
}

fn leader(cluster: &Cluster) -> ProcessId {
    let all = cluster.running();
    let leader = cluster.view(all[0]).unwrap().leader().unwrap().address;
    cluster.truth().owners[&leader]
}

fn begin(cluster: &mut Cluster, trouble: Trouble, scribe: ProcessId) {
    let leader = leader(cluster);
    match trouble {
        Trouble::Dies => cluster.kill(scribe),
        Trouble::Crashes => cluster.crash_machine(scribe),
        Trouble::Pauses(time) => cluster.pause(scribe, S(time)),
        Trouble::Hangs(time) => cluster.hang(scribe, S(time)),
        Trouble::LosesTheTable => cluster.cut_from_table(scribe, true),
        Trouble::LosesTheNetwork => cluster.isolate(scribe),
        Trouble::Leaves => cluster.leave(scribe),
        Trouble::Unknown(kind) => cluster.unknown_outcomes_of(Some(kind), 1.0),
        Trouble::Conflicts => cluster.table_conflicts(0.5),
        Trouble::DiesWithTheLeader => {
            cluster.kill(scribe);
            cluster.kill(leader);
        }
        Trouble::TwoLoseTheTable => {
            cluster.cut_from_table(scribe, true);
            cluster.cut_from_table(leader, true);
        }
    }
}

/// How long it takes until all newcomers are Active. The trouble begins before they start, or so much
/// later.
fn join(seed: u64, trouble: Trouble, after: Option<Duration>) -> Duration {
    let mut cluster = cluster(seed);
    let first = scribe(&cluster);
    if after.is_none() {
        begin(&mut cluster, trouble, first);
    }
    let new = cluster.start(NEWCOMERS);
    let began = cluster.now();
    if let Some(after) = after {
        cluster.run_for(after).unwrap();
        let now = scribe(&cluster);
        // Newcomers that fall ill do not join in time.
        let asked = if new.contains(&now) { first } else { now };
        begin(&mut cluster, trouble, asked);
    }
    if matches!(trouble, Trouble::Unknown(_)) {
        cluster.run_for(S(10)).unwrap();
        cluster.unknown_outcomes(0.0);
    }
    let active = |c: &Cluster, silo: &ProcessId| {
        let row = c.row(*silo);
        row.is_some_and(|e| e.status == SiloStatus::Active)
    };
    let done = cluster.run_until(S(250), |c| new.iter().all(|silo| active(c, silo)));
    let took = if done.unwrap() {
        cluster.now() - began
    } else {
        S(999)
    };
    cluster.settle().unwrap();
    let silent = matches!(
        trouble,
        Trouble::Pauses(10..) | Trouble::Hangs(_) | Trouble::LosesTheNetwork
    );
    let ended = cluster.stats().voted_out_alive;
    assert!(ended <= u64::from(silent), "{trouble:?} {seed}: {ended}");
    took
}

#[test]
fn troubles_of_the_scribe_hold_nobody_up_for_long() {
    let mut bad = Vec::new();
    for (trouble, most) in [
        (Trouble::Dies, 15),
        (Trouble::Crashes, 30),
        (Trouble::Pauses(3), 15),
        (Trouble::Pauses(10), 30),
        (Trouble::Hangs(10), 30),
        (Trouble::LosesTheTable, 15),
        (Trouble::LosesTheNetwork, 40),
        (Trouble::Leaves, 15),
        (Trouble::Unknown(UnknownOutcome::Applied), 30),
        (Trouble::Unknown(UnknownOutcome::AppliedLate), 60),
        (Trouble::Unknown(UnknownOutcome::NotApplied), 60),
        (Trouble::Conflicts, 30),
        (Trouble::DiesWithTheLeader, 15),
        (Trouble::TwoLoseTheTable, 30),
    ] {
        let mut longest = Duration::ZERO;
        for seed in 0..4 {
            for after in [None, Some(MS(seed * 150))] {
                let took = join(seed, trouble, after);
                longest = longest.max(took);
                if took > S(most) {
                    bad.push((trouble, seed, after, took));
                }
            }
        }
        println!("{trouble:?}: {longest:.1?}");
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
