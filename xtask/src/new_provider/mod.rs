//! `cargo xtask new-provider NAME`: a crate that compiles, and a suite that reports what is not
//! written yet.

mod names;
mod registered;
#[cfg(test)]
mod touched;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, say};
use names::Names;

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
    /// The launcher of this workspace starts the server: write its place there, too. Otherwise the
    /// crate's tests start it.
    #[arg(long, conflicts_with_all = ["into", "git"])]
    launcher: bool,
    /// Make nothing: write the provider, whose crate is there, into each place of this workspace that
    /// does not know it yet.
    #[arg(long, conflicts_with_all = ["shape", "into", "git", "launcher", "missing"])]
    register: bool,
    /// Make nothing: name the places of this workspace that do not know the provider yet, each with
    /// what to add.
    #[arg(long, conflicts_with_all = ["shape", "into", "git", "launcher"])]
    missing: bool,
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
    (
        "README.md",
        include_str!("../../templates/common/README.md"),
    ),
    (
        "src/config.rs",
        include_str!("../../templates/common/src/config.rs"),
    ),
    (
        "src/error.rs",
        include_str!("../../templates/common/src/error.rs"),
    ),
    (
        "tests/conformance.rs",
        include_str!("../../templates/common/tests/conformance.rs"),
    ),
    (
        "tests/support/mod.rs",
        include_str!("../../templates/common/tests/support/mod.rs"),
    ),
    (
        "tests/support/server.rs",
        include_str!("../../templates/common/tests/support/server.rs"),
    ),
];

/// How the crate's tests start the server; the launcher does it otherwise.
const SERVER: &str = "tests/support/server.rs";

/// What stands in tests/support/mod.rs and in Cargo.toml if the tests start the server.
const STARTED: [(&str, &str); 6] = [
    ("{{server_module}}", "mod server;\n"),
    ("{{local_server}}", "LocalServer, "),
    ("{{testbed}}", ""),
    (
        "{{start}}",
        "    let server = LocalServer::start(\"MEMBERSHIP_TEST_{{NAME}}_URL\", \"{{name}}\", SECRET, server::command);
    ServerBackend::new(\"{{name}}\", UnderTest, server.await.unwrap()).secret(SECRET)",
    ),
    ("{{server}}", ""),
    ("{{launcher}}", ""),
];

/// The same if the launcher starts it.
const LAUNCHED: [(&str, &str); 6] = [
    ("{{server_module}}", ""),
    ("{{local_server}}", ""),
    ("{{testbed}}", "use membership_testbed::{Kind, suite};\n"),
    (
        "{{start}}",
        "    suite::single(UnderTest, Kind::{{Title}}, SECRET).await.unwrap()",
    ),
    ("{{server}}", "server = \"{{name}}\"\n"),
    (
        "{{launcher}}",
        "membership-testbed = { workspace = true, features = [\"suite\"] }\n",
    ),
];

/// Access without the provider, for stores that are not one document.
const RAW: File = (
    "tests/support/raw.rs",
    include_str!("../../templates/rows/tests/support/raw.rs"),
);

impl Shape {
    const fn files(self) -> &'static [File] {
        match self {
            Self::Document => &[
                (
                    "src/lib.rs",
                    include_str!("../../templates/document/src/lib.rs"),
                ),
                (
                    "src/table.rs",
                    include_str!("../../templates/document/src/table.rs"),
                ),
            ],
            Self::Rows => &[
                (
                    "src/lib.rs",
                    include_str!("../../templates/rows/src/lib.rs"),
                ),
                (
                    "src/table.rs",
                    include_str!("../../templates/rows/src/table.rs"),
                ),
                (
                    "src/schema.rs",
                    include_str!("../../templates/rows/src/schema.rs"),
                ),
                RAW,
            ],
            Self::Batch => &[
                (
                    "src/lib.rs",
                    include_str!("../../templates/batch/src/lib.rs"),
                ),
                (
                    "src/table.rs",
                    include_str!("../../templates/batch/src/table.rs"),
                ),
                (
                    "src/codec.rs",
                    include_str!("../../templates/batch/src/codec.rs"),
                ),
                RAW,
            ],
        }
    }

    const fn staging(self) -> &'static str {
        match self {
            Self::Document => include_str!("../../templates/document/staging.rs"),
            Self::Rows | Self::Batch => include_str!("../../templates/rows/staging.rs"),
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

/// An error that names its file or folder.
fn at(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Writes the crate into `folder`, which does not exist; `manifest` is the text of its Cargo.toml.
/// Its tests start the server, or the launcher does.
fn write(
    folder: &Path,
    names: &Names,
    (shape, launcher): (Shape, bool),
    manifest: &str,
) -> Result<(), Failure> {
    let start = if launcher { LAUNCHED } else { STARTED };
    let mut sources = Vec::new();
    for (place, template) in [("Cargo.toml", manifest)]
        .iter()
        .chain(COMMON)
        .chain(shape.files())
        .filter(|(place, _)| !(launcher && *place == SERVER))
    {
        let mut text = template.replace("{{staging}}\n", shape.staging());
        for (word, meaning) in shape.words().into_iter().chain(start) {
            text = text.replace(word, meaning);
        }
        let path = folder.join(place);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|e| at(parent, &e))?;
        fs::write(&path, names.fill(&text)).map_err(|e| at(&path, &e))?;
        if place.ends_with(".rs") {
            sources.push(path);
        }
    }
    format(&sources)
}

/// Formats these files: the order of names and the length of lines depend on the store's name.
fn format(sources: &[PathBuf]) -> Result<(), Failure> {
    let mut rustfmt = Command::new("rustfmt");
    let status = rustfmt.args(["--edition", "2024"]).args(sources).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::new(format!(
            "rustfmt does not format {}; is it installed? `rustup component add rustfmt`",
            sources
                .first()
                .map(PathBuf::as_path)
                .unwrap_or(Path::new(""))
                .display()
        ))),
    }
}

/// Writes the launcher's part, and names it where the launcher names each.
fn with_launcher(root: &Path, names: &Names) -> Result<(), Failure> {
    let path = root.join(registered::launcher_file(names));
    names.fits_a_module()?;
    if path.exists() {
        return Err(Failure::new(format!(
            "{} is there already; nothing was written",
            path.display()
        )));
    }
    registered::register_launcher(root, names)?;
    let text = names.fill(include_str!("../../templates/launcher.rs"));
    fs::write(&path, text).map_err(|e| at(&path, &e))?;
    // Modules stand in the order of their names.
    format(&[path.with_file_name("mod.rs"), path])
}

/// Writes the provider into the places that do not know it, and says what is left to write by hand.
fn register(root: &Path, names: &Names) -> Result<(), Failure> {
    let folder = root.join(names.package());
    if !folder.is_dir() {
        return Err(Failure::new(format!(
            "{} is not there: make the crate first, with `cargo xtask new-provider`",
            folder.display()
        )));
    }
    let changed = registered::register(root, names)?;
    for file in &changed {
        say(&format!("{file}: {} is named", names.package()));
    }
    say(
        "Replace `to be written` in docs/choosing.md and docs/providers.md. The licences of new dependencies belong into deny.toml.",
    );
    Ok(())
}

/// Adds a folder to the list of members of a workspace's manifest, in alphabetical order.
fn with_member(manifest: &str, member: &str) -> Option<String> {
    let begin = manifest.find("\nmembers = [\n")? + "\nmembers = [\n".len();
    let end = begin + manifest[begin..].find("]\n")?;
    let mut lines: Vec<&str> = manifest[begin..end].lines().collect();
    let line = format!("    \"{member}\",");
    let covers = |one: &&str| {
        let pattern = one.trim().trim_matches(['"', ',']);
        let begin = pattern.strip_suffix('*');
        begin
            .and_then(|begin| member.strip_prefix(begin))
            .is_some_and(|rest| !rest.contains('/'))
    };
    if !lines.contains(&line.as_str()) && !lines.iter().any(covers) {
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
    /// Writes the crate and prints the next steps. If it fails, nothing is left.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let names = Names::new(&self.name)?;
        let root = root.canonicalize()?;
        if self.register {
            return register(&root, &names);
        }
        if self.missing {
            let missing = registered::missing(&root, &names);
            if missing.is_empty() {
                say(&format!("{} is named everywhere", names.package()));
                return Ok(());
            }
            let left = format!("{} places do not know it", missing.len());
            return Err(Failure::new(format!("{left}\n{}", missing.join("\n"))));
        }
        names.are_free(&root)?;
        let into = match &self.into {
            Some(into) => into.canonicalize().map_err(|e| {
                Failure::new(format!("{}: {e}; make the folder first", into.display()))
            })?,
            None => root.clone(),
        };
        let folder = into.join(names.package());
        if folder.exists() {
            return Err(Failure::new(format!(
                "{} is there already; nothing was written",
                folder.display()
            )));
        }
        let made = match folder.strip_prefix(&root) {
            Ok(_) if self.git => {
                return Err(Failure::new(format!(
                    "--git is for a crate outside of this workspace, and {} is inside, where a crate depends on the other members: \
                     leave --git out, or name a folder outside with --into",
                    folder.display()
                )));
            }
            Ok(member) => {
                self.make_inside(&root, &folder, member, &names)
                    .and_then(|()| match self.launcher {
                        true => with_launcher(&root, &names),
                        false => Ok(()),
                    })
            }
            Err(_) => self
                .manifest_outside(&root)
                .and_then(|manifest| write(&folder, &names, self.template(), &manifest)),
        };
        if let Err(failure) = made {
            // It did not exist before.
            let left = match fs::remove_dir_all(&folder) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    format!("; {} is left: {e}", folder.display())
                }
                _ => "; nothing is left of it".to_owned(),
            };
            return Err(Failure::new(format!("{failure}{left}")));
        }
        say(&format!(
            "{folder} is there.

Next:
  1. {cd}cargo test -p {package}
     compiles, and fails: below each case stands what is not written yet.
  2. {start}.
  3. Add your client to Cargo.toml, and sort its errors in src/error.rs.
  4. Write the functions in {to_write}; run the suite again until it is green.
docs/new-provider.md goes through all of it, step by step.",
            folder = folder.display(),
            cd = if folder.starts_with(&root) {
                String::new()
            } else {
                format!("cd {} && ", folder.display())
            },
            package = names.package(),
            start = match self.launcher {
                true => format!(
                    "Write {}: how your server is installed, started and asked",
                    registered::launcher_file(&names).display()
                ),
                false => "Write `command` in tests/support/server.rs: how your server is started"
                    .to_owned(),
            },
            to_write = self.shape.to_write(),
        ));
        Ok(())
    }

    const fn template(&self) -> (Shape, bool) {
        (self.shape, self.launcher)
    }

    /// Writes the crate into this workspace and adds it to the members. If the workspace does not
    /// load with it, its manifest is as before.
    fn make_inside(
        &self,
        root: &Path,
        folder: &Path,
        member: &Path,
        names: &Names,
    ) -> Result<(), Failure> {
        let path = root.join("Cargo.toml");
        let member = member.to_string_lossy().replace('\\', "/");
        let before = fs::read_to_string(&path).map_err(|e| at(&path, &e))?;
        let with = with_member(&before, &member).ok_or_else(|| {
            Failure::new(format!(
                "{} has no list `members = [` with one line for each member: \"{member}\" cannot be added",
                path.display()
            ))
        })?;
        let template = include_str!("../../templates/common/Cargo.toml.inside");
        write(folder, names, self.template(), template)?;
        fs::write(&path, with).map_err(|e| at(&path, &e))?;
        match names::packages(root) {
            Ok(_) => Ok(()),
            Err(failure) => {
                fs::write(&path, before).map_err(|e| at(&path, &e))?;
                Err(failure)
            }
        }
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
        let template = include_str!("../../templates/common/Cargo.toml.outside");
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
    fn a_member_is_added_once_and_in_order() {
        let manifest = "[workspace]\nmembers = [\n    \"a\",\n    \"c\",\n]\ndefault-members = [\n    \"a\",\n]\n";
        let added = with_member(manifest, "b").unwrap();
        assert!(added.contains("members = [\n    \"a\",\n    \"b\",\n    \"c\",\n]\ndefault-members = [\n    \"a\",\n]\n"), "{added}");
        assert_eq!(with_member(&added, "b").unwrap(), added);
        let all = "[workspace]\nmembers = [\n    \"a-*\",\n]\n";
        assert_eq!(with_member(all, "a-b").unwrap(), all);
        assert!(with_member(all, "a-b/c").unwrap().contains("\"a-b/c\""));
    }

    /// A workspace with one member, a crate of this name, and with this scheme.
    fn workspace(member: &str, scheme: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\n    \"one\",\n]\n",
        );
        write(
            "one/Cargo.toml",
            &format!("[package]\nname = \"{member}\"\nedition = \"2024\"\n"),
        );
        write("one/src/lib.rs", "");
        write(
            names::KNOWN,
            &format!("builtin! {{\n    \"{scheme}\" => it::provider(), [\"{scheme}\"];\n}}\n"),
        );
        place
    }

    fn make(root: &Path, name: &str, into: Option<PathBuf>, git: bool) -> Result<(), String> {
        let command = NewProvider {
            name: name.to_owned(),
            shape: Shape::Document,
            into,
            git,
            launcher: false,
            register: false,
            missing: false,
        };
        command.run(root).map_err(|failure| failure.to_string())
    }

    fn refused(root: &Path, name: &str, into: Option<PathBuf>, git: bool, why: &str) {
        let before = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let error = make(root, name, into, git).unwrap_err();
        assert!(error.contains(why), "{error}");
        let after = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        assert_eq!(before, after);
        let folder = format!("membership-{name}");
        assert!(!root.join(&folder).exists(), "{folder} is left: {error}");
    }

    #[test]
    fn a_name_that_the_workspace_has_is_refused() {
        let place = workspace("membership-toy", "zk");
        let root = place.path();
        refused(root, "toy", None, false, "a package membership-toy");
        refused(root, "zk", None, false, "the scheme `zk`");
        // Anywhere else, too: no program could have both.
        let elsewhere = tempfile::tempdir().unwrap();
        let into = || Some(elsewhere.path().to_owned());
        refused(root, "toy", into(), false, "a package membership-toy");
        refused(root, "zk", into(), false, "the scheme `zk`");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_left_of_a_crate_that_the_workspace_cannot_load() {
        // The template inherits what this workspace does not have.
        let place = workspace("one", "zk");
        refused(place.path(), "mystore", None, false, "nothing is left");
    }

    #[test]
    fn git_inside_the_workspace_is_refused() {
        let place = workspace("one", "zk");
        refused(place.path(), "mystore", None, true, "leave --git out");
    }

    #[test]
    fn an_error_names_the_folder() {
        let place = workspace("one", "zk");
        let root = place.path();
        let no_folder = root.join("absent");
        refused(root, "mystore", Some(no_folder), false, "absent: ");
        // A file in the place of a folder cannot be written into.
        let file = Some(root.join("Cargo.toml"));
        refused(
            root,
            "mystore",
            file,
            false,
            "Cargo.toml/membership-mystore",
        );
    }
}
