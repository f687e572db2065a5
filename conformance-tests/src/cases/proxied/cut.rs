//! Connections are cut at each of six stages of each request of an operation. T2, T5, T13.

use super::during;
use super::judge::Decide;
use super::operation::{Operation, ask};
use super::parallel::{self, learn};
use super::route::Route;
use crate::Stop;
use crate::case::{Case, Cx, Verdict, case};
use crate::proxy::{Fault, QUIET, Stage};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(initialize_cut_at_every_stage: T2 T5 T13),
    case!(read_cut_at_every_stage: T5 T13),
    case!(read_row_cut_at_every_stage: T5 T13),
    case!(commit_cut_at_every_stage: T2 T5 T13),
    case!(commit_sent_again_cut_at_every_stage: T2 T5 T13),
    case!(heartbeat_cut_at_every_stage: T5 T7 T13),
    case!(delete_cut_at_every_stage: T2 T5 T13),
];

/// More requests than any operation needs; later requests are not cut.
const MAX_EXCHANGES: u64 = 12;

async fn initialize_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::Initialize]).await
}

async fn read_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::Read]).await
}

async fn read_row_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::ReadRow]).await
}

async fn commit_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::Commit]).await
}

async fn commit_sent_again_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::CommitAgain, Operation::CommitAgainLost]).await
}

async fn heartbeat_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::Beat]).await
}

async fn delete_cut_at_every_stage(cx: Cx) -> Verdict {
    at_every_stage(&cx, &[Operation::Delete]).await
}

async fn at_every_stage(cx: &Cx, operations: &[Operation]) -> Verdict {
    let routes = parallel::open(cx, operations.len() * Stage::ALL.len()).await?;
    learn(&routes).await;
    let mut items = Vec::new();
    for &operation in operations {
        let requests = routes[0].requests(operation).await?;
        items.extend(Stage::ALL.map(|stage| (operation, stage, requests)));
    }
    parallel::each(routes, items, |route, (operation, stage, requests)| {
        Box::pin(at_stage(route, operation, stage, requests))
    })
    .await
}

/// Cuts each request of an operation at this stage.
async fn at_stage(route: &Route, operation: Operation, stage: Stage, requests: u64) -> Verdict {
    for exchange in 0..MAX_EXCHANGES {
        let ways: &[Decide] = if operation.is_commit() {
            &[Decide::ByAnother, Decide::ByItself]
        } else {
            &[Decide::ByItself]
        };
        let mut hit = false;
        for &decide in ways {
            let cut = route
                .hit(operation, exchange, requests, || {
                    cut(route, operation, stage, exchange, decide)
                })
                .await;
            hit |= cut.map_err(during(format_args!(
                "{operation}, cut {stage} {}",
                exchange + 1
            )))?;
        }
        if !hit {
            break;
        }
    }
    Ok(())
}

/// Returns true if there was a request to cut.
async fn cut(
    route: &Route,
    operation: Operation,
    stage: Stage,
    exchange: u64,
    decide: Decide,
) -> Result<bool, Stop> {
    route.warm().await?;
    let prepared = route.prepare(operation).await?;
    let counter = route.proxy.count();
    route.proxy.set_fault_after(exchange, Fault::Cut(stage));
    let answer = route.cx.in_time("it", ask(&route.table, &prepared)).await?;
    // A cut at the end of the answer or after it happens a while after it, and later on a busy
    // machine.
    let made = counter.so_far() > exchange;
    let patience = if made {
        route.cx.effort().operation_timeout
    } else {
        QUIET * 5
    };
    let hit = route.proxy.has_fired()
        || (stage >= Stage::BeforeLastByte && route.proxy.fired(patience).await);
    route.proxy.heal();
    if let Some(e) = answer.error().filter(|_| !hit) {
        return Err(Stop::failed(format!("an error although no fault hit: {e}")));
    }
    route.judge(&prepared, Some(answer), decide).await?;
    Ok(hit)
}
