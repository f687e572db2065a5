//! `cargo xtask new-provider NAME`: a crate that compiles, and a suite that reports what is not
//! written yet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, say};

/// Makes a crate for a new provider: `membership-NAME`, which compiles at once, and whose suite
/// says what is to be written.
#[derive(clap::Args)]
pub struct NewProvider {
    /// What the store is called: the scheme of its connection strings, and the end of the crate's
    /// name.
    name: String,
    /// What the store can do; docs/new-provider.md helps to choose.
    #[arg(long, value_enum, default_value_t = Shape::Document)]
    shape: Shape,
    /// The folder to make the crate's folder in. [default: this workspace]
    #[arg(long)]
    into: Option<PathBuf>,
    /// Outside of this workspace: depend on the project's repository and not on this checkout.
    #[arg(long)]
    git: bool,
}

/// The three shapes of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Compare-and-swap of one document.
    Document,
    /// Transactions over rows.
    Rows,
    /// One batch of writes, applied whole if its conditions hold.
    Batch,
}

/// A file of a template: its path, and its text.
type File = (&'static str, &'static str);

const COMMON: &[File] = &[
    ("README.md", include_str!("../templates/common/README.md")),
    (
        "src/config.rs",
        include_str!("../templates/common/src/config.rs"),
    ),
    (
        "src/error.rs",
        include_str!("../templates/common/src/error.rs"),
    ),
    (
        "tests/conformance.rs",
        include_str!("../templates/common/tests/conformance.rs"),
    ),
    (
        "tests/support/mod.rs",
        include_str!("../templates/common/tests/support/mod.rs"),
    ),
    (
        "tests/support/server.rs",
        include_str!("../templates/common/tests/support/server.rs"),
    ),
];

/// Access without the provider, for stores that are not one document.
const RAW: File = (
    "tests/support/raw.rs",
    include_str!("../templates/rows/tests/support/raw.rs"),
);

impl Shape {
    const fn files(self) -> &'static [File] {
        match self {
            Self::Document => &[
                (
                    "src/lib.rs",
                    include_str!("../templates/document/src/lib.rs"),
                ),
                (
                    "src/table.rs",
                    include_str!("../templates/document/src/table.rs"),
                ),
            ],
            Self::Rows => &[
                ("src/lib.rs", include_str!("../templates/rows/src/lib.rs")),
                (
                    "src/table.rs",
                    include_str!("../templates/rows/src/table.rs"),
                ),
                (
                    "src/schema.rs",
                    include_str!("../templates/rows/src/schema.rs"),
                ),
                RAW,
            ],
            Self::Batch => &[
                ("src/lib.rs", include_str!("../templates/batch/src/lib.rs")),
                (
                    "src/table.rs",
                    include_str!("../templates/batch/src/table.rs"),
                ),
                (
                    "src/codec.rs",
                    include_str!("../templates/batch/src/codec.rs"),
                ),
                RAW,
            ],
        }
    }

    const fn staging(self) -> &'static str {
        match self {
            Self::Document => include_str!("../templates/document/staging.rs"),
            Self::Rows | Self::Batch => include_str!("../templates/rows/staging.rs"),
        }
    }

    /// The imports of that access, in addition to those that all shapes need.
    const fn words(self) -> [(&'static str, &'static str); 4] {
        const ORPHANS: &str = "(Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),";
        const DOCUMENTS: &str =
            "use membership_{{ident}}::{{{Title}}Config, {{Title}}Documents};\n";
        const ROWS: &str = "\nuse raw::Raw;\n";
        let (raw_module, access, imports, orphans) = match self {
            Self::Document => ("", "DocumentAccess, ", DOCUMENTS, ORPHANS),
            Self::Rows => ("mod raw;\n", "", ROWS, ""),
            Self::Batch => ("mod raw;\n", "", ROWS, ORPHANS),
        };
        [
            ("{{raw_module}}", raw_module),
            ("{{access}}", access),
            ("{{imports}}", imports),
            ("{{orphans}}", orphans),
        ]
    }

    /// The file that contains the functions to write.
    const fn to_write(self) -> &'static str {
        match self {
            Self::Document => "src/table.rs",
            Self::Rows => "src/schema.rs",
            Self::Batch => "src/codec.rs",
        }
    }
}

/// The name in the forms that the templates use.
#[derive(Debug)]
struct Names {
    name: String,
    ident: String,
    title: String,
    upper: String,
}

impl Names {
    fn new(name: &str) -> Result<Self, Failure> {
        let name = name.strip_prefix("membership-").unwrap_or(name);
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(letters);
        if !fits || name.len() > 32 || name.ends_with('-') || name.contains("--") {
            return Err(Failure::new(format!(
                "`{name}` cannot be the scheme of a connection string: use a lower-case letter, then lower-case letters, digits and single \
                 hyphens, at most 32 characters"
            )));
        }
        let capital = |part: &str| part[..1].to_ascii_uppercase() + &part[1..];
        Ok(Self {
            name: name.to_owned(),
            ident: name.replace('-', "_"),
            title: name.split('-').map(capital).collect(),
            upper: name.replace('-', "_").to_ascii_uppercase(),
        })
    }

    fn fill(&self, template: &str) -> String {
        template
            .replace("{{name}}", &self.name)
            .replace("{{ident}}", &self.ident)
            .replace("{{Title}}", &self.title)
            .replace("{{NAME}}", &self.upper)
            .replace("{{port}}", "1234")
    }
}

/// Writes the crate into `folder`, which must not exist; `manifest` is the text of its Cargo.toml.
fn write(folder: &Path, names: &Names, shape: Shape, manifest: &str) -> Result<(), Failure> {
    if folder.exists() {
        return Err(Failure::new(format!(
            "{} is there already; nothing was written",
            folder.display()
        )));
    }
    let mut sources = Vec::new();
    for (place, template) in [("Cargo.toml", manifest)]
        .iter()
        .chain(COMMON)
        .chain(shape.files())
    {
        let mut text = template.replace("{{staging}}\n", shape.staging());
        for (word, meaning) in shape.words() {
            text = text.replace(word, meaning);
        }
        let path = folder.join(place);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, names.fill(&text))?;
        if place.ends_with(".rs") {
            sources.push(path);
        }
    }
    // The order of names and the length of lines depend on the store's name.
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .args(&sources)
        .status();
    if !status.is_ok_and(|s| s.success()) {
        return Err(Failure::new(format!(
            "rustfmt does not format {}; is it installed? `rustup component add rustfmt`",
            folder.display()
        )));
    }
    Ok(())
}

/// Adds a folder to the list of members of a workspace's manifest, in alphabetical order.
fn with_member(manifest: &str, member: &str) -> Option<String> {
    let begin = manifest.find("\nmembers = [\n")? + "\nmembers = [\n".len();
    let end = begin + manifest[begin..].find("]\n")?;
    let mut lines: Vec<&str> = manifest[begin..end].lines().collect();
    let line = format!("    \"{member}\",");
    if !lines.contains(&line.as_str()) {
        let at = lines
            .iter()
            .position(|l| *l > line.as_str())
            .unwrap_or(lines.len());
        lines.insert(at, &line);
    }
    Some(format!(
        "{}{}\n{}",
        &manifest[..begin],
        lines.join("\n"),
        &manifest[end..]
    ))
}

impl NewProvider {
    /// Writes the crate and prints the next steps.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let names = Names::new(&self.name)?;
        let root = root.canonicalize()?;
        let into = match &self.into {
            Some(into) => into.canonicalize().map_err(|e| {
                Failure::new(format!("{}: {e}; make the folder first", into.display()))
            })?,
            None => root.clone(),
        };
        let folder = into.join(format!("membership-{}", names.name));
        let package = format!("membership-{}", names.name);
        match folder.strip_prefix(&root) {
            Ok(member) => {
                write(
                    &folder,
                    &names,
                    self.shape,
                    include_str!("../templates/common/Cargo.toml.inside"),
                )?;
                let (path, member) = (
                    root.join("Cargo.toml"),
                    member.to_string_lossy().replace('\\', "/"),
                );
                let manifest =
                    with_member(&fs::read_to_string(&path)?, &member).ok_or_else(|| {
                        Failure::new(format!(
                            "add \"{member}\" to the members in {}",
                            path.display()
                        ))
                    })?;
                fs::write(path, manifest)?;
            }
            Err(_) => write(&folder, &names, self.shape, &self.manifest_outside(&root)?)?,
        }
        say(&format!(
            "{folder} is there.

Next:
  1. {cd}cargo test -p {package}
     compiles, and fails: below each case stands what is not written yet.
  2. Write `command` in tests/support/server.rs: how your server is started.
  3. Add your client to Cargo.toml, and sort its errors in src/error.rs.
  4. Write the functions in {to_write}; run the suite again until it is green.
docs/new-provider.md goes through all of it, step by step.",
            folder = folder.display(),
            cd = if folder.starts_with(&root) {
                String::new()
            } else {
                format!("cd {} && ", folder.display())
            },
            to_write = self.shape.to_write(),
        ));
        Ok(())
    }

    /// The manifest of a crate outside of this workspace.
    fn manifest_outside(&self, root: &Path) -> Result<String, Failure> {
        let workspace = fs::read_to_string(root.join("Cargo.toml"))?;
        let value = |key: &str| {
            let line = workspace.lines().find_map(|line| {
                line.strip_prefix(key)?
                    .trim()
                    .strip_prefix("= \"")?
                    .strip_suffix('"')
            });
            line.ok_or_else(|| Failure::new(format!("the workspace's Cargo.toml has no {key}")))
        };
        let repository = value("repository")?;
        let from = |folder: &str| match self.git {
            true => format!("{{ git = {repository:?} }}"),
            false => format!("{{ path = {:?} }}", root.join(folder)),
        };
        let template = include_str!("../templates/common/Cargo.toml.outside");
        Ok(template
            .replace("{{rust}}", value("rust-version")?)
            .replace("{{core}}", &from("membership-core"))
            .replace("{{provider}}", &from("membership-provider"))
            .replace("{{suite}}", &from("conformance-tests")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_schemes_types_and_crates() {
        let names = Names::new("membership-my-store").unwrap();
        assert_eq!(
            names.fill("{{name}} {{ident}} {{Title}} {{NAME}}"),
            "my-store my_store MyStore MY_STORE"
        );
        for name in ["", "My", "9a", "a_b", "a-", "a--b", "ä", &"a".repeat(33)] {
            assert!(Names::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_member_is_added_once_and_in_order() {
        let manifest = "[workspace]\nmembers = [\n    \"a\",\n    \"c\",\n]\ndefault-members = [\n    \"a\",\n]\n";
        let added = with_member(manifest, "b").unwrap();
        assert!(added.contains("members = [\n    \"a\",\n    \"b\",\n    \"c\",\n]\ndefault-members = [\n    \"a\",\n]\n"), "{added}");
        assert_eq!(with_member(&added, "b").unwrap(), added);
    }
}
