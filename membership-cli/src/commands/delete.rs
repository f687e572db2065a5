//! `membership delete`: remove a cluster's table.

use membership_core::{ClusterName, SiloStatus, TableErrorKind, TableExt};

use crate::exit::{Exit, Failure};
use crate::program::Session;
use crate::text::{clean, count};

/// Remove a cluster from the store: rows, heartbeats, version; may be started again when it was interrupted
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the membership table is, for example sqlite:membership.db
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL"
    )]
    table: String,
    /// Which cluster: always said here, never taken from the environment
    #[arg(long, value_name = "ID")]
    cluster: ClusterName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let table = session.connect(&args.table, &args.cluster).await?;
    let name = clean(&args.cluster.to_string());
    let found = table.read_all().await;
    let absent = found
        .as_ref()
        .is_err_and(|error| error.kind() == TableErrorKind::NotInitialized);
    if !args.yes && !absent {
        // A table that cannot be read can still be deleted: half deleted or damaged, that may be the only way out.
        let living = match found {
            Ok((now, _)) => count(
                now.rows
                    .entries()
                    .filter(|e| e.status != SiloStatus::Dead)
                    .count(),
                "silo",
            ),
            Err(_) => "an unknown number of silos".to_owned(),
        };
        if !session.ask(
            &format!(
                "delete cluster {name} on {} with {living} not dead? Type its name:",
                table.store()
            ),
            &name,
        )? {
            return Err(Failure::new(Exit::Failed, "nothing was done"));
        }
    }
    // Where there is no version row, an earlier deletion may have left something else behind.
    table.delete().await?;
    if absent {
        session.out.line(format_args!(
            "there is no cluster {name} on {}: nothing to delete",
            table.store()
        ));
    } else {
        session.out.line(format_args!("cluster {name} is deleted"));
    }
    Ok(Exit::Ok)
}
