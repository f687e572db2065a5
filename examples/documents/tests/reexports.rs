//! The facade has the whole public API of the core. The test is here and not in the facade, because a
//! packaged crate cannot read the source of another one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names behind `pub use` and `pub mod` in the root of a crate, without hidden ones.
fn public_names(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for statement in source.split(';') {
        if statement.contains("#[doc(hidden)]") {
            continue;
        }
        let Some((_, what)) = statement
            .split_once("\npub use ")
            .or_else(|| statement.split_once("\npub mod "))
        else {
            continue;
        };
        let list = what.rsplit_once('{').map_or(what, |(_, list)| list);
        for path in list.trim_end_matches('}').split(',') {
            let name = path.trim().rsplit("::").next().unwrap_or_default();
            let name = name.rsplit(" as ").next().unwrap_or_default();
            names.insert(name.to_owned());
        }
    }
    names.remove("");
    names
}

#[test]
fn every_public_name_of_the_core_is_public_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let core = public_names(&read("membership-core/src/lib.rs"));
    let facade = public_names(&read("membership/src/lib.rs"));
    assert!(
        core.len() > 80 && core.contains("MembershipTable"),
        "{core:?}"
    );
    let missing: Vec<&String> = core.difference(&facade).collect();
    assert!(
        missing.is_empty(),
        "add these to the list in membership/src/lib.rs: {missing:?}"
    );
}
