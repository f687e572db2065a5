//! How much of this workspace a new provider touches outside of its own folder: a copy of the
//! workspace, in which `cargo xtask new-provider` makes one and names it everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{NewProvider, Shape, registered};
use crate::new_provider::names::Names;

/// The most lines outside of the crate's folder, without the lock file.
const MOST: usize = 40;

const NAME: &str = "mystore";

/// The files of a folder and of the folders below it, without what is built.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        match kind.is_dir() {
            true if path.ends_with("target") || path.ends_with(".git") => {}
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// The text of each file, by its path below the folder. Pictures have none.
fn texts(folder: &Path) -> BTreeMap<PathBuf, String> {
    let all = files(folder).into_iter();
    let text = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.strip_prefix(folder).unwrap().to_owned(), text))
    };
    all.filter_map(text).collect()
}

fn copy(from: &Path, to: &Path) {
    for path in files(from) {
        let into = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(into.parent().unwrap()).unwrap();
        fs::copy(&path, &into).unwrap();
    }
}

/// The number of lines that were added, if no other line has changed.
fn added(before: &str, after: &str) -> Option<usize> {
    let mut after_lines = after.lines();
    let kept = before.lines().all(|line| after_lines.any(|it| it == line));
    kept.then(|| after.lines().count() - before.lines().count())
}

fn command(launcher: bool, register: bool, missing: bool) -> NewProvider {
    NewProvider {
        name: NAME.to_owned(),
        shape: Shape::Document,
        into: None,
        git: false,
        launcher,
        register,
        missing,
    }
}

/// Makes a provider in a copy of the workspace and names it everywhere; returns the number of lines
/// outside of its folder by file, and the new files there.
fn touched(copy_of: &Path, launcher: bool) -> (BTreeMap<PathBuf, usize>, Vec<PathBuf>) {
    let before = texts(copy_of);
    command(launcher, false, false).run(copy_of).unwrap();
    command(false, true, false).run(copy_of).unwrap();
    command(false, false, true).run(copy_of).unwrap();
    let (mut lines, mut new) = (BTreeMap::new(), Vec::new());
    for (path, text) in texts(copy_of) {
        if path.starts_with(format!("membership-{NAME}")) || path.ends_with("Cargo.lock") {
            continue;
        }
        match before.get(&path) {
            None => new.push(path),
            Some(old) if *old == text => {}
            Some(old) => {
                let added = added(old, &text);
                let added = added.unwrap_or_else(|| panic!("lines of {} changed", path.display()));
                lines.insert(path, added);
            }
        }
    }
    (lines, new)
}

#[test]
fn a_provider_touches_at_most_forty_lines_outside_of_its_crate() {
    let names = Names::new(NAME).unwrap();
    for launcher in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("workspace");
        copy(&crate::root().canonicalize().unwrap(), &root);
        let (lines, new) = touched(&root, launcher);
        let sum: usize = lines.values().sum();
        println!("launcher: {launcher}: {sum} lines: {lines:?}, new: {new:?}");
        assert!(sum > 20 && sum <= MOST, "{sum} lines: {lines:?}");
        let expected = match launcher {
            true => vec![registered::launcher_file(&names)],
            false => vec![],
        };
        assert_eq!(new, expected);
        if launcher {
            compiles(&root);
        }
    }
}

/// The library and the program's tests of silos find the provider, and the launcher its server.
fn compiles(root: &Path) {
    let here = crate::root().canonicalize().unwrap().join("target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(here, PathBuf::from);
    let mut cargo = crate::cargo();
    let package = format!("membership-{NAME}");
    let feature = format!("silo-membership/{NAME}");
    let packages = [
        "-p",
        &package,
        "-p",
        "silo-membership",
        "--features",
        &feature,
    ];
    cargo.current_dir(root).env("CARGO_TARGET_DIR", target);
    cargo.args(["check", "--offline", "--tests"]).args(packages);
    let checked = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn only_added_lines_are_counted() {
    assert_eq!(added("a\nb\n", "a\nc\nb\nd\n"), Some(2));
    assert_eq!(added("a\nb\n", "a\nc\n"), None);
}
