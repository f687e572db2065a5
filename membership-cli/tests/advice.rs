//! Whether what people are told to do works, with real silos.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use support::silos::{Cluster, Process, port};
use support::{Place, active, secs};

fn sql(place: &Place, statement: &str) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    connection.busy_timeout(secs(10)).unwrap();
    connection.execute_batch(statement).unwrap();
}

fn remove_row(place: &Place, silo: &str) {
    let statement = format!("DELETE FROM membership_silo WHERE silo = '{silo}'");
    sql(place, &statement);
}

/// `why` knows nothing of a silo without a row, and whoever evicts a silo has said why.
#[test]
fn a_silo_says_why_it_ended_and_sends_nobody_where_there_is_nothing_to_see() {
    let mut cluster = Cluster::started(3, "local");
    let [removed, evicted] = [1, 2].map(|i| cluster.address(i));
    remove_row(&cluster.place, &removed);
    let args = ["evict", &*evicted, "--reason", "disk is dying", "--yes"];
    let ran = cluster.place.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.err.contains("somebody changed or removed rows"),
        "the eviction makes the removal final: {ran:?}"
    );
    let (code, err) = cluster.silos[2].ends(secs(40));
    assert_eq!(code, Some(3), "{err}");
    let last = err.lines().last().unwrap();
    assert!(last.contains("disk is dying"), "{last}");
    assert!(!last.contains("voted"), "{last}");
    let log = err.lines().find(|l| l.contains("declared dead")).unwrap();
    assert!(log.contains("disk is dying"), "{log}");
    assert!(!log.contains("accusers"), "{log}");
    let (code, err) = cluster.silos[1].ends(secs(40));
    assert_eq!(code, Some(3), "{err}");
    let last = err.lines().last().unwrap();
    assert!(!last.contains("membership why"), "{last}");
    assert!(last.contains("membership doctor"), "{last}");
    cluster.place.run(&["why", &removed]).expect(2);
    cluster.place.run(&["doctor", "--quick"]).expect(1);
}

/// Rows that are put back after the next commit are not those of that commit: then every silo takes
/// the table for another one.
#[test]
fn after_the_next_commit_nobody_is_told_to_put_removed_rows_back() {
    let mut cluster = Cluster::started(3, "local");
    let place = &cluster.place;
    remove_row(place, &cluster.address(2));
    let doctor = place.run(&["doctor", "--quick"]).expect(1);
    assert!(doctor.out.contains("before the next commit"), "{doctor:?}");
    let settings = place.run(&["settings"]).expect(0);
    assert_eq!(settings.err, "", "it only shows them");
    let settings = place.run(&["settings", "set", "no_such_setting=1"]);
    assert!(
        settings.err.contains("somebody changed or removed rows"),
        "a change would make the removal final: {settings:?}"
    );
    let newcomer = Process::start(place, port(), "local", &[]);
    newcomer.address(secs(40));
    assert_eq!(cluster.silos[2].ends(secs(40)).0, Some(3));
    let doctor = place.run(&["doctor"]).expect(1);
    assert!(doctor.out.contains("Do not put rows back"), "{doctor:?}");
    assert!(!doctor.out.contains("none damaged"), "{doctor:?}");
    let status = place.run(&["status"]).expect(0);
    assert!(!status.out.contains("not those of version"), "{status:?}");
    assert!(status.out.contains("leave 4 rows"), "{status:?}");
    assert!(status.out.contains("the table has 3"), "{status:?}");
    // What is left goes on: another one is admitted, and nobody takes the table for another one.
    let another = Process::start(place, port(), "local", &[]);
    another.address(secs(40));
    for silo in [&cluster.silos[0], &cluster.silos[1], &newcomer] {
        silo.never_lost_its_table();
    }
}

/// A silo that knew the table as it was before admits nobody, so replacing silos one by one waits for
/// ever at the first one.
#[test]
fn after_a_restore_silos_are_restarted_together() {
    let mut cluster = Cluster::started(2, "local");
    sql(
        &cluster.place,
        "CREATE TABLE kept_rows AS SELECT * FROM membership_silo; \
         CREATE TABLE kept_version AS SELECT * FROM membership_version",
    );
    let mut third = Process::start(&cluster.place, port(), "local", &[]);
    third.address(secs(40));
    sql(
        &cluster.place,
        "BEGIN IMMEDIATE; DELETE FROM membership_silo; INSERT INTO membership_silo SELECT * FROM kept_rows; \
         DELETE FROM membership_version; INSERT INTO membership_version SELECT * FROM kept_version; COMMIT",
    );
    for silo in &cluster.silos {
        silo.sees_table("table_rolled_back", secs(40));
    }
    third.sees_table("table_rolled_back", secs(40));
    let quick = cluster.place.run(&["doctor"]).expect(1);
    assert!(
        quick.out.contains("restart all silos together"),
        "{quick:?}"
    );
    let again = |process: &mut Process, place: &Place| {
        process.signal(rustix::process::Signal::TERM);
        assert_eq!(process.ends(secs(40)).0, Some(0));
        *process = Process::start(place, port(), "local", &[]);
    };
    again(&mut cluster.silos[0], &cluster.place);
    let waits = cluster.silos[0].wait("what it waits for", secs(40), |lines| {
        let line = lines.iter().find(|l| l.event["event"] == "joining")?;
        Some(line.event["unreached"].clone())
    });
    assert_eq!(waits[0]["it_reaches_me"], false, "{waits}");
    again(&mut cluster.silos[1], &cluster.place);
    third.signal(rustix::process::Signal::TERM);
    assert_eq!(third.ends(secs(40)).0, Some(0));
    for silo in &cluster.silos {
        silo.address(secs(60));
    }
}

/// `1` is what most people write into a variable that switches something on.
#[test]
fn a_variable_that_switches_something_on_takes_what_people_write() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101)]);
    let run = |value: &str| {
        let mut command = place.command(&["status", "--ask"]);
        command.env("MEMBERSHIP_INSECURE", value);
        support::Ran::from(command.output().unwrap())
    };
    for value in ["1", "true", "yes", "0", "false", "no", ""] {
        run(value).expect(0);
    }
    let ran = run("perhaps").expect(2);
    assert!(ran.err.contains("MEMBERSHIP_INSECURE"), "{ran:?}");
    let mut command = place.command(&["silo"]);
    command.env("MEMBERSHIP_LISTEN", "here");
    let ran = support::Ran::from(command.output().unwrap()).expect(2);
    assert!(ran.err.contains("variable MEMBERSHIP_LISTEN"), "{ran:?}");
    let ran = place.run(&["silo", "--listen", "here"]).expect(2);
    assert!(!ran.err.contains("variable"), "{ran:?}");
}
