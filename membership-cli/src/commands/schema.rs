//! `membership schema`: what an administrator runs once where silos may not make tables.

use crate::exit::{Exit, Failure};
use crate::program::Session;

/// Print what to run once in a database whose tables the silos' own user may not make; connects to nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the membership table will be, as the silos will be told
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL"
    )]
    table: String,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let Some(text) = session.connectors().schema(&args.table)? else {
        return Err(Failure::usage(
            "this store has no tables to make beforehand: the first silo makes what it needs",
        ));
    };
    session.out.line(text.trim_end());
    Ok(Exit::Ok)
}
