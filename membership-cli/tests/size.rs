//! The size of the program that a user downloads: its default build stays small.

use std::collections::BTreeSet;
use std::process::Command;

/// The README promises this limit.
const CRATES: usize = 190;

#[test]
fn the_default_build_pulls_few_crates() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args([
        "tree",
        "--offline",
        "--locked",
        "-p",
        "membership-cli",
        "-e",
        "normal",
        "--prefix",
        "none",
    ]);
    let output = tree
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<&str> = text
        .lines()
        .map(|l| l.trim_end_matches(" (*)"))
        .filter(|l| !l.is_empty())
        .collect();
    assert!(
        crates.len() > 10 && crates.len() <= CRATES,
        "{} crates",
        crates.len()
    );
}
