//! Servers that do not answer: unreachable, frozen, or with their answers lost. T5, T13.

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

/// Checks that the answer is an error after which the caller may try again or must read.
fn failed(answer: &Answered) -> Verdict {
    must!(
        answer.error().is_some(),
        "the answer is {answer:?} instead of an error"
    );
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
        "{operation} while the server is away ({away:?})"
    )))
}

/// All operations at the same time, as a silo may send them. Requests that arrive when the server
/// is thawed are late.
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
        // The commit is on its way before any other request: it must arrive in the end, so that its
        // answer can be judged.
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
                "the commit is answered with {answer:?} before any byte of it reached the proxy"
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
    asked.map_err(during("while the server is frozen"))?;
    // The held requests arrive now, late. A commit that was answered with certainly not applied
    // must not be applied now either.
    let settled = route.proxy.settled(patience).await;
    must!(
        settled,
        "{patience:?} after the server was thawed, held requests are not answered"
    );
    for (answer, prepared) in rest.iter().zip(&others) {
        let during =
            during(format_args!("{} while the server is frozen", prepared.operation).to_string());
        failed(answer)
            .and_then(|()| match answer.error() {
                Some(e) if e.next_step() == membership_core::NextStep::GiveUp => Err(Stop::failed(
                    format!("the error says that a retry is useless: {e}"),
                )),
                _ => Ok(()),
            })
            .map_err(during)?;
    }
    if let Some(answer) = &commit {
        failed(answer).map_err(during("commit while the server is frozen"))?;
    }
    route
        .judge(&prepared, commit, Decide::ByAnother)
        .await
        .map_err(during("commit while the server is frozen"))?;
    // A late heartbeat may be written over a newer one, for a while.
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
    // Each takes as long as the client's timeout.
    const MAX_EXCHANGES: u64 = 3;
    let requests = route.requests(operation).await?;
    for exchange in 0..MAX_EXCHANGES {
        let hit = route
            .hit(operation, exchange, requests, || {
                lost(route, operation, exchange)
            })
            .await;
        let hit = hit.map_err(during(format_args!(
            "{operation} with the answer of its request {} lost",
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
        return Err(Stop::failed(format!("an error although no fault hit: {e}")));
    }
    route
        .judge(&prepared, Some(answer), Decide::ByAnother)
        .await?;
    Ok(hit)
}
