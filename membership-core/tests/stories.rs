//! Stories: what a cluster does when something happens to it, each told with assertions and as a transcript under `tests/golden`.
//!
//! A transcript that changed is reviewed like prose and accepted with `MEMBERSHIP_BLESS=1`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use membership_core::protocol::{JoinError, Notice, TableState, Termination};
use membership_core::testing::{Cluster, Detail, ProcessId, transcript};
use membership_core::{CauseOfDeath, Discontinuity, SiloStatus};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

/// A cluster whose silos have all joined, and their ids; what led there is not told.
fn cluster(silos: usize) -> (Cluster, Vec<ProcessId>) {
    let mut cluster = Cluster::builder()
        .seed(42)
        .silos(silos)
        .detail(Detail::Everything)
        .build()
        .unwrap();
    if silos > 0 {
        cluster.run_until_agreed(S(120)).unwrap();
        cluster.run_for(S(60)).unwrap();
    }
    cluster.forget_trace();
    let all = cluster.running();
    assert_eq!(all.len(), silos);
    (cluster, all)
}

/// Ends a story: compares the transcript so far, and then everything must become well.
fn the_end(name: &str, title: &str, mut cluster: Cluster) {
    let text = transcript::render(title, &cluster);
    cluster.settle().unwrap();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"));
    transcript::compare(path, &text).unwrap();
}

fn cause(cluster: &Cluster, silo: ProcessId) -> Option<CauseOfDeath> {
    cluster.row(silo)?.death.as_ref().map(|d| d.cause.clone())
}

fn is_dead(cluster: &Cluster, silo: ProcessId) -> bool {
    cluster
        .row(silo)
        .is_some_and(|e| e.status == SiloStatus::Dead)
}

fn alive(cluster: &Cluster, silos: &[ProcessId]) -> bool {
    silos.iter().all(|s| {
        cluster.is_running(*s)
            && cluster
                .row(*s)
                .is_some_and(|e| e.status == SiloStatus::Active)
    })
}

fn declared_dead(cluster: &Cluster, silo: ProcessId) -> Option<&'static str> {
    match cluster.termination(silo)? {
        Termination::DeclaredDead(d) => Some(d.cause()),
        _ => None,
    }
}

#[test]
fn join() {
    let (mut cluster, _) = cluster(0);
    let first = cluster.start(1)[0];
    cluster.run_until_agreed(S(30)).unwrap();
    let second = cluster.start(1)[0];
    cluster.run_until_agreed(S(30)).unwrap();
    let third = cluster.start(1)[0];
    cluster.run_until_agreed(S(30)).unwrap();
    for silo in [first, second, third] {
        let told: Vec<&Notice> = cluster.notices(silo).iter().map(|(_, n)| n).collect();
        assert!(
            matches!(
                told[..],
                [Notice::Joining { .. }, .., Notice::Active { .. }]
            ),
            "{told:?}"
        );
        assert_eq!(cluster.view(silo).unwrap().active().count(), 3);
    }
    let leader = cluster.view(third).unwrap().leader().unwrap().address;
    assert_eq!(Some(leader), cluster.address(first));
    the_end("join", "Three silos join, one after the other", cluster);
}

#[test]
fn crash() {
    let (mut cluster, all) = cluster(5);
    cluster.kill(all[2]);
    let killed = cluster.now();
    assert!(cluster.run_until(S(60), |c| is_dead(c, all[2])).unwrap());
    let after = cluster.now() - killed;
    assert!(after > S(5) && after < S(35), "{after:?}");
    assert_eq!(cause(&cluster, all[2]), Some(CauseOfDeath::Voted));
    assert!(cluster.row(all[2]).unwrap().suspicions.len() >= 2);
    cluster.run_for(S(2)).unwrap();
    assert!(cluster.agrees(), "the word is out at once");
    the_end("crash", "A silo crashes", cluster);
}

#[test]
fn indirect_probe_saves_a_silo() {
    let (mut cluster, all) = cluster(4);
    cluster.block_both(all[0], all[1]);
    cluster.run_for(S(90)).unwrap();
    assert!(cluster.tells("indirect-reply: yes"));
    assert!(alive(&cluster, &all));
    the_end(
        "indirect_probe",
        "Two silos cannot talk to each other; the others vouch for them",
        cluster,
    );
}

#[test]
fn the_accuser_is_the_sick_one() {
    let (mut cluster, all) = cluster(5);
    // It hears nobody any more, though everybody hears it.
    for other in &all[1..] {
        cluster.block(*other, all[0]);
    }
    assert!(cluster.run_until(S(90), |c| is_dead(c, all[0])).unwrap());
    cluster.run_for(S(90)).unwrap();
    assert!(alive(&cluster, &all[1..]));
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    the_end(
        "sick_accuser",
        "A silo hears nobody: it is the sick one, and accuses in vain",
        cluster,
    );
}

#[test]
fn takeover_at_the_same_address() {
    let (mut cluster, all) = cluster(3);
    let new = cluster.restart(all[1]);
    cluster.run_until_agreed(S(60)).unwrap();
    assert_eq!(cause(&cluster, all[1]), Some(CauseOfDeath::Superseded));
    assert!(
        cluster
            .address(new)
            .unwrap()
            .is_successor_of(&cluster.address(all[1]).unwrap())
    );
    the_end("takeover", "A silo restarts at its address", cluster);
}

#[test]
fn two_processes_with_one_address() {
    let (mut cluster, all) = cluster(3);
    let second = cluster.start_behind(all[0]);
    assert!(cluster.run_until(S(60), |c| !c.is_running(second)).unwrap());
    match cluster.termination(second) {
        Some(Termination::JoinFailed(JoinError::AddressInUse { host, .. })) => {
            assert_eq!(host, "host-0")
        }
        other => panic!("{other:?}"),
    }
    assert!(alive(&cluster, &all));
    the_end(
        "one_address",
        "Two processes advertise one address",
        cluster,
    );
}

#[test]
fn table_down() {
    let (mut cluster, all) = cluster(4);
    cluster.table_outage(S(300));
    cluster.run_for(S(60)).unwrap();
    cluster.kill(all[3]);
    let version = cluster.table().unwrap().version();
    cluster.run_for(S(239)).unwrap();
    assert_eq!(cluster.table().unwrap().version(), version);
    assert!(
        alive(&cluster, &all[..3]),
        "nothing is declared without the table"
    );
    let down = Notice::Table(TableState::Unavailable);
    assert!(
        all[..3]
            .iter()
            .all(|s| cluster.notices(*s).iter().any(|(_, n)| *n == down))
    );
    assert!(cluster.run_until(S(180), |c| is_dead(c, all[3])).unwrap());
    assert!(alive(&cluster, &all[..3]));
    the_end(
        "table_down",
        "The table is down for five minutes; a silo crashes meanwhile",
        cluster,
    );
}

#[test]
fn network_down() {
    let (mut cluster, all) = cluster(5);
    cluster.network_outage(S(120));
    cluster.run_for(S(300)).unwrap();
    assert!(alive(&cluster, &all));
    the_end(
        "network_down",
        "The switch is down for two minutes",
        cluster,
    );
}

#[test]
fn unknown_outcome_of_a_join() {
    let (mut cluster, _) = cluster(2);
    cluster.unknown_outcomes(1.0);
    let new = cluster.start(1)[0];
    cluster.run_for(S(20)).unwrap();
    cluster.unknown_outcomes(0.0);
    cluster.run_until_agreed(S(90)).unwrap();
    assert!(cluster.stats().unknown > 0);
    assert!(alive(&cluster, &[new]), "{:?}", cluster.termination(new));
    assert_eq!(
        cluster
            .table()
            .unwrap()
            .rows
            .at_endpoint(cluster.address(new).unwrap().endpoint())
            .count(),
        1
    );
    the_end(
        "unknown_outcome",
        "A silo joins, and does not know the outcome of its commits",
        cluster,
    );
}

#[test]
fn told_dead() {
    let (mut cluster, all) = cluster(4);
    cluster.isolate(all[0]);
    cluster.cut_from_table(all[0], true);
    assert!(cluster.run_until(S(120), |c| is_dead(c, all[0])).unwrap());
    cluster.heal();
    cluster.run_for(S(30)).unwrap();
    assert!(cluster.tells("you-are-dead"));
    assert!(
        cluster.is_running(all[0]),
        "a message ends nobody: the table must say so"
    );
    cluster.cut_from_table(all[0], false);
    assert!(cluster.run_until(S(70), |c| !c.is_running(all[0])).unwrap());
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    the_end(
        "told_dead",
        "A silo is voted out behind a broken switch, and told so",
        cluster,
    );
}

#[test]
fn leave() {
    let (mut cluster, all) = cluster(4);
    cluster.leave(all[0]);
    assert!(cluster.run_until(S(30), |c| !c.is_running(all[0])).unwrap());
    assert_eq!(
        cluster.termination(all[0]),
        Some(&Termination::Left { clean: true })
    );
    assert!(
        cluster
            .notices(all[0])
            .iter()
            .any(|(_, n)| matches!(n, Notice::LeaveBegun { version: Some(_) }))
    );
    cluster.run_for(S(1)).unwrap();
    assert!(cluster.agrees());
    assert_eq!(cause(&cluster, all[0]), Some(CauseOfDeath::Left));
    assert!(cluster.tells("farewell"));
    the_end("leave", "A silo leaves", cluster);
}

#[test]
fn told_dead_while_leaving() {
    let (mut cluster, all) = cluster(4);
    cluster.isolate(all[0]);
    cluster.cut_from_table(all[0], true);
    assert!(cluster.run_until(S(120), |c| is_dead(c, all[0])).unwrap());
    cluster.leave(all[0]);
    cluster.run_for(S(5)).unwrap();
    cluster.cut_from_table(all[0], false);
    assert!(cluster.run_until(S(40), |c| !c.is_running(all[0])).unwrap());
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    the_end(
        "dead_while_leaving",
        "A silo that leaves finds itself voted out",
        cluster,
    );
}

#[test]
fn pause_of_60_seconds() {
    let (mut cluster, all) = cluster(4);
    cluster.pause(all[0], S(60));
    assert!(cluster.run_until(S(59), |c| is_dead(c, all[0])).unwrap());
    cluster.run_for(S(58)).unwrap();
    assert!(
        !cluster.is_running(all[0]),
        "it reads the table first, and finds out"
    );
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    assert!(alive(&cluster, &all[1..]));
    the_end("pause", "A process does not run for a minute", cluster);
}

#[test]
fn table_wiped() {
    let (mut cluster, all) = cluster(3);
    cluster.wipe_table();
    cluster.run_for(S(120)).unwrap();
    let told = Notice::Table(TableState::Changed(Discontinuity::Replaced));
    for silo in &all {
        assert!(cluster.is_running(*silo), "everyone keeps running");
        assert!(
            cluster.notices(*silo).iter().any(|(_, n)| *n == told),
            "{:?}",
            cluster.notices(*silo)
        );
    }
    assert!(cluster.table().is_none(), "and nobody writes");
    for silo in all {
        cluster.restart(silo);
        cluster.run_for(MS(500)).unwrap();
    }
    cluster.run_until_agreed(S(60)).unwrap();
    the_end(
        "table_wiped",
        "Somebody empties the table; the silos are restarted",
        cluster,
    );
}

#[test]
fn table_rolled_back() {
    let (mut cluster, all) = cluster(3);
    cluster.kill(all[2]);
    assert!(cluster.run_until(S(60), |c| is_dead(c, all[2])).unwrap());
    cluster.run_for(S(2)).unwrap();
    assert!(
        cluster.roll_back_table(2) == 2 && !is_dead(&cluster, all[2]),
        "the table has forgotten it"
    );
    cluster.run_for(S(90)).unwrap();
    let told = Notice::Table(TableState::Changed(Discontinuity::RolledBack));
    for silo in &all[..2] {
        assert!(cluster.is_running(*silo), "everyone keeps running");
        assert!(
            cluster.notices(*silo).iter().any(|(_, n)| *n == told),
            "{:?}",
            cluster.notices(*silo)
        );
    }
    for silo in &all[..2] {
        cluster.restart(*silo);
    }
    cluster.run_until_agreed(S(120)).unwrap();
    the_end(
        "table_rolled_back",
        "The table goes back by two versions; the silos are restarted",
        cluster,
    );
}

#[test]
fn half_dead() {
    let (mut cluster, all) = cluster(5);
    cluster.hang(all[1], S(300));
    assert!(
        cluster.run_until(S(180), |c| is_dead(c, all[1])).unwrap(),
        "signs of life hold a death up, and do not prevent it"
    );
    assert_eq!(cause(&cluster, all[1]), Some(CauseOfDeath::Voted));
    assert!(cluster.stats().heard > 100);
    cluster.run_for(S(300)).unwrap();
    assert_eq!(declared_dead(&cluster, all[1]), Some("voted"));
    let others: Vec<ProcessId> = all.iter().copied().filter(|s| *s != all[1]).collect();
    assert!(alive(&cluster, &others));
    the_end(
        "half_dead",
        "The protocol of a silo hangs; its application still answers",
        cluster,
    );
}

#[test]
fn restart_with_the_clock_set_back() {
    let (mut cluster, all) = cluster(3);
    let before = cluster.address(all[1]).unwrap();
    let new = cluster.restart_with_clock(all[1], -86_400_000);
    cluster.run_until_agreed(S(60)).unwrap();
    assert!(
        cluster.address(new).unwrap().is_successor_of(&before),
        "a clock set back locks nobody out"
    );
    the_end(
        "clock_set_back",
        "A silo restarts at its address, with the clock a day behind",
        cluster,
    );
}

#[test]
fn whole_cluster_restarted() {
    let (mut cluster, all) = cluster(4);
    for silo in &all {
        cluster.kill(*silo);
    }
    cluster.run_for(S(5)).unwrap();
    for silo in &all {
        cluster.restart(*silo);
    }
    cluster.run_until_agreed(S(120)).unwrap();
    assert_eq!(cluster.running().len(), 4);
    the_end("restart", "All silos are restarted at once", cluster);
}

#[test]
fn whole_cluster_restarted_at_new_addresses() {
    let (mut cluster, all) = cluster(4);
    for silo in &all {
        cluster.kill(*silo);
    }
    cluster.start(4);
    cluster.run_until_agreed(S(180)).unwrap();
    assert!(all.iter().all(|old| is_dead(&cluster, *old)));
    the_end(
        "restart_elsewhere",
        "All silos are gone, and others start at new addresses",
        cluster,
    );
}
