//! Servers that are packages of Node.js: installed with what they depend on into a folder of their own, where no other package sees them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Progress, make, output};

/// Puts the package below the folder, and a program that runs its script, if there is to be one, into the folder's `bin`; answers the version
/// of the package.
pub(super) fn install(
    root: &Path,
    package: &str,
    pinned: &str,
    needs: &[(&str, &str)],
    program: Option<(&str, &str)>,
    progress: Progress<'_>,
) -> Result<String, String> {
    // Before the download: without them it would be for nothing.
    for (program, argument) in needs {
        output(Command::new(program).arg(argument))?;
    }
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
        format!("the package {package} {pinned} of Node.js cannot be had ({why})")
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
            "the package {package} {pinned} of Node.js holds no {script}"
        ));
    }
    make(&root.join("bin"))?;
    let place = root.join("bin").join(program);
    // The shell is gone when the server runs: its process is the one that was started.
    let text = format!(
        "#!/bin/sh\nexec node \"$(dirname \"$0\")/../node_modules/{package}/{script}\" \"$@\"\n"
    );
    fs::write(&place, text)
        .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{} cannot be written: {error}", place.display()))?;
    Ok(pinned.to_owned())
}
