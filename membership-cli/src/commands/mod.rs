//! The commands of the program, one file each. A new command is a new file and three lines here:
//! its module, its variant, its line in [`Command::run`].

use clap::Subcommand;
use tokio::runtime::Builder;

use crate::exit::{Exit, Failure};
use crate::program::program;
use crate::session::Session;

mod bench;
mod cleanup;
mod completions;
#[cfg(feature = "conformance")]
mod conformance;
#[cfg(feature = "http")]
mod dashboard;
mod delete;
mod demo;
#[cfg(feature = "gossip")]
mod demo_gossip;
mod doctor;
mod evict;
#[cfg(feature = "gossip")]
mod gossip;
mod history;
mod man;
mod schema;
mod settings;
mod silo;
mod silo_report;
mod status;
mod top;
mod watch;
mod why;

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Silo(Box<silo::Args>),
    #[cfg(feature = "gossip")]
    Gossip(Box<gossip::Args>),
    Status(status::Args),
    Watch(watch::Args),
    Top(top::Args),
    #[cfg(feature = "http")]
    Dashboard(dashboard::Args),
    Why(why::Args),
    History(history::Args),
    Evict(evict::Args),
    Cleanup(cleanup::Args),
    Settings(settings::Args),
    Doctor(doctor::Args),
    Delete(delete::Args),
    Schema(schema::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[cfg(feature = "conformance")]
    Conformance(conformance::Args),
    #[cfg(feature = "conformance")]
    #[command(hide = true)]
    ConformanceChild(conformance::ChildArgs),
}

impl Command {
    pub async fn run(self, session: &mut Session) -> Result<Exit, Failure> {
        match self {
            Self::Demo(args) => demo::run(args, session).await,
            Self::Silo(args) => silo::run(*args, session).await,
            #[cfg(feature = "gossip")]
            Self::Gossip(args) => gossip::run(*args, session).await,
            Self::Status(args) => status::run(args, session).await,
            Self::Watch(args) => watch::run(args, session).await,
            Self::Top(args) => top::run(args, session).await,
            #[cfg(feature = "http")]
            Self::Dashboard(args) => dashboard::run(args, session).await,
            Self::Why(args) => why::run(args, session).await,
            Self::History(args) => history::run(args, session).await,
            Self::Evict(args) => evict::run(args, session).await,
            Self::Cleanup(args) => cleanup::run(args, session).await,
            Self::Settings(args) => settings::run(args, session).await,
            Self::Doctor(args) => doctor::run(args, session).await,
            Self::Delete(args) => delete::run(args, session).await,
            Self::Schema(args) => schema::run(args, session).await,
            Self::Bench(args) => bench::run(args, session).await,
            Self::Completions(args) => completions::run(&args, program(), session),
            Self::Man(args) => man::run(&args, program(), session),
            #[cfg(feature = "conformance")]
            Self::Conformance(args) => conformance::run(args, session).await,
            #[cfg(feature = "conformance")]
            Self::ConformanceChild(args) => conformance::run_child(args, session).await,
        }
    }

    /// The runtime for the command: one thread, but several for the suite, which finds more faults
    /// with real parallelism.
    pub fn runtime(&self) -> Builder {
        match self {
            #[cfg(feature = "conformance")]
            Self::Conformance(_) => {
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(4);
                builder
            }
            _ => Builder::new_current_thread(),
        }
    }
}
