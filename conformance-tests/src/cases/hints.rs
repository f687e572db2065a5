//! Hints: notifications of the store that the version may have moved.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use membership_core::{CommitOutcome, HintStream, NextStep, ReadAnswer, ReadRequest};

use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read, send, unknown_answer};
use crate::proxy::Way;
use crate::{Capability, Proxied, Stop};

pub(super) const CASES: &[Case] = &[
    case!(a_foreign_commit_is_hinted_within_a_second:),
    case!(hints_end_with_their_table:),
    case!(hints_survive_a_restart: T13),
    case!(losing_hints_costs_only_time: T6 T13),
];

/// The limit for the median time until a commit of another client is hinted.
const WITHIN: Duration = Duration::from_secs(1);

/// The number of measurements.
const TIMES: usize = 9;

/// The table's hints. A table without hints fails the case unless the backend lists that.
fn hints(cx: &Cx, table: &Table) -> Result<HintStream, Stop> {
    cx.needs(Capability::Hints)?;
    table.hints().ok_or(Stop::NotStaged(Capability::Hints))
}

/// The next hint, if one comes in time. The end of the stream is a failure.
async fn next(stream: &mut HintStream, within: Duration) -> Result<bool, Stop> {
    match tokio::time::timeout(within, poll_fn(|cx| stream.as_mut().poll_next(cx))).await {
        Ok(Some(())) => Ok(true),
        Ok(None) => Err(Stop::failed(
            "the hints ended although their table is still there",
        )),
        Err(_) => Ok(false),
    }
}

/// Takes every pending hint.
async fn drain(stream: &mut HintStream) -> Verdict {
    while next(stream, Duration::from_millis(20)).await? {}
    Ok(())
}

/// Sends one commit, and repeats it while the store is unreachable.
async fn foreign_commit(cx: &Cx, other: &Table) -> Verdict {
    let deadline = Instant::now() + cx.effort().operation_timeout;
    loop {
        let attempt = async {
            let ReadAnswer::Snapshot { snapshot, .. } = other.read(&ReadRequest::all()).await?
            else {
                return Ok(false);
            };
            let answer = send(other, &cx.insert(&snapshot.token, [cx.entry()])).await?;
            Ok::<_, membership_core::TableError>(matches!(answer, CommitOutcome::Committed(_)))
        };
        match attempt.await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(e) if e.next_step() == NextStep::GiveUp => return Err(e.into()),
            Err(e) => must!(
                Instant::now() < deadline,
                "an error although all faults have ended: {e}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Commits until one is hinted: the subscription may start, or start again, a while after the
/// request.
async fn until_hinted(cx: &Cx, other: &Table, stream: &mut HintStream) -> Verdict {
    let began = Instant::now();
    drain(stream).await?;
    loop {
        foreign_commit(cx, other).await?;
        if next(stream, Duration::from_millis(500)).await? {
            return Ok(());
        }
        must!(
            began.elapsed() < cx.effort().operation_timeout,
            "no commit was hinted for {:?}",
            began.elapsed()
        );
    }
}

async fn a_foreign_commit_is_hinted_within_a_second(cx: Cx) -> Verdict {
    cx.needs(Capability::Hints)?;
    let table = cx.table().await?;
    let mut stream = hints(&cx, &table)?;
    let other = cx.another(&table).await?;
    until_hinted(&cx, &other, &mut stream).await?;
    let mut took = Vec::new();
    for n in 0..TIMES {
        drain(&mut stream).await?;
        let token = read(&other).await?.0.token;
        commit(&other, &cx.insert(&token, [cx.entry()])).await?;
        let began = Instant::now();
        must!(
            next(&mut stream, cx.effort().operation_timeout).await?,
            "commit {n} of another client was never hinted"
        );
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    must!(
        median <= WITHIN,
        "commits of another client are hinted after {median:?} in the median: {took:?}"
    );
    Ok(())
}

async fn hints_end_with_their_table(cx: Cx) -> Verdict {
    cx.needs(Capability::Hints)?;
    let table = cx.table().await?;
    let mut stream = hints(&cx, &table)?;
    drop(table);
    let end = poll_fn(|cx| {
        loop {
            match stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    cx.in_time("the end of the hints of a dropped table", end)
        .await?;
    // Polling the stream again, as a `select!` in a loop does, returns the end again.
    let again = poll_fn(|cx| Poll::Ready(stream.as_mut().poll_next(cx))).await;
    must!(
        again == Poll::Ready(None),
        "after its end the stream says {again:?}"
    );
    Ok(())
}

async fn hints_survive_a_restart(cx: Cx) -> Verdict {
    cx.needs(Capability::Hints)?;
    cx.needs(Capability::Restart)?;
    let table = cx.table().await?;
    let mut stream = hints(&cx, &table)?;
    let other = cx.another(&table).await?;
    until_hinted(&cx, &other, &mut stream).await?;
    cx.backend().restart().await?;
    until_hinted(&cx, &other, &mut stream).await
}

async fn losing_hints_costs_only_time(cx: Cx) -> Verdict {
    cx.needs(Capability::Hints)?;
    cx.needs(Capability::Proxy)?;
    let other = cx.table().await?;
    let Proxied { table, proxy } = cx.backend().proxied(other.cluster()).await?;
    let mut stream = hints(&cx, &table)?;
    until_hinted(&cx, &other, &mut stream).await?;
    for how in ["cut", "held"] {
        match how {
            "cut" => {
                must!(
                    proxy.cut_connections() > 0,
                    "nothing of the table passes through the proxy"
                );
                foreign_commit(&cx, &other).await?;
            }
            _ => {
                proxy.freeze_way(Way::Answers);
                // The committing client may use the same way. Then its answer comes when the way is
                // open again.
                let held = async {
                    let held = proxy.holds(cx.effort().operation_timeout).await;
                    proxy.heal();
                    must!(
                        held,
                        "nothing of a commit or of its hint passes through the proxy"
                    );
                    Ok(())
                };
                let (committed, held) = tokio::join!(foreign_commit(&cx, &other), held);
                committed.and(held)?;
            }
        }
        let due = read(&other).await?.0;
        let barrier = ReadRequest::all().with_barrier(true);
        let deadline = Instant::now() + cx.effort().operation_timeout;
        let shown = loop {
            match cx.in_time("read", table.read(&barrier)).await? {
                Ok(ReadAnswer::Snapshot { snapshot, .. }) => break snapshot,
                Ok(ReadAnswer::Unchanged { .. }) => {
                    return Err(Stop::failed(
                        "a read without a known version was answered with unchanged",
                    ));
                }
                Ok(other) => return Err(unknown_answer(&other)),
                Err(e) => {
                    must!(
                        Instant::now() < deadline && e.next_step() != NextStep::GiveUp,
                        "the hints were {how}, and a read fails: {e}"
                    )
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        must!(
            shown == due,
            "the hints were {how}, and a read shows {shown:?}, not {due:?}"
        );
        until_hinted(&cx, &other, &mut stream)
            .await
            .map_err(|stop| match stop {
                Stop::Failed(why) => {
                    Stop::Failed(format!("after the connections were {how}: {why}"))
                }
                stop => stop,
            })?;
    }
    Ok(())
}
