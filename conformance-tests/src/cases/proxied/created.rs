//! A table that is created, or created anew, while a request of a client is on its way. T1, T6,
//! T12, T16.

use std::time::Duration;

use membership_core::{NextStep, ReadAnswer, ReadRequest, TableErrorKind};

use super::during;
use super::operation::{Answered, Operation, ask};
use super::route::Route;
use crate::Stop;
use crate::case::{Case, Cx, Verdict, case, commit, must, read, same};
use crate::proxy::Fault;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(a_table_is_created_between_two_requests: T1 T6 T12),
    case!(a_table_is_made_anew_during_a_delete: T12 T16),
];

/// As in the cases that cut connections.
const MAX_EXCHANGES: u64 = 12;
/// Longer than the creation of a table takes, and shorter than a client's timeout.
const CREATED: Duration = Duration::from_secs(2);

/// What happened to one request.
enum Hit {
    /// The table was created while a request was held.
    Yes,
    /// The operation makes fewer requests.
    No,
    /// No other client gets through while the request is held: all clients share one way, or the
    /// request is part of a transaction.
    Alone,
}

async fn a_table_is_created_between_two_requests(cx: Cx) -> Verdict {
    before_each_request(
        &cx,
        &[Operation::Initialize, Operation::Read, Operation::ReadRow],
        "created",
    )
    .await
}

/// A late delete may delete the new table too, but then all of it.
async fn a_table_is_made_anew_during_a_delete(cx: Cx) -> Verdict {
    before_each_request(&cx, &[Operation::Delete], "made anew").await
}

async fn before_each_request(cx: &Cx, operations: &[Operation], happens: &str) -> Verdict {
    let route = Route::open(cx).await?;
    route
        .proxy
        .learn_monitoring(Duration::from_millis(300))
        .await;
    let (mut hit, mut alone) = (0, 0);
    for operation in operations.iter().copied() {
        for exchange in 0..MAX_EXCHANGES {
            let what = format!(
                "{operation}, when the table is {happens} before its request {}",
                exchange + 1
            );
            match created(&route, operation, exchange)
                .await
                .map_err(during(what))?
            {
                Hit::Yes => hit += 1,
                Hit::No => {
                    must!(
                        exchange > 0,
                        "{operation}: none of its requests passes through the proxy"
                    );
                    break;
                }
                Hit::Alone => {
                    alone += 1;
                    break;
                }
            }
        }
    }
    let alone = if alone > 0 {
        format!(", and {alone} times no other client got through")
    } else {
        String::new()
    };
    cx.measured(format!("{happens} before {hit} requests{alone}"));
    Ok(())
}

async fn created(route: &Route, operation: Operation, exchange: u64) -> Result<Hit, Stop> {
    route.warm().await?;
    let prepared = route.prepare(operation).await?;
    let anew = operation == Operation::Delete;
    if !anew && operation != Operation::Initialize {
        route.judge.delete().await?;
    }
    route.proxy.set_fault_after(exchange, Fault::HoldRequest);
    let patience = route.cx.effort().operation_timeout;
    let mut question = Box::pin(ask(&route.table, &prepared));
    let early = tokio::select! {
        answer = &mut question => Some(answer),
        hit = route.proxy.fired(patience) => {
            must!(hit, "the operation did not end within {patience:?}");
            None
        }
    };
    let mut founded = None;
    let (hit, answer) = match early {
        Some(answer) => (Hit::No, answer),
        None => {
            let created = tokio::time::timeout(CREATED, async {
                if anew {
                    made_anew(route).await
                } else {
                    route.found().await?;
                    founded = Some(read(&route.judge).await?);
                    Ok(())
                }
            })
            .await;
            route.proxy.heal();
            if let Ok(created) = created {
                created?;
                (Hit::Yes, route.cx.in_time("it", question).await?)
            } else {
                (Hit::Alone, route.cx.in_time("it", question).await?)
            }
        }
    };
    route.proxy.heal();
    fits(&answer)?;
    route.judge_is_back().await?;
    match route.judge.read(&ReadRequest::all()).await {
        Err(e) if e.kind() == TableErrorKind::NotInitialized => {}
        Err(e) if e.kind() == TableErrorKind::BeingDeleted && answer.error().is_some() => {}
        now => fits(&Answered::Read(now)).map_err(during("a read afterwards"))?,
    }
    if let (Hit::Yes, Operation::Initialize, Some(founded)) = (&hit, operation, &founded) {
        let now = read(&route.judge).await?;
        same("an initialize that came second", founded, &now)?;
    }
    route.reset().await?;
    Ok(hit)
}

/// Another client deletes the table and creates it with other silos, so that no silo is in both.
async fn made_anew(route: &Route) -> Verdict {
    route.judge.delete().await?;
    route
        .judge
        .initialize(&route.cx.initialize_request())
        .await?;
    let token = read(&route.judge).await?.0.token;
    let entries = [route.cx.entry(), route.cx.entry(), route.cx.entry()];
    commit(&route.judge, &route.cx.insert(&token, entries))
        .await
        .map(drop)
}

/// The answer must show the state before or after, or an unknown outcome; never a damaged table.
fn fits(answer: &Answered) -> Verdict {
    if let Some(e) = answer.error() {
        let known = matches!(
            e.kind(),
            TableErrorKind::NotInitialized
                | TableErrorKind::BeingDeleted
                | TableErrorKind::TableReplaced
        );
        must!(
            known || e.next_step() != NextStep::GiveUp,
            "an error although the table is whole: {e}"
        );
    }
    if let Answered::Read(Ok(ReadAnswer::Snapshot { snapshot, .. })) = answer {
        let (counted, there) = (snapshot.version_row.row_count, snapshot.rows.len() as u64);
        must!(
            counted == there,
            "version {} counts {counted} rows, and comes with {there}",
            snapshot.version()
        );
    }
    Ok(())
}
