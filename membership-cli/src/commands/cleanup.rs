//! `membership cleanup`: remove rows of silos that are long dead.

use std::time::Duration;

use membership_core::{CleanupPolicy, CommitId, TableExt};

use crate::clock;
use crate::exit::{Exit, Failure};
use crate::look::Look;
use crate::program::{Session, TableArgs};
use crate::text::count;

/// Remove rows of dead silos: those that died longer ago than --older-than and are not among the --keep most recent
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Only silos that died longer ago (at least 2min: votes may still refer to younger ones)
    #[arg(long, value_name = "DURATION", default_value = "7days", value_parser = humantime::parse_duration)]
    older_than: Duration,
    /// So many of the most recently dead stay, whatever their age
    #[arg(long, value_name = "N", default_value_t = 25)]
    keep: usize,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    // The silos themselves never remove a row within two minutes of its death; neither does a person.
    if args.older_than < Duration::from_secs(120) && !args.dry_run {
        return Err(Failure::usage(
            "--older-than is at least 2min: silos may not all have seen a younger death",
        ));
    }
    let table = session.open(&args.table).await?;
    let policy = CleanupPolicy {
        now: clock::wall(),
        older_than: args.older_than,
        keep: args.keep,
    };
    let out = &mut session.out;
    if args.dry_run {
        let look = Look::at(table.as_ref()).await?;
        let keys = policy.defunct(&look.snapshot);
        for key in &keys {
            out.line(key);
        }
        out.line(format_args!("{} would go", count(keys.len(), "row")));
        return Ok(Exit::Ok);
    }
    let removed = table
        .cleanup_defunct_silo_entries(&policy, &mut || CommitId::new(clock::random()))
        .await?;
    for key in &removed {
        out.line(key);
    }
    out.line(format_args!("{} removed", count(removed.len(), "row")));
    Ok(Exit::Ok)
}
