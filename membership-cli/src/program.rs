//! The command line as a whole: parses it, runs the command, turns the result into an exit code.

use std::ffi::OsString;
use std::io::Write;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser};
use membership::Connectors;

use crate::commands::Command;
use crate::exit::{Exit, Failure};
use crate::session::Session;

/// See, explain and repair the membership of a cluster, or run a silo; `membership demo` shows what
/// it does.
#[derive(Debug, Parser)]
#[command(name = "membership", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The whole command line, as it is parsed, completed and described.
pub(crate) fn program() -> clap::Command {
    let program = Cli::command().after_help(Exit::table());
    program.mut_subcommands(|command| match command.get_name() {
        "silo" | "dashboard" => command.mut_args(with_variable),
        // The questions to members have options of how members talk.
        "gossip" => command
            .mut_args(with_variable)
            .mut_subcommands(|ask| ask.mut_args(talks)),
        // How silos talk is the same for all programs that talk with them.
        _ => command.mut_args(talks),
    })
}

/// Gives an option of how silos talk its variable.
fn talks(arg: Arg) -> Arg {
    match arg.get_long() {
        Some("secret-file" | "tls-ca" | "tls-cert" | "tls-key" | "tls-bind" | "tls-optional")
        | Some("insecure") => with_variable(arg),
        _ => arg,
    }
}

/// Each option of a silo and of a dashboard may stand in the environment as well: `--gateway-port` as
/// `MEMBERSHIP_GATEWAY_PORT`.
fn with_variable(arg: Arg) -> Arg {
    let option = arg.get_long().filter(|_| !arg.is_hide_set());
    match option.map(variable) {
        Some(name) if arg.get_env().is_none() && arg.get_id() != "help" => {
            let arg = match arg.get_action() {
                ArgAction::SetTrue => arg.value_parser(flag),
                _ => arg,
            };
            arg.env(name)
        }
        _ => arg,
    }
}

/// The variable of an option.
fn variable(long: &str) -> String {
    let name = long.to_ascii_uppercase().replace('-', "_");
    format!("MEMBERSHIP_{name}")
}

/// What people write into a variable that switches something on or off. An empty one is as none.
fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "" | "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// The variable that a refused value comes from, if it does not stand on the command line.
fn refused_variable(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let long = arg.strip_prefix("--")?.split([' ', '=']).next()?;
    let stands_there = args.iter().any(|given| {
        let given = given.to_string_lossy();
        let given = given.strip_prefix("--").and_then(|g| g.split('=').next());
        given == Some(long)
    });
    let name = variable(long);
    (!stands_there && std::env::var_os(&name).is_some()).then_some(name)
}

/// Runs the program with `connectors`: call this from the `main` of a program with a store of your
/// own.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     let connectors = membership_cli::Connectors::default();
///     // connectors.register("mystore", …);
///     membership_cli::main_with(connectors)
/// }
/// ```
#[must_use]
pub fn main_with(connectors: Connectors) -> std::process::ExitCode {
    run_in(Session::standard(connectors), std::env::args_os()).into()
}

/// Runs one command line, the program's name first, and writes to `out` and `err`: for tests, and
/// for programs that embed this one.
pub fn run(
    connectors: Connectors,
    args: impl IntoIterator<Item = OsString>,
    out: impl Write + Send + 'static,
    err: impl Write + Send + 'static,
) -> Exit {
    run_in(Session::plain(connectors, out, err), args)
}

fn run_in(mut session: Session, args: impl IntoIterator<Item = OsString>) -> Exit {
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = program()
        .try_get_matches_from(&args)
        .and_then(|m| Cli::from_arg_matches(&m));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let text = if session.err.is_coloured() {
                error.render().ansi().to_string()
            } else {
                error.render().to_string()
            };
            session.err.raw(text);
            if let Some(name) = refused_variable(&error, &args) {
                let text = format!("The value comes from the environment variable {name}.");
                session.err.line(text);
            }
            return Exit::Usage;
        }
        Err(help) => {
            let text = if session.out.is_coloured() {
                help.render().ansi().to_string()
            } else {
                help.render().to_string()
            };
            session.out.raw(text);
            return Exit::Ok;
        }
    };
    let done = match cli.command.runtime().enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(cli.command.run(&mut session));
            // A call of a store that hangs in a thread must not keep the program.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::new(Exit::Failed, format!("cannot start: {error}"))),
    };
    match (done, session.out.error()) {
        (Ok(_), Some(error)) => {
            let text = format!("error: cannot write the output: {error}");
            session.err.line(text);
            Exit::Failed
        }
        (Ok(exit), None) => exit,
        (Err(failure), _) => {
            let prefix = session.err.paint(crate::out::Paint::Red, "error:");
            session.err.line(format_args!(
                "{prefix} {}",
                crate::text::clean(&failure.message.replace('\n', " "))
            ));
            failure.exit
        }
    }
}
