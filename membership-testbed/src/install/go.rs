//! Builds servers that are Go modules. The module proxy's checksums are checked by `go` itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Progress, make, output};

/// Builds a program that calls the module into the folder's `bin`; returns the version.
pub(super) fn install(
    scratch: &Path,
    root: &Path,
    (module, pinned): (&str, &str),
    (package, call, program): (&str, &str, &str),
    progress: Progress<'_>,
) -> Result<String, String> {
    progress(&format!("building {module} {pinned} with Go"));
    let folder = scratch.join("go");
    make(&folder)?;
    let written = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{} cannot be written: {e}", path.display()))
    };
    written(
        "go.mod",
        &format!("module server\n\ngo 1.23\n\nrequire {module} {pinned}\n"),
    )?;
    let main = format!(
        "package main\n\nimport (\n\t\"os\"\n\n\t\"{package}\"\n)\n\nfunc main() {{\n\t{call}\n}}\n"
    );
    written("main.go", &main)?;
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.current_dir(&folder)
            .env("CGO_ENABLED", "0")
            .args(arguments);
        output(&mut go).map_err(|why| format!("{module} {pinned} cannot be built ({why})"))
    };
    go(&["mod", "tidy"])?;
    make(&root.join("bin"))?;
    let place = root.join("bin").join(program);
    go(&["build", "-trimpath", "-o", &place.to_string_lossy(), "."])?;
    Ok(pinned.trim_start_matches('v').to_owned())
}

/// Builds a package that is a program into the folder's `bin`; returns the version.
pub(super) fn install_program(
    root: &Path,
    package: &str,
    pinned: &str,
    progress: Progress<'_>,
) -> Result<String, String> {
    progress(&format!("building {package} {pinned} with Go"));
    let bin = root.join("bin");
    make(&bin)?;
    let mut go = Command::new("go");
    go.current_dir(root)
        .env("CGO_ENABLED", "0")
        .env("GOBIN", bin)
        .args(["install", "-trimpath", &format!("{package}@{pinned}")]);
    output(&mut go).map_err(|why| format!("{package} {pinned} cannot be built ({why})"))?;
    Ok(pinned.trim_start_matches('v').to_owned())
}

/// Builds a program whose module replaces others by folders beside it, which `go install` refuses:
/// as what an empty module needs, where replacements do not count. Returns the version.
pub(super) fn install_dependency(
    scratch: &Path,
    root: &Path,
    package: &str,
    pinned: &str,
    progress: Progress<'_>,
) -> Result<String, String> {
    progress(&format!("building {package} {pinned} with Go"));
    let (folder, bin) = (scratch.join("go"), root.join("bin"));
    make(&folder)?;
    make(&bin)?;
    let module = format!("module server\n\ngo 1.23\n\nrequire {package} {pinned}\n");
    let path = folder.join("go.mod");
    fs::write(&path, module).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    let mut go = Command::new("go");
    go.current_dir(&folder)
        .env("CGO_ENABLED", "0")
        .args(["build", "-mod=mod", "-trimpath", "-o"])
        .args([bin.as_os_str(), package.as_ref()]);
    output(&mut go).map_err(|why| format!("{package} {pinned} cannot be built ({why})"))?;
    Ok(pinned.trim_start_matches('v').to_owned())
}
