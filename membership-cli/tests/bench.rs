//! The benchmark prints the requested measurements, and leaves nothing in the store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::Place;

/// The file contains nothing of the benchmark: neither a cluster nor the table of the store's own
/// operations.
fn nothing_left(place: &Place) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    let count = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, u32>(0))
            .unwrap()
    };
    for table in ["version", "silo", "heartbeat", "cell"] {
        assert_eq!(
            count(&format!("SELECT count(*) FROM membership_{table}")),
            0,
            "{table}"
        );
    }
    assert_eq!(
        count("SELECT count(*) FROM sqlite_schema WHERE name LIKE '%baseline%'"),
        0
    );
}

#[test]
fn every_figure_is_beside_that_of_the_store() {
    let place = Place::new();
    let ran = place
        .run(&[
            "bench",
            "--rows",
            "3,5",
            "--writers",
            "1,3",
            "--seconds",
            "1",
            "--json",
        ])
        .expect(0);
    let said = ran.json();
    let operations = said["operations"].as_array().unwrap();
    assert_eq!(operations.len(), 12);
    for of in operations {
        assert!(of["rounds"].as_u64().unwrap() >= 100, "{of}");
        assert!(
            of["p50_us"].as_f64().unwrap() <= of["p99_us"].as_f64().unwrap(),
            "{of}"
        );
        assert!(
            of["own_p50_us"].as_f64().unwrap() > 0.0 && of["ratio"].as_f64().unwrap() > 0.0,
            "{of}"
        );
    }
    let writers = said["writers"].as_array().unwrap();
    assert_eq!(
        writers
            .iter()
            .map(|w| w["writers"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(
        writers[0]["conflicts"], 0,
        "a single writer meets no conflict"
    );
    for of in writers {
        assert!(
            of["commits"].as_u64().unwrap() > 0 && of["ratio"].as_f64().unwrap() > 0.0,
            "{of}"
        );
    }
    nothing_left(&place);
}

#[test]
fn a_store_without_a_baseline_is_reported() {
    let place = Place::new();
    let ran = place
        .run(&[
            "bench",
            "--table",
            "memory:",
            "--rows",
            "3",
            "--writers",
            "0",
            "--seconds",
            "1",
        ])
        .expect(0);
    assert!(ran.out.contains("there are no ratios"), "{ran:?}");
    let nowhere = place.run(&["bench", "--table", "sqlite:/nowhere/at/all.db"]);
    assert!(
        nowhere.code != Some(0) && !nowhere.err.contains("left behind"),
        "{nowhere:?}"
    );
    assert!(
        place
            .run(&["bench", "--rows", "0", "--writers", "0"])
            .expect(2)
            .err
            .contains("nothing to measure")
    );
}

#[test]
fn an_interrupted_one_leaves_nothing() {
    let place = Place::new();
    let mut child = place
        .command(&[
            "bench",
            "--rows",
            "20",
            "--writers",
            "0",
            "--seconds",
            "600",
        ])
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let rows = || -> Option<u32> {
        let connection = rusqlite::Connection::open(place.file()).ok()?;
        connection
            .query_row("SELECT count(*) FROM membership_silo", [], |row| row.get(0))
            .ok()
    };
    while !place.file().exists() || rows() != Some(20) {
        assert!(Instant::now() < until, "it did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    nothing_left(&place);
}
