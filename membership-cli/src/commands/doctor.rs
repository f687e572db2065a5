//! `membership doctor`: what is wrong with a table, and what a person can do about it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use membership_core::{
    Attempt, CommitId, CommitOutcome, CommitRequest, Durability, Guarantees, Heartbeat,
    MembershipTable, Recency, RowChange, SiloAddress, SiloStatus, Snapshot, TableError,
    TableErrorKind, TableExt, VersionToken, encoding,
};

use super::evict::{evict, operator};
use crate::clock;
use crate::exit::{Exit, Failure};
use crate::look::Look;
use crate::out::Paint;
use crate::program::{Session, TableArgs};
use crate::text::{clean, count, span};

/// Look for trouble: reachable, what it is worth, permitted, layout, clocks, ghosts, damaged rows
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Repair what can be: remove damaged rows, evict ghosts; asks before each
    #[arg(long)]
    repair: bool,
    /// Do not ask
    #[arg(long, short, requires = "repair")]
    yes: bool,
    /// Do not watch heartbeats for a period and a half: then a ghost is told by clocks alone
    #[arg(long)]
    quick: bool,
}

/// Clocks that differ by more than this confuse people who read times; the protocol does not mind.
const SKEW: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let table = session.open(&args.table).await?;
    let started = Instant::now();
    let look = match Look::at(table.as_ref()).await {
        Ok(look) => look,
        Err(failure) => {
            let what = if failure.exit == Exit::Unusable {
                "usable"
            } else {
                "reachable"
            };
            report(session, Finding::Bad, what, &failure.message);
            return Err(failure);
        }
    };
    report(
        session,
        Finding::Good,
        "reachable",
        &format!("{} answered in {}", table.store(), span(started.elapsed())),
    );
    report(session, Finding::Note, "worth", &worth(table.guarantees()));
    let mut bad = 0;
    bad += permitted(table.as_ref(), &look.snapshot, session).await;
    bad += layout(&look.snapshot, session);
    let seen = if args.quick {
        Watched::default()
    } else {
        watch(table.as_ref(), &look, session).await?
    };
    bad += clocks(&look, &seen, session);
    let ghosts = ghosts(&look, &seen, args.quick);
    for (silo, silence) in &ghosts {
        report(
            session,
            Finding::Bad,
            "ghost",
            &format!(
                "{silo} has not written a heartbeat for {}: evict it, or start a silo and let it be voted out",
                span(*silence)
            ),
        );
    }
    if ghosts.is_empty() {
        report(
            session,
            Finding::Good,
            "ghosts",
            "every silo that is not dead writes its heartbeat",
        );
    }
    let damaged: Vec<String> = look
        .snapshot
        .rows
        .undecodable()
        .map(|r| r.key().to_owned())
        .collect();
    for row in look.snapshot.rows.undecodable() {
        let text = format!(
            "{} cannot be decoded: {}",
            clean(row.key()),
            clean(row.undecodable().unwrap_or_default())
        );
        report(session, Finding::Bad, "row", &text);
    }
    if damaged.is_empty() {
        report(
            session,
            Finding::Good,
            "rows",
            &format!("{} in order", count(look.snapshot.rows.len(), "row")),
        );
    }
    bad += ghosts.len() + damaged.len();
    if args.repair {
        let evicted: &[_] = if args.quick { &[] } else { &ghosts };
        if args.quick && !ghosts.is_empty() {
            session.out.line("ghosts are evicted only after their heartbeats were watched, not by clocks alone: leave --quick out");
        }
        bad -= repair(table.as_ref(), &look, evicted, &damaged, args.yes, session).await?;
    }
    if bad == 0 {
        return Ok(Exit::Ok);
    }
    let hint = if args.repair || ghosts.len() + damaged.len() == 0 {
        ""
    } else {
        "; --repair removes damaged rows and evicts ghosts"
    };
    Err(Failure::new(
        Exit::Failed,
        format!("{} to look at{hint}", count(bad, "thing")),
    ))
}

enum Finding {
    Good,
    Note,
    Bad,
}

fn report(session: &mut Session, finding: Finding, what: &str, text: &str) {
    let (mark, paint) = match finding {
        Finding::Good => ("ok  ", Paint::Green),
        Finding::Note => ("note", Paint::Yellow),
        Finding::Bad => ("BAD ", Paint::Red),
    };
    let mark = session.out.paint(paint, mark);
    session
        .out
        .line(format_args!("{mark}  {what:<10} {}", clean(text)));
}

/// What the store's answers are worth, as it is set up.
fn worth(guarantees: Guarantees) -> String {
    let reads = match guarantees.reads {
        Recency::Linearizable => "reads are linearizable",
        Recency::MonotonicPerClient => "each silo's own reads never go back",
    };
    let commits = match guarantees.durability {
        Durability::Kept => "acknowledged commits survive a crash or failover of the store",
        Durability::MayBeLost => {
            "a failover of the store may lose acknowledged commits; silos then say table_rolled_back"
        }
    };
    format!("{reads}; {commits}")
}

/// A commit that cannot land, because its token is one version old: a store that would refuse it for other reasons says so.
async fn permitted(table: &dyn MembershipTable, now: &Snapshot, session: &mut Session) -> usize {
    let row = &now.version_row;
    let Some(before) = row.version.checked_sub(1) else {
        report(
            session,
            Finding::Note,
            "permitted",
            "to read; whether to write shows with the first commit",
        );
        return 0;
    };
    let id = row.record(before).map_or(CommitId::new(0), |r| r.id);
    let request = CommitRequest {
        expected: VersionToken::new(row.table_id, before, id, now.token.store()),
        id: CommitId::new(clock::random()),
        attempt: Attempt::First,
        committer: None,
        changes: vec![RowChange::Remove("doctor".to_owned())],
        settings: None,
        core: None,
    };
    match table.commit(&request).await {
        Ok(CommitOutcome::Conflict(_)) => {
            report(session, Finding::Good, "permitted", "to read and to write");
            0
        }
        Ok(CommitOutcome::Committed(_)) => {
            report(
                session,
                Finding::Bad,
                "permitted",
                "the store took a commit that was out of date: its compare-and-swap does not work",
            );
            1
        }
        Err(error) => {
            report(session, Finding::Bad, "permitted", &cannot_write(&error));
            1
        }
    }
}

fn cannot_write(error: &TableError) -> String {
    match error.kind() {
        TableErrorKind::PermissionDenied => format!("to read, but not to write: {error}"),
        _ => format!("a commit does not get through: {error}"),
    }
}

fn layout(now: &Snapshot, session: &mut Session) -> usize {
    let row = &now.version_row;
    let text = format!(
        "{} (readers need {}, this program knows {})",
        row.layout,
        row.min_layout,
        encoding::LAYOUT
    );
    let newer = row.layout > encoding::LAYOUT;
    report(
        session,
        if newer { Finding::Note } else { Finding::Good },
        "layout",
        &text,
    );
    0
}

/// What heartbeats did while they were watched.
#[derive(Default)]
struct Watched {
    /// Beats that were written meanwhile, with the time they were seen at.
    moved: BTreeMap<SiloAddress, (Heartbeat, membership_core::WallTime)>,
}

/// Watches heartbeats until each has moved, for a period and a half at most.
async fn watch(
    table: &dyn MembershipTable,
    look: &Look,
    session: &mut Session,
) -> Result<Watched, Failure> {
    let waiting: Vec<SiloAddress> = look
        .snapshot
        .rows
        .entries()
        .filter(|e| e.status != SiloStatus::Dead)
        .map(|e| e.address)
        .collect();
    let mut seen = Watched::default();
    if waiting.is_empty() {
        return Ok(seen);
    }
    let period = look.settings().i_am_alive_period;
    let until = Instant::now() + period * 3 / 2;
    if session.err.is_terminal() {
        session.err.line(format_args!(
            "watching heartbeats for up to {} …",
            span(period * 3 / 2)
        ));
    }
    while seen.moved.len() < waiting.len() && Instant::now() < until {
        tokio::time::sleep((period / 20).clamp(Duration::from_millis(50), Duration::from_secs(1)))
            .await;
        let (_, beats) = table.read_all().await?;
        let now = clock::wall();
        for silo in &waiting {
            if let Some(beat) = beats.silos.get(silo)
                && beat.counter > look.heartbeats.counter(silo)
            {
                seen.moved.entry(*silo).or_insert((*beat, now));
            }
        }
    }
    Ok(seen)
}

/// A beat that was just written tells the clock of its writer.
fn clocks(look: &Look, seen: &Watched, session: &mut Session) -> usize {
    let mut skewed = 0;
    let mut worst = Duration::ZERO;
    for (silo, (beat, at)) in &seen.moved {
        let apart = beat.at.distance(*at);
        worst = worst.max(apart);
        if apart > SKEW {
            skewed += 1;
            let direction = if beat.at > *at { "ahead of" } else { "behind" };
            report(
                session,
                Finding::Bad,
                "clock",
                &format!(
                    "{silo} is {} {direction} this machine: check its time service",
                    span(apart)
                ),
            );
        }
    }
    // Without watching, only a heartbeat from the future tells anything.
    for (silo, beat) in look
        .heartbeats
        .silos
        .iter()
        .filter(|(silo, _)| !seen.moved.contains_key(silo))
    {
        if beat.at > look.now.plus(SKEW) {
            skewed += 1;
            report(
                session,
                Finding::Bad,
                "clock",
                &format!(
                    "{silo} was {} ahead of this machine",
                    span(beat.at.since(look.now))
                ),
            );
        }
    }
    if skewed == 0 {
        let text = if seen.moved.is_empty() {
            "no heartbeat is from the future".to_owned()
        } else {
            format!("agree to {}", span(worst))
        };
        report(session, Finding::Good, "clocks", &text);
    }
    skewed
}

/// Rows that are not Dead, and behind which nobody seems to be.
fn ghosts(look: &Look, seen: &Watched, quick: bool) -> Vec<(SiloAddress, Duration)> {
    let silent = |silo: &SiloAddress| quick || !seen.moved.contains_key(silo);
    let rows = look
        .snapshot
        .rows
        .entries()
        .filter(|e| look.seems_stale(e) && silent(&e.address));
    rows.map(|e| (e.address, look.silence(e))).collect()
}

/// Repairs what may be repaired; says how many things.
async fn repair(
    table: &dyn MembershipTable,
    look: &Look,
    ghosts: &[(SiloAddress, Duration)],
    damaged: &[String],
    yes: bool,
    session: &mut Session,
) -> Result<usize, Failure> {
    let mut done = 0;
    for key in damaged {
        if yes
            || session.ask(
                &format!("remove the damaged row {}? Type yes:", clean(key)),
                "yes",
            )?
        {
            let removed = table
                .remove_undecodable(key, &mut || CommitId::new(clock::random()))
                .await?;
            let what = if removed {
                "removed the damaged row"
            } else {
                "somebody else removed or repaired the row"
            };
            session.out.line(format_args!("{what} {}", clean(key)));
            done += 1;
        }
    }
    for (silo, silence) in ghosts {
        if yes
            || session.ask(
                &format!("evict {silo}, silent for {}? Type yes:", span(*silence)),
                "yes",
            )?
        {
            // Questions take their time: who has written a heartbeat meanwhile is no ghost.
            let (_, beats) = table.read_all().await?;
            if beats.counter(silo) > look.heartbeats.counter(silo) {
                session.out.line(format_args!(
                    "{silo} has written its heartbeat again and is left alone"
                ));
                done += 1;
                continue;
            }
            match evict(
                table,
                *silo,
                &operator(),
                &format!("no heartbeat for {}", span(*silence)),
            )
            .await?
            {
                Some(_) => session.out.line(format_args!("evicted {silo}")),
                None => session.out.line(format_args!("{silo} is Dead already")),
            }
            done += 1;
        }
    }
    Ok(done)
}
