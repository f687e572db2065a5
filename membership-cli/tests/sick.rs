//! What people are told when something is sick: real silos, and tables that others have changed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::silos::{Cluster, Process, port};
use support::{Place, active, now, secs, silo, voted_out};

fn sql(place: &Place, statement: &str) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    connection.busy_timeout(secs(10)).unwrap();
    connection.execute_batch(statement).unwrap();
}

fn events(silo: &Process, name: &str) -> Vec<serde_json::Value> {
    let lines = silo.lines().into_iter().map(|line| line.event);
    lines.filter(|event| event["event"] == name).collect()
}

#[test]
fn rows_removed_by_hand_are_told_also_after_the_next_commit() {
    let mut cluster = Cluster::started(3, "local");
    let removed = cluster.address(1);
    sql(
        &cluster.place,
        &format!("DELETE FROM membership_silo WHERE silo = '{removed}'"),
    );
    let at_once = cluster.place.run(&["doctor", "--quick"]).expect(1);
    assert!(at_once.out.contains("damaged"), "{at_once:?}");
    let status = cluster.place.run(&["status"]).expect(0);
    assert!(status.out.contains("without a commit"), "{status:?}");
    assert!(
        status.out.contains("rows changed by hand · version"),
        "{status:?}"
    );
    let json = cluster.place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(json["changed_by_hand"], true, "{json:#}");
    // The next commit confirms the rows that are left, and the silo without one stops.
    let newcomer = Process::start(&cluster.place, port(), "local", &[]);
    newcomer.address(secs(40));
    assert_eq!(cluster.silos[1].ends(secs(40)).0, Some(3));
    let later = cluster.place.run(&["doctor"]).expect(1);
    assert!(later.out.contains("damaged"), "{later:?}");
    assert!(later.out.contains("the table has 3"), "{later:?}");
}

#[test]
fn a_table_that_reads_and_does_not_write_is_one_line_and_so_is_its_recovery() {
    let cluster = Cluster::started(1, "local");
    let refuse = |when: &str| {
        format!(
            "CREATE TRIGGER no_{when} BEFORE {when} ON membership_heartbeat BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END;"
        )
    };
    let both = refuse("INSERT") + &refuse("UPDATE");
    sql(&cluster.place, &both);
    let silo = &cluster.silos[0];
    silo.wait("the outage", secs(30), |lines| {
        lines
            .iter()
            .any(|l| l.event["event"] == "table")
            .then_some(())
    });
    // Meanwhile it is read with success many times, and no heartbeat is written.
    std::thread::sleep(secs(8));
    let told = events(silo, "table");
    let states: BTreeSet<&str> = told.iter().map(|e| e["state"].as_str().unwrap()).collect();
    assert!(
        told.len() == states.len() && !states.contains("available"),
        "{told:#?}"
    );
    for event in &told {
        let error = event["error"].as_str().unwrap();
        assert!(error.contains("disk is full"), "{error}");
        assert!(event["at"].is_string());
    }
    let outage = told.len();
    sql(
        &cluster.place,
        "DROP TRIGGER no_INSERT; DROP TRIGGER no_UPDATE",
    );
    silo.sees_table("available", secs(40));
    assert_eq!(events(silo, "table").len(), outage + 1);
}

#[test]
fn a_silo_that_nobody_answers_says_so() {
    let cluster = Cluster::started(3, "local");
    for other in &cluster.silos[1..] {
        other.signal(Signal::STOP);
    }
    let silos = cluster.silos[0].wait("unanswered", secs(40), |lines| {
        let line = lines.iter().find(|l| l.event["event"] == "unanswered")?;
        line.event["silos"].as_u64()
    });
    assert!((1..=2).contains(&silos), "{silos}");
    for other in &cluster.silos[1..] {
        other.signal(Signal::CONT);
    }
}

/// It shows no key, so it reaches nobody and nobody reaches it.
#[test]
fn a_newcomer_that_is_voted_out_names_whom_it_does_not_reach_and_leaves_one_row() {
    let cluster = Cluster::started(3, "local");
    let at = port();
    for _ in 0..3 {
        let mut newcomer = Process::start(&cluster.place, at, "local", &["--insecure"]);
        let (code, err) = newcomer.ends(secs(60));
        assert_eq!(code, Some(4), "{err}");
        for silo in 0..3 {
            assert!(err.contains(&cluster.address(silo)), "{err}");
        }
    }
    let status = cluster.place.run(&["status", "--json"]).expect(0).json();
    let there = format!("127.0.0.1:{at}@");
    let members = status["members"].as_array().unwrap().iter();
    let rows = members.filter(|m| m["silo"].as_str().unwrap().starts_with(&there));
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 1, "{rows:#?}");
}

#[test]
fn a_silo_whose_table_was_replaced_does_not_wait_to_leave() {
    let mut cluster = Cluster::started(1, "local");
    sql(
        &cluster.place,
        "DELETE FROM membership_version; DELETE FROM membership_silo; DELETE FROM membership_heartbeat",
    );
    cluster.place.initialize();
    cluster.silos[0].sees_table("table_replaced", secs(40));
    let asked = Instant::now();
    cluster.silos[0].signal(Signal::TERM);
    assert_eq!(cluster.silos[0].ends(secs(40)).0, Some(0));
    println!("left after {:?}", asked.elapsed());
    // Its leave time is 10 s.
    assert!(asked.elapsed() < secs(5), "{:?}", asked.elapsed());
}

#[test]
fn a_second_signal_ends_it_though_the_table_hangs() {
    let mut cluster = Cluster::started(1, "local");
    let holder = rusqlite::Connection::open(cluster.place.file()).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // A call is under way that waits for the lock.
    std::thread::sleep(secs(2));
    cluster.silos[0].signal(Signal::TERM);
    cluster.silos[0].wait("leaving", secs(10), |lines| {
        lines
            .iter()
            .any(|l| l.event["event"] == "leaving")
            .then_some(())
    });
    let asked = Instant::now();
    cluster.silos[0].signal(Signal::TERM);
    cluster.silos[0].ends(secs(20));
    let took = asked.elapsed();
    println!("ended {took:?} after the second signal");
    // 100 ms on a machine without other work.
    assert!(took < Duration::from_millis(600), "{took:?}");
}

#[test]
fn a_silo_whose_table_was_wiped_does_not_advise_to_make_one() {
    let cluster = Cluster::started(1, "local");
    sql(
        &cluster.place,
        "DELETE FROM membership_version; DELETE FROM membership_silo; DELETE FROM membership_heartbeat",
    );
    cluster.silos[0].sees_table("table_replaced", secs(40));
    let told = events(&cluster.silos[0], "table");
    let error = told.last().unwrap()["error"].as_str().unwrap();
    assert!(error.contains("restart the silos"), "{error}");
    assert!(!error.contains("start a silo,"), "{error}");
}

/// As `timeout` and process managers send them: to the process, and to its group.
#[test]
fn two_signals_at_once_are_one_request_to_leave() {
    let mut cluster = Cluster::started(2, "local");
    cluster.silos[0].signal(Signal::TERM);
    cluster.silos[0].signal(Signal::INT);
    assert_eq!(cluster.silos[0].ends(secs(40)).0, Some(0));
    let ended = events(&cluster.silos[0], "terminated");
    assert_eq!(ended[0]["cause"], "left", "{ended:?}");
    assert_eq!(ended[0]["clean"], true, "{ended:?}");
}

#[test]
fn settings_are_judged_by_those_of_the_cluster() {
    let place = Place::new();
    place.initialize();
    let ran = place
        .run(&["settings", "set", "failure_window=90s"])
        .expect(2);
    let both = "membership settings set failure_window=90s death_vote_expiration=";
    assert!(ran.err.contains(both), "{}", ran.err);
    let both = [
        "settings",
        "set",
        "failure_window=90s",
        "death_vote_expiration=5min",
    ];
    place.run(&both).expect(0);
    place
        .run(&["settings", "set", "failure_window=2min"])
        .expect(0);
}

#[test]
fn a_dry_run_lists_what_the_real_run_removes() {
    let place = Place::new();
    let table = place.initialize();
    let mut dead: Vec<_> = (1..=8).map(|p| voted_out(p, [20, 21])).collect();
    for (age, entry) in dead.iter_mut().enumerate() {
        if let Some(death) = &mut entry.death {
            death.at = now().minus(secs(3_600 * (1 + age as u64)));
        }
    }
    place.insert(&table, dead);
    let policy = ["cleanup", "--older-than", "2h", "--keep", "3"];
    let dry: Vec<&str> = policy.iter().copied().chain(["--dry-run"]).collect();
    let keys = |out: &str| -> Vec<String> {
        let lines = out.lines().filter(|l| l.contains('@'));
        lines.map(str::to_owned).collect()
    };
    let said = keys(&place.run(&dry).expect(0).out);
    let done = keys(&place.run(&policy).expect(0).out);
    assert!(
        said == done && said.len() == 5,
        "{said:?}, and then {done:?}"
    );
    for more in [&[][..], &["--dry-run"][..]] {
        let young: Vec<&str> = ["cleanup", "--older-than", "1min"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        place.run(&young).expect(2);
    }
}

#[test]
fn a_clock_of_this_machine_that_is_off_is_said_once() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, (1..=4).map(active).collect());
    for port in 1..=4 {
        place.beat(&table, silo(port), 1, now().plus(secs(600)));
    }
    let ran = place.run(&["doctor", "--quick"]).expect(1);
    let clocks: Vec<&str> = ran.out.lines().filter(|l| l.contains("clock")).collect();
    assert_eq!(clocks.len(), 1, "{clocks:#?}");
    assert!(clocks[0].contains("this machine's clock is"), "{clocks:?}");
    let status = place.run(&["status"]).expect(0).out;
    let clocks: Vec<&str> = status.lines().filter(|l| l.contains("clock")).collect();
    assert_eq!(clocks.len(), 1, "{status}");
}

/// What the program shows on a terminal of this size.
fn on_a_terminal(place: &Place, args: &[&str], columns: u16, rows: u16) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};
    use std::io::Read as _;
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&control).unwrap();
    unlockpt(&control).unwrap();
    let name = ptsname(&control, Vec::new()).unwrap();
    let mut terminal = std::fs::OpenOptions::new();
    let terminal = terminal.read(true).write(true).open(name.to_str().unwrap());
    let terminal = terminal.unwrap();
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let mut command = place.command(args);
    command.env("TERM", "xterm").stdout(terminal);
    let mut child = command.spawn().unwrap();
    // Now the program alone has the terminal open.
    drop(command);
    let (mut shown, mut control) = (Vec::new(), std::fs::File::from(control));
    // The end of the terminal is an error.
    let _ = control.read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap().replace('\r', "")
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

#[test]
fn the_worst_comes_first_in_its_colour_and_80_columns_suffice() {
    let place = Place::new();
    let table = place.initialize();
    let mut rows: Vec<_> = (1..=3).map(active).collect();
    for entry in &mut rows {
        entry.info.role = "a-role-of-some-length".to_owned();
        entry.info.zone = "a-zone-of-some-length".to_owned();
        entry.info.gateway_port = 30_000;
    }
    let mut suspect = voted_out(4, [1, 2]);
    suspect.status = membership_core::SiloStatus::Active;
    suspect.death = None;
    let mut left = voted_out(5, [1, 2]);
    if let Some(death) = &mut left.death {
        death.cause = membership_core::CauseOfDeath::Left;
    }
    rows.extend([suspect, left, voted_out(6, [1, 2])]);
    place.insert(&table, rows);
    for port in 1..=4 {
        place.beat(&table, silo(port), 1, now());
    }
    let shown = on_a_terminal(&place, &["status"], 80, 24);
    let lines: Vec<&str> = shown.lines().collect();
    let at = |port: u16| {
        let silo = silo(port).to_string();
        let found = lines.iter().position(|line| line.contains(&silo));
        found.unwrap_or_else(|| panic!("{silo} is not in {shown}"))
    };
    assert!(at(4) < at(6) && at(6) < at(1) && at(1) < at(5), "{shown}");
    assert!(lines[at(6)].contains("\u{1b}[31m"), "{}", lines[at(6)]);
    assert!(lines[at(5)].contains("\u{1b}[2m") && !lines[at(5)].contains("\u{1b}[31m"));
    for line in lines.iter().filter(|line| line.contains("127.0.0.1:")) {
        let width = without_colours(line).chars().count();
        let is_sentence = line.contains("is suspected");
        assert!(width <= 80 || is_sentence, "{width}: {line}");
    }
    assert!(
        shown.contains("a-zone") || !shown.contains("ZONE"),
        "{shown}"
    );
    let wide = on_a_terminal(&place, &["status"], 250, 24);
    assert!(
        wide.contains("a-zone-of-some-length") && wide.contains("30000"),
        "{wide}"
    );
}

#[test]
fn history_has_a_time_for_everything_and_asks_for_no_more_than_it_is_told() {
    let cluster = Cluster::started(2, "local");
    let history = |more: &[&str]| -> Vec<serde_json::Value> {
        let args: Vec<&str> = ["history", "--json"].iter().chain(more).copied().collect();
        let out = cluster.place.run(&args).expect(0).out;
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let all = history(&[]);
    for kind in ["started", "active", "commit"] {
        let of_it: Vec<_> = all.iter().filter(|e| e["event"] == kind).collect();
        assert!(of_it.len() >= 2, "{kind}: {all:#?}");
        for event in of_it {
            assert_eq!(event["exact"], true, "{event}");
            assert!(event["at"].as_str().unwrap().ends_with('Z'), "{event}");
        }
    }
    assert_eq!(history(&["--since", "1h"]).len(), all.len());
    assert_eq!(
        history(&["--since", "9999-01-01T00:00:00Z"]),
        Vec::<serde_json::Value>::new()
    );
}
