//! What `membership doctor --repair` does: removes damaged rows and evicts ghosts.

use std::time::Duration;

use membership::admin::{Admin, TokioRuntime};
use membership::{MembershipTable, SiloAddress, TableExt};

use super::evict::evict;
use crate::exit::Failure;
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::{clean, span};

/// Repairs; gives the number of problems that are gone.
pub(super) async fn repair(
    table: &dyn MembershipTable,
    inspection: &Inspection,
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
            let mut runtime = TokioRuntime;
            let mut admin = Admin::new(table, &mut runtime);
            let removed = admin.remove_undecodable(key).await?;
            let what = if removed {
                "removed the damaged row"
            } else {
                "another client removed or repaired the row"
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
            // The user took time to answer: a silo that wrote a heartbeat meanwhile is not a ghost.
            let (_, heartbeats) = table.read_all().await?;
            if heartbeats.counter(silo) > inspection.heartbeats.counter(silo) {
                session.out.line(format_args!(
                    "{silo} has written a heartbeat again, so it is left alone"
                ));
                done += 1;
                continue;
            }
            match evict(
                table,
                *silo,
                &format!("no heartbeat for {}", span(*silence)),
            )
            .await?
            {
                Some(_) => session.out.line(format_args!("evicted {silo}")),
                None => session.out.line(format_args!("{silo} is already Dead")),
            }
            done += 1;
        }
    }
    Ok(done)
}
