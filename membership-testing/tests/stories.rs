//! Stories: what a cluster does in a situation, each with assertions and with a transcript under
//! `tests/golden`.
//!
//! A changed transcript is reviewed like prose and accepted with `MEMBERSHIP_BLESS=1`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use membership_core::protocol::{JoinError, Notice, TableState, Termination};
use membership_core::{CauseOfDeath, Discontinuity, SiloStatus};
use membership_testing::{Cluster, Detail, ProcessId, transcript};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

/// A cluster whose silos have all joined, and their ids. The transcript starts after that.
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

/// Ends a story: compares the transcript so far, and then the cluster must recover.
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
        let notices: Vec<&Notice> = cluster.notices(silo).iter().map(|(_, n)| n).collect();
        assert!(
            matches!(
                notices[..],
                [Notice::Joining { .. }, .., Notice::Active { .. }]
            ),
            "{notices:?}"
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
    assert!(after < S(2), "{after:?}");
    assert_eq!(cause(&cluster, all[2]), Some(CauseOfDeath::Voted));
    assert!(cluster.row(all[2]).unwrap().suspicions.len() >= 2);
    cluster.run_for(S(2)).unwrap();
    assert!(cluster.agrees(), "the others learn it at once");
    the_end("crash", "A silo crashes", cluster);
}

#[test]
fn indirect_probe_saves_a_silo() {
    let (mut cluster, all) = cluster(4);
    cluster.block_both(all[0], all[1]);
    cluster.run_for(S(90)).unwrap();
    assert!(cluster.trace_contains("reached"));
    assert!(alive(&cluster, &all));
    the_end(
        "indirect_probe",
        "Two silos cannot reach each other; the others confirm that both are alive",
        cluster,
    );
}

#[test]
fn the_accuser_is_sick() {
    let (mut cluster, all) = cluster(5);
    // It receives nothing, but all others receive its messages.
    for other in &all[1..] {
        cluster.block(*other, all[0]);
    }
    assert!(cluster.run_until(S(90), |c| is_dead(c, all[0])).unwrap());
    cluster.run_for(S(90)).unwrap();
    assert!(alive(&cluster, &all[1..]));
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    the_end(
        "sick_accuser",
        "A silo receives nothing: it is sick itself, and its accusations fail",
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
        "no silo is declared dead without the table"
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
        "A silo joins while the outcome of its commits is unknown",
        cluster,
    );
}

#[test]
fn message_about_its_death() {
    let (mut cluster, all) = cluster(4);
    cluster.isolate(all[0]);
    cluster.cut_from_table(all[0], true);
    assert!(cluster.run_until(S(120), |c| is_dead(c, all[0])).unwrap());
    cluster.heal();
    cluster.run_for(S(30)).unwrap();
    assert!(cluster.trace_contains("you-are-dead"));
    assert!(
        cluster.is_running(all[0]),
        "a message ends no silo: the table must confirm it"
    );
    cluster.cut_from_table(all[0], false);
    assert!(cluster.run_until(S(70), |c| !c.is_running(all[0])).unwrap());
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    the_end(
        "told_dead",
        "A silo behind a broken switch is voted out and learns of it",
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
    assert!(cluster.trace_contains("farewell"));
    the_end("leave", "A silo leaves", cluster);
}

#[test]
fn voted_out_while_leaving() {
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
        "A silo that leaves has been voted out",
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
        "it reads the table first and learns of its death"
    );
    assert_eq!(declared_dead(&cluster, all[0]), Some("voted"));
    assert!(alive(&cluster, &all[1..]));
    the_end("pause", "A process is paused for a minute", cluster);
}

#[test]
fn table_wiped() {
    let (mut cluster, all) = cluster(3);
    cluster.wipe_table();
    cluster.run_for(S(120)).unwrap();
    let changed = Notice::Table(TableState::Changed(Discontinuity::Replaced));
    for silo in &all {
        assert!(cluster.is_running(*silo), "every silo keeps running");
        assert!(
            cluster.notices(*silo).iter().any(|(_, n)| *n == changed),
            "{:?}",
            cluster.notices(*silo)
        );
    }
    assert!(cluster.table().is_none(), "no silo writes");
    for silo in all {
        cluster.restart(silo);
        cluster.run_for(MS(500)).unwrap();
    }
    cluster.run_until_agreed(S(60)).unwrap();
    the_end(
        "table_wiped",
        "The table is wiped; the silos are restarted",
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
        "the death is lost"
    );
    cluster.run_for(S(90)).unwrap();
    let changed = Notice::Table(TableState::Changed(Discontinuity::RolledBack));
    for silo in &all[..2] {
        assert!(cluster.is_running(*silo), "every silo keeps running");
        assert!(
            cluster.notices(*silo).iter().any(|(_, n)| *n == changed),
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
        "The table is rolled back by two versions; the silos are restarted",
        cluster,
    );
}

#[test]
fn half_dead() {
    let (mut cluster, all) = cluster(5);
    cluster.hang(all[1], S(300));
    assert!(
        cluster.run_until(S(180), |c| is_dead(c, all[1])).unwrap(),
        "signs of life delay a death but do not prevent it"
    );
    assert_eq!(cause(&cluster, all[1]), Some(CauseOfDeath::Voted));
    assert!(cluster.stats().heard > 10);
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
        "a clock set back does not prevent the join"
    );
    the_end(
        "clock_set_back",
        "A silo restarts at its address with a clock that is a day behind",
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
        "All silos crash, and others start at new addresses",
        cluster,
    );
}
