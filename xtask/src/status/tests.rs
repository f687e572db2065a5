//! What is written, and what a check refuses.

use super::*;

const README: &str = "# x\n<!-- cargo xtask status: the last column -->\n| store | scheme | remarks | suite |\n|---|---|---|---|\n| SQLite | `sqlite` | one file | |\n\
                          | Redis, Valkey | `redis` | fast | old |\n| etcd | `etcd` | | not yet |\n<!-- end of cargo xtask status -->\ny\n";

fn run(passed: usize, failed: usize) -> Run {
    Run {
        passed,
        failed,
        not_applicable: 2,
        is_part: false,
        round_trips: [("read".to_owned(), 1)].into(),
        cases: ["one".to_owned(), "two".to_owned()].into(),
    }
}

/// A folder with the documents and the list of cases.
fn documents() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["docs", "conformance-tests"] {
        fs::create_dir(root.path().join(folder)).unwrap();
    }
    fs::write(root.path().join("README.md"), README).unwrap();
    let table = format!("{BEGIN_ALL}\n{END}\n");
    fs::write(root.path().join(PROVIDERS), table).unwrap();
    fs::write(root.path().join(cases::LIST), "one: T1\ntwo: T1 T2\n").unwrap();
    root
}

#[test]
fn only_stores_with_a_run_are_written() {
    let runs = Runs::from([
        ("sqlite".to_owned(), run(5, 0)),
        ("redis".to_owned(), run(6, 0)),
        ("valkey".to_owned(), run(5, 1)),
    ]);
    let written = stores(README, &runs, &BTreeSet::new()).unwrap();
    assert!(
        written.contains("| SQLite | `sqlite` | one file | passes |\n"),
        "{written}"
    );
    assert!(
        written.contains("| fast | redis: passes; valkey: **1 of 6 failed** |\n"),
        "{written}"
    );
    assert!(
        written.contains("| etcd | `etcd` | | not yet |\n")
            && written.starts_with("# x\n")
            && written.ends_with("-->\ny\n"),
        "{written}"
    );
    let several = Runs::from([
        ("sqlite".to_owned(), run(5, 0)),
        ("sqlite, as it was".to_owned(), run(4, 0)),
    ]);
    let least = stores(README, &several, &BTreeSet::new()).unwrap();
    assert!(
        least.contains("| one file | passes (2 set-ups) |"),
        "{least}"
    );
    assert_eq!(stores(&written, &runs, &BTreeSet::new()).unwrap(), written);
    assert!(stores("no markers", &runs, &BTreeSet::new()).is_err());
}

#[test]
fn round_trips_of_stores_without_a_run_stay() {
    let document = format!(
        "{BEGIN_ALL}\n| store |\n|---|\n| sqlite | – | – | – | – | 1 passed, 0 not applicable |\n{END}\n"
    );
    let written = round_trips(&document, &Runs::from([("redis".to_owned(), run(6, 0))])).unwrap();
    assert!(
        written.contains("|---|---|---|---|---|---|\n| redis | 1 |"),
        "{written}"
    );
    assert!(
        written.contains("| sqlite | – | – | – | – | 1 passed, 0 not applicable |\n"),
        "{written}"
    );
}

#[test]
fn a_part_of_the_cases_keeps_the_row_of_a_whole_run_unless_one_failed() {
    let row = "| redis (TLS) | 1 | 1 | 1 | 1 | 80 passed, 0 not applicable |";
    let document = format!("{BEGIN_ALL}\n| store |\n|---|\n{row}\n{END}\n");
    let part = |failed| Run {
        is_part: true,
        ..run(9, failed)
    };
    let written =
        |run| round_trips(&document, &Runs::from([("redis (TLS)".to_owned(), run)])).unwrap();
    assert!(written(part(0)).contains(row));
    assert!(written(part(1)).contains("**1 of 10 failed**"));
    assert!(written(run(9, 0)).contains("9 passed"));
}

#[test]
fn a_suite_that_has_grown_is_compared_by_what_it_says() {
    assert_eq!(
        compared("| redis | 1 | 70 passed, 5 not applicable |"),
        compared("| redis | 1 | 71 passed, 5 not applicable |")
    );
    assert_ne!(
        compared("| redis | 1 | 70 passed, 5 not applicable |"),
        compared("| redis | 2 | 70 passed, 5 not applicable |")
    );
    assert_ne!(
        compared("| redis | 1 | 70 passed, 5 not applicable |"),
        compared("| redis | 1 | **3 of 70 failed** |")
    );
    assert_ne!(
        compared("| redis | 1 | 82 passed, 0 not applicable |"),
        compared("| redis | 1 | 60 passed, 22 not applicable |"),
        "cases that applied do not apply any more"
    );
    assert_eq!(compared("no table, 7"), "no table, 7");
}

#[test]
fn runs_are_counted() {
    let text = r#"{"store":"redis","cases":[{"outcome":"passed"},{"outcome":"not_applicable"}],"round_trips":{"read":1,"commit":null}}"#;
    let (store, run) = Run::parse(text).unwrap();
    assert_eq!(
        (store.as_str(), run.passed, run.failed, run.not_applicable),
        ("redis", 1, 0, 1)
    );
    assert_eq!(run.round_trips, BTreeMap::from([("read".to_owned(), 1)]));
}

#[test]
fn a_check_fails_for_another_text_a_failed_case_and_a_part_of_the_cases() {
    let root = documents();
    let status = |check, whole, run| {
        let runs = Runs::from([("sqlite".to_owned(), run)]);
        let (all, stores) = (false, false);
        let status = Status {
            check,
            whole,
            all,
            stores,
        };
        status.compare(root.path(), &runs)
    };
    assert!(status(true, false, run(5, 0)).is_err(), "not written yet");
    status(false, false, run(5, 0)).unwrap();
    status(true, true, run(6, 0)).unwrap();
    let other = Run {
        round_trips: BTreeMap::new(),
        ..run(5, 0)
    };
    assert!(status(true, false, other).is_err(), "other round trips");
    let part = Run {
        is_part: true,
        ..run(1, 0)
    };
    status(true, false, part.clone()).unwrap();
    assert!(status(true, true, part).is_err(), "a part");
    // Also if the documents say so.
    assert!(status(false, false, run(5, 1)).is_err(), "a failed case");
    assert!(status(true, false, run(5, 1)).is_err(), "a failed case");
}

#[test]
fn a_check_fails_for_a_case_that_vanished_and_for_a_set_up_without_a_run() {
    let root = documents();
    let status_of = |check, (all, stores), runs: &[(&str, Run)]| {
        let runs = runs
            .iter()
            .map(|(name, run)| ((*name).to_owned(), run.clone()));
        let whole = false;
        let status = Status {
            check,
            whole,
            all,
            stores,
        };
        status.compare(root.path(), &runs.collect())
    };
    let status = |check, all, runs: &[(&str, Run)]| status_of(check, (all, false), runs);
    let (sqlite, redis) = (("sqlite", run(2, 0)), ("redis", run(2, 0)));
    status(false, false, &[sqlite.clone(), redis.clone()]).unwrap();
    status(true, true, &[sqlite.clone(), redis]).unwrap();
    status(true, false, std::slice::from_ref(&sqlite)).unwrap();
    let error = status(true, true, std::slice::from_ref(&sqlite)).unwrap_err();
    assert!(error.to_string().contains("redis"), "{error}");
    // Another set-up of the same store is enough for a quick run, and for no other one.
    let several = ("redis (several)", run(2, 0));
    status(false, false, &[sqlite.clone(), several.clone()]).unwrap();
    let quick = [sqlite.clone(), several];
    status_of(true, (false, true), &quick).unwrap();
    let error = status(true, true, &quick).unwrap_err();
    assert!(error.to_string().contains("no run of redis:"), "{error}");
    let error = status_of(true, (false, true), &quick[..1]).unwrap_err();
    assert!(
        error.to_string().contains("redis, redis (several)"),
        "{error}"
    );
    let of = |names: &[&str], is_part| Run {
        cases: names.iter().map(|name| (*name).to_owned()).collect(),
        is_part,
        ..run(2, 0)
    };
    for (run, named) in [
        (of(&["one"], false), Some("two")),
        (of(&["one", "two", "new"], false), Some("new")),
        (of(&["one"], true), None),
        (of(&["one", "new"], true), Some("new")),
    ] {
        let error = status(true, false, &[("sqlite", run)]).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text.is_empty(), named.is_none(), "{text}");
        assert!(text.contains(named.unwrap_or_default()), "{text}");
    }
}
