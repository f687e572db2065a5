//! What proves `deploy/` and is no store: Prometheus, and packages of Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::packages::{DOCUMENTS, Recipe, Source};
use super::{Progress, Tree, apt, lock, make, newest, output, remove};

const PROMETHEUS: Recipe = Recipe {
    number: 1,
    // Debian 12 has 2.42.
    source: Source::Apt {
        choices: &[&["prometheus"]],
    },
    tools: &["prometheus", "promtool"],
    prune: DOCUMENTS,
};

/// Prometheus and promtool. Installs them into this folder if they are missing.
///
/// # Errors
/// The package cannot be downloaded or unpacked; the text names the cause.
pub fn prometheus(home: &Path, progress: Progress<'_>) -> Result<Tree, String> {
    let find = || newest(home, "prometheus-", PROMETHEUS.number);
    if let Some(tree) = find() {
        return Ok(tree);
    }
    make(home)?;
    let _lock = lock(home, "prometheus", progress)?;
    // Another process may have installed it meanwhile.
    if let Some(tree) = find() {
        return Ok(tree);
    }
    let scratch = home.join(".installing-prometheus");
    remove(&scratch)?;
    let made = unpack(home, &scratch, progress);
    let removed = remove(&scratch);
    let tree = made?;
    removed?;
    Ok(tree)
}

fn unpack(home: &Path, scratch: &Path, progress: Progress<'_>) -> Result<Tree, String> {
    let root = scratch.join("tree");
    make(&root)?;
    let Source::Apt { choices } = PROMETHEUS.source else {
        return Err("Prometheus comes from apt".to_owned());
    };
    let version = apt::install(home, scratch, &root, choices, &PROMETHEUS, progress)?;
    for folder in PROMETHEUS.prune {
        remove(&root.join(folder))?;
    }
    Tree::mark(&root, PROMETHEUS.number, &version)?;
    let place = home.join(format!("prometheus-{version}"));
    remove(&place)?;
    rename(&root, &place)?;
    progress(&format!(
        "prometheus: installed version {version} in {}",
        place.display()
    ));
    Tree::open(&place).ok_or_else(|| format!("{} is incomplete", place.display()))
}

/// A package of Python with all that it needs, in a folder for `PYTHONPATH`. Installs it into this
/// folder if it is missing: exactly this version.
///
/// # Errors
/// Python or pip is missing, or the package cannot be downloaded; the text names the cause.
pub fn python(
    home: &Path,
    package: &str,
    version: &str,
    progress: Progress<'_>,
) -> Result<PathBuf, String> {
    let place = home.join(format!("{package}-{version}"));
    if place.is_dir() {
        return Ok(place);
    }
    make(home)?;
    let _lock = lock(home, package, progress)?;
    if place.is_dir() {
        return Ok(place);
    }
    progress(&format!(
        "downloading the Python package {package} {version} with pip"
    ));
    let scratch = home.join(format!(".installing-{package}"));
    remove(&scratch)?;
    let installed = output(
        Command::new("python3")
            .args(["-m", "pip", "--disable-pip-version-check", "install"])
            .args(["--quiet", "--only-binary", ":all:", "--target"])
            .arg(&scratch)
            .arg(format!("{package}=={version}")),
    );
    let placed = installed.and_then(|_| rename(&scratch, &place));
    let removed = remove(&scratch);
    placed?;
    removed?;
    Ok(place)
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    fs::rename(from, to).map_err(|error| {
        format!(
            "{} cannot be renamed to {}: {error}",
            from.display(),
            to.display()
        )
    })
}
