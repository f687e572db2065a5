//! `membership completions`: what a shell needs to complete command lines.

use clap::Command;
use clap_complete::Shell;

use crate::exit::{Exit, Failure};
use crate::session::Session;

/// Print what a shell needs to complete command lines, for example:
/// membership completions bash > /etc/bash_completion.d/membership
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(
    args: &Args,
    mut program: Command,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "membership", &mut text);
    session.out.raw(String::from_utf8_lossy(&text));
    Ok(Exit::Ok)
}
