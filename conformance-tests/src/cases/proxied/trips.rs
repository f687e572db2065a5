//! The number of round trips of each operation, compared with its provider's documentation.

use std::future::Future;
use std::time::Duration;

use membership_core::{CommitOutcome, ReadAnswer, ReadRequest, TableError};

use super::during;
use super::route::Route;
use crate::case::{Case, Cx, Verdict, case, must, read, send};
use crate::{RoundTrips, Stop};

pub(in crate::cases) const CASES: &[Case] = &[case!(round_trips:)];

/// How long a request may stay open after the answer to its operation.
const STAYS_OPEN: Duration = Duration::from_secs(1);
/// How often each operation is counted; the largest count is used.
const TIMES: usize = 5;

async fn round_trips(cx: Cx) -> Verdict {
    let route = Route::open(&cx).await?;
    for _ in 0..3 {
        route.warm().await?;
    }
    route.proxy.learn_monitoring(Duration::from_secs(1)).await;
    let mut counted = RoundTrips::default();
    for _ in 0..TIMES {
        once(&route, &mut counted).await?;
    }
    most(
        &mut counted.delete,
        count(&route, "delete", route.table.delete()).await?.1,
    );
    cx.counted(counted);
    must!(
        counted.each().any(|(_, n)| n != Some(0)),
        "the set-up is wrong: nothing of any operation passes through the proxy, so nothing can be counted"
    );
    let promised = cx.backend().round_trips();
    for ((operation, promised), (_, counted)) in promised.each().zip(counted.each()) {
        must!(
            counted != Some(0),
            "{operation}: nothing of it passes through the proxy"
        );
        must!(
            promised.is_none() || promised == counted,
            "{operation} takes {} round trips instead of the promised {}; counted: {}",
            counted.unwrap_or(0),
            promised.unwrap_or(0),
            counted_text(&cx)
        );
    }
    Ok(())
}

fn counted_text(cx: &Cx) -> String {
    cx.count()
        .map_or_else(String::new, |counted| counted.to_string())
}

async fn once(route: &Route, counted: &mut RoundTrips) -> Verdict {
    let table = &route.table;
    let before = read(&route.judge).await?.0;
    let (answer, n) = count(route, "read", table.read(&ReadRequest::all())).await?;
    must!(
        matches!(answer, ReadAnswer::Snapshot { .. }),
        "a read without a known version was answered with unchanged"
    );
    most(&mut counted.read, n);
    let known = ReadRequest::all().with_known(before.token.clone());
    most(
        &mut counted.read_unchanged,
        count(route, "read", table.read(&known)).await?.1,
    );
    let barrier = ReadRequest::all().with_barrier(true);
    most(
        &mut counted.read_with_barrier,
        count(route, "read with barrier", table.read(&barrier))
            .await?
            .1,
    );
    most(
        &mut counted.read_row,
        count(
            route,
            "read_row",
            table.read_row(&route.silos[1].address, None),
        )
        .await?
        .1,
    );
    let write = route.beat(&route.silos[1]);
    most(
        &mut counted.update_i_am_alive,
        count(route, "update_i_am_alive", table.update_i_am_alive(&write))
            .await?
            .1,
    );
    // The silo's own row and one more, as when a silo joins or receives a vote.
    let mut request = route.cx.update(&before.token, [route.marked(&before)]);
    request
        .changes
        .extend(route.cx.insert(&before.token, [route.cx.entry()]).changes);
    let (answer, n) = count(route, "commit", send(table, &request)).await?;
    must!(
        matches!(answer, CommitOutcome::Committed(_)),
        "a commit without competition is answered with {answer:?}"
    );
    most(&mut counted.commit, n);
    let again = request.again();
    let (answer, n) = count(route, "commit sent again", send(table, &again)).await?;
    must!(
        matches!(answer, CommitOutcome::Committed(_)),
        "a commit sent again is answered with {answer:?}"
    );
    most(&mut counted.commit_again, n);
    let stale = route.cx.insert(&before.token, [route.cx.entry()]);
    let (answer, n) = count(route, "commit on a stale token", send(table, &stale)).await?;
    must!(
        matches!(answer, CommitOutcome::Conflict(_)),
        "a commit on a stale token is answered with {answer:?}"
    );
    most(&mut counted.conflict, n);
    let request = route.cx.initialize_request();
    most(
        &mut counted.initialize,
        count(route, "initialize", table.initialize(&request))
            .await?
            .1,
    );
    Ok(())
}

fn most(so_far: &mut Option<u64>, n: u64) {
    *so_far = Some(so_far.unwrap_or(0).max(n));
}

/// An operation's answer and its round trips, including the work that it leaves after its answer.
async fn count<T>(
    route: &Route,
    what: &str,
    operation: impl Future<Output = Result<T, TableError>>,
) -> Result<(T, u64), Stop> {
    let counter = route.proxy.count();
    let answer = route
        .cx
        .in_time(what, operation)
        .await?
        .map_err(|e| during(what.to_owned())(e.into()))?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    if !route.proxy.settled(STAYS_OPEN).await {
        let open = route.proxy.open_requests().join(", ");
        return Err(Stop::failed(format!(
            "{what}: a request stays open for {STAYS_OPEN:?} after the answer, so round trips cannot be counted: {open}; if the \
             client waits for news with it, let it begin before the count, or recognise it (`Store::monitoring`)"
        )));
    }
    Ok((answer, counter.so_far()))
}
