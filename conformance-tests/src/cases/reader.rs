//! A client whose user may read and not write. T4.

use membership_core::{
    CommitOutcome, Heartbeat, HeartbeatWrite, MembershipTable, ReadRequest, SiloAddress,
    TableError, TableErrorKind, WallTime,
};

use crate::case::{Case, Cx, Verdict, case, commit, must, read, refused, same};
use crate::{Capability, Stop};

pub(super) const CASES: &[Case] = &[case!(a_client_that_may_only_read_is_denied_writes: T4)];

async fn a_client_that_may_only_read_is_denied_writes(cx: Cx) -> Verdict {
    cx.needs(Capability::Reader)?;
    let table = cx.table().await?;
    let stale = read(&table).await?.0.token;
    let (first, second) = (cx.entry(), cx.entry());
    let token = commit(&table, &cx.insert(&stale, [first.clone(), second.clone()])).await?;
    table.update_i_am_alive(&beat(first.address, 1)).await?;
    let before = read(&table).await?;
    let reader = cx.backend().reader(table.cluster()).await?;
    same("a client that only reads", &before, &all(&*reader).await?)?;
    for request in [ReadRequest::default(), ReadRequest::all()] {
        for request in [request.clone(), request.with_new_connection(true)] {
            reader.read(&request.with_known(token.clone())).await?;
        }
    }
    let row = reader.read_row(&first.address, Some(&token)).await?;
    must!(
        row.row.is_some(),
        "it does not see the row of {}",
        first.address
    );

    let insert = cx.insert(&token, [cx.entry()]);
    let mut renamed = first.clone();
    renamed.info.silo_name = "renamed".to_owned();
    for (what, request) in [
        ("an insert", insert.clone()),
        ("an update", cx.update(&token, [renamed])),
        ("a removal", cx.remove(&token, [second.address.row_key()])),
    ] {
        denied(what, reader.commit(&request).await)?;
    }
    denied_again(reader.commit(&insert.again()).await)?;
    denied(
        "a heartbeat",
        reader.update_i_am_alive(&beat(first.address, 2)).await,
    )?;
    denied("delete", reader.delete().await)?;
    same("denied writes", &before, &read(&table).await?)?;

    commit(&table, &insert).await?;
    let after = read(&table).await?;
    same("a client that only reads", &after, &all(&*reader).await?)
}

fn denied<T: std::fmt::Debug>(what: &str, answer: Result<T, TableError>) -> Verdict {
    refused(what, answer, &[TableErrorKind::PermissionDenied]).map(drop)
}

/// A commit that was sent before may have happened then. The missing permission is the cause.
fn denied_again(answer: Result<CommitOutcome, TableError>) -> Verdict {
    let denied = TableErrorKind::PermissionDenied;
    let kinds = [denied, TableErrorKind::OutcomeUnknown];
    let error = refused("an insert, sent again", answer, &kinds)?;
    let cause = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<TableError>());
    let mut told = [Some(&error), cause].into_iter().flatten();
    must!(
        told.any(|e| e.kind() == denied),
        "an insert, sent again without the permission to write, does not tell it: {error}"
    );
    Ok(())
}

fn beat(silo: SiloAddress, counter: u64) -> HeartbeatWrite {
    let at = WallTime::from_millis(counter);
    let heartbeat = Heartbeat { counter, at };
    HeartbeatWrite::Silo { silo, heartbeat }
}

/// Reads everything without a barrier, which may be a write.
async fn all(
    table: &dyn MembershipTable,
) -> Result<(membership_core::Snapshot, membership_core::Heartbeats), Stop> {
    Ok(membership_core::TableExt::read_all(table).await?)
}
