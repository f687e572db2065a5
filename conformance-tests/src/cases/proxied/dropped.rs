//! Futures dropped while their question or its answer is on its way. T14.

use std::time::Duration;

use super::during;
use super::judge::Decide;
use super::operation::{Operation, ask};
use super::route::Route;
use crate::Stop;
use crate::case::{Case, Cx, Verdict, case, must};
use crate::proxy::Fault;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(dropped_before_the_question_arrives: T2 T14),
    case!(dropped_before_the_answer_arrives: T2 T14),
    case!(many_dropped_at_once: T14),
];

/// As in the cases that cut.
const FLIGHTS: u64 = 12;

/// What the client is asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// When the old answer has arrived.
    Afterwards,
    /// While the old one is still held: both answers arrive together.
    Meanwhile,
}

async fn dropped_before_the_question_arrives(cx: Cx) -> Verdict {
    // A delete or a heartbeat that arrives late is carried out late: nothing in it tells the table that another one came first.
    let operations = Operation::ALL.into_iter().filter(|o| !matches!(o, Operation::Delete | Operation::Beat));
    dropped(&cx, operations, Fault::HoldRequest).await
}

async fn dropped_before_the_answer_arrives(cx: Cx) -> Verdict {
    dropped(&cx, Operation::ALL, Fault::HoldAnswer).await
}

async fn dropped(cx: &Cx, operations: impl IntoIterator<Item = Operation>, fault: Fault) -> Verdict {
    let route = Route::open(cx).await?;
    route.proxy.learn_monitoring(Duration::from_millis(300)).await;
    for operation in operations {
        for flight in 0..FLIGHTS {
            let mut hit = false;
            for next in [Next::Afterwards, Next::Meanwhile] {
                let what = format!("{operation}, dropped with {fault} of its request {}", flight + 1);
                hit |= drop_one(&route, operation, fault, flight, next).await.map_err(during(what))?;
            }
            must!(hit || flight > 0, "{operation}: nothing of it passes through the proxy");
            if !hit {
                break;
            }
        }
    }
    Ok(())
}

/// True when there was a request or an answer to hold.
async fn drop_one(route: &Route, operation: Operation, fault: Fault, flight: u64, next: Next) -> Result<bool, Stop> {
    route.warm().await?;
    let prepared = route.prepare(operation).await?;
    route.proxy.set_fault_after(flight, fault);
    let patience = route.cx.effort().operation_timeout;
    let answer = tokio::select! {
        answer = ask(&route.table, &prepared) => Some(answer),
        hit = route.proxy.fired(patience) => {
            must!(hit, "it did not end within {patience:?}");
            None
        }
    };
    let hit = answer.is_none();
    if next == Next::Meanwhile && hit && !matches!(operation, Operation::Initialize | Operation::Delete) {
        let silo = route.silos[2].address;
        let mut question = Box::pin(route.table.read_row(&silo, None));
        // Long enough to be sent.
        let early = tokio::time::timeout(Duration::from_millis(5), &mut question).await;
        route.proxy.heal();
        let answer = match early {
            Ok(answer) => answer,
            Err(_) => route.cx.in_time("the next read_row", question).await?,
        };
        if let Ok(read) = answer {
            let shown = read.row.as_ref().and_then(|r| r.entry()).map(|e| e.address);
            must!(shown == Some(silo), "asked for the row of {silo}, it gives that of {shown:?}");
        }
    }
    route.proxy.heal();
    if hit && !matches!(operation, Operation::Initialize | Operation::Delete) {
        // The first question that follows would be given the old answer.
        let silo = route.silos[1].address;
        let read = route.patient("the next read_row", || route.table.read_row(&silo, None)).await?;
        let shown = read.row.as_ref().and_then(|r| r.entry()).map(|e| e.address);
        must!(shown == Some(silo), "asked for the row of {silo}, it gives that of {shown:?}");
    }
    if let Some(e) = answer.as_ref().and_then(|a| a.error()) {
        return Err(Stop::failed(format!("nothing went wrong, and still: {e}")));
    }
    route.judge(&prepared, answer, Decide::ByAnother).await?;
    route.questions().await?;
    Ok(hit)
}

/// Whatever a client keeps per question, a connection or a permit, comes back when the question is dropped.
async fn many_dropped_at_once(cx: Cx) -> Verdict {
    let route = Route::open(&cx).await?;
    for round in 0..5 {
        route.warm().await?;
        route.proxy.freeze_way(crate::proxy::Way::Answers);
        let mut asked = tokio::task::JoinSet::new();
        for n in 0..16 {
            let (table, silo) = (route.table.clone(), route.silos[n % 3].address);
            asked.spawn(async move { table.read_row(&silo, None).await });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        asked.abort_all();
        while asked.join_next().await.is_some() {}
        route.proxy.heal();
        route.questions().await.map_err(during(format_args!("sixteen reads dropped, round {}", round + 1)))?;
    }
    Ok(())
}
