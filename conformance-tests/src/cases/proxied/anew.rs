//! Reads over a new connection, while the connections before it are frozen: as after a failover
//! that leaves the connections to the deposed server open. T16.

use std::time::{Duration, Instant};

use membership_core::{ReadAnswer, ReadRequest, Snapshot};

use super::route::Route;
use crate::Stop;
use crate::case::{Case, Cx, Verdict, case, commit, must, read, unknown_answer};

pub(in crate::cases) const CASES: &[Case] =
    &[case!(a_read_over_a_new_connection_needs_no_old_one: T16)];

/// How often. Connections that stay open show as too many at the end.
const TIMES: usize = 3;

async fn a_read_over_a_new_connection_needs_no_old_one(cx: Cx) -> Verdict {
    let route = Route::open(&cx).await?;
    let before = route.proxy.connections();
    for _ in 0..TIMES {
        route.warm().await?;
        let now = read(&route.judge).await?.0;
        route.proxy.freeze_connections();
        let answer = over_a_new_connection(&route).await;
        route.proxy.heal();
        let seen = answer?;
        must!(
            seen == now,
            "the read shows {seen:?} instead of {now:?}, which another client has read"
        );
    }
    let deadline = Instant::now() + cx.effort().operation_timeout;
    loop {
        let left = route.proxy.connections();
        if left <= before {
            return Ok(());
        }
        must!(
            Instant::now() < deadline,
            "after {TIMES} new connections {left} are open instead of {before}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The read must succeed at once, and so must the next commit. A second read is dropped; the next
/// turn shows whether the table is usable after that.
async fn over_a_new_connection(route: &Route) -> Result<Snapshot, Stop> {
    let request = ReadRequest::all()
        .with_barrier(true)
        .with_new_connection(true);
    let snapshot = match route
        .cx
        .in_time("read", route.table.read(&request))
        .await??
    {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot,
        other => return Err(unknown_answer(&other)),
    };
    let update = route.cx.update(&snapshot.token, [route.marked(&snapshot)]);
    route
        .cx
        .in_time("commit", commit(&route.table, &update))
        .await??;
    let dropped = route.table.read(&request);
    drop(tokio::time::timeout(Duration::from_millis(1), dropped).await);
    Ok(snapshot)
}
