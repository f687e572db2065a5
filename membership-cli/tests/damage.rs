//! A table that another program has changed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use membership_sql::SqliteTable;
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
    let mut other = active(1);
    other.info.host_name = "another-machine".to_owned();
    place.insert(&table, vec![other, active(2)]);
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
    let quick = place.run(&["doctor", "--quick", "--repair", "--yes"]);
    assert!(quick.expect(1).out.contains("leave --quick out"));
    let ran = place.run(&["doctor", "--repair", "--yes"]);
    assert!(ran.out.contains("removed the damaged row"), "{ran:?}");
    assert!(place.entry(&table, silo(1)).is_some() && place.entry(&table, silo(2)).is_none());
}

/// The rows of two silos that are gone; that of silo 2 is damaged.
fn one_ghost_and_one_damaged_row() -> (Place, SqliteTable) {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1), active(2)]);
    place.beat(&table, silo(2), 1, support::now());
    sql(
        &place,
        "UPDATE membership_silo SET body = '{' WHERE silo LIKE '%:2@%'",
    );
    (place, table)
}

fn is_damaged(place: &Place) -> bool {
    let ran = place.run(&["status"]);
    ran.out.contains("1 damaged row")
}

#[test]
fn nothing_is_repaired_while_the_store_takes_no_writes() {
    let (place, table) = one_ghost_and_one_damaged_row();
    // Refuses what the doctor tries, and would take what it repairs.
    sql(
        &place,
        "CREATE TRIGGER refused BEFORE INSERT ON membership_silo WHEN NEW.cluster LIKE '%doctor-%' \
         BEGIN SELECT RAISE(ABORT, 'no space'); END",
    );
    let ran = place.run(&["doctor", "--repair", "--yes"]).expect(1);
    for part in [
        "does not take writes",
        "no space",
        "nothing is repaired while",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let status = place.entry(&table, silo(1)).unwrap().status;
    assert_eq!(status, membership_core::SiloStatus::Active, "{ran:?}");
    assert!(is_damaged(&place), "{ran:?}");
}

/// Nothing listens at its address as seen from here, but it writes.
#[test]
fn a_damaged_row_whose_silo_writes_heartbeats_is_not_removed() {
    let (place, table) = one_ghost_and_one_damaged_row();
    let is_over = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        let doctor = scope.spawn(|| {
            let ran = place.run(&["doctor", "--repair", "--yes"]);
            is_over.store(true, Ordering::Relaxed);
            ran
        });
        for counter in 2.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            place.beat(&table, silo(2), counter, support::now());
            std::thread::sleep(Duration::from_millis(100));
        }
        doctor.join().unwrap()
    });
    let ran = ran.expect(1);
    assert!(ran.out.contains("its silo may be alive"), "{ran:?}");
    assert!(is_damaged(&place), "{ran:?}");
}

#[test]
fn a_damaged_row_whose_silo_writes_a_heartbeat_before_the_answer_is_not_removed() {
    let (place, table) = one_ghost_and_one_damaged_row();
    let child = asked_to_repair(&place);
    place.beat(&table, silo(2), 2, support::now());
    let ran = answer_yes(child);
    assert!(ran.out.contains("its silo writes heartbeats"), "{ran:?}");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(is_damaged(&place), "{ran:?}");
}

/// `doctor --repair`, which now waits for an answer.
fn asked_to_repair(place: &Place) -> Child {
    let mut command = place.command(&["doctor", "--repair"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let (mut shown, mut byte) = (Vec::new(), [0]);
    let err = child.stderr.as_mut().unwrap();
    while !shown.ends_with(b"Type yes:") {
        err.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    child
}

/// Answers every question.
fn answer_yes(mut child: Child) -> support::Ran {
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"yes\nyes\n")
        .unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_ghost_that_writes_a_heartbeat_before_the_answer_is_left_alone() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1)]);
    place.beat(&table, silo(1), 1, support::now().minus(secs(300)));
    let child = asked_to_repair(&place);
    place.beat(&table, silo(1), 2, support::now());
    let ran = answer_yes(child);
    assert!(ran.out.contains("has written a heartbeat again"), "{ran:?}");
    let status = place.entry(&table, silo(1)).unwrap().status;
    assert_eq!(status, membership_core::SiloStatus::Active);
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

/// The heartbeat is an hour in the future, as seen by a machine whose clock is an hour behind.
#[test]
fn a_ghost_is_found_whatever_the_clocks_say() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1)]);
    place.beat(&table, silo(1), 1, support::now().plus(secs(3_600)));
    let ran = place.run(&["doctor", "--repair", "--yes"]);
    assert!(ran.out.contains("evicted 127.0.0.1:1@"), "{ran:?}");
}

#[test]
fn no_ghost_of_another_machine_is_found_by_a_refused_connection() {
    let place = Place::new();
    let table = place.initialize();
    let mut row = active(1);
    row.info.host_name = "a-container".to_owned();
    place.insert(&table, vec![row]);
    let ran = place.run(&["doctor", "--repair", "--yes"]).expect(1);
    assert!(ran.out.contains("on the silos' network?"), "{ran:?}");
    assert!(!ran.out.contains("evicted 127"), "{ran:?}");
}

#[test]
fn a_table_that_nobody_uses_is_not_well() {
    let place = Place::new();
    let table = place.initialize();
    let ran = place.run(&["doctor"]).expect(0);
    assert!(ran.out.contains("the table has none"), "{ran:?}");
    place.insert(&table, vec![support::voted_out(3, [1, 2])]);
    for args in [&["doctor"][..], &["doctor", "--quick"]] {
        let ran = place.run(args).expect(1);
        assert!(ran.out.contains("none is Active"), "{ran:?}");
    }
    place.insert(&table, vec![active(1)]);
    place.beat(&table, silo(1), 1, support::now());
    let ran = place.run(&["doctor", "--quick"]).expect(0);
    assert!(ran.out.contains("not checked"), "{ran:?}");
}

#[test]
fn a_table_without_a_cluster_key_is_named() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1)]);
    place.beat(&table, silo(1), 1, support::now());
    let core = "json_extract(body, '$.core')";
    sql(
        &place,
        &format!(
            "UPDATE membership_version SET body = json_set(body, '$.core', \
             json_remove({core}, '$.keys') || '')"
        ),
    );
    let ran = place.run(&["doctor", "--quick"]).expect(1);
    assert!(ran.out.contains("no silo can start"), "{ran:?}");
    let ran = place.run(&["settings", "rotate-key", "--finish"]).expect(6);
    assert!(ran.err.contains("without --finish"), "{ran:?}");
    place.run(&["settings", "rotate-key"]).expect(0);
    place.run(&["doctor", "--quick"]).expect(0);
    place.run(&["settings", "rotate-key", "--finish"]).expect(0);
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
