//! Every experiment runs with `--quick` and prints its figures.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

fn sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_membership-sim"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_start_runs_while_the_silo_that_writes_is_disturbed() {
    let (code, csv, errors) = sim(&[
        "bootstrap",
        "--quick",
        "--csv",
        "--systems",
        "membership-scribe",
        "--ghosts",
        "0",
        "--table",
        "20",
        "--variants",
        "scribe-dies,scribe-paused,restart",
    ]);
    // What must hold of large clusters need not hold of this one.
    assert!(matches!(code, Some(0 | 1)), "{code:?} {errors}");
    for variant in ["undisturbed", "scribe-dies", "scribe-paused", "restart"] {
        assert!(csv.contains(&format!(",{variant},20,20,1,")), "{csv}");
    }
}

#[test]
fn every_experiment_runs() {
    for (name, column) in [
        ("outage", "declared dead"),
        ("pause", "others given up"),
        ("skew", "declared dead"),
        ("wipe", "applications told"),
        ("rolling", "healthy declared dead"),
        ("split", "larger side settled s"),
        ("flipflop", "all known to all s"),
        ("loss80", "healthy given up"),
        ("crash", "first noticed s"),
        ("mass", "all known to all s"),
        ("restart", "first Active s"),
        ("bootstrap", "all see all s"),
        ("steady", "KB/s: mean"),
        ("dissemination", "99 % ms"),
        ("connectivity", "named one of these"),
        ("scale", "heartbeats in them/s"),
    ] {
        let (code, csv, errors) = sim(&[name, "--quick", "--csv"]);
        // Small clusters need not meet the requirements of large ones, so exit code 1 is accepted
        // too.
        assert!(matches!(code, Some(0 | 1)), "{name}: {code:?} {errors}");
        assert!(
            csv.lines()
                .any(|line| line.split(',').any(|cell| cell == column)),
            "{name}: {csv}"
        );
        assert!(
            csv.lines()
                .filter(|line| line.contains("membership") || name == "wipe")
                .count()
                > 0,
            "{name}: {csv}"
        );
        // Gossip sends more than it should, at any size; and a join waits for paused silos.
        let known = |line: &&str| {
            (name == "steady" && line.contains(": gossip, ") && line.contains(" KB/s, not "))
                || (name == "connectivity" && line.contains(" % paused for "))
        };
        let unmet = errors.lines().filter(|line| line.contains("does not hold"));
        if name != "flipflop" && name != "loss80" {
            assert_eq!(
                unmet.filter(|line| !known(line)).count(),
                0,
                "{name}: {csv} {errors}"
            );
        }
    }
}

#[test]
fn lifeguard_runs_in_every_system_and_is_drawn() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (code, text, errors) = sim(&[
        "lifeguard",
        "--quick",
        "--silos",
        "40",
        "--svg",
        file.path().to_str().unwrap(),
    ]);
    assert!(matches!(code, Some(0 | 1)), "{code:?} {errors}");
    for name in ["membership", "foca", "chitchat", "Lifeguard, published"] {
        assert!(
            text.lines().any(|line| line.starts_with(name)),
            "{name}: {text}"
        );
    }
    let drawn = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        drawn.starts_with("<svg")
            && drawn.contains(">messages/s<")
            && drawn.contains(">first: median s<"),
        "{drawn}"
    );
}

#[test]
fn drawings_label_rows_by_their_keys() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (code, text, errors) = sim(&[
        "mass",
        "--quick",
        "--seeds",
        "1..3",
        "--svg",
        file.path().to_str().unwrap(),
    ]);
    assert_eq!(code, Some(0), "{text} {errors}");
    let drawn = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        drawn.contains(">membership · 1<")
            && drawn.contains(">membership · 2<")
            && !drawn.contains(">seed<"),
        "{drawn}"
    );
}

#[test]
fn repeated_arguments_count_once() {
    let (code, csv, errors) = sim(&[
        "pause",
        "--silos",
        "5",
        "--seconds",
        "2,2",
        "--seeds",
        "1..2",
        "--systems",
        "foca,foca",
        "--csv",
    ]);
    assert_eq!(code, Some(0), "{csv} {errors}");
    // A third of five is one.
    assert_eq!(
        csv.lines().filter(|line| line.contains("foca")).count(),
        2,
        "{csv}"
    );
}

#[test]
fn a_campaign_runs_and_replays() {
    let (code, text, errors) = sim(&[
        "campaign",
        "--seeds",
        "0..2",
        "--silos",
        "6",
        "--minutes",
        "5",
    ]);
    assert_eq!(code, Some(0), "{text} {errors}");
    assert!(text.contains("every invariant held in every run"), "{text}");
    let (code, text, errors) = sim(&["replay", "1", "--silos", "6", "--minutes", "5"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.contains("starts"), "{text}");
}

#[test]
fn bad_input_is_one_clear_error() {
    let (code, _, errors) = sim(&["campaign", "--seeds", "9..3"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("expected A..B with A smaller than B"),
        "{errors}"
    );
    let (code, _, errors) = sim(&["pause", "--seeds", "0..18446744073709551615"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("too many for an experiment"), "{errors}");
    let (code, _, errors) = sim(&["campaign", "--jobs", "1000000"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("1000000 is not in 1..=1024"), "{errors}");
    let (code, _, errors) = sim(&["measurements", "--only", "nonsense"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("there is no experiment `nonsense`; the experiments are lifeguard, "),
        "{errors}"
    );
}
