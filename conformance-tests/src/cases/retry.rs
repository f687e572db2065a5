//! Commits whose answer was lost. T5.

use membership_core::{CommitOutcome, TableErrorKind};

use crate::case::{Case, Cx, Verdict, case, commit, conflict, must, read, refused, same, send};

pub(super) const CASES: &[Case] = &[
    case!(a_commit_sent_again_is_recognised: T5),
    case!(a_lost_commit_sent_again_is_a_conflict: T5),
    case!(beyond_sixteen_versions_the_rows_decide: T5),
    case!(a_commit_sent_again_that_never_arrived_is_applied: T5),
];

async fn a_commit_sent_again_is_recognised(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let mine = cx.insert(&read(&table).await?.0.token, [cx.entry()]);
    let mut token = commit(&table, &mine).await?;
    for gap in 0..16 {
        let before = read(&other).await?;
        for client in [&table, &other] {
            match send(client, &mine.again()).await {
                Ok(CommitOutcome::Committed(again)) => {
                    must!(
                        again.version() == 1 && again.commit() == mine.id,
                        "sent again it has the token {again:?}"
                    );
                }
                answer => {
                    return Err(crate::Stop::failed(format!(
                        "{gap} versions later, one's own success is answered with {answer:?}"
                    )));
                }
            }
        }
        same("a commit sent again", &before, &read(&other).await?)?;
        token = commit(&other, &cx.insert(&token, [cx.entry()])).await?;
    }
    Ok(())
}

async fn a_lost_commit_sent_again_is_a_conflict(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let start = read(&table).await?.0.token;
    let lost = cx.insert(&start, [cx.entry()]);
    let mut token = start;
    for gap in 1..=16 {
        token = commit(&table, &cx.insert(&token, [cx.entry()])).await?;
        let before = read(&table).await?;
        conflict(
            &table,
            &lost.again(),
            &format!("sent again, {gap} versions on"),
        )
        .await?;
        same("a lost commit sent again", &before, &read(&table).await?)?;
    }
    Ok(())
}

async fn beyond_sixteen_versions_the_rows_decide(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let start = read(&table).await?.0.token;
    let (mine, lost) = (
        cx.insert(&start, [cx.entry()]),
        cx.insert(&start, [cx.entry()]),
    );
    let mut token = commit(&table, &mine).await?;
    for _ in 0..17 {
        token = commit(&table, &cx.insert(&token, [cx.entry()])).await?;
    }
    let before = read(&table).await?;
    for (what, request) in [
        ("a commit that happened", &mine),
        ("a commit that did not", &lost),
    ] {
        refused(
            what,
            table.commit(&request.again()).await,
            &[TableErrorKind::OutcomeUnknown],
        )?;
    }
    conflict(&table, &lost, "sent first with an ancient token").await?;
    same("commits of unknown outcome", &before, &read(&table).await?)
}

async fn a_commit_sent_again_that_never_arrived_is_applied(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let request = cx
        .insert(&read(&table).await?.0.token, [cx.entry()])
        .again();
    commit(&table, &request).await?;
    must!(read(&table).await?.0.version() == 1, "the version is not 1");
    Ok(())
}
