//! The folder of installed servers.

use std::env;
use std::path::{Path, PathBuf};

/// The environment variable that names another folder, for example one that several checkouts
/// share.
pub const VARIABLE: &str = "MEMBERSHIP_SERVERS_DIR";

/// The folder of installed servers: the one that the environment variable names, otherwise
/// `servers` in Cargo's target folder.
#[must_use]
pub fn home() -> PathBuf {
    if let Some(named) = env::var_os(VARIABLE) {
        return absolute(PathBuf::from(named));
    }
    target().unwrap_or_else(env::temp_dir).join("servers")
}

/// Cargo's target folder: from the environment, or around the running program, or beside the
/// workspace's lock file.
fn target() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CARGO_TARGET_DIR") {
        let named = PathBuf::from(named);
        // A relative path is relative to the folder in which cargo was started, but test programs
        // run in their package's folder.
        return Some(if named.is_absolute() {
            named
        } else {
            around_program().or_else(beside_lock)?
        });
    }
    around_program().or_else(beside_lock)
}

/// Cargo marks its target folder as a cache.
fn around_program() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    program
        .ancestors()
        .skip(1)
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())
        .map(Path::to_path_buf)
}

fn beside_lock() -> Option<PathBuf> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    package
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file())
        .map(|folder| folder.join("target"))
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
