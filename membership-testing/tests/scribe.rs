//! One silo writes the changes of many: mass starts, and what becomes of them when that silo dies, is
//! paused, or knows nothing of such requests. An experiment: not the standard protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use membership_core::hooks::{self, ProtocolVariant};
use membership_core::protocol::Setup;
use membership_testing::{Cluster, Machine, ProcessId};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;
const SILOS: usize = 60;

/// A silo that writes for others and asks others to write, or does neither.
fn silo(setup: Setup, scribe: bool) -> Box<dyn Machine> {
    let variant = ProtocolVariant {
        scribe,
        ..ProtocolVariant::STANDARD
    };
    Box::new(hooks::protocol(setup, variant))
}

/// One silo runs, and the others have just started. Every `without`-th knows nothing of requests to
/// write.
fn start(seed: u64, without: usize) -> Cluster {
    let mut number = 0;
    let machines = move |setup| {
        number += 1;
        silo(setup, without == 0 || number % without != 0)
    };
    let mut cluster = Cluster::builder()
        .seed(seed)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    cluster.start(1);
    cluster.run_until_agreed(S(30)).unwrap();
    cluster.start(SILOS - 1);
    cluster
}

#[test]
fn many_start_with_few_commits() {
    for seed in 0..5 {
        let mut cluster = start(seed, 0);
        cluster.run_until_agreed(S(20)).unwrap();
        assert_eq!(cluster.running().len(), SILOS);
        let stats = cluster.stats();
        let (commits, conflicts) = (stats.commits, stats.conflicts);
        assert!(
            commits <= 40 && conflicts <= 5,
            "seed {seed}: {commits} commits, {conflicts} conflicts; one each would be 120"
        );
    }
}

#[test]
fn a_scribe_that_dies_or_is_paused_holds_nobody_up() {
    for seed in 0..6 {
        let mut cluster = start(seed, 0);
        cluster.run_for(MS(150 * (1 + seed % 3))).unwrap();
        let scribe = ProcessId(0);
        if seed % 2 == 0 {
            cluster.kill(scribe);
        } else {
            cluster.pause(scribe, S(10));
        }
        cluster.run_until_agreed(S(60)).unwrap();
        assert!(cluster.running().len() >= SILOS - 1, "seed {seed}");
    }
}

#[test]
fn silos_without_it_live_beside_it() {
    for without in [1, 2, 3] {
        let mut cluster = start(7, without);
        cluster.run_until_agreed(S(60)).unwrap();
        assert_eq!(cluster.running().len(), SILOS);
    }
}

#[test]
fn many_leave_at_once() {
    let mut cluster = start(3, 0);
    cluster.run_until_agreed(S(20)).unwrap();
    let leaving: Vec<ProcessId> = cluster.running().into_iter().skip(SILOS / 2).collect();
    for silo in leaving {
        cluster.leave(silo);
    }
    cluster.run_for(S(1)).unwrap();
    cluster.run_until_agreed(S(60)).unwrap();
    assert_eq!(cluster.running().len(), SILOS / 2);
    assert_eq!(cluster.stats().voted_out, 0);
}

#[test]
fn whole_clusters_start_at_once_without_anybody_active() {
    let machines = |setup| silo(setup, true);
    let mut cluster = Cluster::builder()
        .seed(1)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    cluster.start(SILOS);
    cluster.run_until_agreed(S(60)).unwrap();
    assert_eq!(cluster.running().len(), SILOS);
}
