//! What `membership doctor --repair` does: removes damaged rows and evicts ghosts.

use membership::admin::{Admin, TokioRuntime};
use membership::{MembershipTable, TableExt};

use super::rows::{DamagedRow, Undamaged};
use super::silos::Silent;
use super::store::Writes;
use super::{Args, say};
use crate::commands::evict::evict;
use crate::exit::Failure;
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::{clean, span};

/// What can be repaired.
pub(super) struct Repairable<'a> {
    pub ghosts: Vec<&'a Silent>,
    pub damaged: &'a [DamagedRow],
    pub undamaged: Undamaged,
}

impl Repairable<'_> {
    pub fn is_empty(&self) -> bool {
        self.ghosts.is_empty() && self.damaged.is_empty()
    }
}

/// Repairs; gives the number of problems that are gone.
pub(super) async fn repair(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    what: &Repairable<'_>,
    writes: &Writes,
    args: &Args,
    session: &mut Session,
) -> Result<usize, Failure> {
    if what.is_empty() {
        return Ok(0);
    }
    if *writes == Writes::Failed {
        say(
            session,
            "nothing is repaired while the store does not take writes: living silos look like ghosts then",
        );
        return Ok(0);
    }
    if args.quick {
        say(
            session,
            "--quick watches no heartbeats, so it removes no row and evicts no silo: leave --quick out",
        );
        return Ok(0);
    }
    if !may_commit(what.undamaged, args.yes, session) {
        return Ok(0);
    }
    let mut done = 0;
    for row in what.damaged {
        done += usize::from(remove(table, inspection, row, args.yes, session).await?);
    }
    for ghost in &what.ghosts {
        done += usize::from(evict_ghost(table, inspection, ghost, args.yes, session).await?);
    }
    Ok(done)
}

/// Every repair is a commit, and the commit that follows a row changed by hand stops the cluster.
fn may_commit(rows: Undamaged, yes: bool, session: &mut Session) -> bool {
    let text = match rows {
        Undamaged::AsCommitted => return true,
        Undamaged::Changed => {
            "nothing is repaired while rows differ from the last commit: undo what was changed by \
             hand first"
        }
        Undamaged::NotKnown if yes => {
            "nothing is repaired: rows that can be read may have been changed by hand as well, and \
             then all silos would report table_rolled_back. Put the damaged rows back as they were, \
             or remove them after the next commit. Without --yes you are asked"
        }
        Undamaged::NotKnown => {
            "warning: if other rows were changed by hand as well, undo that first: otherwise all \
             silos report table_rolled_back after this repair"
        }
    };
    say(session, text);
    rows == Undamaged::NotKnown && !yes
}

async fn remove(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    row: &DamagedRow,
    yes: bool,
    session: &mut Session,
) -> Result<bool, Failure> {
    let key = clean(&row.key);
    let warning = match row.may_be_alive {
        true => "Its silo may be alive, and stops when the row is removed. ",
        false => "",
    };
    if yes && row.may_be_alive {
        say(
            session,
            &format!(
                "the damaged row {key} stays: its silo may be alive, and would stop. Without --yes you \
             are asked"
            ),
        );
        return Ok(false);
    }
    if !yes
        && !session.ask(
            &format!("{warning}Remove the damaged row {key}? Type yes:"),
            "yes",
        )?
    {
        return Ok(false);
    }
    // The user took time to answer.
    let (_, heartbeats) = table.read_all().await?;
    let beats = |silo| heartbeats.counter(silo) > inspection.heartbeats.counter(silo);
    if !row.may_be_alive && row.silos.iter().any(beats) {
        say(
            session,
            &format!("the damaged row {key} stays: its silo writes heartbeats"),
        );
        return Ok(false);
    }
    let mut runtime = TokioRuntime;
    let mut admin = Admin::new(table, &mut runtime);
    let removed = admin.remove_undecodable(&row.key).await?;
    let what = match removed {
        true => "removed the damaged row",
        false => "another client removed or repaired the row",
    };
    say(session, &format!("{what} {key}"));
    Ok(true)
}

async fn evict_ghost(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    ghost: &Silent,
    yes: bool,
    session: &mut Session,
) -> Result<bool, Failure> {
    let (silo, silence) = (ghost.silo, span(ghost.silence));
    if !yes
        && !session.ask(
            &format!("evict {silo}, silent for {silence}? Type yes:"),
            "yes",
        )?
    {
        return Ok(false);
    }
    // The user took time to answer: a silo that wrote a heartbeat meanwhile is not a ghost.
    let (_, heartbeats) = table.read_all().await?;
    if heartbeats.counter(&silo) > inspection.heartbeats.counter(&silo) {
        say(
            session,
            &format!("{silo} has written a heartbeat again, so it is left alone"),
        );
        return Ok(true);
    }
    match evict(table, silo, &format!("no heartbeat for {silence}")).await? {
        Some(_) => say(session, &format!("evicted {silo}")),
        None => say(session, &format!("{silo} is already Dead")),
    }
    Ok(true)
}
