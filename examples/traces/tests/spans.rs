//! The program is run, and its spans are read.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::process::Command;

/// The values of one field of the printed spans, in order. Names of scopes stand in quotes.
fn all<'a>(text: &'a str, field: &str) -> Vec<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .filter(|(name, value)| name.trim() == field && !value.contains('"'))
        .map(|(_, value)| value.trim())
        .collect()
}

#[test]
fn the_join_has_the_calls_of_the_table_as_children() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("membership.db").display());
    let ran = Command::new(env!("CARGO_BIN_EXE_traces"))
        .arg(url)
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(
        ran.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let (names, spans) = (all(&text, "Name"), all(&text, "SpanId"));
    let parents = all(&text, "ParentSpanId");
    let join = names
        .iter()
        .position(|name| *name == "membership join")
        .unwrap();
    let is_child = |at: &usize| parents[*at] == spans[join];
    let children: Vec<&str> = (0..names.len())
        .filter(is_child)
        .map(|at| names[at])
        .collect();
    for call in ["table initialize", "table read", "table commit"] {
        assert!(
            children.contains(&call),
            "{call} is not in {children:?}: {text}"
        );
    }
    // What the silo does later is no part of its join.
    let commits = names.iter().filter(|name| **name == "table commit").count();
    let within = children
        .iter()
        .filter(|name| **name == "table commit")
        .count();
    assert!(commits > within, "{text}");
    assert!(text.contains("sqlite"), "{text}");
}
