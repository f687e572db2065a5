//! `membership evict`: end a silo without a vote.

use std::collections::BTreeSet;

use membership::admin::{Admin, ChangeError, TokioRuntime};
use membership::intent::Refusal;
use membership::words::is_lease;
use membership::{MembershipEntry, MembershipTable, SiloAddress, SiloStatus, Snapshot};

use serde_json::json;

use crate::clock;
use crate::commands::doctor::watch::until_moved;
use crate::exit::{Exit, Failure};
use crate::find;
use crate::inspect::Inspection;
use crate::out::Paint;
use crate::session::{Session, TableArgs};
use crate::text::{clean, span};

/// Declare a silo dead without a vote. It stops as soon as it learns of that; the epoch never comes
/// back
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ip:port@epoch, ip:port, or a silo's name
    silo: String,
    /// Why; kept in the table
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    table: TableArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    if args.reason.trim().is_empty() || args.reason.chars().count() > 500 {
        return Err(Failure::usage("--reason must have 1 to 500 characters"));
    }
    session.json = args.json;
    let table = session.open(&args.table).await?;
    let inspection = Inspection::of(table.as_ref()).await?;
    let entry = living(&inspection.snapshot, &args.silo)?;
    let silo = entry.address;
    if is_lease(entry) {
        return Err(Failure::usage(format!(
            "{silo} is no silo: it is the row of an arbiter, and says which members without a store go on \
             after a split. Without it both sides may go on. Leave it as long as they run; then remove \
             the cluster with `membership delete`"
        )));
    }
    if let Some(why) = signs_of_life(table.as_ref(), &inspection, entry, args.yes, session).await? {
        let warning =
            format!("warning: {silo} wrote a heartbeat {why}: it is alive, and will stop");
        let warning = session.err.paint(Paint::Yellow, warning);
        session.err.line(warning);
    }
    session.warn(inspection.commit_warning());
    if !args.yes
        && !session.ask(
            &format!(
                "evict {silo}, which is {}, for good? Type yes:",
                entry.status
            ),
            "yes",
        )?
    {
        return Err(Failure::new(
            Exit::Failed,
            "not confirmed, so nothing was done",
        ));
    }
    let version = evict(table.as_ref(), silo, &args.reason).await?;
    session.told(
        || json!({"event": "evicted", "silo": silo, "version": version}),
        || match version {
            Some(version) => format!("{silo} is Dead (evicted) as of version {version}"),
            None => format!("{silo} is already Dead"),
        },
    );
    Ok(Exit::Ok)
}

/// When the silo wrote a heartbeat, if it did lately. Clocks differ, so its heartbeat is watched as
/// well before the user is asked.
async fn signs_of_life(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    entry: &MembershipEntry,
    yes: bool,
    session: &mut Session,
) -> Result<Option<String>, Failure> {
    let (silo, silence) = (entry.address, inspection.silence(entry));
    let period = inspection.settings().i_am_alive_period;
    // In a large cluster a silo that runs may have written nothing for minutes.
    let lately =
        silence < period * 2 || (inspection.beats_rarely() && !inspection.seems_stale(entry));
    if lately && inspection.heartbeats.silos.contains_key(&silo) {
        return Ok(Some(format!("{} ago", span(silence))));
    }
    if yes {
        return Ok(None);
    }
    let waiting = BTreeSet::from([silo]);
    let seen = until_moved(table, inspection, &waiting, period * 3 / 2, session).await?;
    Ok(seen
        .moved
        .contains_key(&silo)
        .then(|| "just now".to_owned()))
}

/// The one silo that `text` names and that is not Dead.
fn living<'a>(snapshot: &'a Snapshot, text: &str) -> Result<&'a MembershipEntry, Failure> {
    let found = find::silos(snapshot, text);
    // Whoever types a name has seen it on a screen.
    let alike = find::look_the_same(snapshot, text);
    let living: Vec<_> = found
        .iter()
        .chain(alike.iter().filter(|_| !found.is_empty()))
        .filter(|e| e.status != SiloStatus::Dead)
        .copied()
        .collect();
    match (living.as_slice(), found.last()) {
        ([one], _) => Ok(one),
        ([], Some(dead)) => Err(Failure::usage(format!(
            "{} is already Dead; `membership why {}` shows why",
            dead.address, dead.address
        ))),
        ([], None) => Err(find::not_found(snapshot, text)),
        (many, _) => {
            let names: Vec<String> = many.iter().map(|e| e.address.to_string()).collect();
            Err(Failure::usage(format!(
                "`{}` matches several silos: {}; give the full address",
                clean(text),
                names.join(", ")
            )))
        }
    }
}

/// Commits the eviction; gives the version, or none if the silo is already Dead.
pub(crate) async fn evict(
    table: &dyn MembershipTable,
    silo: SiloAddress,
    reason: &str,
) -> Result<Option<u64>, ChangeError<Refusal>> {
    let mut runtime = TokioRuntime;
    let mut admin = Admin::new(table, &mut runtime);
    admin.evict(silo, &operator(), reason, clock::wall()).await
}

/// The user who runs this, for the row: `user@host`.
pub(crate) fn operator() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    format!("{}@{}", user.as_deref().unwrap_or("operator"), host())
}

/// This machine's name.
pub(crate) fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
