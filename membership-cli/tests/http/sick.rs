//! What the page says when the table is sick: to the person who is called at night.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{address, get};
use super::page::{dashboard, state};
use super::support::silos::{Process, port};
use super::support::{Place, active, now, secs, silo};

fn sql(place: &Place, statement: &str) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    connection.busy_timeout(secs(10)).unwrap();
    connection.execute_batch(statement).unwrap();
}

/// The first state that is so.
#[track_caller]
fn until(at: SocketAddr, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let found = state(at);
        if is_so(&found) {
            return found;
        }
        assert!(began.elapsed() < secs(30), "not {what}: {found:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn needs(state: &Value) -> Vec<(&str, &str)> {
    let all = state["attention"].as_array().unwrap().iter();
    all.map(|a| (a["kind"].as_str().unwrap(), a["text"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_table_that_cannot_be_read_makes_no_ghosts() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101), active(7102)]);
    for port in [7101, 7102] {
        place.beat(&table, silo(port), 1, now());
    }
    let (_dashboard, at) = dashboard(&place, &[]);
    until(at, "read", |s| s["version"].is_number());
    drop(table);
    std::fs::rename(place.file(), place.file().with_extension("gone")).unwrap();
    // Silos are stale after 6 s without a heartbeat.
    std::thread::sleep(secs(9));
    let found = state(at);
    assert_eq!(found["table"]["state"], "table_replaced", "{found:#}");
    assert_eq!(found["stale"], json!([]), "{found:#}");
    let [("table", text)] = needs(&found)[..] else {
        panic!("{found:#}")
    };
    assert!(text.contains("restart all silos"), "{text}");
    let told = found["timeline"].as_array().unwrap().iter();
    assert_eq!(told.filter(|one| one["what"] == "table").count(), 1);
    let page = get(at, "/").body;
    assert!(page.contains("restart all silos"), "{page}");
}

#[test]
fn a_table_that_went_back_is_shown_as_it_is_now() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101), active(7102)]);
    let backup = place.file().with_extension("backup");
    sql(&place, &format!("VACUUM INTO '{}'", backup.display()));
    place.insert(&table, vec![active(7103)]);
    let (_dashboard, at) = dashboard(&place, &[]);
    let before = until(at, "read", |s| s["version"].is_number());
    let mut restore = format!("ATTACH '{}' AS b; BEGIN IMMEDIATE;", backup.display());
    for name in ["silo", "version", "heartbeat"] {
        let name = format!("membership_{name}");
        restore += &format!("DELETE FROM {name}; INSERT INTO {name} SELECT * FROM b.{name};");
    }
    sql(&place, &(restore + "COMMIT"));
    let after = until(at, "what is there now", |s| {
        s["version"] != before["version"]
    });
    assert_eq!(after["members"].as_array().unwrap().len(), 2, "{after:#}");
    assert_eq!(after["table"]["state"], "available", "{after:#}");
    let (kind, text) = needs(&after)[0];
    assert_eq!(kind, "table", "{after:#}");
    assert!(text.contains("went back in time"), "{text}");
    // A silo that has started since then knows no other table.
    let mut entry = active(7109);
    entry.start_time = now().plus(secs(30));
    let rows = "DELETE FROM membership_silo; DELETE FROM membership_version; DELETE FROM membership_heartbeat";
    sql(&place, rows);
    let table = place.initialize();
    place.insert(&table, vec![entry]);
    let after = until(at, "the new table", |s| {
        s["members"].as_array().is_some_and(|m| m.len() == 1)
    });
    assert!(
        needs(&after).iter().all(|(kind, _)| *kind != "table"),
        "{after:#}"
    );
}

#[test]
fn rows_that_are_changed_while_it_is_shown_need_a_person() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101), active(7102)]);
    let (_dashboard, at) = dashboard(&place, &[]);
    until(at, "read", |s| s["version"].is_number());
    let removed = silo(7102);
    sql(
        &place,
        &format!("DELETE FROM membership_silo WHERE silo = '{removed}'"),
    );
    let found = until(at, "without the row", |s| {
        s["members"].as_array().unwrap().len() == 1
    });
    let kinds: Vec<&str> = needs(&found).into_iter().map(|(kind, _)| kind).collect();
    assert!(
        kinds.contains(&"changed") && !kinds.contains(&"table"),
        "{found:#}"
    );
}

#[test]
fn if_no_silo_writes_heartbeats_it_is_the_store() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101), active(7102)]);
    let (_dashboard, at) = dashboard(&place, &[]);
    let found = until(at, "read", |s| s["version"].is_number());
    let [("store", text)] = needs(&found)[..] else {
        panic!("{found:#}")
    };
    assert!(text.contains("none of 2 silos"), "{text}");
    place.beat(&table, silo(7101), 1, now().plus(secs(60)));
    let found = until(at, "with a heartbeat", |s| needs(s)[0].0 != "store");
    let [("ghost", text)] = needs(&found)[..] else {
        panic!("{found:#}")
    };
    assert!(text.contains("`membership doctor`"), "{text}");
}

/// The page and the stream tell what the log tells: a store that reads and does not write is
/// available and unavailable by turns.
#[test]
fn a_table_that_reads_and_does_not_write_is_one_line() {
    let place = Place::new();
    let silo = Process::start(&place, port(), "local", &["--http", "127.0.0.1:0"]);
    silo.address(secs(40));
    let at = address(&silo);
    let mut refuse = String::new();
    for when in ["INSERT", "UPDATE"] {
        refuse += &format!(
            "CREATE TRIGGER no_{when} BEFORE {when} ON membership_heartbeat BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END;"
        );
    }
    sql(&place, &refuse);
    until(at, "unavailable", |s| s["table"]["state"] != "available");
    std::thread::sleep(secs(8));
    let of_table = |state: &Value| {
        let told = state["timeline"].as_array().unwrap().iter();
        told.filter(|one| one["what"] == "table").count()
    };
    // At first it may be a server that was deposed.
    let found = state(at);
    assert!(of_table(&found) <= 2, "{found:#}");
    assert_ne!(found["table"]["state"], "available", "{found:#}");
    sql(&place, "DROP TRIGGER no_INSERT; DROP TRIGGER no_UPDATE");
    let found = until(at, "available", |s| s["table"]["state"] == "available");
    assert!(of_table(&found) <= 3, "{found:#}");
}
