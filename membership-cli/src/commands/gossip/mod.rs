//! `membership gossip`: a member of a cluster without a store, and questions to living members.

mod ask;
mod report;
mod run;

use clap::Subcommand;

use crate::exit::{Exit, Failure};
use crate::session::Session;

/// Run a member of a cluster without a store until SIGTERM, SIGINT or SIGHUP, then leave; or ask a
/// living member
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    ask: Option<Ask>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(Debug, Subcommand)]
enum Ask {
    Status(ask::StatusArgs),
    Leave(ask::LeaveArgs),
    Down(ask::DownArgs),
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    match args.ask {
        None => run::run(args.run, session).await,
        Some(Ask::Status(args)) => ask::status(args, session).await,
        Some(Ask::Leave(args)) => ask::leave(args, session).await,
        Some(Ask::Down(args)) => ask::down(args, session).await,
    }
}
