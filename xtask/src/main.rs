//! Tasks for this workspace: `cargo xtask --help`. One file per command.

mod book;
mod clients;
mod deploy;
mod new_provider;
mod pictures;
mod providers;
mod servers;
#[cfg(test)]
mod shape;
mod status;
mod test;
mod versions;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;

/// What is done to this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    Book(book::Book),
    Servers(servers::Servers),
    Clients(clients::Clients),
    Deploy(deploy::Deploy),
    NewProvider(new_provider::NewProvider),
    Pictures(pictures::Pictures),
    Status(status::Status),
    Soak(test::Soak),
    Test(test::Test),
    Versions(versions::Versions),
}

/// Why a command failed, in one message that says what to do.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of this workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of what Cargo builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The Cargo that runs this, without what it says of this package: build programs that look at it
/// (that of `ring`) would run again, and all that is built on them be compiled anew.
fn cargo() -> Command {
    let program = std::env::var_os("CARGO");
    let mut cargo = Command::new(program.unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// The output of a command; if it fails, an error with its standard error.
fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::new(format!(
        "{command:?} failed\n{}",
        String::from_utf8_lossy(&output.stderr)
    )))
}

fn say(text: &str) {
    // The reader may have closed the pipe, as `head` does; the command continues nevertheless.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[allow(clippy::print_stderr, reason = "what the command answers")]
fn main() -> ExitCode {
    let command = Xtask::parse();
    let done = providers::check().and_then(|()| match command {
        Xtask::Book(command) => command.run(&root()),
        Xtask::Servers(command) => command.run(&root()),
        Xtask::Clients(command) => command.run(&root()),
        Xtask::Deploy(command) => command.run(&root()),
        Xtask::Soak(command) => command.run(&root()),
        Xtask::Test(command) => command.run(&root()),
        Xtask::NewProvider(command) => command.run(&root()),
        Xtask::Pictures(command) => command.run(&root()),
        Xtask::Status(command) => command.run(&root()),
        Xtask::Versions(command) => command.run(&root()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
