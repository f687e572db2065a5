//! How the program says things: each fact once, with what to do next, as text and as JSON.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::silos::{Cluster, port};
use support::{Place, active, now, secs, silo, voted_out};

fn sql(place: &Place, statement: &str) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    connection.busy_timeout(secs(10)).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[test]
fn a_table_that_is_not_there_is_named_without_words_of_the_library() {
    let place = Place::new();
    for command in ["status", "watch", "history", "settings"] {
        let ran = place.run(&[command]).expect(5);
        let begin = "error: there is no table of this cluster: there is no such file";
        assert!(ran.err.starts_with(begin), "{ran:?}");
        assert!(!ran.err.contains("`initialize`"), "{ran:?}");
    }
    // Doctor says it among its findings, and not a second time.
    let ran = place.run(&["doctor"]).expect(5);
    let both = ran.out + &ran.err;
    assert_eq!(both.matches("there is no such file").count(), 1, "{both}");
    assert!(both.contains("nothing else was checked"), "{both}");
}

#[test]
fn a_wrong_address_is_answered_with_a_right_one() {
    let place = Place::new();
    let ran = place.run(&["silo", "--listen", "7100"]).expect(2);
    assert!(ran.err.contains("for example 127.0.0.1:7100"), "{ran:?}");
    let ran = place.run(&["status", "--table", "nosuch:x"]).expect(2);
    let both = ["does not know the scheme `nosuch:`", "sqlite:"];
    assert!(both.iter().all(|part| ran.err.contains(part)), "{ran:?}");
    assert!(!ran.err.contains("Connectors"), "{ran:?}");
}

/// A silo that prints text; its output when it has ended.
struct Silo(Child);

impl Silo {
    fn start(place: &Place, more: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{}", port());
        let usual = ["silo", "--preset", "local", "--listen", &listen];
        let args: Vec<&str> = usual.iter().chain(more).copied().collect();
        let mut command = place.command(&args);
        command.env_remove("RUST_LOG");
        Self(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for its end; what it printed, and its errors.
    fn ended(mut self) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        let mut errors = self.0.stderr.take().unwrap();
        let errors = std::thread::spawn(move || errors.read_to_string(&mut err).map(|_| err));
        let mut output = self.0.stdout.take().unwrap();
        output.read_to_string(&mut out).unwrap();
        self.0.wait().unwrap();
        (out, errors.join().unwrap().unwrap())
    }
}

impl Drop for Silo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_newcomer_that_shows_no_secret_is_told_once_why_for_all() {
    let cluster = Cluster::started(3, "local");
    let (out, err) = Silo::start(&cluster.place, &["--insecure"]).ended();
    let told = err.lines().filter(|line| line.contains("voted out"));
    assert_eq!(told.count(), 1, "{err}");
    let reason = "one of the two speaks TLS and the other does not";
    assert_eq!((out + &err).matches(reason).count(), 1, "{err}");
    assert!(err.contains("and I reach each other"), "{err}");
    for silo in 0..3 {
        assert!(err.contains(&cluster.address(silo)), "{err}");
    }
}

#[test]
fn an_outage_and_a_death_are_lines_with_the_cause_and_nothing_is_told_twice() {
    let cluster = Cluster::started(3, "local");
    let shown = Silo::start(&cluster.place, &[]);
    let pid = Pid::from_child(&shown.0);
    for other in &cluster.silos {
        other.sees_active(4, secs(40));
    }
    let victim = cluster.address(2);
    cluster.silos[2].signal(Signal::KILL);
    cluster.silos[0].sees_dead(&victim, "voted", secs(40));
    let full = |when: &str| {
        format!(
            "CREATE TRIGGER no_{when} BEFORE {when} ON membership_heartbeat BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END;"
        )
    };
    sql(&cluster.place, &(full("INSERT") + &full("UPDATE")));
    cluster.silos[0].sees_table("unavailable", secs(40));
    // Its heartbeat fails within its own period, too.
    std::thread::sleep(secs(4));
    sql(
        &cluster.place,
        "DROP TRIGGER no_INSERT; DROP TRIGGER no_UPDATE",
    );
    kill_process(pid, Signal::TERM).unwrap();
    let (out, err) = shown.ended();
    let death = out
        .lines()
        .find(|line| line.contains(&victim) && line.contains("Dead"));
    assert!(death.unwrap().ends_with("Dead, voted"), "{out}");
    let outage = out.lines().find(|line| line.contains("unavailable"));
    let outage = outage.unwrap_or_else(|| panic!("no outage: {out}"));
    assert!(outage.contains("disk is full"), "{outage}");
    assert!(outage.contains("keeps trying"), "{outage}");
    // What the caller of a table does next is no advice for people here.
    assert!(!outage.contains("nothing was written"), "{outage}");
    assert!(!err.contains("unavailable"), "{err}");
}

#[test]
fn silos_that_are_silent_in_the_same_way_are_one_line() {
    let place = Place::new();
    let table = place.initialize();
    // Free ports, at which nothing listens.
    let ports = [port(), port(), port()];
    place.insert(&table, ports.iter().map(|port| active(*port)).collect());
    let ran = place.run(&["doctor", "--quick"]).expect(1);
    let lines = ran
        .out
        .lines()
        .filter(|line| line.contains("heartbeat for"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    for port in ports {
        assert!(lines[0].contains(&silo(port).to_string()), "{ran:?}");
    }
    assert!(ran.err.contains("problems found"), "{ran:?}");
    let status = place.run(&["status"]).expect(0);
    let hint = "3 silos have not written a heartbeat for long: `membership doctor`";
    assert!(status.out.contains(hint), "{status:?}");
}

#[test]
fn a_heartbeat_whose_row_was_removed_by_hand_is_named() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1), active(2)]);
    for port in [1, 2] {
        place.beat(&table, silo(port), 1, now());
    }
    let ran = place.run(&["doctor", "--quick"]).expect(0);
    assert!(!ran.out.contains("without a row"), "{ran:?}");
    let removed = silo(2);
    sql(
        &place,
        &format!("DELETE FROM membership_silo WHERE silo = '{removed}'"),
    );
    let ran = place.run(&["doctor", "--quick"]).expect(1);
    let line = ran.out.lines().find(|line| line.contains("without a row"));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.contains(&removed.to_string()), "{line}");
    assert!(!line.contains(&silo(1).to_string()), "{line}");
}

/// Apart from those that print what another program reads.
#[test]
fn every_command_has_json() {
    let place = Place::new();
    let help = place.run(&["help"]).expect(0).out;
    let listed = help.split("Commands:\n").nth(1).unwrap();
    let listed = listed.split("\n\n").next().unwrap().lines();
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let without: BTreeSet<&str> = names
        .filter(|name| !name.is_empty() && *name != "help")
        .filter(|name| !place.run(&[name, "--help"]).out.contains("--json"))
        .collect();
    assert_eq!(without, BTreeSet::from(["completions", "man"]));
}

fn objects(out: &str) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    out.lines().map(parsed).collect()
}

#[test]
fn what_commands_do_is_said_as_json_with_its_time() {
    let place = Place::new();
    let table = place.initialize();
    let mut old = voted_out(3, [1, 2]);
    if let Some(death) = &mut old.death {
        death.at = now().minus(secs(3_600));
    }
    place.insert(&table, vec![active(1), old]);
    place.beat(&table, silo(1), 1, now());
    let run = |args: &[&str], code| -> Vec<Value> {
        let events = objects(&place.run(args).expect(code).out);
        for event in &events {
            assert!(event["at"].as_str().unwrap().ends_with('Z'), "{event}");
        }
        events
    };
    let found = run(&["doctor", "--quick", "--json"], 0);
    let (last, findings) = found.split_last().unwrap();
    assert_eq!(last["event"], "problems");
    assert_eq!(last["count"], 0);
    assert!(findings.len() > 8, "{findings:#?}");
    for finding in findings {
        assert_eq!(finding["event"], "finding");
        assert!(["ok", "note"].contains(&finding["finding"].as_str().unwrap()));
        assert!(!finding["text"].as_str().unwrap().is_empty());
    }
    let cleanup = ["cleanup", "--older-than", "2min", "--keep", "0", "--json"];
    let dry: Vec<&str> = cleanup.iter().chain(&["--dry-run"]).copied().collect();
    for (args, is_dry) in [(&dry[..], true), (&cleanup[..], false)] {
        let done = &run(args, 0)[0];
        assert_eq!(done["dry_run"], is_dry);
        assert_eq!(done["rows"], serde_json::json!([silo(3)]));
    }
    let evict = ["evict", "silo-1", "--reason", "x", "--yes", "--json"];
    let evicted = &run(&evict, 0)[0];
    assert_eq!(evicted["silo"], silo(1).to_string());
    assert!(evicted["version"].is_u64());
    let delete = ["delete", "--cluster", "default", "--yes", "--json"];
    assert_eq!(run(&delete, 0)[0]["existed"], true);
    assert_eq!(run(&delete, 0)[0]["existed"], false);
}

#[test]
fn options_may_stand_in_the_environment() {
    let place = Place::new();
    place.initialize();
    let asking = [
        &["doctor", "--quick"][..],
        &["status", "--ask"],
        &["dashboard", "--ask"],
    ];
    for args in asking {
        let mut command = place.command(args);
        command.env("MEMBERSHIP_SECRET_FILE", "/no/such/secret");
        let ran: support::Ran = command.output().unwrap().into();
        let ran = ran.expect(2);
        assert!(ran.err.contains("/no/such/secret"), "{ran:?}");
    }
    // Whoever does not ask silos need not read it.
    let mut command = place.command(&["status"]);
    command.env("MEMBERSHIP_SECRET_FILE", "/no/such/secret");
    support::Ran::from(command.output().unwrap()).expect(0);
    let mut command = place.command(&["dashboard"]);
    command.env("MEMBERSHIP_EVERY", "1ms");
    let ran: support::Ran = command.output().unwrap().into();
    assert!(ran.expect(2).err.contains("--every must be at least"));
}
