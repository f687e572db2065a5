//! A store that is unreachable for a while. T5, T13.

use std::time::{Duration, Instant};

use membership_core::{CommitOutcome, HeartbeatWrite, NextStep, ReadRequest, TableError};

use crate::case::{
    Case, Cx, Table, Verdict, case, commit, conflict, must, read, send, unknown_answer,
};
use crate::{Reason, Stop};

pub(super) const CASES: &[Case] = &[
    case!(an_unavailable_store_is_an_error_and_comes_back: T13),
    case!(a_commit_sent_again_to_a_store_that_is_away_stays_unknown: T5 T13),
    case!(a_restart_loses_nothing: T13 T2),
];

fn away<T: std::fmt::Debug>(what: &str, answer: Result<T, TableError>) -> Verdict {
    match answer {
        Err(e) if matches!(e.next_step(), NextStep::Retry | NextStep::FindOut) => Ok(()),
        Err(e) => Err(Stop::failed(format!(
            "{what} while the store is unreachable: the error says that a retry is useless: {e}"
        ))),
        Ok(answer) => Err(Stop::failed(format!(
            "{what} while the store is unreachable is answered with {answer:?}"
        ))),
    }
}

async fn an_unavailable_store_is_an_error_and_comes_back(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    let before = read(&table).await?;
    let request = cx.update(&token, [entry.clone()]);
    let heartbeat = membership_core::Heartbeat {
        counter: 1,
        at: entry.start_time,
    };
    let write = HeartbeatWrite::Silo {
        silo: entry.address,
        heartbeat,
    };
    let (initialize, all) = (cx.initialize_request(), ReadRequest::all());
    cx.backend().set_available(false).await?;
    // All at the same time, as a silo may send them, and once more by a client that knows already
    // that the store is unreachable: each may wait for a while.
    let answers = async {
        for _ in 0..2 {
            let (initialized, whole, row, committed, beat, deleted) = tokio::join!(
                cx.in_time("initialize", table.initialize(&initialize)),
                cx.in_time("read", table.read(&all)),
                cx.in_time("read_row", table.read_row(&entry.address, None)),
                cx.in_time("commit", table.commit(&request)),
                cx.in_time("update_i_am_alive", table.update_i_am_alive(&write)),
                cx.in_time("delete", table.delete()),
            );
            away("initialize", initialized?)?;
            away("read", whole?)?;
            away("read_row", row?)?;
            away("commit", committed?)?;
            away("update_i_am_alive", beat?)?;
            away("delete", deleted?)?;
        }
        Ok(())
    };
    let verdict: Verdict = answers.await;
    cx.backend().set_available(true).await?;
    verdict?;
    // The same client recovers.
    let deadline = Instant::now() + cx.effort().operation_timeout;
    let after = loop {
        match table.read(&ReadRequest::all()).await {
            Ok(_) => break read(&table).await?,
            Err(e) if Instant::now() > deadline => {
                return Err(Stop::failed(format!(
                    "an error although the store is back: {e}"
                )));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let landed = request.apply_to(&before.0, after.0.token.clone());
    must!(
        after.0 == before.0 || after.0 == landed,
        "the store came back with {:?}",
        after.0
    );
    commit(&table, &cx.update(&after.0.token, [entry])).await?;
    Ok(())
}

/// Both commits are sent as repeated ones. One happened and the other never arrived. While the
/// store is unreachable, either may have happened.
async fn a_commit_sent_again_to_a_store_that_is_away_stays_unknown(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let start = read(&table).await?.0.token;
    let (mine, lost) = (
        cx.insert(&start, [cx.entry()]),
        cx.insert(&start, [cx.entry()]),
    );
    commit(&table, &mine).await?;
    read(&other).await?;
    cx.backend().set_available(false).await?;
    let stays_unknown = async |client: &Table| {
        for (what, request) in [
            ("a commit that happened", &mine),
            ("a commit that never arrived", &lost),
        ] {
            match cx
                .in_time("a commit sent again", client.commit(&request.again()))
                .await?
            {
                Err(e) if e.next_step() == NextStep::FindOut => {}
                answer => {
                    return Err(Stop::failed(format!(
                        "{what}, sent again to an unreachable store, must be of unknown outcome: {answer:?}"
                    )));
                }
            }
        }
        Ok(())
    };
    let (by_itself, by_another) = tokio::join!(stays_unknown(&table), stays_unknown(&other));
    cx.backend().set_available(true).await?;
    by_itself.and(by_another)?;
    let deadline = Instant::now() + cx.effort().operation_timeout;
    while let Err(e) = table.read(&ReadRequest::all()).await {
        must!(
            Instant::now() < deadline,
            "an error although the store is back: {e}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if cx.must_keep_commits(&*table) {
        match send(&table, &mine.again()).await? {
            CommitOutcome::Committed(token) => must!(
                token.version() == 1 && token.commit() == mine.id,
                "the answer has the token {token:?}"
            ),
            CommitOutcome::Conflict(c) => {
                return Err(Stop::failed(format!(
                    "one's own success is a conflict with {:?}",
                    c.newest
                )));
            }
            other => return Err(unknown_answer(&other)),
        }
        conflict(
            &table,
            &lost.again(),
            "lost, and sent again when the store is back",
        )
        .await?;
    }
    Ok(())
}

async fn a_restart_loses_nothing(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    if !cx.must_keep_commits(&*table) {
        return Err(Stop::NotApplicable(Reason::NotGuaranteed));
    }
    commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [cx.entry(), cx.entry()]),
    )
    .await?;
    let before = read(&table).await?;
    cx.backend().restart().await?;
    let deadline = Instant::now() + cx.effort().operation_timeout;
    while let Err(e) = table.read(&ReadRequest::all()).await {
        must!(Instant::now() < deadline, "after the restart: {e}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    crate::case::same("a restart", &before, &read(&table).await?)
}
