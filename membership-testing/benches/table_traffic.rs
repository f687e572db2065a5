//! Counts the requests of a silo to its table in an hour without events, and in an hour with a
//! rolling deployment, with the default settings: `cargo bench -p membership-testing --bench
//! table_traffic`.
//!
//! The hours are virtual, so it takes seconds and gives the same figures on every machine. What a
//! store makes of one request (pages, units, bytes on the wire) depends on the store.

#![allow(
    clippy::disallowed_macros,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::time::Duration;

use membership_core::{Config, Preset};
use membership_testing::{Cluster, TableTraffic};

const HOUR: Duration = Duration::from_secs(3_600);

fn main() {
    println!("per silo and hour, preset lan, in requests and bytes of keys and values");
    println!(
        "{:>6} {:<8} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10} {:>11} {:>11}",
        "silos",
        "hour",
        "requests",
        "reads",
        "unchanged",
        "heartbeats",
        "commits",
        "conflicts",
        "bytes read",
        "written"
    );
    for silos in [5, 20, 100] {
        let (quiet, deploy) = hours(silos);
        line(silos, "quiet", &quiet);
        line(silos, "deploy", &deploy);
    }
}

/// One hour without events, and one in which every silo is replaced, one after the other.
fn hours(silos: usize) -> (TableTraffic, TableTraffic) {
    let mut cluster = Cluster::builder()
        .seed(11)
        .config(Config::preset(Preset::Lan))
        .checks(Vec::new())
        .build()
        .expect("a cluster");
    for _ in 0..silos.div_ceil(20) {
        cluster.start(silos.min(20));
        cluster
            .run_until_agreed(Duration::from_secs(300))
            .expect("no invariant is watched");
    }
    cluster.run_for(Duration::from_secs(120)).unwrap();
    let begin = cluster.table_traffic();
    cluster.run_for(HOUR).unwrap();
    let quiet = cluster.table_traffic();
    let began = cluster.now();
    for silo in cluster.running() {
        cluster.leave(silo);
        cluster.start(1);
        cluster
            .run_for(HOUR / u32::try_from(silos + 1).unwrap_or(u32::MAX))
            .unwrap();
    }
    let rest = HOUR.saturating_sub(cluster.now() - began);
    cluster.run_for(rest).unwrap();
    (quiet.since(&begin), cluster.table_traffic().since(&quiet))
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn line(silos: usize, hour: &str, t: &TableTraffic) {
    let each = |n: u64| n as f64 / silos as f64;
    println!(
        "{silos:>6} {hour:<8} {:>9.1} {:>9.1} {:>9.1} {:>10.1} {:>9.2} {:>10.2} {:>11.0} {:>11.0}",
        each(t.requests()),
        each(t.reads),
        each(t.unchanged),
        each(t.heartbeats + t.cells),
        each(t.commits),
        each(t.conflicts),
        each(t.bytes_read),
        each(t.bytes_written)
    );
}
