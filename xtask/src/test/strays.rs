//! Tests that nothing would run: in files that no module declares, and behind features that neither a
//! plain `cargo test` nor a share turns on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::shares::{COMMANDS, LIBRARY, PROGRAM, UNITS, WITH_ALL_STORES, is_chosen, owner};

/// The files with code in a folder and in the folders below it, without what tests copy elsewhere.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.ends_with("fixtures") {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// The folders of all packages.
fn packages() -> Vec<PathBuf> {
    let all = fs::read_dir(crate::root()).unwrap();
    let examples = fs::read_dir(crate::root().join("examples")).unwrap();
    let folders = all.chain(examples).map(|entry| entry.unwrap().path());
    folders
        .filter(|folder| folder.join("Cargo.toml").is_file())
        .collect()
}

fn name(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// The name of the module that a file contains; none if cargo finds the file by itself.
fn module(package: &Path, file: &Path) -> Option<String> {
    let inside = file.strip_prefix(package).unwrap();
    let depth = inside.components().count();
    let is_of_cargo = match (inside.components().next()?.as_os_str().to_str()?, depth) {
        ("src", 2) => ["lib", "main"].contains(&name(file)),
        (_, 2) => true,
        (_, 3) => name(file) == "main",
        _ => false,
    };
    let own = match name(file) {
        "mod" => name(file.parent()?),
        name => name,
    };
    (!is_of_cargo).then(|| own.to_owned())
}

#[test]
fn every_file_is_declared_as_a_module() {
    let mut stray = Vec::new();
    let packages = packages();
    assert!(packages.len() > 20, "{packages:?}");
    for package in &packages {
        let folders = ["src", "tests", "benches", "examples"];
        let files: Vec<PathBuf> = folders
            .iter()
            .flat_map(|f| files(&package.join(f)))
            .collect();
        let text: String = files
            .iter()
            .map(|f| fs::read_to_string(f).unwrap())
            .collect();
        let declared = |name: &str| {
            let other_name = format!("#[path = \"{name}.rs\"]");
            text.contains(&format!("mod {name};")) || text.contains(&other_name)
        };
        let is_stray = |file: &&PathBuf| module(package, file).is_some_and(|m| !declared(&m));
        stray.extend(files.iter().filter(is_stray).cloned());
    }
    assert!(
        stray.is_empty(),
        "not compiled, because no file says `mod …;`: {stray:?}"
    );
}

/// The features of a package that are off unless somebody asks for them.
fn off_by_default(package: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(package.join("Cargo.toml")).unwrap();
    let features = text.split("\n[features]\n").nth(1).unwrap();
    let features = features.split("\n[").next().unwrap();
    let lines = features.lines().filter_map(|line| line.split_once(" = "));
    let (default, others): (Vec<_>, Vec<_>) = lines.partition(|(name, _)| *name == "default");
    let is_on = |name: &str| {
        default
            .iter()
            .any(|(_, on)| on.contains(&format!("\"{name}\"")))
    };
    let off = others.into_iter().map(|(name, _)| name.to_owned());
    off.filter(|name| !is_on(name)).collect()
}

/// Whether a line leaves out what follows unless one of these features is on.
fn is_gate(line: &str, features: &BTreeSet<String>) -> bool {
    let line = line.trim();
    let asks = |feature: &String| line.contains(&format!("feature = \"{feature}\""));
    line.starts_with("#[cfg(") | line.starts_with("#![cfg(")
        && !line.contains("not(")
        && features.iter().any(asks)
}

#[test]
fn a_test_that_needs_a_feature_is_run_by_a_share_or_nightly() {
    let script = fs::read_to_string(crate::root().join(".ci/run")).unwrap();
    for (package, folder) in [(PROGRAM, PROGRAM), (LIBRARY, "membership")] {
        let folder = crate::root().join(folder);
        let off = off_by_default(&folder);
        assert!(off.contains("redis") && !off.contains("sqlite"), "{off:?}");
        for file in files(&folder.join("tests")) {
            let text = fs::read_to_string(&file).unwrap();
            if !text.lines().any(|line| is_gate(line, &off)) {
                continue;
            }
            let inside = file.strip_prefix(folder.join("tests")).unwrap();
            let target = name(Path::new(inside.iter().next().unwrap()));
            let by_nightly = format!("-p {package} --all-features --test {target} ");
            assert!(
                is_chosen(package, target) || script.contains(&by_nightly),
                "nothing runs {}",
                file.display()
            );
            let tests = text.split("\nfn ").filter(|_| target == COMMANDS);
            for test in tests.filter(|test| test.lines().any(|line| is_gate(line, &off))) {
                let test = test.split('(').next().unwrap();
                assert!(WITH_ALL_STORES.contains(&test), "nothing runs {test} whole");
            }
        }
    }
}

/// The library's unit tests all run again with all features; of the program's only these.
#[test]
fn unit_tests_of_the_program_that_need_a_feature_are_run_by_a_share() {
    let source = crate::root().join(PROGRAM).join("src");
    let off = off_by_default(&crate::root().join(PROGRAM));
    let mut gated = BTreeSet::new();
    for file in files(&source) {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.windows(2).filter(|pair| is_gate(pair[0], &off));
        let modules = pairs.filter_map(|pair| pair[1].split_once("mod ")?.1.strip_suffix(';'));
        gated.extend(modules.map(str::to_owned));
    }
    assert!(gated.contains("conformance"), "{gated:?}");
    let mut found = 0;
    for file in files(&source) {
        let inside = file.strip_prefix(&source).unwrap().with_extension("");
        let path: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        let has_tests = fs::read_to_string(&file).unwrap().contains("#[test]");
        if has_tests && path.iter().any(|part| gated.contains(*part)) {
            let test = format!("{}::tests::it", path.join("::"));
            assert!(
                owner(PROGRAM, UNITS, &test).is_some(),
                "nothing runs {test}"
            );
            found += 1;
        }
    }
    assert!(found > 0);
}
