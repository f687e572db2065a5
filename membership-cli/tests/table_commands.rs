//! The commands that need only a table, each run as a process on a SQLite file.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Place, active, now, secs, silo, voted_out};

/// Two running silos with fresh heartbeats, and one that they voted out.
fn cluster() -> (Place, membership_sql::SqliteTable) {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1), active(2), voted_out(3, [1, 2])]);
    for port in [1, 2] {
        place.beat(&table, silo(port), 5, now());
    }
    place.beat(
        &table,
        silo(3),
        4,
        now().minus(std::time::Duration::from_millis(63_900)),
    );
    (place, table)
}

#[test]
fn status_shows_every_silo_and_a_summary() {
    let (place, _table) = cluster();
    let ran = place.run(&["status"]).expect(0);
    for part in [
        "SILO",
        "127.0.0.1:1@",
        "silo-2",
        "Active",
        "voted 60 s ago",
        "2 Active, 1 Dead (1 voted)",
        "version 1",
        "leader 127.0.0.1:1@",
        "last commit ",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(!ran.out.contains('\u{1b}'), "colours only on a terminal");
    assert!(
        !ran.out.contains("ROLE"),
        "a column without values is left out"
    );
    let json = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(json["version"], 1);
    assert_eq!(json["members"][2]["cause"], "voted");
    assert_eq!(json["members"][0]["heartbeat"]["counter"], 5);
    assert_eq!(json["digest"].as_str().map(str::len), Some(32));
}

#[test]
fn why_tells_the_story_however_the_silo_is_named() {
    let (place, _table) = cluster();
    for name in [
        silo(3).to_string(),
        silo(3).endpoint().to_string(),
        "silo-3".to_owned(),
    ] {
        let ran = place.run(&["why", &name]).expect(0);
        for part in [
            "is Dead, voted",
            "2 silos voted",
            "roll call  40 silos asked: 38 failed to reach it, 1 reached it; 1 did not answer",
            "3 missed probes in a row",
            "last answer",
            "3 s before its death",
            "the 4th",
            "its clock: within",
        ] {
            assert!(ran.out.contains(part), "{part}: {}", ran.out);
        }
    }
    assert!(
        place
            .run(&["why", "silo-1"])
            .expect(0)
            .out
            .contains("is not dead")
    );
    assert!(
        place
            .run(&["why", "nobody"])
            .expect(2)
            .err
            .contains("membership status")
    );
}

#[test]
fn history_is_ordered_and_can_be_cut() {
    let (place, _table) = cluster();
    let ran = place.run(&["history"]).expect(0);
    let at = |part: &str| {
        ran.out
            .find(part)
            .unwrap_or_else(|| panic!("{part}: {}", ran.out))
    };
    assert!(
        at("started") < at("active")
            && at("active") < at("Dead: voted")
            && at("Dead: voted") < at("COMMIT")
    );
    let cut = place.run(&["history", "--since", "2min"]).expect(0).out;
    assert!(
        cut.contains("Dead: voted") && !cut.contains("started"),
        "{cut}"
    );
    assert!(
        place
            .run(&["history", "--since", "yesterday"])
            .expect(2)
            .err
            .contains("--since")
    );
    for line in place.run(&["history", "--json"]).expect(0).out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn cleanup_removes_only_rows_beyond_both_age_and_number() {
    let place = Place::new();
    let table = place.initialize();
    let mut entries = vec![active(1), active(2)];
    for (port, age) in [(3, 5000), (4, 4000), (5, 10)] {
        let mut entry = voted_out(port, [1, 2]);
        entry.death.as_mut().unwrap().at = now().minus(secs(age));
        entries.push(entry);
    }
    place.insert(&table, entries);
    let dry = place
        .run(&["cleanup", "--older-than", "1h", "--keep", "2", "--dry-run"])
        .expect(0)
        .out;
    assert!(
        dry.contains("127.0.0.1:3@") && dry.contains("1 row would be removed"),
        "{dry}"
    );
    assert!(place.entry(&table, silo(3)).is_some());
    place
        .run(&["cleanup", "--older-than", "1h", "--keep", "2"])
        .expect(0);
    let left = |port| place.entry(&table, silo(port)).is_some();
    assert!(!left(3) && left(4) && left(5) && left(1));
    place.run(&["cleanup", "--older-than", "1s"]).expect(2);
}

#[test]
fn settings_are_shown_and_changed_by_a_commit() {
    let (place, _table) = cluster();
    assert!(
        place
            .run(&["settings"])
            .expect(0)
            .out
            .contains("i_am_alive_period")
    );
    let ran = place
        .run(&["settings", "set", "i_am_alive_period=30s"])
        .expect(0)
        .out;
    assert!(ran.contains("version 2") && ran.contains("30s"), "{ran}");
    assert!(
        place
            .run(&["settings", "set", "i_am_alive_period=30s"])
            .expect(0)
            .out
            .contains("nothing to change")
    );
    assert!(
        place
            .run(&["settings", "set", "i_am_alive_period=1ms"])
            .expect(2)
            .err
            .contains("500ms to 600s")
    );
    assert!(
        place
            .run(&["settings", "set", "colour=red"])
            .expect(2)
            .err
            .contains("not a shared setting")
    );
    assert_eq!(
        place.run(&["settings", "--json"]).expect(0).json()["i_am_alive_period"],
        "30s"
    );
}

#[test]
fn doctor_finds_ghosts_and_clocks_and_says_so() {
    let (place, table) = cluster();
    let ran = place.run(&["doctor", "--quick"]).expect(0).out;
    for part in ["reachable", "to read and to write", "layout"] {
        assert!(ran.contains(part), "{part}: {ran}");
    }
    place.insert(&table, vec![active(9)]);
    place.beat(&table, silo(9), 1, now().minus(secs(300)));
    place.beat(&table, silo(2), 6, now().plus(secs(60)));
    // No silo writes a heartbeat here.
    let ran = place.run(&["doctor"]).expect(1);
    assert!(
        ran.out.contains("127.0.0.1:9@") && ran.out.contains("has not written a heartbeat"),
        "{ran:?}"
    );
    assert!(
        ran.out.contains("ahead of this machine") && ran.err.contains("--repair"),
        "{ran:?}"
    );
}

#[test]
fn evict_asks_and_warns() {
    let (place, table) = cluster();
    assert!(
        place
            .run(&["evict", "silo-1", "--reason", "test"])
            .expect_lines(2)
            .err
            .contains("--yes")
    );
    let mut child = place
        .command(&["evict", "silo-1", "--reason", "test"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"no\n").unwrap();
    let ran: support::Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("it is alive"), "{ran:?}");
    assert_eq!(
        place.entry(&table, silo(1)).unwrap().status,
        membership_core::SiloStatus::Active
    );
    assert!(
        place
            .run(&["evict", "silo-3", "--reason", "test", "--yes"])
            .expect(2)
            .err
            .contains("already Dead")
    );
    assert!(
        place
            .run(&["evict", "silo-99", "--reason", "test", "--yes"])
            .expect(2)
            .err
            .contains("there is no silo")
    );
    place
        .run(&["evict", "silo-1", "--reason", " ", "--yes"])
        .expect(2);
}

/// The clock of this machine is an hour ahead of the silo's.
#[test]
fn evict_warns_of_a_silo_that_writes_heartbeats_whatever_the_clocks_say() {
    let (place, table) = cluster();
    let old = now().minus(secs(3_600));
    place.beat(&table, silo(1), 6, old);
    let mut child = place
        .command(&["evict", "silo-1", "--reason", "test"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    for counter in 7..17 {
        std::thread::sleep(std::time::Duration::from_millis(200));
        place.beat(&table, silo(1), counter, old);
    }
    child.stdin.take().unwrap().write_all(b"no\n").unwrap();
    let ran: support::Ran = child.wait_with_output().unwrap().into();
    assert!(ran.err.contains("just now: it is alive"), "{ran:?}");
}

#[test]
fn delete_asks_for_the_name_and_then_nothing_is_left() {
    let (place, _table) = cluster();
    place.run(&["delete"]).expect(2);
    place
        .run(&["delete", "--cluster", "default"])
        .expect_lines(2);
    place.run(&["status"]).expect(0);
    place
        .run(&["delete", "--cluster", "default", "--yes"])
        .expect(0);
    let err = place.run(&["status"]).expect(5).err;
    for part in ["not_initialized", "compare --table and --cluster"] {
        assert!(err.contains(part), "{err}");
    }
}

#[test]
fn errors_are_one_line_with_an_exit_code() {
    let place = Place::new();
    place.run(&["status"]).expect(5);
    assert!(!place.file().exists(), "looking makes no file");
    let ask = |url: &str, code: i32| place.run(&["status", "--table", url]).expect(code).err;
    assert!(ask("gopher://host", 2).contains("does not know the scheme"));
    assert!(ask("membership.db", 2).contains("sqlite:membership.db"));
    place.run(&["status", "--cluster", "a/b/c"]).expect(2);
    place.run(&["frobnicate"]).expect(2);
    std::fs::write(place.file(), vec![b'x'; 8192]).unwrap();
    place.run(&["status"]).expect(6);
}

/// A scheme, whether or not this build has its feature, and a table at port 1, where no process
/// listens.
macro_rules! stores {
    ($($feature:literal: $url:literal),* $(,)?) => { [$(($feature, cfg!(feature = $feature), $url)),*] };
}

#[test]
fn a_store_that_is_not_there_or_not_built_in_shows_no_password() {
    let place = Place::new();
    let stores = stores![
        "azure-table": "azure-table://:hunter2x@account/table?endpoint=http://127.0.0.1:1",
        "cassandra": "cassandra://user:hunter2x@127.0.0.1:1/membership",
        "consul": "consul://:hunter2x@127.0.0.1:1",
        "dynamodb": "dynamodb://user:hunter2x@eu-west-1/table?endpoint=http://127.0.0.1:1",
        "etcd": "etcd://user:hunter2x@127.0.0.1:1",
        "mongodb": "mongodb://user:hunter2x@127.0.0.1:1",
        "mssql": "mssql://user:hunter2x@127.0.0.1:1/membership",
        "mysql": "mysql://user:hunter2x@127.0.0.1:1/membership",
        "nats": "nats://user:hunter2x@127.0.0.1:1",
        "postgres": "postgres://user:hunter2x@127.0.0.1:1/membership",
        "redis": "redis://user:hunter2x@127.0.0.1:1",
        "zk": "zk://user:hunter2x@127.0.0.1:1",
    ];
    // Run side by side, because some of them try again for a while before they report that there is
    // no server.
    std::thread::scope(|scope| {
        for (feature, built_in, url) in stores {
            let place = &place;
            scope.spawn(move || {
                let ran =
                    place
                        .run(&["status", "--table", url])
                        .expect(if built_in { 5 } else { 2 });
                assert!(!format!("{ran:?}").contains("hunter2x"), "{ran:?}");
                assert!(
                    built_in || ran.err.contains(&format!("--features {feature}")),
                    "{ran:?}"
                );
            });
        }
    });
}

#[test]
fn help_has_the_exit_codes_and_a_reader_may_leave() {
    let (place, _table) = cluster();
    let help = place.run(&["--help"]).expect(0).out;
    for exit in membership_cli::Exit::ALL {
        assert!(help.contains(exit.meaning()), "{help}");
    }
    let mut child = place
        .command(&["watch", "--every", "50ms", "--json"])
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    drop(lines);
    // Nothing changes, so no further line meets the closed pipe.
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < support::secs(20), "it still waits");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn watch_ends_when_the_table_is_replaced() {
    use std::io::{BufRead, BufReader};
    let (place, table) = cluster();
    let mut child = place
        .command(&["watch", "--every", "50ms", "--json"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .next()
            .unwrap()
            .unwrap()
            .contains("\"event\":\"view\"")
    );
    place.insert(&table, vec![active(7)]);
    assert!(lines.next().unwrap().unwrap().contains("127.0.0.1:7@"));
    place
        .run(&["delete", "--cluster", "default", "--yes"])
        .expect(0);
    let last = lines.last().unwrap().unwrap();
    assert!(last.contains("\"event\":\"table\""), "{last}");
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn the_schema_is_printed_where_there_is_one() {
    let place = Place::new();
    assert!(
        place
            .run(&["schema"])
            .expect(2)
            .err
            .contains("the first silo makes what it needs")
    );
    place.run(&["schema", "--table", "gopher:x"]).expect(2);
    #[cfg(feature = "postgres")]
    {
        let printed = place
            .run(&[
                "schema",
                "--table",
                "postgres://nobody:hunter2@nowhere.invalid/app",
            ])
            .expect(0)
            .out;
        assert!(
            printed.contains("CREATE TABLE")
                && printed.contains("membership_")
                && !printed.contains("hunter2"),
            "{printed}"
        );
    }
    #[cfg(feature = "mssql")]
    {
        let printed = place
            .run(&[
                "schema",
                "--table",
                "mssql://nobody:hunter2@nowhere.invalid/app",
            ])
            .expect(0)
            .out;
        assert!(
            printed.contains("CREATE TABLE membership_version") && !printed.contains("hunter2"),
            "{printed}"
        );
    }
    #[cfg(feature = "mysql")]
    {
        let printed = place
            .run(&[
                "schema",
                "--table",
                "mysql://nobody:hunter2@nowhere.invalid/app",
            ])
            .expect(0)
            .out;
        assert!(
            printed.contains("CREATE TABLE")
                && printed.contains("CREATE PROCEDURE")
                && !printed.contains("hunter2"),
            "{printed}"
        );
    }
}

#[test]
fn status_shows_the_worst_first_and_only_what_is_asked_for() {
    let place = Place::new();
    let table = place.initialize();
    let mut rows: Vec<_> = (0..60).map(|n| active(8_000 + n)).collect();
    rows[7].info.zone = "z1".to_owned();
    rows.push(voted_out(9_000, [8_000, 8_001]));
    let silos: Vec<_> = rows.iter().map(|row| row.address).collect();
    place.insert(&table, rows);
    for silo in silos {
        place.beat(&table, silo, 1, now());
    }
    let shown = place.run(&["status"]).expect(0).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("60 Active, 1 Dead"), "{shown}");
    assert!(lines[3].contains(":9000@"), "{shown}");
    let shown = place.run(&["status", "--limit", "3"]).expect(0).out;
    assert!(shown.contains("and 58 more"), "{shown}");
    let filter = "status=Active,zone=z1";
    let found = place
        .run(&["status", "--filter", filter, "--json"])
        .expect(0)
        .json();
    assert_eq!(found["members"].as_array().unwrap().len(), 1, "{found}");
    let wrong = place.run(&["status", "--filter", "colour=red"]).expect(2);
    assert!(wrong.err.contains("none of status, zone"), "{wrong:?}");
    let nobody = place.run(&["status", "--filter", "zone=z9"]).expect(0);
    assert!(nobody.out.contains("no silo matches"), "{nobody:?}");
}

#[test]
fn a_name_that_looks_like_another_one_is_not_enough_to_evict() {
    for liar in [
        "silo-1 ",
        "silo-\u{200b}1",
        "silo-1\u{e0001}",
        "\u{2060}silo-1",
    ] {
        let (place, table) = cluster();
        let mut entry = active(9);
        entry.info.silo_name = liar.to_owned();
        place.insert(&table, vec![entry]);
        let ran = place
            .run(&["evict", "silo-1", "--reason", "test", "--yes"])
            .expect(2);
        for port in [1, 9] {
            assert!(
                ran.err.contains(&silo(port).to_string()),
                "{liar:?}: {ran:?}"
            );
            let entry = place.entry(&table, silo(port)).unwrap();
            assert_eq!(entry.death, None, "{liar:?}");
        }
        // What cannot be seen is shown as something.
        let shown = place.run(&["status"]).expect(0).out;
        assert!(
            liar.ends_with(' ') || shown.contains('\u{fffd}'),
            "{liar:?}: {shown}"
        );
        let address = silo(9).to_string();
        place
            .run(&["evict", &address, "--reason", "test", "--yes"])
            .expect(0);
        assert!(place.entry(&table, silo(9)).unwrap().death.is_some());
    }
}

#[test]
fn a_long_name_takes_no_room_from_other_rows() {
    let (place, table) = cluster();
    let mut entry = active(9);
    let long = "x".repeat(60_000);
    entry.info.silo_name = long.clone();
    entry.info.role = long.clone();
    entry.info.zone = long.clone();
    place.insert(&table, vec![entry]);
    for command in ["status", "history"] {
        let shown = place.run(&[command]).expect(0).out;
        let longest = shown.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(400), "{command}: a line has {longest:?}");
        assert!(shown.contains("xxx…"), "{shown}");
        let whole = place.run(&[command, "--json"]).expect(0).out;
        assert!(command == "history" || whole.contains(&long));
    }
}
