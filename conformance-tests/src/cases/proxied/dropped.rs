//! Futures that are dropped while their request or its answer is on its way. T14.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::during;
use super::judge::Decide;
use super::operation::{Operation, ask};
use super::route::Route;
use crate::Stop;
use crate::case::{Case, Cx, Verdict, case, must};
use crate::proxy::{Fault, Way};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(dropped_before_the_request_arrives: T2 T14),
    case!(dropped_before_the_answer_arrives: T2 T14),
    case!(many_dropped_at_once: T14),
];

/// As in the cases that cut connections.
const MAX_EXCHANGES: u64 = 12;

/// The client's next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Sent when the old answer has arrived.
    Afterwards,
    /// Sent while the old answer is held: both answers arrive together.
    Meanwhile,
}

async fn dropped_before_the_request_arrives(cx: Cx) -> Verdict {
    // A delete or a heartbeat that arrives late is carried out late: nothing in it tells the table
    // that it is late.
    let operations = Operation::ALL
        .into_iter()
        .filter(|o| !matches!(o, Operation::Delete | Operation::Beat));
    dropped(&cx, operations, Fault::HoldRequest).await
}

async fn dropped_before_the_answer_arrives(cx: Cx) -> Verdict {
    dropped(&cx, Operation::ALL, Fault::HoldAnswer).await
}

async fn dropped(
    cx: &Cx,
    operations: impl IntoIterator<Item = Operation>,
    fault: Fault,
) -> Verdict {
    let route = Route::open(cx).await?;
    route
        .proxy
        .learn_monitoring(Duration::from_millis(300))
        .await;
    for operation in operations {
        let requests = route.requests(operation).await?;
        for exchange in 0..MAX_EXCHANGES {
            let mut hit = false;
            for next in [Next::Afterwards, Next::Meanwhile] {
                let what = format!(
                    "{operation}, dropped with {fault} of its request {}",
                    exchange + 1
                );
                let one = route
                    .hit(operation, exchange, requests, || {
                        drop_one(&route, operation, fault, exchange, next)
                    })
                    .await;
                hit |= one.map_err(during(what))?;
            }
            if !hit {
                break;
            }
        }
    }
    Ok(())
}

/// Returns true if there was a request or an answer to hold.
async fn drop_one(
    route: &Route,
    operation: Operation,
    fault: Fault,
    exchange: u64,
    next: Next,
) -> Result<bool, Stop> {
    route.warm().await?;
    let prepared = route.prepare(operation).await?;
    route.proxy.set_fault_after(exchange, fault);
    let patience = route.cx.effort().operation_timeout;
    let answer = tokio::select! {
        answer = ask(&route.table, &prepared) => Some(answer),
        hit = route.proxy.fired(patience) => {
            must!(hit, "the operation did not end within {patience:?}");
            None
        }
    };
    let hit = answer.is_none();
    if next == Next::Meanwhile
        && hit
        && !matches!(operation, Operation::Initialize | Operation::Delete)
    {
        let silo = route.silos[2].address;
        let mut question = Box::pin(route.table.read_row(&silo, None));
        // Long enough for the request to be sent.
        let early = tokio::time::timeout(Duration::from_millis(5), &mut question).await;
        route.proxy.heal();
        let answer = match early {
            Ok(answer) => answer,
            Err(_) => route.cx.in_time("the next read_row", question).await?,
        };
        if let Ok(read) = answer {
            let shown = read.row.as_ref().and_then(|r| r.entry()).map(|e| e.address);
            must!(
                shown == Some(silo),
                "a read of the row of {silo} returns that of {shown:?}"
            );
        }
    }
    route.proxy.heal();
    if hit && !matches!(operation, Operation::Initialize | Operation::Delete) {
        // The next request would receive the old answer.
        let silo = route.silos[1].address;
        let read = route
            .patient("the next read_row", || route.table.read_row(&silo, None))
            .await?;
        let shown = read.row.as_ref().and_then(|r| r.entry()).map(|e| e.address);
        must!(
            shown == Some(silo),
            "a read of the row of {silo} returns that of {shown:?}"
        );
    }
    if let Some(e) = answer.as_ref().and_then(|a| a.error()) {
        return Err(Stop::failed(format!("an error although no fault hit: {e}")));
    }
    route.judge(&prepared, answer, Decide::ByAnother).await?;
    route.questions().await?;
    Ok(hit)
}

/// A client must release everything that it holds for a request, a connection or a permit, when the
/// request is dropped.
async fn many_dropped_at_once(cx: Cx) -> Verdict {
    let route = Route::open(&cx).await?;
    route
        .proxy
        .learn_monitoring(Duration::from_millis(300))
        .await;
    for round in 0..5 {
        route.warm().await?;
        route.proxy.freeze_way(Way::Answers);
        let dropped = many_dropped(&route).await;
        route.proxy.heal();
        let during =
            || during(format_args!("sixteen reads dropped, round {}", round + 1).to_string());
        dropped.map_err(during())?;
        route.questions().await.map_err(during())?;
    }
    Ok(())
}

/// Sends all requests, and drops them when an answer is on its way that never arrives.
async fn many_dropped(route: &Route) -> Verdict {
    let asked = Arc::new(Semaphore::new(0));
    let mut questions = tokio::task::JoinSet::new();
    for n in 0..16 {
        let (table, silo, asked) = (
            route.table.clone(),
            route.silos[n % 3].address,
            asked.clone(),
        );
        questions.spawn(async move {
            let mut question = table.read_row(&silo, None);
            let first = poll_fn(|cx| Poll::Ready(question.as_mut().poll(cx))).await;
            asked.add_permits(1);
            match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => question.await,
            }
        });
    }
    let all = asked.acquire_many(16);
    let begun =
        async { all.await.is_ok() && route.proxy.holds(route.cx.effort().operation_timeout).await };
    let begun = route.cx.in_time("sixteen reads", begun).await?;
    questions.abort_all();
    let mut answered = 0;
    while let Some(question) = questions.join_next().await {
        answered += usize::from(matches!(question, Ok(Ok(_))));
    }
    must!(begun, "no answer passes through the proxy");
    must!(
        answered == 0,
        "{answered} requests are answered although the proxy passes no answer"
    );
    Ok(())
}
