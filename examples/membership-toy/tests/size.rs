//! A provider is small: what is written for one store fits into 150 lines of code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

/// Lines that are neither blank nor a comment.
fn lines(text: &str) -> usize {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[test]
fn fewer_than_150_lines_of_its_own() {
    let mut sources: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    sources.sort();
    let counted: Vec<_> = sources
        .iter()
        .map(|path| {
            (
                path.file_name().unwrap(),
                lines(&fs::read_to_string(path).unwrap()),
            )
        })
        .collect();
    let all: usize = counted.iter().map(|(_, lines)| lines).sum();
    assert_eq!(
        counted.len(),
        4,
        "a folder in src is not counted here: {counted:?}"
    );
    assert!(all < 150, "{all}: {counted:?}");
}

#[test]
fn blank_lines_and_comments_do_not_count() {
    assert_eq!(
        lines("//! about\n\nuse a;\n    // why\n    let b = 1; // counted\n"),
        2
    );
}
