//! The documents agree with the code: exit codes, metrics, settings, commands, causes, clauses; and
//! their links lead to files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_cli::Exit;
use membership_core::{Config, Preset, SharedSettings, TableErrorKind};
use membership_provider::Timeouts;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first cells of the table rows under a heading.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let part = document
        .split(&format!("\n## {heading}\n"))
        .nth(1)
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let part = part.split("\n## ").next().unwrap();
    let rows = part.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        line.trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

fn name(cell: &str) -> String {
    cell.split('`').nth(1).unwrap_or(cell).to_owned()
}

#[test]
fn exit_codes() {
    let rows = table(&text("docs/operating.md"), "Exit codes");
    let codes: Vec<String> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(codes, Exit::ALL.map(|exit| exit.code().to_string()));
}

#[test]
fn metrics() {
    let document = text("docs/operating.md");
    let rows = table(&document, "Metrics");
    let names: Vec<String> = rows.iter().map(|row| name(&row[0])).collect();
    assert_eq!(names, membership::metrics::ALL);
    for (name, bounds) in membership::metrics::BUCKETS {
        let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
        let line = format!("* `{name}`: {}\n", bounds.join(", "));
        assert!(document.contains(&line), "{line}");
    }
    let alerts = document.split("\n## Alerts\n").nth(1).unwrap();
    for word in alerts
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|w| w.starts_with("membership_"))
    {
        assert!(
            membership::metrics::ALL.contains(&word),
            "there is no metric {word}"
        );
    }
}

#[test]
fn settings() {
    let rows = table(&text("docs/operating.md"), "Settings");
    let documented: BTreeSet<String> = rows.iter().map(|row| name(&row[0])).collect();
    let presets = [Preset::Local, Preset::Lan, Preset::Wan]
        .map(|preset| serde_json::to_value(Config::preset(preset)).unwrap());
    let fields: BTreeSet<String> = presets[0].as_object().unwrap().keys().cloned().collect();
    assert_eq!(documented, fields);
    for row in rows {
        let field = name(&row[0]);
        for (preset, said) in presets.iter().zip(&row[1..]) {
            let value = &preset[&field];
            match value.as_str() {
                Some(value) => assert_eq!(duration(said), duration(value), "{field}"),
                None => assert_eq!(*said, value.to_string(), "{field}"),
            }
        }
        let shared = serde_json::to_value(SharedSettings::default()).unwrap();
        assert_eq!(
            row[0].ends_with('*'),
            shared.get(&field).is_some(),
            "whether {field} is shared"
        );
    }
}

/// Durations as text: `2.5 s`, `10 min`, `7 days`, and the form that serde writes.
fn duration(text: &str) -> Duration {
    if let Some((number, unit)) = text.split_once(' ')
        && let Ok(number) = number.parse::<f64>()
    {
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "min" => 60.0,
            "days" => 86_400.0,
            _ => panic!("no unit: {text}"),
        };
        return Duration::from_secs_f64(number * unit);
    }
    text.split(' ')
        .map(|part| humantime::parse_duration(part).unwrap())
        .sum()
}

#[test]
fn every_command_is_documented() {
    let (mut out, connectors) = (
        tempfile::NamedTempFile::new().unwrap(),
        membership_cli::Connectors::default(),
    );
    let writer = out.reopen().unwrap();
    assert_eq!(
        membership_cli::run(
            connectors,
            ["membership", "help"].map(Into::into),
            writer,
            std::io::sink()
        ),
        Exit::Ok
    );
    let mut help = String::new();
    std::io::Read::read_to_string(&mut out, &mut help).unwrap();
    let listed = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let commands: BTreeSet<String> = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .map(str::to_owned)
        .collect();
    let rows = table(&text("docs/operating.md"), "Commands");
    let mut documented: BTreeSet<String> = rows
        .iter()
        .map(|row| name(&row[0]).split(' ').next().unwrap().to_owned())
        .collect();
    // The commands that features add.
    for (command, is_in) in [
        ("conformance", cfg!(feature = "conformance")),
        ("gossip", cfg!(feature = "gossip")),
    ] {
        assert!(documented.contains(command));
        if !is_in {
            documented.remove(command);
        }
    }
    if let Some(command) = commands.difference(&documented).next() {
        panic!(
            "`membership {command}` is not documented: add a row for it to the table below \
             \"## Commands\" in docs/operating.md"
        );
    }
    if let Some(command) = documented.difference(&commands).next() {
        panic!(
            "docs/operating.md documents `membership {command}`, which is no command: remove its \
             row below \"## Commands\", or list it in membership-cli/src/commands/mod.rs"
        );
    }
}

/// The defaults of a provider that uses those of `Timeouts`.
#[test]
fn default_timeouts() {
    let default = Timeouts::default();
    let due = [
        ("operation_timeout", default.operation()),
        ("connect_timeout", default.connect()),
    ];
    let mut compared = 0;
    for folder in crates() {
        let config = root().join(&folder).join("src/config.rs");
        let config = std::fs::read_to_string(config).unwrap_or_default();
        if !config.contains("timeouts: Timeouts::default()") {
            continue;
        }
        let readme = text(&format!("{folder}/README.md"));
        for (option, due) in due {
            let row = format!("| `{option}`");
            let row = readme.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| {
                panic!("{folder}/README.md has no row for the option `{option}`")
            });
            let said = row.split(" | ").nth(1).unwrap();
            assert_eq!(
                duration(said),
                due,
                "{folder}/README.md: the default of `{option}`; membership-provider/src/timeouts.rs has another one"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 14, "seven providers with two timeouts each");
}

#[test]
fn error_kinds_and_clauses() {
    let document = text("docs/table-contract.md");
    for kind in TableErrorKind::ALL {
        assert!(document.contains(&format!("`{kind:?}`")), "{kind:?}");
    }
    let clauses: Vec<String> = table(&document, "Clauses")
        .iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(
        clauses,
        (1..=16).map(|n| format!("T{n}")).collect::<Vec<_>>()
    );
    let invariants: Vec<String> = table(&text("docs/protocol.md"), "Invariants")
        .iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(
        invariants,
        (1..=16).map(|n| format!("P{n}")).collect::<Vec<_>>()
    );
}

/// The folders of all crates, the examples included.
fn crates() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["", "examples/"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{folder}{name}");
            if root().join(&path).join("Cargo.toml").exists() {
                found.push(path);
            }
        }
    }
    assert!(found.iter().any(|path| path == "membership-provider"));
    found
}

/// The documents of the repository.
fn documents() -> Vec<PathBuf> {
    let mut folders = crates();
    folders.extend([".", "deploy", "docs", "docs/decisions", "examples/follow"].map(str::to_owned));
    let mut documents = vec![];
    for folder in folders {
        for file in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "md") {
                documents.push(path);
            }
        }
    }
    assert!(documents.len() > 15, "{documents:?}");
    documents
}

/// The places of a document that a link can name: its headings, as they are named on the web.
fn anchors(document: &Path) -> BTreeSet<String> {
    let content = std::fs::read_to_string(document).unwrap();
    let (mut found, mut in_code) = (BTreeSet::new(), false);
    for line in content.lines() {
        in_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let kept: String = heading.trim().chars().filter(is_kept).collect();
        let name = kept.to_lowercase().replace(' ', "-");
        let (mut unique, mut n) = (name.clone(), 0);
        while !found.insert(unique.clone()) {
            n += 1;
            unique = format!("{name}-{n}");
        }
    }
    found
}

/// The links of a document, apart from those to other sites.
fn links(document: &Path) -> Vec<String> {
    let content = std::fs::read_to_string(document).unwrap();
    let ends = [("](", ')'), (" src=\"", '"'), (" srcset=\"", '"')];
    let of = |(begin, end): (&str, char)| {
        let parts = content.split(begin).skip(1);
        let links = parts.filter_map(move |rest| rest.split(end).next());
        let is_inside = |link: &&str| !link.contains("://") && !link.contains(' ');
        links
            .filter(is_inside)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    ends.into_iter().flat_map(of).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut with_anchor = 0;
    for document in documents() {
        for link in links(&document) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{} links to {link}", document.display());
            if !anchor.is_empty() && target.extension().is_some_and(|e| e == "md") {
                with_anchor += 1;
                assert!(
                    anchors(&target).contains(anchor),
                    "{} links to {link}, and there is no such heading",
                    document.display()
                );
            }
        }
    }
    assert!(with_anchor > 50, "{with_anchor}");
}

/// What `cargo xtask book` makes pages of.
#[test]
fn every_document_is_in_the_summary_once() {
    let summary = root().join("docs/SUMMARY.md");
    let listed: Vec<PathBuf> = links(&summary)
        .iter()
        .map(|link| root().join("docs").join(link).canonicalize().unwrap())
        .collect();
    let once: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a document is listed twice");
    for folder in ["docs", "docs/decisions"] {
        for file in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = file.unwrap().path().canonicalize().unwrap();
            let is_document = path.extension().is_some_and(|e| e == "md");
            if is_document && path != summary.canonicalize().unwrap() {
                assert!(
                    once.contains(&path),
                    "docs/SUMMARY.md lacks {}",
                    path.display()
                );
            }
        }
    }
}

/// Files that the text names as part of the repository.
#[test]
fn named_files_exist() {
    let mut places = crates();
    places.extend(["docs", "examples"].map(str::to_owned));
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/protocol.md",
        "docs/new-provider.md",
        "docs/conformance.md",
        "membership-fault-proxy/README.md",
        "membership-provider/README.md",
        "membership-testbed/README.md",
        "membership-testing/README.md",
    ] {
        for word in text(name).split('`').skip(1).step_by(2) {
            let is_named = places.iter().any(|p| word.starts_with(&format!("{p}/")));
            if is_named && !word.contains(['*', '<', '(', ' ']) {
                assert!(root().join(word).exists(), "{name} speaks of {word}");
            }
        }
    }
}
