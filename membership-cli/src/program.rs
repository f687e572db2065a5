//! The command line as a whole, and from it to an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use membership::Connectors;
use membership_core::{ClusterName, MembershipTable};

#[cfg(feature = "conformance")]
use crate::commands::conformance;
use crate::commands::{
    bench, cleanup, delete, demo, doctor, evict, history, schema, settings, silo, status, watch,
    why,
};
use crate::exit::{Exit, Failure};
use crate::out::Out;

/// See, explain and repair the membership of a cluster; run a silo; try it all out with `membership demo`.
#[derive(Debug, Parser)]
#[command(name = "membership", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Silo(Box<silo::Args>),
    Status(status::Args),
    Watch(watch::Args),
    Why(why::Args),
    History(history::Args),
    Evict(evict::Args),
    Cleanup(cleanup::Args),
    Settings(settings::Args),
    Doctor(doctor::Args),
    Delete(delete::Args),
    Schema(schema::Args),
    Bench(bench::Args),
    #[cfg(feature = "conformance")]
    Conformance(conformance::Args),
    #[cfg(feature = "conformance")]
    #[command(hide = true)]
    ConformanceChild(conformance::ChildArgs),
}

/// Which table.
#[derive(Clone, Debug, Args)]
pub(crate) struct TableArgs {
    /// Where the membership table is, for example sqlite:membership.db
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub table: String,
    /// Which cluster in it: [service/]cluster
    #[arg(
        long,
        env = "MEMBERSHIP_CLUSTER",
        value_name = "ID",
        default_value = "default"
    )]
    pub cluster: ClusterName,
}

/// What a command works with.
pub(crate) struct Session {
    connectors: Connectors,
    pub out: Out,
    pub err: Out,
}

impl Session {
    /// Opens the table.
    pub async fn open(&self, args: &TableArgs) -> Result<Arc<dyn MembershipTable>, Failure> {
        self.connect(&args.table, &args.cluster).await
    }

    pub async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, Failure> {
        Ok(self.connectors.connect(url, cluster.clone()).await?)
    }

    /// The stores of this program, for whoever opens tables by himself.
    pub fn connectors(&self) -> Connectors {
        self.connectors.clone()
    }

    /// Whether this program can open tables of a scheme.
    pub fn has(&self, scheme: &str) -> bool {
        self.connectors.schemes().any(|s| s == scheme)
    }

    /// Asks whoever sits there; no answer at all is a mistake of the caller, who forgot `--yes`.
    pub fn ask(&mut self, question: &str, yes: &str) -> Result<bool, Failure> {
        self.err.raw(format_args!("{question} "));
        let mut answer = String::new();
        match std::io::stdin().read_line(&mut answer) {
            Ok(n) if n > 0 => Ok(answer.trim().eq_ignore_ascii_case(yes)),
            _ => {
                self.err.line("");
                Err(Failure::usage(
                    "nobody answered, and nothing was done; add --yes to go ahead without being asked",
                ))
            }
        }
    }
}

/// Runs the program with `connectors`: whoever ships it with a store of their own calls this from `main`.
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
    run_in(
        Session {
            connectors,
            out: Out::stdout(),
            err: Out::stderr(),
        },
        std::env::args_os(),
    )
    .into()
}

/// Runs one command line, the program's name first, and writes to `out` and `err`: the program inside another one, or in a test.
pub fn run(
    connectors: Connectors,
    args: impl IntoIterator<Item = OsString>,
    out: impl Write + Send + 'static,
    err: impl Write + Send + 'static,
) -> Exit {
    run_in(
        Session {
            connectors,
            out: Out::plain(Box::new(out)),
            err: Out::plain(Box::new(err)),
        },
        args,
    )
}

fn run_in(mut session: Session, args: impl IntoIterator<Item = OsString>) -> Exit {
    let parsed = Cli::command()
        .after_help(Exit::table())
        .try_get_matches_from(args)
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
    let done = match runtime(&cli.command) {
        Ok(runtime) => runtime.block_on(execute(cli.command, &mut session)),
        Err(error) => Err(Failure::new(Exit::Failed, format!("cannot start: {error}"))),
    };
    match (done, session.out.trouble()) {
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

/// One thread is enough for everything but the suite, which finds more with several.
fn runtime(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    match command {
        #[cfg(feature = "conformance")]
        Command::Conformance(_) => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build(),
        _ => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build(),
    }
}

async fn execute(command: Command, session: &mut Session) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::run(args, session).await,
        Command::Silo(args) => silo::run(*args, session).await,
        Command::Status(args) => status::run(args, session).await,
        Command::Watch(args) => watch::run(args, session).await,
        Command::Why(args) => why::run(args, session).await,
        Command::History(args) => history::run(args, session).await,
        Command::Evict(args) => evict::run(args, session).await,
        Command::Cleanup(args) => cleanup::run(args, session).await,
        Command::Settings(args) => settings::run(args, session).await,
        Command::Doctor(args) => doctor::run(args, session).await,
        Command::Delete(args) => delete::run(args, session).await,
        Command::Schema(args) => schema::run(args, session).await,
        Command::Bench(args) => bench::run(args, session).await,
        #[cfg(feature = "conformance")]
        Command::Conformance(args) => conformance::run(args, session).await,
        #[cfg(feature = "conformance")]
        Command::ConformanceChild(args) => conformance::run_child(args, session).await,
    }
}
