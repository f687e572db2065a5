//! A table that another program has changed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::time::Duration;

use support::silos::Cluster;
use support::{Place, active, secs, silo};

fn sql(place: &Place, statement: &str) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    connection.busy_timeout(secs(5)).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[test]
fn a_damaged_row_is_shown_and_can_be_removed() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1), active(2)]);
    place.beat(&table, silo(1), 1, support::now());
    place.beat(&table, silo(2), 1, support::now());
    sql(
        &place,
        "UPDATE membership_silo SET body = '{\"layout\":1' WHERE silo LIKE '%:2@%'",
    );
    let ran = place.run(&["status"]).expect(0).out;
    assert!(
        ran.contains("cannot be decoded") && ran.contains("1 damaged row"),
        "{ran}"
    );
    assert!(
        place
            .run(&["doctor", "--quick"])
            .expect(1)
            .out
            .contains("cannot be decoded")
    );
    assert!(
        place
            .run(&["doctor", "--quick", "--repair", "--yes"])
            .expect(0)
            .out
            .contains("removed the damaged row")
    );
    place.run(&["doctor", "--quick"]).expect(0);
    assert!(place.entry(&table, silo(1)).is_some() && place.entry(&table, silo(2)).is_none());
}

#[test]
fn a_ghost_can_be_evicted() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1)]);
    place.run(&["doctor", "--quick"]).expect(1);
    let ran = place
        .run(&["doctor", "--quick", "--repair", "--yes"])
        .expect(1);
    assert!(
        ran.out.contains("leave --quick out") && !ran.out.contains("evicted 127"),
        "clocks alone evict no silo: {ran:?}"
    );
    assert!(
        place
            .run(&["doctor", "--repair", "--yes"])
            .expect(0)
            .out
            .contains("evicted 127.0.0.1:1@")
    );
    assert!(
        place
            .run(&["why", "silo-1"])
            .expect(0)
            .out
            .contains("no heartbeat for")
    );
}

#[test]
fn foreign_and_newer_tables_are_refused() {
    let place = Place::new();
    sql(&place, "CREATE TABLE membership_meta (whatever)");
    place.run(&["status"]).expect(6);
    place.run(&["silo", "--listen", "127.0.0.1:0"]).expect(6);
    let place = Place::new();
    drop(place.initialize());
    sql(
        &place,
        "UPDATE membership_meta SET value = '9' WHERE name LIKE '%layout'",
    );
    assert!(place.run(&["status"]).expect(6).err.contains("update"));
    place.run(&["silo", "--listen", "127.0.0.1:0"]).expect(6);
}

#[test]
fn a_row_damaged_under_a_running_cluster_kills_no_silo() {
    let mut cluster = Cluster::started(3, "local");
    let version = cluster.place.run(&["status", "--json"]).expect(0).json()["version"]
        .as_u64()
        .unwrap();
    sql(
        &cluster.place,
        "INSERT INTO membership_silo VALUES ('nonsense', 'nonsense', 'Active', 1, '{')",
    );
    sql(
        &cluster.place,
        "UPDATE membership_heartbeat SET at = 'soon'",
    );
    std::thread::sleep(Duration::from_secs(5));
    cluster.is_whole();
    assert_eq!(
        cluster.place.run(&["status", "--json"]).expect(0).json()["version"],
        version
    );
}
