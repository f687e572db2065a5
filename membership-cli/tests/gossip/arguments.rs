//! Arguments and settings that a member does not start with, and what it says then.

use super::*;

/// Runs a member that is expected not to start.
fn refused(shared: &Shared, more: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(PROGRAM);
    command
        .args(shared.member(shared.points[0]))
        .args(more)
        .env_remove("MEMBERSHIP_CLUSTER")
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    Ran::from(command.output().unwrap()).expect(2)
}

const LEASE: &str = "[downing]\nstrategy = \"lease-majority\"\n";

#[test]
fn an_arbiter_that_nobody_would_ask_is_refused() {
    let shared = Shared::here(1, "");
    let file = shared.folder.path().join("arbiter.db");
    let url = format!("sqlite://{}", file.display());
    let ran = refused(&shared, &["--arbiter", &url], &[]);
    for part in ["--arbiter", "lease-majority", "[downing]"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(!file.exists());
}

#[cfg(feature = "memory")]
#[test]
fn an_arbiter_that_no_other_process_can_ask_is_refused() {
    let shared = Shared::here(1, LEASE);
    let ran = refused(&shared, &["--arbiter", "memory:"], &[]);
    assert!(ran.err.contains("no other process"), "{}", ran.err);
}

#[test]
fn an_error_about_the_arbiter_names_its_option() {
    let shared = Shared::here(1, LEASE);
    for url in ["foo", "mars:foo"] {
        let ran = refused(&shared, &["--arbiter", url], &[]);
        assert!(ran.err.contains("--arbiter"), "{}", ran.err);
        assert!(!ran.err.contains("--table"), "{}", ran.err);
    }
}

#[test]
fn a_contact_point_has_a_port() {
    let shared = Shared::here(1, "");
    let ran = refused(&shared, &["--seed", "127.0.0.1:0"], &[]);
    assert!(ran.err.contains("port 0"), "{}", ran.err);
}

#[test]
fn the_variable_names_several_contact_points() {
    let shared = Shared::here(1, "");
    let mut command = Command::new(PROGRAM);
    command
        .args(["gossip", "--listen", &shared.points[0].to_string()])
        .env("MEMBERSHIP_SEED", "127.0.0.1:1, 127.0.0.1:2")
        .stdin(Stdio::null());
    let ran = Ran::from(command.output().unwrap()).expect(2);
    assert!(ran.err.contains("--secret-file"), "{}", ran.err);
}

#[test]
fn an_unknown_strategy_is_answered_with_all_names() {
    for text in [
        "strategy = \"keep-minority\"",
        "strategy = { name = \"keep-minority\" }",
    ] {
        let shared = Shared::here(1, &format!("[downing]\n{text}\n"));
        let ran = refused(&shared, &[], &[]);
        for name in [
            "keep-minority",
            "none",
            "auto-down-unsafe",
            "static-quorum",
            "keep-majority",
            "keep-oldest",
            "down-all",
            "lease-majority",
        ] {
            assert!(ran.err.contains(name), "{name}: {}", ran.err);
        }
        assert!(!ran.err.contains("durations"), "{}", ran.err);
    }
    let shared = Shared::here(1, "[downing]\nstrategy = \"static-quorum\"\n");
    let ran = refused(&shared, &[], &[]);
    assert!(ran.err.contains("`size`"), "{}", ran.err);
}
