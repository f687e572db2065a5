//! Tests of the faults: each has its effect, and no other.

use std::time::Duration;

use crate::Cluster;
use crate::fake::cluster;

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
    // A header with a version, a digest and two addresses has about ninety bytes.
    let each = with.2 / with.1;
    assert!((60..400).contains(&each), "{each} bytes per message");
}
