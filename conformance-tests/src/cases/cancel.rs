//! Futures that are dropped before they are ready. T14.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use membership_core::{HeartbeatWrite, ReadRequest};

use crate::case::{Case, Cx, Table, Verdict, case, must, read, send, unknown_answer};

pub(super) const CASES: &[Case] = &[
    case!(dropped_futures_leave_a_legal_table: T14),
    case!(dropped_commits_from_many_clients: T14 T2),
];

/// Polls a future `times` times, yields in between, and drops it. Returns true if it was ready.
async fn poll_and_drop<F: Future + Send>(future: F, times: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for turn in 0..times {
        if let Poll::Ready(output) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Some(output);
        }
        if turn % 2 == 1 {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
    }
    None
}

/// Sends one commit after the other, and drops each after a while. After each, the table is in the
/// state before or after it.
async fn drop_commits(cx: &Cx, table: &Table, judge: &Table, turns: usize) -> Verdict {
    for turn in 0..turns {
        let before = read(judge).await?.0;
        let request = cx.insert(&before.token, [cx.entry(), cx.entry()]);
        let answer = poll_and_drop(table.commit(&request), 1 + turn % 3).await;
        // A dropped commit may arrive later; sending it again settles its outcome.
        match send(judge, &request.again()).await? {
            membership_core::CommitOutcome::Committed(_) => {}
            membership_core::CommitOutcome::Conflict(c) => {
                return Err(crate::Stop::failed(format!(
                    "turn {turn}: after {answer:?}, sent again: a conflict with {:?} although there is no other client",
                    c.newest
                )));
            }
            other => return Err(unknown_answer(&other)),
        }
        let now = read(judge).await?.0;
        must!(
            now == request.apply_to(&before, now.token.clone()),
            "turn {turn}: the dropped commit left {now:?}, neither before nor after"
        );
    }
    Ok(())
}

async fn dropped_futures_leave_a_legal_table(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let judge = cx.another(&table).await?;
    let silo = cx.entry();
    let request = cx.insert(&read(&judge).await?.0.token, [silo.clone()]);
    send(&judge, &request).await?;
    drop_commits(&cx, &table, &judge, 60).await?;
    for turn in 0..100 {
        let polls = 1 + turn % 3;
        poll_and_drop(table.read(&ReadRequest::all()), polls).await;
        poll_and_drop(table.read_row(&silo.address, None), polls).await;
        let heartbeat = membership_core::Heartbeat {
            counter: 1 + turn as u64,
            at: silo.start_time,
        };
        poll_and_drop(
            table.update_i_am_alive(&HeartbeatWrite::Silo {
                silo: silo.address,
                heartbeat,
            }),
            polls,
        )
        .await;
        poll_and_drop(table.initialize(&cx.initialize_request()), polls).await;
    }
    // The client whose futures were dropped still works.
    let (mine, theirs) = (read(&table).await?.0, read(&judge).await?.0);
    must!(
        mine == theirs,
        "the client that was interrupted reads {mine:?}, another one {theirs:?}"
    );
    let request = cx.insert(&mine.token, [cx.entry()]);
    crate::case::commit(&table, &request).await?;
    poll_and_drop(table.delete(), 1).await;
    judge.delete().await?;
    table.delete().await?;
    cx.another(&table)
        .await?
        .initialize(&cx.initialize_request())
        .await?;
    Ok(())
}

async fn dropped_commits_from_many_clients(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let mut tasks = Vec::new();
    for n in 0..4_usize {
        let (cx, client) = (cx.clone(), cx.another(&table).await?);
        tasks.push(tokio::spawn(async move {
            for turn in 0..40 {
                let now = read(&client).await?.0;
                must!(
                    now.rows.len() as u64 == 2 * now.version(),
                    "half a commit shows: version {} has {} rows",
                    now.version(),
                    now.rows.len()
                );
                poll_and_drop(
                    client.commit(&cx.insert(&now.token, [cx.entry(), cx.entry()])),
                    1 + (turn + n) % 3,
                )
                .await;
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let now = read(&table).await?.0;
    must!(
        now.rows.len() as u64 == 2 * now.version(),
        "version {} has {} rows",
        now.version(),
        now.rows.len()
    );
    Ok(())
}
