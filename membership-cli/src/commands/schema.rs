//! `membership schema`: prints what an administrator runs once if silos may not create tables.

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::session::{Session, StoreArgs};

/// Print what an administrator runs once in a database where the silos' user may not create tables;
/// connects to nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let Some(text) = session.connectors().schema(&args.store.table)? else {
        return Err(Failure::usage(
            "this store needs no schema: the first silo makes what it needs",
        ));
    };
    match args.json {
        true => session.out.line(json!({"schema": text})),
        false => session.out.line(text.trim_end()),
    }
    Ok(Exit::Ok)
}
