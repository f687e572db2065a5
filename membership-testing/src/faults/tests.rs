//! Tests of the faults: each has its effect, and no other.

use std::time::Duration;

use crate::fake::cluster;
use crate::{Cluster, Latency};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

/// Runs ten seconds, and returns the number of lost messages and of handled inputs.
fn ten_seconds(c: &mut Cluster) -> (u64, u64) {
    let before = *c.stats();
    c.run_for(S(10)).unwrap();
    (
        c.stats().dropped - before.dropped,
        c.stats().inputs - before.inputs,
    )
}

#[test]
fn a_held_process_runs_timers_but_sends_and_receives_nothing() {
    let mut c = cluster(3, 4);
    c.run_until_agreed(S(60)).unwrap();
    let one = c.running()[1];
    c.run_for(S(10)).unwrap();
    let usual = ten_seconds(&mut c).1;
    let (sent, counter) = (
        c.messages_sent(one),
        c.truth().heartbeats[&c.address(one).unwrap()],
    );
    c.hold(one, S(9));
    let (dropped, held) = ten_seconds(&mut c);
    assert_eq!(dropped, 0, "messages are late, not lost");
    assert!(
        c.messages_sent(one) > sent && held < usual,
        "{held} of {usual}"
    );
    c.run_for(S(10)).unwrap();
    assert_ne!(
        c.truth().heartbeats[&c.address(one).unwrap()],
        counter,
        "its heartbeat is written late"
    );
    // These machines send the next call only after the answer to the last one.
    c.hold(one, S(60));
    let failed = c.stats().failed_calls;
    c.run_for(S(59)).unwrap();
    assert_eq!(c.stats().failed_calls, failed, "no silo called the table");
    c.run_for(S(11)).unwrap();
    assert!(
        c.stats().failed_calls > failed,
        "calls that timed out are sent in the end"
    );
    assert!(c.is_running(one) && c.truth().record(one).unwrap().held.overlaps(S(0)));
    c.kill(one);
    c.hold(one, S(5));
    assert_eq!(c.stats().holds, 2);
}

#[test]
fn a_held_silo_is_voted_out_and_stops() {
    let mut c = Cluster::builder().seed(9).silos(5).build().unwrap();
    c.run_until_agreed(S(60)).unwrap();
    let all = c.running();
    c.hold(all[0], S(2));
    c.run_for(S(60)).unwrap();
    assert_eq!(c.running(), all);
    c.hold(all[0], S(60));
    assert!(c.run_until(S(60), |c| c.stats().voted_out == 1).unwrap());
    assert!(c.run_until(S(61), |c| !c.is_running(all[0])).unwrap());
    c.settle().unwrap();
    assert_eq!(c.running(), all[1..]);
}

#[test]
fn losses_of_one_host_affect_one_direction() {
    let mut c = cluster(3, 4);
    c.run_until_agreed(S(60)).unwrap();
    let all = c.running();
    c.run_for(S(10)).unwrap();
    assert_eq!(ten_seconds(&mut c).0, 0);
    // Its five rounds of three probes, and its answers to fifteen probes.
    c.egress_loss(all[0], 1.0);
    assert!((24..=36).contains(&ten_seconds(&mut c).0));
    c.ingress_loss(all[0], 1.0);
    c.egress_loss(all[0], 0.0);
    assert!(
        (24..=36).contains(&ten_seconds(&mut c).0),
        "it gets fifteen answers and fifteen probes"
    );
    c.ingress_loss(all[0], 0.5);
    let half = ten_seconds(&mut c).0;
    assert!((5..=25).contains(&half), "{half}");
    c.end_faults();
    assert_eq!(ten_seconds(&mut c).0, 0);
}

#[test]
fn a_silo_that_loses_most_of_what_it_sends_is_voted_out() {
    let mut c = Cluster::builder().seed(4).silos(6).build().unwrap();
    c.run_until_agreed(S(60)).unwrap();
    let all = c.running();
    c.egress_loss(all[2], 0.95);
    assert!(c.run_until(S(300), |c| c.stats().voted_out > 0).unwrap());
    c.end_faults();
    c.settle().unwrap();
    assert_eq!(c.running().len(), 5);
    assert!(!c.is_running(all[2]));
}

#[test]
fn counting_bytes_does_not_change_the_run() {
    let run = |count| {
        let mut c = Cluster::builder()
            .seed(2)
            .silos(3)
            .count_bytes(count)
            .table_latency(MS(5), MS(20))
            .build()
            .unwrap();
        c.run_until_agreed(S(60)).unwrap();
        c.run_for(S(60)).unwrap();
        let one = c.running()[0];
        (c.trace().hash(), c.messages_sent(one), c.bytes_sent(one))
    };
    let (with, without) = (run(true), run(false));
    assert_eq!((with.0, with.1, without.2), (without.0, without.1, 0));
    // A probe has some twenty, and the deltas of the joins have hundreds.
    let each = with.2 / with.1;
    assert!((20..100).contains(&each), "{each} bytes per message");
}

#[test]
fn a_partial_partition_cuts_the_chosen_directions_only() {
    let mut c = cluster(3, 4);
    c.run_until_agreed(S(60)).unwrap();
    let all = c.running();
    c.run_for(S(10)).unwrap();
    assert_eq!(c.cut_links(|from, to| from == all[0] && to != all[1]), 2);
    assert!(c.network().any_blocked() && ten_seconds(&mut c).0 > 10);
    c.mend_links(|_, to| to != all[3]);
    assert!(c.network().is_blocked(0, 3) && !c.network().is_blocked(0, 2));
    c.heal();
    c.cut_both_ways(&all[..1], &all[1..3]);
    assert_eq!(c.stats().blocks, 2 + 4);
    c.cut_one_way(&all[..1], &all[1..]);
    assert_eq!(c.stats().blocks, 2 + 4 + 1);
    c.end_faults();
    assert_eq!(ten_seconds(&mut c).0, 0);
}

#[test]
fn links_between_two_sets_become_slow_and_fast_again() {
    let mut c = cluster(3, 4);
    c.run_until_agreed(S(60)).unwrap();
    let all = c.running();
    let usual = c.network().latency();
    let slow = Latency {
        low: S(2),
        high: S(2),
        ..usual
    };
    c.slow_links(&all[..2], &all[2..], slow);
    assert_eq!(c.network().latency_between(3, 1), slow);
    assert_eq!(c.network().latency_between(0, 1), usual);
    assert!(c.truth().rough_network.is_on());
    c.usual_links();
    assert_eq!(c.network().latency_between(3, 1), usual);
    assert!(!c.truth().rough_network.is_on());
}

#[test]
fn a_stuttering_process_stalls_again_while_it_reads() {
    let mut c = Cluster::builder().seed(4).silos(4).build().unwrap();
    c.run_until_agreed(S(60)).unwrap();
    let one = c.running()[1];
    let before = c.table_traffic().reads;
    c.stutter(one, S(20), S(1));
    c.run_for(S(20)).unwrap();
    let began = c.truth().record(one).unwrap().paused.began();
    assert_eq!((began, c.is_paused(one)), (Some(c.now() - S(20)), false));
    c.run_for(MS(2)).unwrap();
    assert!(c.is_paused(one) && c.stats().pauses == 2);
    c.run_for(S(2)).unwrap();
    assert!(!c.is_paused(one) && c.table_traffic().reads > before);
    // A process that does not read stalls again all the same.
    let mut c = cluster(3, 2);
    c.run_until_agreed(S(60)).unwrap();
    let one = c.running()[1];
    c.stutter(one, MS(100), S(3));
    c.run_for(S(1)).unwrap();
    assert!(c.is_paused(one) && c.stats().pauses == 2);
}

#[test]
fn a_starving_executor_stalls_again_and_again() {
    let mut c = cluster(3, 4);
    c.run_until_agreed(S(60)).unwrap();
    let one = c.running()[1];
    c.starve(one, S(2), S(30));
    c.run_for(S(35)).unwrap();
    let stalls = c.stats().pauses;
    assert!((10..=60).contains(&stalls), "{stalls}");
    c.run_for(S(60)).unwrap();
    assert_eq!(c.stats().pauses, stalls);
    c.starve(one, S(2), S(600));
    c.end_faults();
    c.run_for(S(60)).unwrap();
    assert_eq!(c.stats().pauses, stalls);
}

#[test]
fn a_process_without_a_listener_cannot_be_dialled() {
    let mut c = Cluster::builder().seed(4).silos(6).build().unwrap();
    c.run_until_agreed(S(60)).unwrap();
    let one = c.running()[1];
    c.lose_listener(one);
    assert!(c.truth().any_block.is_on());
    let disconnects = c.stats().disconnects;
    let dropped = c.stats().dropped;
    c.run_for(S(2)).unwrap();
    assert!(c.stats().dropped > dropped);
    c.regain_listener(one);
    assert_eq!(ten_seconds(&mut c).0, 0);
    assert!(!c.truth().any_block.is_on());
    c.lose_listener(one);
    assert!(c.run_until(S(300), |c| c.stats().voted_out > 0).unwrap());
    assert_eq!(c.stats().disconnects, disconnects);
    c.end_faults();
    c.settle().unwrap();
    assert_eq!(c.running().len(), 5);
}
