//! `membership cleanup`: remove rows of silos that are long dead.

use std::time::Duration;

use membership::CleanupPolicy;
use membership::admin::{Admin, TokioRuntime};

use serde_json::json;

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
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
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
    session.json = args.json;
    let (keys, what) = if args.dry_run {
        let inspection = Inspection::of(table.as_ref()).await?;
        (policy.defunct(&inspection.snapshot), "would be removed")
    } else {
        session.warn(Inspection::of(table.as_ref()).await?.commit_warning());
        let mut runtime = TokioRuntime;
        let mut admin = Admin::new(table.as_ref(), &mut runtime);
        (admin.cleanup(&policy).await?, "removed")
    };
    session.told(
        || json!({"event": "cleanup", "dry_run": args.dry_run, "rows": keys}),
        || {
            let last = format!("{} {what}", count(keys.len(), "row"));
            let lines: Vec<&str> = keys.iter().map(String::as_str).chain([&*last]).collect();
            lines.join("\n")
        },
    );
    Ok(Exit::Ok)
}
