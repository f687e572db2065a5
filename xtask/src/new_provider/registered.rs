//! The places of this workspace that name each provider: `cargo xtask new-provider NAME --register`
//! writes them, and `--missing` looks for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::at;
use super::names::Names;
use crate::Failure;

/// A place. Each text is a template, as those of the crate.
struct Place {
    file: &'static str,
    /// What stands there for a provider that is named.
    shows: &'static str,
    /// What it is.
    what: &'static str,
    /// Where the lines are added.
    at: At,
    lines: &'static str,
}

/// Where lines are added.
#[derive(Clone, Copy)]
enum At {
    /// Before the first line that contains this text.
    Before(&'static str),
    /// After the first line that is this text, and the empty line below it.
    Below(&'static str),
}

use At::{Before, Below};

/// Those of every provider.
const PLACES: &[Place] = &[
    Place {
        file: "Cargo.toml",
        shows: "membership-{{name}} = {",
        what: "the crate in workspace.dependencies",
        at: Before("membership-zk = {"),
        lines: "membership-{{name}} = { path = \"membership-{{name}}\", version = \"0.1.0\" }",
    },
    Place {
        file: "membership/Cargo.toml",
        shows: "\"dep:membership-{{name}}\"",
        what: "the library's feature, never a default one",
        at: Before("## `zk:` in"),
        lines: "## `{{name}}:` in connection strings: {{Title}}.\n{{name}} = [\"dep:membership-{{name}}\"]",
    },
    Place {
        file: "membership/Cargo.toml",
        shows: "membership-{{name}} = {",
        what: "the optional dependency",
        at: Before("membership-zk = {"),
        lines: "membership-{{name}} = { workspace = true, optional = true }",
    },
    Place {
        file: "membership/src/connect/builtin.rs",
        shows: "membership_{{ident}}::provider()",
        what: "the provider, by its feature, with its schemes",
        at: Before("\"zk\" =>"),
        lines: "    \"{{name}}\" => membership_{{ident}}::provider(), [\"{{name}}\"];",
    },
    Place {
        file: "membership/src/connect/mod.rs",
        shows: "`{{name}}://`",
        what: "a line of the table of schemes",
        at: Before("| `zk://` |"),
        lines: "/// | `{{name}}://` | {{Title}} | `{{name}}` |",
    },
    Place {
        file: "membership/README.md",
        shows: "`{{name}}://",
        what: "a line of the table of features",
        at: Before("| `zk` |"),
        lines: "| `{{name}}` | no | `{{name}}://…`: {{Title}} |",
    },
    Place {
        file: "membership-cli/Cargo.toml",
        shows: "\"silo-membership/{{name}}\"",
        what: "the program's feature",
        at: Before("## A table in ZooKeeper."),
        lines: "## A table in {{Title}}.\n{{name}} = [\"silo-membership/{{name}}\"]",
    },
    Place {
        file: "membership-cli/Cargo.toml",
        shows: "    \"{{name}}\",",
        what: "the feature in `full`",
        at: Before("    \"zk\","),
        lines: "    \"{{name}}\",",
    },
    Place {
        file: "membership-cli/tests/table_commands.rs",
        shows: "\"{{name}}\": \"",
        what: "a URL with a password, at port 1",
        at: Before("\"zk\": \""),
        lines: "        \"{{name}}\": \"{{name}}://user:hunter2x@127.0.0.1:1\",",
    },
    Place {
        file: "README.md",
        shows: "(membership-{{name}}/README.md)",
        what: "the store's line",
        at: Before("| DynamoDB | `dynamodb` |"),
        lines: "| {{Title}} | `{{name}}` | set-up, permissions and limits are in [its README](membership-{{name}}/README.md) | not yet |",
    },
    Place {
        file: "CHANGELOG.md",
        shows: "membership-{{name}}",
        what: "a line under Unreleased",
        at: Below("## Unreleased"),
        lines: "* new: crate `membership-{{name}}`, scheme `{{name}}://`, feature `{{name}}`: the table in {{Title}}",
    },
    Place {
        file: "docs/choosing.md",
        shows: "| have {{Title}}",
        what: "the store's line in the first table",
        at: Before("| have ZooKeeper"),
        lines: "| have {{Title}} | {{Title}} | *to be written: what nothing else offers, and the limit that is met first* |",
    },
    Place {
        file: "docs/choosing.md",
        shows: "\n| {{Title}} |",
        what: "the store's line in the table of what a failure costs",
        at: Before("| ZooKeeper | the reads"),
        lines: "| {{Title}} | *to be written: what reads are worth* | *what an acknowledged commit survives* | *what silos do meanwhile* |",
    },
    Place {
        file: "docs/providers.md",
        shows: "../membership-{{name}}/README.md",
        what: "the store's section",
        at: Before("## Consul"),
        lines: SECTION,
    },
];

/// The section of docs/providers.md, in the form that all stores have.
const SECTION: &str = "## {{Title}}

`{{name}}://`, feature `{{name}}`. Crate [`membership-{{name}}`](../membership-{{name}}/README.md).

| | |
|---|---|
| consistency | *to be written* |
| operations | *to be written* |
| limits | *to be written* |
| permissions | *to be written* |
| clients | *to be written* |
| lost when the store fails | *to be written* |
| hints | none |
| new connection | *to be written* |
| tests run against | *to be written* |
";

/// Those of a provider whose server the launcher starts, in addition.
const OF_LAUNCHER: &[Place] = &[
    Place {
        file: "membership-testbed/src/kind.rs",
        shows: "    {{Title}}: \"{{name}}\"",
        what: "the server as a `Kind`, and how it is installed",
        at: Before("/// SQL Server: only"),
        lines: "    /// {{Title}}: one server.\n    {{Title}}: \"{{name}}\", [\"{{NAME}}\"], apt(&[&[\"{{name}}-server\"]], &[\"{{name}}-server\"]);",
    },
    Place {
        file: "membership-testbed/src/launch/software/mod.rs",
        shows: "mod {{ident}};",
        what: "the module that starts it",
        at: Before("mod zookeeper;"),
        lines: "mod {{ident}};",
    },
    Place {
        file: "membership-testbed/src/launch/software/mod.rs",
        shows: "Kind::{{Title}} =>",
        what: "its software",
        at: Before("Kind::ZooKeeper => &"),
        lines: "        Kind::{{Title}} => &{{ident}}::{{Title}},",
    },
    Place {
        file: "membership-testbed/tests/launch/main.rs",
        shows: "Kind::{{Title}};",
        what: "the launcher's test",
        at: Before("zookeeper_is_killed_and_started_again:"),
        lines: "    {{ident}}_is_killed_and_started_again: Kind::{{Title}};",
    },
    Place {
        file: "membership-cli/tests/stores/main.rs",
        shows: "\"{{name}}\", {{Title}}",
        what: "silos over it; the module has the name of a share",
        at: Before("zookeeper, \"zk\", ZooKeeper"),
        lines: "    {{ident}}, \"{{name}}\", {{Title}};",
    },
];

/// Where the launcher's part of a store is, below the workspace.
pub fn launcher_file(names: &Names) -> PathBuf {
    PathBuf::from(names.fill("membership-testbed/src/launch/software/{{ident}}.rs"))
}

/// Whether the launcher starts the server of this provider: its share names a kind.
fn has_launcher(root: &Path, names: &Names) -> bool {
    let manifest = root.join(names.package()).join("Cargo.toml");
    fs::read_to_string(manifest).is_ok_and(|text| text.contains("\nserver = \""))
}

fn places(root: &Path, names: &Names) -> impl Iterator<Item = &'static Place> {
    let of_launcher = match has_launcher(root, names) {
        true => OF_LAUNCHER,
        false => &[],
    };
    PLACES.iter().chain(of_launcher)
}

/// Whether a place names the provider. A sentence spells the store's name as its makers do.
fn shows(text: &str, place: &Place, names: &Names) -> bool {
    let shows = names.fill(place.shows);
    match place.file.ends_with(".md") {
        true => text.to_lowercase().contains(&shows.to_lowercase()),
        false => text.contains(&shows),
    }
}

/// Each place where the provider is not named yet, with what to add.
pub fn missing(root: &Path, names: &Names) -> Vec<String> {
    let is_missing = |place: &&Place| {
        let there = fs::read_to_string(root.join(place.file)).unwrap_or_default();
        !shows(&there, place, names)
    };
    let missing = places(root, names).filter(is_missing);
    let shown = missing.map(|place| {
        let shows = names.fill(place.shows);
        format!("{}: `{}`: {}", place.file, shows.trim(), place.what)
    });
    shown.collect()
}

/// Writes the places where a provider is not named yet: those of every provider, or those of the
/// launcher. Returns the files. If one place cannot be written, none is.
pub fn register(root: &Path, names: &Names) -> Result<Vec<&'static str>, Failure> {
    write(root, names, places(root, names))
}

/// Writes the launcher's places.
pub fn register_launcher(root: &Path, names: &Names) -> Result<Vec<&'static str>, Failure> {
    let of_tests = |place: &&Place| !place.file.starts_with("membership-cli/");
    write(root, names, OF_LAUNCHER.iter().filter(of_tests))
}

fn write(
    root: &Path,
    names: &Names,
    places: impl Iterator<Item = &'static Place>,
) -> Result<Vec<&'static str>, Failure> {
    let mut files: BTreeMap<&'static str, String> = BTreeMap::new();
    let mut changed = Vec::new();
    for place in places {
        let path = root.join(place.file);
        let text = match files.get(place.file) {
            Some(text) => text.clone(),
            None => fs::read_to_string(&path).map_err(|e| at(&path, &e))?,
        };
        if shows(&text, place, names) {
            continue;
        }
        let with = with(&text, place.at, &names.fill(place.lines)).ok_or_else(|| {
            let (Before(line) | Below(line)) = place.at;
            Failure::new(format!(
                "{}: no line says `{line}`, beside which {} would be written; nothing was written",
                place.file, place.what
            ))
        })?;
        files.insert(place.file, with);
        changed.push(place.file);
    }
    for (file, text) in files {
        let path = root.join(file);
        fs::write(&path, text).map_err(|e| at(&path, &e))?;
    }
    changed.dedup();
    Ok(changed)
}

/// The text with these lines added.
fn with(text: &str, place: At, added: &str) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let index = match place {
        Before(one) => lines.iter().position(|line| line.contains(one))?,
        Below(one) => lines.iter().position(|line| *line == one)? + 2,
    };
    lines.insert(index.min(lines.len()), added);
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_provider_lacks_nothing_and_a_new_one_everything() {
        let root = crate::root();
        let of = |name| missing(&root, &Names::new(name).unwrap());
        assert_eq!(of("nats"), Vec::<String>::new());
        let of_new = of("mystore");
        assert_eq!(of_new.len(), PLACES.len(), "{of_new:?}");
        assert!(of_new[0].contains("membership-mystore = {"), "{of_new:?}");
    }

    /// The two tables of docs/choosing.md have lines of the same stores.
    #[test]
    fn a_line_of_a_table_stands_in_that_table() {
        let columns = |line: &str| line.matches('|').count();
        let names = Names::new("mystore").unwrap();
        let places = PLACES.iter().filter(|place| place.file.ends_with(".md"));
        for place in places.filter(|place| place.lines.starts_with('|')) {
            let text = fs::read_to_string(crate::root().join(place.file)).unwrap();
            let added = names.fill(place.lines);
            let text = with(&text, place.at, &added).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let index = lines.iter().position(|line| *line == added).unwrap();
            for beside in [lines[index - 1], lines[index + 1]] {
                assert_eq!(columns(beside), columns(&added), "{}: {added}", place.file);
            }
        }
    }

    #[test]
    fn lines_are_added_once_and_where_they_belong() {
        let text = "## Unreleased\n\n* zk = {\n";
        let added = with(text, Before("zk = {"), "* it").unwrap();
        assert_eq!(added, "## Unreleased\n\n* it\n* zk = {\n");
        let below = with(text, Below("## Unreleased"), "* it").unwrap();
        assert_eq!(below, added);
        assert_eq!(with(text, Before("etcd"), "* it"), None);
    }
}
