//! One change of the table by a person: read, decide, commit; again when somebody else was first; never in doubt about the outcome.

use std::time::Duration;

use membership_core::{
    CommitOutcome, CommitRequest, MembershipTable, NextStep, Snapshot, TableError, TableErrorKind,
    TableExt,
};

use crate::clock;
use crate::exit::{Exit, Failure};

/// How often to begin anew when others keep committing in between.
const ROUNDS: u32 = 30;
/// How often to send one and the same commit when its outcome stays unknown or the store is busy.
const SENDS: u32 = 6;
/// The first pause; it doubles up to 2 s.
const PAUSE: Duration = Duration::from_millis(30);

/// Makes the change that `plan` finds for the table as it is, and gives a version that has it; none when `plan` finds nothing to do.
/// `plan` is asked again after each conflict and must find nothing to do once its own change is in.
pub(crate) async fn change(
    table: &dyn MembershipTable,
    mut plan: impl FnMut(&Snapshot) -> Result<Option<CommitRequest>, Failure>,
) -> Result<Option<u64>, Failure> {
    let mut now = table.read_all().await?.0;
    let mut in_doubt = false;
    for round in 0..ROUNDS {
        let Some(request) = plan(&now)? else {
            return Ok(in_doubt.then(|| now.version()));
        };
        let fresh = match send(table, request).await? {
            Some(CommitOutcome::Committed(token)) => return Ok(Some(token.version())),
            Some(CommitOutcome::Conflict(conflict)) => conflict.snapshot,
            None => {
                in_doubt = true;
                None
            }
        };
        pause(round).await;
        now = match fresh {
            Some(fresh) if round % 4 != 3 => fresh,
            _ => table.read_all().await?.0,
        };
    }
    Err(Failure::new(
        Exit::Unreachable,
        format!(
            "others committed first {ROUNDS} times in a row, and nothing was changed; try again"
        ),
    ))
}

/// Sends a commit until its outcome is known; none when only the rows can tell.
async fn send(
    table: &dyn MembershipTable,
    mut request: CommitRequest,
) -> Result<Option<CommitOutcome>, TableError> {
    // Once an outcome was unknown, no later error may claim that nothing was written.
    let mut doubt = None;
    let mut sent = 1;
    loop {
        match table.commit(&request).await {
            Ok(outcome) => return Ok(Some(outcome)),
            Err(error) if error.kind() == TableErrorKind::OutcomeUnknown => {
                if doubt.is_some() && sent >= SENDS {
                    return Ok(None);
                }
                request = request.again();
                doubt = Some(error);
            }
            Err(error) if sent >= SENDS || error.next_step() == NextStep::GiveUp => {
                return Err(doubt.unwrap_or(error));
            }
            Err(_) => {}
        }
        pause(sent).await;
        sent += 1;
    }
}

async fn pause(round: u32) {
    let most = PAUSE
        .saturating_mul(1 << round.min(6))
        .min(Duration::from_secs(2));
    tokio::time::sleep(clock::jitter(most)).await;
}
