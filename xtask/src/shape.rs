//! Every provider has the same files, each with the same job. docs/architecture.md describes the
//! jobs.

use std::collections::BTreeSet;
use std::fs;

const BASELINE: &str = "baseline";

/// In every provider.
const REQUIRED: &[&str] = &[
    "admin",
    BASELINE,
    "client",
    "commit",
    "config",
    "error",
    "heartbeat",
    "read",
    "table",
];

/// Optional files that have the same job in each provider.
const OPTIONAL: &[&str] = &["codec", "hints", "keys", "lib", "mod"];

/// The most files of a crate that `cargo xtask new-provider` makes.
const MOST_OF_A_SHAPE: usize = 5;

/// The folder of each provider, and the files that only its store needs.
fn providers() -> impl Iterator<Item = (String, &'static [String])> {
    let all = crate::providers::providers();
    all.map(|(package, it)| (format!("{package}/{}", it.folder), it.files.as_slice()))
}

/// The names of the files and folders of a provider, without their endings.
fn names(folder: &str) -> BTreeSet<String> {
    fs::read_dir(crate::root().join(folder))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            path.file_stem().unwrap().to_string_lossy().into_owned()
        })
        .collect()
}

#[test]
fn the_same_job_is_in_the_same_file_of_every_provider() {
    let mut wrong = Vec::new();
    // A provider made by `cargo xtask new-provider` has the files of its shape until it grows.
    let made = |folder: &str| names(folder).len() <= MOST_OF_A_SHAPE;
    for (folder, extra) in providers().filter(|(folder, _)| !made(folder)) {
        let names = names(&folder);
        // Only a table that implements the contract itself can have a baseline.
        let table = crate::root().join(&folder).join("table.rs");
        let is_document = fs::read_to_string(table).is_ok_and(|it| it.contains("DocumentTable"));
        let spared = |name: &str| is_document && name == BASELINE;
        let lacks = |name: &&&str| !names.contains(**name) && !spared(name);
        for missing in REQUIRED.iter().filter(lacks) {
            wrong.push(format!("{folder} has no {missing}.rs"));
        }
        let allowed = |name: &&String| {
            let mut known = REQUIRED.iter().chain(OPTIONAL);
            known.any(|one| one == name) || extra.contains(name)
        };
        for name in names.iter().filter(|name| !allowed(name)) {
            wrong.push(format!(
                "{folder}/{name}: put it into the file that has this job in every provider, or name it in `files` of the crate's [[package.metadata.provider]]"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let common = names("xtask/templates/common/src").len();
    for shape in ["document", "rows", "batch"] {
        let files = common + names(&format!("xtask/templates/{shape}/src")).len();
        assert!(files <= MOST_OF_A_SHAPE, "{shape}: {files} files");
    }
}

#[test]
fn every_provider_is_in_the_list() {
    let root = crate::root();
    let listed = |folder: &str| providers().any(|(one, _)| one.starts_with(&format!("{folder}/")));
    for entry in fs::read_dir(&root).unwrap() {
        let folder = entry.unwrap().file_name().to_string_lossy().into_owned();
        let manifest = root.join(&folder).join("Cargo.toml");
        let is_provider = folder.starts_with("membership-")
            && folder != "membership-provider"
            && fs::read_to_string(manifest).is_ok_and(|text| {
                let dependencies = text.split("[dev-dependencies]").next().unwrap_or_default();
                dependencies.contains("\nmembership-provider")
            });
        assert!(
            !is_provider || listed(&folder),
            "{folder}/Cargo.toml has no [[package.metadata.provider]]: docs/new-provider.md, step 11"
        );
    }
}
