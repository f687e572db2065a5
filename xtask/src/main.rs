//! What is done to this workspace: `cargo xtask --help`. One file per command.

mod new_provider;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// What is done to this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    NewProvider(new_provider::NewProvider),
}

/// Why a command did not do what it is for, in one message that says what to do.
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

#[allow(clippy::print_stderr, reason = "what the command answers")]
fn main() -> ExitCode {
    let done = match Xtask::parse() {
        Xtask::NewProvider(command) => command.run(&root()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
