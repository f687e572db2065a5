//! Installs packages of the machine's own Debian or Ubuntu: downloads and unpacks them.
//!
//! Libraries that the machine has are used from there. For missing ones the installer searches the
//! dependencies of the unpacked packages, level by level, until the dynamic linker finds
//! everything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::packages::Recipe;
use super::tree::NEEDS;
use super::{Progress, Tree, make, output};

/// How many levels of dependencies are searched; the deepest known need is two (a library of a
/// library of the server).
const LEVELS: usize = 5;

/// Fills the folder with the first choice that the archive has; returns its version.
pub(super) fn install(
    home: &Path,
    scratch: &Path,
    root: &Path,
    choices: &[&[&str]],
    recipe: &Recipe,
    progress: Progress<'_>,
) -> Result<String, String> {
    let apt = Apt {
        private: home.join(".apt"),
        sources: None,
    };
    let names: Vec<&str> = choices.first().copied().unwrap_or_default().to_vec();
    progress(&format!("downloading {} with apt-get", names.join(", ")));
    let folder = scratch.join("packages");
    make(&folder)?;
    let mut files = apt.first_of(choices, &folder, progress)?;
    for file in &files {
        unpack(file, root)?;
    }
    let version = version(files.first().ok_or("apt-get downloaded nothing")?)?;

    let mut seen: BTreeSet<String> = BTreeSet::new();
    for level in 0..LEVELS {
        let missing = missing_libraries(root, recipe)?;
        if missing.is_empty() {
            return Ok(version);
        }
        let wanted: Vec<String> = libraries_needed_by(&files)?
            .into_iter()
            .filter(|name| seen.insert(name.clone()))
            .collect();
        if wanted.is_empty() {
            return Err(format!(
                "no package contains the libraries {}",
                list(&missing)
            ));
        }
        progress(&format!(
            "the machine lacks {}: searching {} packages",
            list(&missing),
            wanted.len()
        ));
        let folder = scratch.join(format!("libraries-{level}"));
        make(&folder)?;
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        files.clear();
        for file in apt.each_of(&wanted, &folder) {
            if brings(&file, &missing)? {
                unpack(&file, &root.join(NEEDS))?;
                files.push(file);
            }
        }
    }
    let missing = missing_libraries(root, recipe)?;
    if missing.is_empty() {
        Ok(version)
    } else {
        Err(format!(
            "no package contains the libraries {}",
            list(&missing)
        ))
    }
}

/// Fills the folder with a package of another release than the machine's; returns its version. Uses
/// separate sources, lists and cache, so the machine's own do not change.
pub(super) fn install_from(
    home: &Path,
    scratch: &Path,
    root: &Path,
    suite: &str,
    package: &str,
    recipe: &Recipe,
    progress: Progress<'_>,
) -> Result<String, String> {
    let gone = |why: String| {
        format!("the package {package} of Debian's release {suite} cannot be downloaded ({why})")
    };
    let private = home.join(format!(".apt-{suite}"));
    make(&private)?;
    let sources = private.join("sources.list");
    let archive = archive().map_err(gone)?;
    let signed = if Path::new(KEYRING).is_file() {
        format!("[signed-by={KEYRING}] ")
    } else {
        String::new()
    };
    fs::write(&sources, format!("deb {signed}{archive} {suite} main\n"))
        .map_err(|error| format!("{} cannot be written: {error}", sources.display()))?;
    let apt = Apt {
        private,
        sources: Some(sources),
    };
    progress(&format!(
        "downloading {package} of the release {suite} with apt-get, with separate package lists"
    ));
    apt.update()?;
    let folder = scratch.join("packages");
    make(&folder)?;
    let files = apt.download(&[package], &folder, true).map_err(gone)?;
    let file = files
        .first()
        .ok_or_else(|| gone("apt-get downloaded nothing".to_owned()))?;
    unpack(file, root)?;
    let missing = missing_libraries(root, recipe)?;
    if missing.is_empty() {
        version(file)
    } else {
        Err(format!(
            "the machine lacks the libraries {}",
            list(&missing)
        ))
    }
}

/// The keys that sign Debian's packages, if the machine has them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The archive of Debian from which the machine's own packages come.
fn archive() -> Result<String, String> {
    let mut command = Command::new("apt-get");
    command.env("LC_ALL", "C").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let text = output(&mut command)?;
    let archive = text
        .lines()
        .map(str::trim)
        .find(|line| line.trim_end_matches('/').ends_with("/debian"));
    archive
        .map(str::to_owned)
        .ok_or_else(|| "no source of this machine is an archive of Debian".to_owned())
}

struct Apt {
    /// Separate package lists, for machines whose own are empty or too old.
    private: PathBuf,
    /// Separate sources, in place of the machine's.
    sources: Option<PathBuf>,
}

impl Apt {
    /// Downloads all packages of the first available choice.
    fn first_of(
        &self,
        choices: &[&[&str]],
        into: &Path,
        progress: Progress<'_>,
    ) -> Result<Vec<PathBuf>, String> {
        let mut why = String::new();
        for own_lists in [false, true] {
            if own_lists {
                progress(&format!(
                    "the machine's package lists are not usable ({why}): downloading separate lists"
                ));
                self.update()?;
            }
            for choice in choices {
                match self.download(choice, into, own_lists) {
                    Ok(files) => return Ok(files),
                    Err(error) if why.is_empty() || own_lists => why = error,
                    Err(_) => {}
                }
            }
        }
        let names: Vec<String> = choices.iter().map(|choice| choice.join(" ")).collect();
        Err(format!(
            "the packages {} cannot be downloaded ({why})",
            names.join(", or ")
        ))
    }

    /// Downloads the available ones of these packages. A name that several packages provide is not
    /// available, and may not be needed.
    fn each_of(&self, packages: &[&str], into: &Path) -> Vec<PathBuf> {
        let own_lists = self.private.join("lists").is_dir();
        if let Ok(files) = self.download(packages, into, own_lists) {
            return files;
        }
        packages
            .iter()
            .filter_map(|package| self.download(&[package], into, own_lists).ok())
            .flatten()
            .collect()
    }

    fn download(
        &self,
        packages: &[&str],
        into: &Path,
        own_lists: bool,
    ) -> Result<Vec<PathBuf>, String> {
        let mut command = self.command(own_lists);
        command.arg("download").args(packages).current_dir(into);
        output(&mut command)?;
        let mut files = Vec::new();
        // In the requested order: the first package gives the version.
        for package in packages {
            let prefix = format!("{package}_");
            let file = fs::read_dir(into)
                .map_err(|error| error.to_string())?
                .filter_map(Result::ok)
                .map(|entry| entry.path())
                .find(|path| {
                    path.file_name()
                        .and_then(|name| name.to_str())
                        .is_some_and(|name| name.starts_with(&prefix))
                });
            // A name that only other packages provide is downloaded under their names.
            files.extend(file);
        }
        Ok(files)
    }

    /// Downloads the lists of the machine's own sources into the separate folder. The next download
    /// shows whether that was enough: one of several sources may be down.
    fn update(&self) -> Result<(), String> {
        make(&self.private.join("lists/partial"))?;
        make(&self.private.join("cache/archives/partial"))?;
        match output(self.command(true).arg("update")) {
            Err(why) if why.contains("is not on this machine") => Err(why),
            _ => Ok(()),
        }
    }

    fn command(&self, own_lists: bool) -> Command {
        let mut command = Command::new("apt-get");
        // As root, apt-get would download as a user who must not write to this folder.
        command
            .env("LC_ALL", "C")
            .args(["-q", "-o", "APT::Sandbox::User=root"]);
        if own_lists {
            for (name, folder) in [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")] {
                command
                    .arg("-o")
                    .arg(format!("{name}={}", self.private.join(folder).display()));
            }
        }
        if let Some(sources) = &self.sources {
            command
                .arg("-o")
                .arg(format!("Dir::Etc::sourcelist={}", sources.display()))
                .args(["-o", "Dir::Etc::sourceparts=/dev/null"]);
        }
        command
    }
}

fn unpack(package: &Path, into: &Path) -> Result<(), String> {
    output(Command::new("dpkg-deb").arg("-x").arg(package).arg(into)).map(drop)
}

/// The upstream part of a package's version: the part between the epoch and the revision of the
/// package.
fn version(package: &Path) -> Result<String, String> {
    let text = output(
        Command::new("dpkg-deb")
            .arg("-f")
            .arg(package)
            .arg("Version"),
    )?;
    let text = text.trim();
    let text = text.split_once(':').map_or(text, |(_, rest)| rest);
    Ok(text
        .rsplit_once('-')
        .map_or(text, |(version, _)| version)
        .to_owned())
}

/// The library packages on which these packages depend; of alternatives the first. Without the C
/// library, which is always the machine's, and without what only Perl or a just-in-time compiler
/// loads.
fn libraries_needed_by(packages: &[PathBuf]) -> Result<Vec<String>, String> {
    let mut names = BTreeSet::new();
    for package in packages {
        let text = output(
            Command::new("dpkg-deb")
                .arg("-f")
                .arg(package)
                .args(["Depends", "Pre-Depends"]),
        )?;
        for dependency in text.replace(['\n', ':'], " ").split(',') {
            let first = dependency.split('|').next().unwrap_or_default();
            let name = first
                .split_whitespace()
                .find(|word| !matches!(*word, "Depends" | "Pre-Depends"))
                .unwrap_or_default();
            let skipped = name == "libc6" || name.ends_with("-perl") || name.starts_with("libllvm");
            // Only zlib's package name does not begin with "lib".
            if (name.starts_with("lib") || name.starts_with("zlib")) && !skipped {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(names.into_iter().collect())
}

/// The libraries that the dynamic linker does not find for the programs.
fn missing_libraries(root: &Path, recipe: &Recipe) -> Result<BTreeSet<String>, String> {
    let tree = Tree::unfinished(root);
    let mut missing = BTreeSet::new();
    for tool in recipe.tools {
        let program = tree
            .binary(tool)
            .ok_or_else(|| format!("the packages did not bring the program '{tool}'"))?;
        let mut command = Command::new("ldd");
        command.arg(&program).env("LC_ALL", "C");
        if let Some(libraries) = tree.library_path() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        // A script has no libraries, and ldd fails on it.
        let Ok(text) = output(&mut command) else {
            continue;
        };
        missing.extend(
            text.lines()
                .filter_map(|line| line.trim().split_once(" => not found"))
                .map(|(name, _)| name.to_owned()),
        );
    }
    Ok(missing)
}

fn brings(package: &Path, libraries: &BTreeSet<String>) -> Result<bool, String> {
    let files = output(Command::new("dpkg-deb").arg("-c").arg(package))?;
    Ok(files.lines().any(|line| {
        let path = line.split(" -> ").next().unwrap_or_default();
        path.rsplit('/')
            .next()
            .is_some_and(|name| libraries.contains(name))
    }))
}

fn list(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
