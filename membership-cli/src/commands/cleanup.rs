//! `membership cleanup`: remove rows of silos that are long dead.

use std::time::Duration;

use membership::CleanupPolicy;
use membership::admin::{Admin, TokioRuntime};

use crate::clock;
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::session::{Session, TableArgs};
use crate::text::count;

/// Remove rows of dead silos that died longer ago than --older-than and are not among the --keep
/// most recent
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Remove only silos that died longer ago than this; at least 2min, because votes may still
    /// refer to younger rows
    #[arg(long, value_name = "DURATION", default_value = "7days", value_parser = humantime::parse_duration)]
    older_than: Duration,
    /// Keep so many of the most recently dead, whatever their age
    #[arg(long, value_name = "N", default_value_t = 25)]
    keep: usize,
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    // Silos never remove a row within two minutes of its death either.
    if args.older_than < Duration::from_secs(120) {
        return Err(Failure::usage(
            "--older-than must be at least 2min: some silos may not have seen a younger death yet",
        ));
    }
    let table = session.open(&args.table).await?;
    let policy = CleanupPolicy::new(clock::wall(), args.older_than, args.keep);
    let out = &mut session.out;
    if args.dry_run {
        let inspection = Inspection::of(table.as_ref()).await?;
        let keys = policy.defunct(&inspection.snapshot);
        for key in &keys {
            out.line(key);
        }
        out.line(format_args!(
            "{} would be removed",
            count(keys.len(), "row")
        ));
        return Ok(Exit::Ok);
    }
    let mut runtime = TokioRuntime;
    let mut admin = Admin::new(table.as_ref(), &mut runtime);
    let removed = admin.cleanup(&policy).await?;
    for key in &removed {
        out.line(key);
    }
    out.line(format_args!("{} removed", count(removed.len(), "row")));
    Ok(Exit::Ok)
}
