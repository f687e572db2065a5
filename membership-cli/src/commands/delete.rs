//! `membership delete`: remove a cluster's table.

use membership_core::{ClusterName, SiloStatus, TableErrorKind, TableExt};

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::session::{Session, StoreArgs};
use crate::text::{clean, count};

/// Remove a cluster from the store: rows, heartbeats, version. Run it again if it was interrupted
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Which cluster; never taken from the environment
    #[arg(long, value_name = "ID")]
    cluster: ClusterName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    session.json = args.json;
    let table = session.connect(&args.store.table, &args.cluster).await?;
    let name = clean(&args.cluster.to_string());
    let found = table.read_all().await;
    let absent = found
        .as_ref()
        .is_err_and(|error| error.kind() == TableErrorKind::NotInitialized);
    if !args.yes && !absent {
        // A table that cannot be read, because it is half deleted or damaged, can still be deleted.
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
                "delete cluster {name} on {}, with {living} not dead? Type its name:",
                table.store()
            ),
            &name,
        )? {
            return Err(Failure::new(
                Exit::Failed,
                "not confirmed, so nothing was done",
            ));
        }
    }
    // Also without a version row: an interrupted deletion may have left other things behind.
    table.delete().await?;
    let store = table.store();
    session.told(
        || json!({"event": "deleted", "cluster": args.cluster.to_string(), "existed": !absent}),
        || match absent {
            true => format!("there is no cluster {name} on {store}: nothing to delete"),
            false => format!("cluster {name} is deleted"),
        },
    );
    Ok(Exit::Ok)
}
