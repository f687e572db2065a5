//! The crate that `cargo xtask new-provider` creates compiles, fails with a clear message, and,
//! filled with a store in memory, passes the suite. A store that ignores one of its conditions does
//! not pass.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

fn new_provider(into: &Path, name: &str, shape: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["new-provider", name, "--shape", shape, "--into"])
        .arg(into)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Implements the functions that a template leaves to its author, over a store in memory.
fn fill(crate_folder: &Path, scheme: &str, file: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::copy(fixtures.join("state.rs"), crate_folder.join("src/state.rs")).unwrap();
    fs::copy(fixtures.join(file), crate_folder.join("src").join(file)).unwrap();
    let lib = fs::read_to_string(crate_folder.join("src/lib.rs")).unwrap();
    fs::write(
        crate_folder.join("src/lib.rs"),
        lib.replace(
            "\nmod config;",
            "\nmod config;\n#[doc(hidden)]\npub mod state;",
        ),
    )
    .unwrap();
    let manifest = fs::read_to_string(crate_folder.join("Cargo.toml")).unwrap();
    let tokio = manifest
        .lines()
        .find(|line| line.starts_with("tokio = "))
        .unwrap()
        .replace("\"macros\", \"rt-multi-thread\"", "\"time\"");
    fs::write(
        crate_folder.join("Cargo.toml"),
        manifest.replace(
            "\n[dependencies]\n",
            &format!("\n[dependencies]\n{tokio}\n"),
        ),
    )
    .unwrap();
    let suite = fs::read_to_string(fixtures.join("conformance.rs")).unwrap();
    let mut suite = suite
        .replace("PROVIDER", &scheme.replace('-', "_"))
        .replace("SCHEME", scheme);
    if file == "schema.rs" {
        suite = suite.replace(
            "            (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),\n",
            "",
        );
    }
    fs::write(crate_folder.join("tests/conformance.rs"), suite).unwrap();
}

/// The profiles of the workspace, without the parts about packages that a new provider does not
/// have: cargo warns about those.
fn profiles(manifest: &str) -> String {
    let sections = manifest
        .split("\n[")
        .filter(|section| section.starts_with("profile."));
    let known = |section: &&str| match section.split_once(".package.") {
        Some((_, package)) => ["\"*\"]", "membership-core]"]
            .iter()
            .any(|name| package.starts_with(name)),
        None => true,
    };
    sections
        .filter(known)
        .map(|section| format!("\n[{section}\n"))
        .collect()
}

/// What a store can do wrong that ignores a condition, and a case that must catch it. The fixtures
/// plant what `FILLED_FAULT` names.
const FAULTS: &[(&str, &str, &str)] = &[
    (ROWS, "creates over a version row", "fifty_silos"),
    (ROWS, "inserts over a row", "conflicts_change_nothing"),
    (ROWS, "changes a missing row", "conflicts_change_nothing"),
    (ROWS, "removes a missing row", "conflicts_change_nothing"),
    (ROWS, "commits over a commit", "many_writers"),
    (
        ROWS,
        "keeps the heartbeat of nobody",
        "heartbeat_without_a_row",
    ),
    (BATCH, "creates over a version row", "fifty_silos"),
    (BATCH, "replaces any version row", "of_many_commits"),
    (BATCH, "inserts over a row", "conflicts_change_nothing"),
    (BATCH, "changes a missing row", "conflicts_change_nothing"),
    (BATCH, "has tags that begin anew", "a_table_made_anew"),
];
const ROWS: &str = "membership-filled-rows";
const BATCH: &str = "membership-filled-batch";

#[test]
#[ignore = "compiles five crates, for three minutes: .ci/run nightly runs it"]
fn every_shape_compiles_and_two_pass_the_suite_once_they_are_filled() {
    let place = tempfile::tempdir().unwrap();
    let (root, place) = (root(), place.path());
    for (name, shape) in [
        // Words of Rust, of the templates and of the suite.
        ("self", "document"),
        ("store", "rows"),
        ("arc", "batch"),
        ("filled-rows", "rows"),
        ("filled-batch", "batch"),
    ] {
        let made = new_provider(place, name, shape);
        assert!(made.status.success(), "{}", text(&made));
        let again = new_provider(place, name, shape);
        assert!(
            !again.status.success() && text(&again).contains("is there already"),
            "{}",
            text(&again)
        );
    }
    fill(
        &place.join("membership-filled-rows"),
        "filled-rows",
        "schema.rs",
    );
    fill(
        &place.join("membership-filled-batch"),
        "filled-batch",
        "codec.rs",
    );

    // The crates form one workspace, with this one's lock file and profiles, so that earlier builds
    // are reused.
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let profiles = profiles(&manifest);
    fs::write(
        place.join("Cargo.toml"),
        format!("[workspace]\nresolver = \"3\"\nmembers = [\"membership-*\"]\n{profiles}"),
    )
    .unwrap();
    fs::copy(root.join("Cargo.lock"), place.join("Cargo.lock")).unwrap();
    let cargo_with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        cargo
            .current_dir(place)
            .env("CARGO_TARGET_DIR", target)
            .envs(variables.iter().copied())
            .args(arguments)
            .output()
            .unwrap()
    };
    let cargo = |arguments: &[&str]| cargo_with(&[], arguments);
    let checked = cargo(&["test", "--offline", "--workspace", "--no-run"]);
    assert!(checked.status.success(), "{}", text(&checked));
    assert!(!text(&checked).contains("warning:"), "{}", text(&checked));
    for package in [ROWS, BATCH] {
        let passed = cargo(&["test", "--offline", "-p", package, "--test", "conformance"]);
        assert!(passed.status.success(), "{}", text(&passed));
    }
    for (package, fault, case) in FAULTS {
        let planted = [
            ("FILLED_FAULT", *fault),
            ("MEMBERSHIP_CONFORMANCE_CASES", case),
        ];
        let test = ["test", "--offline", "-p", package, "--test", "conformance"];
        let caught = text(&cargo_with(&planted, &test));
        assert!(
            caught.contains("0 passed, 1 failed"),
            "{package}: a store that {fault} is not caught by {case}: {caught}"
        );
    }
    let unwritten = cargo(&[
        "test",
        "--offline",
        "-p",
        "membership-self",
        "--test",
        "conformance",
    ]);
    assert!(
        !unwritten.status.success() && text(&unwritten).contains("`prepare` is not written yet"),
        "{}",
        text(&unwritten)
    );
}
