//! `membership doctor` beside living silos: it blames the store for what the store does, and evicts
//! no silo that may be alive.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::thread;

use support::silos::Cluster;
use support::{Place, secs};

fn sql(place: &Place, statement: &str) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    connection.busy_timeout(secs(5)).unwrap();
    connection.execute_batch(statement).unwrap();
}

/// Refuses heartbeats of these silos, and of no scratch cluster.
fn refuse_heartbeats(place: &Place, silos: &str) {
    for event in ["INSERT", "UPDATE"] {
        sql(
            place,
            &format!(
                "CREATE TRIGGER refused_{event} BEFORE {event} ON membership_heartbeat \
                 WHEN NEW.cluster NOT LIKE '%doctor-%' AND NEW.silo LIKE '{silos}' \
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            ),
        );
    }
}

fn nobody_is_evicted(cluster: &mut Cluster) {
    let status = cluster.place.run(&["status", "--json"]).expect(0).json();
    for silo in status["members"].as_array().unwrap() {
        assert_eq!(silo["status"], "Active", "{silo}");
    }
    cluster.is_whole();
}

/// Until heartbeats are stale for people: three periods of the preset `local`, and a reserve.
const STALE: u64 = 12;

#[test]
fn silos_that_may_not_write_are_no_ghosts() {
    let mut cluster = Cluster::started(3, "local");
    refuse_heartbeats(&cluster.place, "%");
    thread::sleep(secs(STALE));
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    for part in ["look at the store first", "proves its key"] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    assert!(!ran.out.contains("evicted 127"), "{ran:?}");
    nobody_is_evicted(&mut cluster);
}

#[test]
fn a_silo_that_is_cut_off_from_the_table_is_no_ghost() {
    let mut cluster = Cluster::started(3, "local");
    let silo = cluster.address(0);
    refuse_heartbeats(&cluster.place, &silo);
    thread::sleep(secs(STALE));
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    assert!(ran.out.contains("cut off from the table"), "{ran:?}");
    assert!(!ran.out.contains("look at the store first"), "{ran:?}");
    nobody_is_evicted(&mut cluster);
}

#[test]
fn a_store_that_takes_no_writes_is_named_and_nothing_is_repaired() {
    let mut cluster = Cluster::started(3, "local");
    for table in ["version", "silo", "heartbeat"] {
        for event in ["INSERT", "UPDATE"] {
            sql(
                &cluster.place,
                &format!(
                    "CREATE TRIGGER full_{table}_{event} BEFORE {event} ON membership_{table} \
                     BEGIN SELECT RAISE(ABORT, 'no space'); END"
                ),
            );
        }
    }
    thread::sleep(secs(STALE));
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    assert!(
        ran.out.contains("does not take writes") && ran.out.contains("no space"),
        "{ran:?}"
    );
    nobody_is_evicted(&mut cluster);
}

#[test]
fn after_all_were_killed_it_is_not_well() {
    let mut cluster = Cluster::started(3, "local");
    cluster.kill_all();
    let ran = cluster.place.run(&["doctor"]).expect(1);
    assert!(ran.out.contains("nothing listens"), "{ran:?}");
    thread::sleep(secs(STALE));
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(0);
    assert_eq!(ran.out.matches("evicted 127.0.0.1:").count(), 3, "{ran:?}");
}

#[test]
fn the_row_of_a_living_silo_is_not_removed_unasked() {
    let mut cluster = Cluster::started(3, "local");
    let silo = cluster.address(0);
    sql(
        &cluster.place,
        &format!("UPDATE membership_silo SET body = '{{' WHERE silo = '{silo}'"),
    );
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    assert!(ran.out.contains("may be alive"), "{ran:?}");
    assert!(!ran.out.contains("removed the damaged row"), "{ran:?}");
    for silo in &mut cluster.silos {
        assert!(silo.is_running());
    }
}

/// A row that somebody corrects by hand locks the cluster at the next commit; until then no silo
/// notices.
#[test]
fn rows_that_were_changed_by_hand_are_named_before_a_commit_makes_it_worse() {
    let mut cluster = Cluster::started(3, "local");
    cluster.place.run(&["doctor"]).expect(0);
    let silo = cluster.address(0);
    let rename = |from: &str, to: &str| {
        sql(
            &cluster.place,
            &format!(
                "UPDATE membership_silo SET body = replace(body, '{from}', '{to}') \
                 WHERE silo = '{silo}'"
            ),
        );
    };
    rename("\"silo_name\":\"", "\"silo_name\":\"x-");
    let ran = cluster.place.run(&["doctor"]).expect(1);
    assert!(ran.out.contains("without a commit"), "{ran:?}");
    assert!(ran.out.contains("restart all of them"), "{ran:?}");
    rename("\"silo_name\":\"x-", "\"silo_name\":\"");
    cluster.place.run(&["doctor"]).expect(0);
    cluster.is_whole();
}
