//! P8: the messages of one silo do not grow with the cluster, and in a quiet one they are few and
//! short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use membership_core::{Config, Preset};
use membership_testing::Cluster;
use membership_testing::checks::Load;

const S: fn(u64) -> Duration = Duration::from_secs;

/// The most messages per silo and second in any minute, after all silos have joined, with three
/// crashes.
fn peak(silos: usize) -> f64 {
    let mut config = Config::preset(Preset::Lan);
    config.i_am_alive_period = S(30);
    let mut cluster = Cluster::builder()
        .seed(8)
        .config(config)
        .checks(Vec::new())
        .build()
        .unwrap();
    // A few at a time, because the test does not measure joins.
    for _ in 0..silos / 20 {
        cluster.start(20);
        cluster.run_until_agreed(S(300)).unwrap();
    }
    cluster.run_for(S(60)).unwrap();
    cluster.measure_load();
    cluster.run_for(S(70)).unwrap();
    let running = cluster.running();
    for i in 1..=3 {
        cluster.kill(running[i * silos / 5]);
        cluster.run_for(S(40)).unwrap();
    }
    cluster.run_for(S(60)).unwrap();
    cluster.peak_load()
}

#[test]
fn messages_per_silo_are_constant_up_to_400() {
    Load::compare(peak(100), peak(400)).unwrap();
}

#[test]
#[ignore = "minutes: cargo xtask soak runs it"]
fn messages_per_silo_are_constant_up_to_1000() {
    Load::compare(peak(100), peak(1_000)).unwrap();
}

/// Messages and bytes that a silo of a cluster without events sends in a second, on average.
fn quiet(silos: usize) -> [f64; 2] {
    let mut cluster = Cluster::builder()
        .seed(8)
        .silos(silos)
        .count_bytes(true)
        .checks(Vec::new())
        .build()
        .unwrap();
    cluster.run_until_agreed(S(300)).unwrap();
    cluster.run_for(S(60)).unwrap();
    let sent = |cluster: &Cluster| {
        let running = cluster.running().into_iter();
        running.fold([0, 0], |[messages, bytes], silo| {
            [
                messages + cluster.messages_sent(silo),
                bytes + cluster.bytes_sent(silo),
            ]
        })
    };
    let before = sent(&cluster);
    cluster.run_for(S(120)).unwrap();
    let after = sent(&cluster);
    [0, 1].map(|i| (after[i] - before[i]) as f64 / 120.0 / silos as f64)
}

#[test]
fn a_quiet_silo_sends_little() {
    for silos in [10, 100] {
        let [messages, bytes] = quiet(silos);
        assert!(
            messages <= 4.1 && bytes <= 100.0,
            "{silos} silos: {messages:.2} messages and {bytes:.0} bytes a second"
        );
    }
}
