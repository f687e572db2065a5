//! Servers that do not answer: away, frozen, or with their answers lost. T5, T13.

use std::time::Duration;

use membership_core::HeartbeatWrite;

use super::during;
use super::judge::Decide;
use super::operation::{Answered, Operation, Prepared, ask};
use super::parallel::{self, learn};
use super::route::Route;
use crate::Stop;
use crate::case::{Case, Cx, Verdict, case, must};
use crate::proxy::{Away, Fault};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(an_unreachable_server_is_an_error_and_comes_back: T5 T13),
    case!(a_frozen_server_is_an_error_and_comes_back: T5 T13),
    case!(a_lost_answer_is_an_unknown_outcome: T2 T5 T13),
];

/// The answer must be an error that lets the caller try again or find out.
fn failed(answer: &Answered) -> Verdict {
    must!(answer.error().is_some(), "it is answered with {answer:?}");
    Ok(())
}

async fn an_unreachable_server_is_an_error_and_comes_back(cx: Cx) -> Verdict {
    let items: Vec<_> = [Away::Refused, Away::Cut]
        .into_iter()
        .flat_map(|away| Operation::ALL.map(|operation| (operation, away)))
        .collect();
    let routes = parallel::open(&cx, items.len()).await?;
    parallel::each(routes, items, |route, (operation, away)| {
        Box::pin(unreachable(route, operation, away))
    })
    .await
}

async fn unreachable(route: &Route, operation: Operation, away: Away) -> Verdict {
    let asked = async {
        route.warm().await?;
        let prepared = route.prepare(operation).await?;
        route.proxy.set_away(away);
        let answer = route.cx.in_time("it", ask(&route.table, &prepared)).await;
        route.proxy.heal();
        route.open_again().await?;
        let answer = answer?;
        failed(&answer)?;
        route.judge_is_back().await?;
        route
            .judge(&prepared, Some(answer), Decide::ByAnother)
            .await
    };
    asked.await.map_err(during(format_args!(
        "{operation}, the server being away ({away:?})"
    )))
}

/// All at once, as a silo may ask them; what arrives late, when the server is thawed, is late.
async fn a_frozen_server_is_an_error_and_comes_back(cx: Cx) -> Verdict {
    let route = Route::open(&cx).await?;
    route
        .proxy
        .learn_monitoring(Duration::from_millis(300))
        .await;
    route.warm().await?;
    let prepared = route.prepare(Operation::Commit).await?;
    let other = |operation| Prepared {
        operation,
        ..prepared.clone()
    };
    let others = [
        Operation::Read,
        Operation::ReadRow,
        Operation::Beat,
        Operation::Initialize,
    ]
    .map(other);
    route.proxy.freeze();
    let (mut commit, mut rest) = (None, Vec::new());
    let patience = cx.effort().operation_timeout;
    let asked = async {
        // The commit is on its way before anything else is asked: in the end it must have arrived, or nothing can be said of its answer.
        let mut first = Box::pin(cx.in_time("commit", ask(&route.table, &prepared)));
        let early = tokio::select! {
            biased;
            held = route.proxy.holds(patience) => {
                must!(held, "nothing of a commit passes through the proxy");
                None
            }
            answer = &mut first => Some(answer?),
        };
        if let Some(answer) = early {
            return Err(Stop::failed(format!(
                "before anything of it reached the proxy, commit is answered with {answer:?}"
            )));
        }
        let (first, read, row, beat, initialize) = tokio::join!(
            first,
            cx.in_time("read", ask(&route.table, &others[0])),
            cx.in_time("read_row", ask(&route.table, &others[1])),
            cx.in_time("update_i_am_alive", ask(&route.table, &others[2])),
            cx.in_time("initialize", ask(&route.table, &others[3])),
        );
        commit = Some(first?);
        rest = vec![read?, row?, beat?, initialize?];
        Ok::<_, Stop>(())
    };
    let asked = asked.await;
    route.proxy.heal();
    asked.map_err(during("the server being frozen"))?;
    // What was held arrives now, late; a commit that was said to have certainly not happened does not happen then either.
    let settled = route.proxy.settled(patience).await;
    must!(
        settled,
        "the server being frozen: {patience:?} after it was thawed, requests of then are not answered"
    );
    for (answer, prepared) in rest.iter().zip(&others) {
        let during =
            during(format_args!("{}, the server being frozen", prepared.operation).to_string());
        failed(answer)
            .and_then(|()| match answer.error() {
                Some(e) if e.next_step() == membership_core::NextStep::GiveUp => Err(Stop::failed(
                    format!("it says that trying again is useless: {e}"),
                )),
                _ => Ok(()),
            })
            .map_err(during)?;
    }
    if let Some(answer) = &commit {
        failed(answer).map_err(during("commit, the server being frozen"))?;
    }
    route
        .judge(&prepared, commit, Decide::ByAnother)
        .await
        .map_err(during("commit, the server being frozen"))?;
    // A heartbeat that is late may be written over a newer one, for a while.
    route.warm().await?;
    let HeartbeatWrite::Silo { silo, .. } = &prepared.beat else {
        return Ok(());
    };
    let row = route
        .patient("read_row", || route.table.read_row(silo, None))
        .await?;
    must!(row.row.is_some(), "the row of {silo} is gone");
    Ok(())
}

async fn a_lost_answer_is_an_unknown_outcome(cx: Cx) -> Verdict {
    let routes = parallel::open(&cx, Operation::ALL.len()).await?;
    learn(&routes).await;
    parallel::each(routes, Operation::ALL.to_vec(), |route, operation| {
        Box::pin(each_lost(route, operation))
    })
    .await
}

async fn each_lost(route: &Route, operation: Operation) -> Verdict {
    // Each waits as long as the client does.
    const MAX_EXCHANGES: u64 = 3;
    let requests = route.requests(operation).await?;
    for exchange in 0..MAX_EXCHANGES {
        let hit = route
            .hit(operation, exchange, requests, || {
                lost(route, operation, exchange)
            })
            .await;
        let hit = hit.map_err(during(format_args!(
            "{operation}, the answer of its request {} lost",
            exchange + 1
        )))?;
        if !hit {
            break;
        }
    }
    Ok(())
}

async fn lost(route: &Route, operation: Operation, exchange: u64) -> Result<bool, Stop> {
    route.warm().await?;
    let prepared = route.prepare(operation).await?;
    route.proxy.set_fault_after(exchange, Fault::LoseAnswer);
    let answer = route.cx.in_time("it", ask(&route.table, &prepared)).await;
    let hit = route.proxy.has_fired();
    route.proxy.heal();
    let answer = answer?;
    if let Some(e) = answer.error().filter(|_| !hit) {
        return Err(Stop::failed(format!("nothing went wrong, and still: {e}")));
    }
    route
        .judge(&prepared, Some(answer), Decide::ByAnother)
        .await?;
    Ok(hit)
}
