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

use support::silos::{Cluster, Process, port};
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

#[test]
fn silos_that_may_not_write_are_no_ghosts() {
    let mut cluster = Cluster::started(3, "local");
    refuse_heartbeats(&cluster.place, "%");
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

/// The heartbeats of the silo move, but it has no row by its own key.
#[test]
fn the_row_of_a_living_silo_is_not_removed_though_its_key_was_changed() {
    let mut cluster = Cluster::started(3, "local");
    let mut key = cluster.address(0);
    for new in ["127.0.0.1:1", "127.0.0.1:1@1"] {
        sql(
            &cluster.place,
            &format!("UPDATE membership_silo SET silo = '{new}' WHERE silo = '{key}'"),
        );
        key = new.to_owned();
        let ran = cluster.place.run(&["doctor", "--repair", "--yes"]);
        let ran = ran.expect(1);
        assert!(ran.out.contains("may be alive"), "{ran:?}");
        assert!(!ran.out.contains("removed the damaged row"), "{ran:?}");
    }
    for silo in &mut cluster.silos {
        assert!(silo.is_running());
    }
}

/// Every repair is a commit, which stops the cluster where rows were changed by hand.
#[test]
fn nothing_is_repaired_while_rows_may_have_been_changed_by_hand() {
    let mut cluster = Cluster::started(4, "local");
    let gone = cluster.address(3);
    cluster.silos[3].signal(rustix::process::Signal::KILL);
    cluster.silos[0].sees_dead(&gone, "voted", secs(20));
    let body = |change: &str, silo: &str| {
        let place = &cluster.place;
        sql(
            place,
            &format!("UPDATE membership_silo SET body = {change} WHERE silo = '{silo}'"),
        );
    };
    let living = cluster.address(0);
    let version = || cluster.place.run(&["status", "--json"]).expect(0).json()["version"].clone();
    let before = version();
    body(
        "replace(body, '\"silo_name\":\"', '\"silo_name\":\"x-')",
        &living,
    );
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    assert!(ran.out.contains("without a commit"), "{ran:?}");
    body("'{'", &gone);
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    for part in [
        "cannot be decoded",
        "not known whether others are",
        "nothing is repaired",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    assert!(!ran.out.contains("removed the"), "{ran:?}");
    body(
        "replace(body, '\"silo_name\":\"x-', '\"silo_name\":\"')",
        &living,
    );
    assert_eq!(version(), before, "a repair is a commit");
    cluster.silos.pop();
    for silo in &mut cluster.silos {
        assert!(silo.is_running());
    }
}

/// Silos follow the old period until they have read the new one.
#[test]
fn after_a_change_of_the_period_healthy_silos_are_well() {
    let place = Place::new();
    drop(place.initialize());
    let set = |period: &str| {
        let change = format!("i_am_alive_period={period}");
        place.run(&["settings", "set", &change]).expect(0);
    };
    set("4s");
    let silos: Vec<Process> = (0..2)
        .map(|_| Process::start(&place, port(), "local", &[]))
        .collect();
    for silo in &silos {
        silo.sees_active(2, secs(20));
    }
    thread::sleep(secs(5));
    set("500ms");
    let ran = place.run(&["doctor"]).expect(0);
    assert!(
        ran.out.contains("2 of 2 Active write heartbeats"),
        "{ran:?}"
    );
}

/// The store ignores heartbeats whose counter is lower than the one it has.
#[test]
fn a_heartbeat_counter_that_was_set_too_high_is_named() {
    let mut cluster = Cluster::started(2, "local");
    let silo = cluster.address(0);
    sql(
        &cluster.place,
        &format!("UPDATE membership_heartbeat SET counter = 90000000 WHERE silo = '{silo}'"),
    );
    let ran = cluster
        .place
        .run(&["doctor", "--repair", "--yes"])
        .expect(1);
    assert!(ran.out.contains("more than it can have written"), "{ran:?}");
    assert!(!ran.out.contains("cut off from the table"), "{ran:?}");
    nobody_is_evicted(&mut cluster);
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
