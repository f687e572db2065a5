//! `membership evict`: end a silo without a vote.

use membership_core::intent::{Action, Answer, Intent, Observed, apply};
use membership_core::{
    CommitId, CommitRequest, Config, IntentId, MembershipEntry, MembershipTable, MonoTime, Now,
    SiloAddress, SiloStatus, Snapshot,
};

use crate::clock;
use crate::exit::{Exit, Failure};
use crate::find;
use crate::look::Look;
use crate::out::Paint;
use crate::program::{Session, TableArgs};
use crate::text::{clean, span};
use crate::write;

/// Declare a silo dead without a vote: it stops as soon as it learns of it, and never comes back under that epoch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ip:port@epoch, ip:port, or a silo's name
    silo: String,
    /// Why, for whoever reads the table later
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    table: TableArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    if args.reason.trim().is_empty() || args.reason.chars().count() > 500 {
        return Err(Failure::usage("--reason has 1 to 500 characters"));
    }
    let table = session.open(&args.table).await?;
    let look = Look::at(table.as_ref()).await?;
    let entry = living(&look.snapshot, &args.silo)?;
    let silo = entry.address;
    let silence = look.silence(entry);
    let period = look.settings().i_am_alive_period;
    if silence < period * 2 && look.heartbeats.silos.contains_key(&silo) {
        let warning = format!(
            "warning: {silo} wrote its heartbeat {} ago: it is alive, and will stop",
            span(silence)
        );
        let warning = session.err.paint(Paint::Yellow, warning);
        session.err.line(warning);
    }
    if !args.yes
        && !session.ask(
            &format!("evict {silo} ({}) for good? Type yes:", entry.status),
            "yes",
        )?
    {
        return Err(Failure::new(Exit::Failed, "nothing was done"));
    }
    match evict(table.as_ref(), silo, &operator(), &args.reason).await? {
        Some(version) => session.out.line(format_args!(
            "{silo} is Dead (evicted) as of version {version}"
        )),
        None => session.out.line(format_args!("{silo} is Dead already")),
    }
    Ok(Exit::Ok)
}

/// The one silo that is meant and is not dead.
fn living<'a>(snapshot: &'a Snapshot, text: &str) -> Result<&'a MembershipEntry, Failure> {
    let found = find::silos(snapshot, text);
    let living: Vec<_> = found
        .iter()
        .filter(|e| e.status != SiloStatus::Dead)
        .copied()
        .collect();
    match (living.as_slice(), found.last()) {
        ([one], _) => Ok(one),
        ([], Some(dead)) => Err(Failure::usage(format!(
            "{} is Dead already; `membership why {}` tells how",
            dead.address, dead.address
        ))),
        ([], None) => Err(find::nobody(snapshot, text)),
        (many, _) => {
            let names: Vec<String> = many.iter().map(|e| e.address.to_string()).collect();
            Err(Failure::usage(format!(
                "`{}` means more than one silo: {}; give the full address",
                clean(text),
                names.join(", ")
            )))
        }
    }
}

/// Commits the eviction; none when the silo is dead already.
pub(crate) async fn evict(
    table: &dyn MembershipTable,
    silo: SiloAddress,
    by: &str,
    reason: &str,
) -> Result<Option<u64>, Failure> {
    let action = Action::Evict {
        silo,
        by: by.to_owned(),
        reason: reason.to_owned(),
    };
    let intents = [Intent {
        id: IntentId::new(clock::random()),
        author: None,
        action,
    }];
    let limits = table.limits();
    write::change(table, |now| {
        let at = Now {
            mono: MonoTime::ZERO,
            wall: clock::wall(),
        };
        let done = apply(
            now,
            &Observed::default(),
            &intents,
            at,
            &Config::default(),
            &limits,
        );
        match done.answers.into_iter().next() {
            Some(Answer::Applied { .. }) => {}
            Some(Answer::Moot) => return Ok(None),
            Some(Answer::Refused(refusal)) => return Err(Failure::usage(refusal.to_string())),
            _ => {
                return Err(Failure::new(
                    Exit::Failed,
                    "the eviction does not fit into one commit of this store",
                ));
            }
        }
        let id = CommitId::new(clock::random());
        Ok(Some(CommitRequest::new(
            now.token.clone(),
            id,
            None,
            done.inserts,
            done.updates,
            done.removes,
        )))
    })
    .await
}

/// Whoever runs this, for the row: `user@host`.
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
