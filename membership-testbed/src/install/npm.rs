//! Installs servers that are packages of Node.js, with their dependencies, into a separate folder,
//! where no other package sees them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Progress, make, output};

/// Installs the package into the folder, and writes a program that runs its script into the
/// folder's `bin` if the recipe has one. Returns the version of the package.
pub(super) fn install(
    root: &Path,
    package: &str,
    pinned: &str,
    program: Option<(&str, &str)>,
    progress: Progress<'_>,
) -> Result<String, String> {
    progress(&format!(
        "downloading the package {package} {pinned} of Node.js with npm"
    ));
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--no-audit",
        "--no-fund",
        "--no-save",
        "--no-package-lock",
        "--ignore-scripts",
        "--loglevel=error",
        "--prefix",
    ]);
    output(npm.arg(root).arg(format!("{package}@{pinned}"))).map_err(|why| {
        format!("the package {package} {pinned} of Node.js cannot be downloaded ({why})")
    })?;
    let Some((program, script)) = program else {
        return Ok(pinned.to_owned());
    };
    if !root
        .join("node_modules")
        .join(package)
        .join(script)
        .is_file()
    {
        return Err(format!(
            "the package {package} {pinned} of Node.js contains no {script}"
        ));
    }
    make(&root.join("bin"))?;
    let place = root.join("bin").join(program);
    // `exec` replaces the shell, so the started process is the server.
    let text = format!(
        "#!/bin/sh\nexec node \"$(dirname \"$0\")/../node_modules/{package}/{script}\" \"$@\"\n"
    );
    fs::write(&place, text)
        .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{} cannot be written: {error}", place.display()))?;
    Ok(pinned.to_owned())
}
