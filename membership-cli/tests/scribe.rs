//! Real silos of which one writes the changes of all: the setting `scribe`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

#[cfg(feature = "http")]
#[allow(dead_code, reason = "the tests of HTTP use the rest")]
#[path = "http/client.rs"]
mod client;

#[cfg(feature = "http")]
use std::collections::BTreeSet;
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use support::silos::{Cluster, Process, port};
use support::{Place, crowd, secs};

/// A place, and the options of silos there that write for each other.
fn place() -> (Place, [String; 2]) {
    let place = Place::new();
    let options = crowd::options(&place);
    (place, options)
}

fn version(place: &Place) -> u64 {
    let status = place.run(&["status", "--json"]).expect(0).json();
    status["version"].as_u64().unwrap()
}

#[test]
fn the_scribe_is_killed_while_many_start() {
    const OTHERS: usize = 15;
    let (place, options) = place();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let scribe = Process::start(&place, port(), "lan", &options);
    scribe.address(secs(30));
    let silos: Vec<Process> = (0..OTHERS)
        .map(|_| Process::start(&place, port(), "lan", &options))
        .collect();
    // The first of them are in the table, and it is the one that wrote them.
    scribe.wait("a silo that joins", secs(30), |lines| {
        let last = lines.iter().rfind(|l| l.event["event"] == "view")?;
        (last.event["members"].as_array()?.len() > 1).then_some(())
    });
    scribe.signal(Signal::KILL);
    let mut cluster = Cluster {
        place,
        preset: "lan",
        silos,
    };
    // It was the only Active one: whoever joins has to see its heartbeat stand still.
    cluster.all_active(secs(120));
    cluster.agree(secs(10));
    for silo in &mut cluster.silos {
        assert!(silo.is_running(), "{:?}", silo.lines().last());
    }
    // One commit per change would be 33 commits and a few votes.
    let version = version(&cluster.place);
    eprintln!("{version} commits");
    assert!(version <= 25, "{version} commits");
}

#[test]
fn silos_with_and_without_it_live_in_one_cluster() {
    let (place, options) = place();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let silos = (0..6)
        .map(|i| {
            let more = if i % 2 == 0 { &options[..] } else { &[] };
            Process::start(&place, port(), "lan", more)
        })
        .collect();
    let mut cluster = Cluster {
        place,
        preset: "lan",
        silos,
    };
    cluster.all_active(secs(120));
    let killed = cluster.address(5);
    cluster.silos[5].signal(Signal::KILL);
    cluster.silos.truncate(5);
    for silo in &cluster.silos {
        silo.sees_dead(&killed, "voted", secs(30));
    }
    cluster.agree(secs(10));
}

/// The value of a series in the metrics of a silo. Gauges are set once a second, for the first time a
/// second after the start.
#[cfg(feature = "http")]
fn metric(silo: &Process, series: &str) -> Option<f64> {
    let text = client::get(client::address(silo), "/metrics").body;
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value)
}

#[cfg(feature = "http")]
#[test]
fn all_name_one_scribe_and_count_what_it_writes_for_others() {
    const OTHERS: usize = 7;
    let (place, options) = place();
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--http", "127.0.0.1:0"]);
    let first = Process::start(&place, port(), "lan", &options);
    first.address(secs(30));
    let others = (0..OTHERS).map(|_| Process::start(&place, port(), "lan", &options));
    let silos: Vec<Process> = std::iter::once(first).chain(others).collect();
    let cluster = Cluster {
        place,
        preset: "lan",
        silos,
    };
    cluster.all_active(secs(120));
    cluster.agree(secs(10));
    let sum =
        |series: &str| -> Option<f64> { cluster.silos.iter().map(|s| metric(s, series)).sum() };
    let waiting = |at| sum(&format!("membership_changes_waiting{{at=\"{at}\"}}"));
    let until = Instant::now() + secs(30);
    let scribe = loop {
        let health = |silo: &Process| {
            let answer = client::get(client::address(silo), "/api/v1/health").json(200);
            answer["writer"].to_string()
        };
        let said: BTreeSet<String> = cluster.silos.iter().map(health).collect();
        let all: Vec<serde_json::Value> = said
            .iter()
            .map(|writer| serde_json::from_str(writer).unwrap())
            .collect();
        // Nothing waits any more.
        if let [writer] = &all[..]
            && writer["waiting"] == 0
            && writer["asked"].is_null()
            && sum("membership_is_scribe") == Some(1.0)
            && waiting("here") == Some(0.0)
            && waiting("another") == Some(0.0)
        {
            break writer["scribe"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < until, "{said:?}");
        thread::sleep(secs(1) / 5);
    };
    for silo in &cluster.silos {
        silo.wait(&scribe, secs(10), |lines| {
            let last = lines.iter().rfind(|l| l.event["event"] == "scribe")?;
            (last.event["scribe"] == scribe.as_str()).then_some(())
        });
    }
    let status = cluster.place.run(&["status"]).expect(0).out;
    let line = format!("last commit by {scribe}: ");
    assert!(status.contains(&line), "{line} in {status}");

    let (written, sent) = (
        sum("membership_changes_written_for_others_total").unwrap(),
        sum("membership_changes_sent_total").unwrap(),
    );
    eprintln!("{sent} changes sent, {written} written for others");
    assert!(written >= 1.0 && written <= sent, "{written} of {sent}");
    let learned = |how| sum(&format!("membership_views_learned_total{{how=\"{how}\"}}"));
    let [changes, commit] = ["changes", "commit"].map(|how| learned(how).unwrap());
    assert!(changes >= 1.0 && commit >= 1.0);
}

#[test]
#[ignore = "starts a hundred processes: .ci/run nightly runs it"]
fn many_start_at_once_and_their_scribe_is_killed() {
    crowd::starts_at_once_and_its_scribe_is_killed(&Place::new());
}
