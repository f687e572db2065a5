//! A cluster in which the leader's heartbeat is the pulse, and the others write theirs rarely. What makes
//! heartbeats decide, because no majority is left, must find none of those dead that run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros
)]

mod slow;
mod unjudged;

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::Config;
use membership_core::hooks::ProtocolVariant;
use membership_testing::{Cluster, ProcessId};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;
const SILOS: usize = 24;
/// The quiet time before a trouble: all write rarely then.
const QUIET: u64 = 420;

/// What it is, and how it goes.
type Trouble = (&'static str, fn(&mut Cluster));

fn cluster(seed: u64) -> Cluster {
    quiet(seed, SILOS, Config::default())
}

/// A cluster in which each silo writes a heartbeat in five minutes, if nobody misses it.
fn quiet(seed: u64, silos: usize, config: Config) -> Cluster {
    let variant = ProtocolVariant {
        full_check_limit: Some(8),
        flood_above: Some(5),
        heartbeat_spacing: Some(S(300) / u32::try_from(silos).unwrap()),
        ..ProtocolVariant::SCRIBE
    };
    let mut cluster = Cluster::builder()
        .seed(seed)
        .silos(silos)
        .config(config)
        .variant(variant)
        .build()
        .unwrap();
    cluster.run_until_agreed(S(120)).unwrap();
    cluster.run_for(S(QUIET)).unwrap();
    cluster
}

fn leader(cluster: &Cluster) -> ProcessId {
    let all = cluster.running();
    let leader = cluster.view(all[0]).unwrap().leader().unwrap().address;
    cluster.truth().owners[&leader]
}

/// How many silos have written a heartbeat in the last `time`.
fn wrote(cluster: &Cluster, time: Duration) -> usize {
    let from = cluster.now().saturating_sub(time);
    let beats = cluster.truth().heartbeats.values();
    beats.filter(|b| b[0].is_some_and(|at| at >= from)).count()
}

/// The oldest half of the silos, the leader among them, or the others.
fn halves(cluster: &Cluster) -> [Vec<ProcessId>; 2] {
    let all = cluster.running();
    let leader = leader(cluster);
    let mut others: Vec<ProcessId> = all.iter().copied().filter(|id| *id != leader).collect();
    let rest = others.split_off(SILOS / 2 - 1);
    others.push(leader);
    [others, rest]
}

#[test]
fn in_a_quiet_cluster_the_leader_alone_writes_in_every_period() {
    let mut cluster = cluster(1);
    let mut all = 0;
    for _ in 0..30 {
        cluster.run_for(S(10)).unwrap();
        let wrote = wrote(&cluster, S(10));
        assert!(wrote <= SILOS / 2, "{wrote}");
        all += wrote;
    }
    // The leader writes 30, and each of the others one or two.
    assert!((30 + SILOS / 2..=30 + SILOS * 2).contains(&all), "{all}");
    let first = leader(&cluster);
    cluster.crash_machine(first);
    cluster.run_for(S(60)).unwrap();
    let next = leader(&cluster);
    assert_ne!(first, next);
    let silo = cluster.address(next).unwrap();
    let beats = cluster.truth().heartbeats[&silo];
    let apart = beats[0].unwrap().saturating_sub(beats[2].unwrap());
    assert!(apart <= S(25), "the next leader is the pulse: {apart:?}");
    cluster.settle().unwrap();
}

#[test]
fn half_of_all_crash_and_the_others_live() {
    for seed in 0..6 {
        for with_the_leader in [true, false] {
            let mut cluster = cluster(seed);
            let [leaders, others] = halves(&cluster);
            let dead = if with_the_leader { leaders } else { others };
            let began = cluster.now();
            for silo in &dead {
                cluster.crash_machine(*silo);
            }
            let lost: BTreeSet<ProcessId> = dead.into_iter().collect();
            let all_know = |c: &Cluster| {
                let live = c.running().into_iter().filter(|id| !lost.contains(id));
                live.into_iter()
                    .all(|id| c.view(id).is_some_and(|v| v.active().count() == SILOS / 2))
            };
            assert!(cluster.run_until(S(120), all_know).unwrap(), "{seed}");
            let took = cluster.now() - began;
            assert!(took <= S(35), "{seed} {with_the_leader}: {took:?}");
            assert_eq!(cluster.stats().voted_out_alive, 0);
            cluster.settle().unwrap();
        }
    }
}

#[test]
fn nobody_dies_of_outages_and_of_a_split_only_those_without_the_leader() {
    let troubles: [Trouble; 6] = [
        ("halves", |c| {
            let groups = halves(c);
            c.partition(&groups);
            c.run_for(S(150)).unwrap();
            c.heal();
        }),
        ("halves that reach each other one way", |c| {
            let [a, b] = halves(c);
            c.cut_one_way(&a, &b);
            c.run_for(S(150)).unwrap();
            c.heal();
        }),
        ("nobody reaches anybody", |c| {
            c.network_outage(S(120));
            c.run_for(S(125)).unwrap();
        }),
        ("the table is away", |c| {
            c.table_outage(S(240));
            c.run_for(S(245)).unwrap();
        }),
        ("both, and the table comes back first", |c| {
            c.network_outage(S(150));
            c.table_outage(S(120));
            c.run_for(S(155)).unwrap();
        }),
        ("three zones, two of which lose their link", |c| {
            c.zones(3, membership_testing::Latency::default());
            c.cut_zones(0, 1);
            c.run_for(S(200)).unwrap();
            c.heal();
        }),
    ];
    for seed in 0..4 {
        for (what, trouble) in troubles {
            let mut cluster = cluster(seed);
            let [leaders, others] = halves(&cluster);
            trouble(&mut cluster);
            cluster.settle().unwrap();
            let runs = |id: &ProcessId| cluster.is_running(*id);
            assert!(leaders.iter().all(runs), "{what} {seed}");
            // The half with the leader is the larger one.
            let may_die = what.starts_with("halves");
            assert!(may_die || others.iter().all(runs), "{what} {seed}");
            cluster.run_for(S(QUIET)).unwrap();
            let wrote = wrote(&cluster, S(10));
            assert!(wrote <= SILOS / 2, "{what}: all is quiet again: {wrote}");
        }
    }
}

#[test]
fn the_cluster_shrinks_below_a_pulse_and_nobody_is_stale() {
    for seed in 0..4 {
        let mut cluster = cluster(seed);
        let leader = leader(&cluster);
        let all = cluster.running();
        let gone: Vec<ProcessId> = all.into_iter().filter(|id| *id != leader).collect();
        // Seven are left of 24; then half of those crash.
        for silo in &gone[..SILOS - 7] {
            cluster.leave(*silo);
        }
        cluster.run_for(S(12)).unwrap();
        for silo in &gone[SILOS - 7..SILOS - 4] {
            cluster.crash_machine(*silo);
        }
        cluster.run_for(S(120)).unwrap();
        assert_eq!(cluster.stats().voted_out_alive, 0, "{seed}");
        cluster.settle().unwrap();
    }
}
