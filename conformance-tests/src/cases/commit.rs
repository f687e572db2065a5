//! What a commit does, and what a conflict leaves unchanged. T1 to T4.

use membership_core::{CauseOfDeath, CommitOutcome, Death, SiloStatus, TableErrorKind};

use crate::case::{
    Case, Cx, Verdict, case, commit, conflict, must, read, refused, same, send, unknown_answer,
};

pub(super) const CASES: &[Case] = &[
    case!(versions_rise_by_one: T1),
    case!(changes_happen_together: T2),
    case!(a_commit_that_cannot_happen_whole_does_not_happen: T2 T3),
    case!(conflicts_change_nothing: T3),
    case!(a_conflict_names_the_newest_commit: T3),
    case!(malformed_commits_are_errors: T4),
    case!(of_many_commits_on_one_version_one_wins: T1 T4),
    case!(settings_and_the_core_cell_are_committed: T2),
];

async fn versions_rise_by_one(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let mut token = read(&table).await?.0.token;
    for version in 1..=40 {
        // Both clients commit in turn, each on the token that the other received.
        let by = if version % 2 == 0 { &table } else { &other };
        let request = cx.insert(&token, [cx.entry()]);
        token = commit(by, &request).await?;
        let (now, _) = read(&other).await?;
        must!(
            now.version() == version && now.token.same_commit(&token),
            "version {version} reads as {:?}",
            now.token
        );
        must!(
            now.version_row.recent.len() as u64 == version.min(16),
            "{} commits are remembered",
            now.version_row.recent.len()
        );
        must!(
            now.version_row.last_commit() == request.id,
            "the newest commit in the version row is {}",
            now.version_row.last_commit()
        );
        must!(
            now.version_row.row_count == now.rows.len() as u64,
            "{} rows are counted, {} read",
            now.version_row.row_count,
            now.rows.len()
        );
    }
    Ok(())
}

async fn changes_happen_together(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (mut a, b, c, d) = (cx.entry(), cx.entry(), cx.entry(), cx.entry());
    let start = read(&table).await?.0;
    let first = cx.insert(&start.token, [a.clone(), b.clone()]);
    let token = commit(&table, &first).await?;
    let base = read(&table).await?.0;
    must!(
        base == first.apply_to(&start, base.token.clone()),
        "two inserts read as {base:?}"
    );
    a.status = SiloStatus::Dead;
    a.death = Some(Death::new(CauseOfDeath::Left, a.start_time, None, 2));
    let mut all = cx.update(&token, [a]);
    all.changes.extend(cx.insert(&token, [c, d]).changes);
    all.changes
        .extend(cx.remove(&token, [b.address.row_key()]).changes);
    commit(&table, &all).await?;
    let now = read(&cx.another(&table).await?).await?.0;
    let due = all.apply_to(&base, now.token.clone());
    must!(
        now == due,
        "an update, two inserts and a removal read as {now:?}, not {due:?}"
    );
    Ok(())
}

async fn a_commit_that_cannot_happen_whole_does_not_happen(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let (a, b) = (cx.entry(), cx.entry());
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [a.clone(), b.clone()]),
    )
    .await?;
    let before = read(&other).await?;
    let good = || {
        [
            cx.insert(&token, [cx.entry()]).changes,
            cx.update(&token, [a.clone()]).changes,
        ]
        .concat()
    };
    let bad = [
        (
            "an insert of a row that exists",
            cx.insert(&token, [b.clone()]),
        ),
        (
            "an update of a missing row",
            cx.update(&token, [cx.entry()]),
        ),
        (
            "a removal of a missing row",
            cx.remove(&token, [cx.entry().address.row_key()]),
        ),
    ];
    for (what, bad) in bad {
        for first in [true, false] {
            let mut request = bad.clone();
            request.changes = if first {
                [bad.changes.clone(), good()].concat()
            } else {
                [good(), bad.changes.clone()].concat()
            };
            conflict(&table, &request, what).await?;
            same(what, &before, &read(&other).await?)?;
        }
    }
    Ok(())
}

async fn conflicts_change_nothing(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let (a, b) = (cx.entry(), cx.entry());
    let old = read(&table).await?.0.token;
    let token = commit(&table, &cx.insert(&old, [a.clone(), b.clone()])).await?;
    let beat = membership_core::Heartbeat {
        counter: 3,
        at: a.start_time,
    };
    table
        .update_i_am_alive(&membership_core::HeartbeatWrite::Silo {
            silo: a.address,
            heartbeat: beat,
        })
        .await?;
    let before = read(&other).await?;
    let cases = [
        (
            "an insert with a stale token",
            cx.insert(&old, [cx.entry()]),
        ),
        ("an update with a stale token", cx.update(&old, [a.clone()])),
        (
            "a removal with a stale token",
            cx.remove(&old, [b.address.row_key()]),
        ),
        (
            "an insert of a row that exists",
            cx.insert(&token, [b.clone()]),
        ),
        (
            "an update of a missing row",
            cx.update(&token, [cx.entry()]),
        ),
        (
            "a removal of a missing row",
            cx.remove(&token, [cx.entry().address.row_key()]),
        ),
    ];
    for (what, request) in cases {
        conflict(&table, &request, what).await?;
        same(what, &before, &read(&other).await?)?;
    }
    let beaten = other.read_row(&a.address, None).await?;
    must!(
        beaten.heartbeat == Some(beat),
        "the heartbeat is {:?} after the conflicts",
        beaten.heartbeat
    );
    commit(&table, &cx.update(&token, [a])).await?;
    Ok(())
}

async fn a_conflict_names_the_newest_commit(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let old = read(&table).await?.0.token;
    let mut winner = cx.insert(&old, [cx.entry()]);
    let committer = cx.entry().address;
    winner.committer = Some(committer);
    commit(&table, &winner).await?;
    let answer = conflict(
        &cx.another(&table).await?,
        &cx.insert(&old, [cx.entry()]),
        "a stale token",
    )
    .await?;
    let now = read(&table).await?.0;
    let Some(newest) = answer.newest else {
        return Err(crate::Stop::failed(
            "the conflict does not name the newest commit",
        ));
    };
    must!(
        newest.id == winner.id && newest.version == 1 && newest.committer == Some(committer),
        "the conflict names {newest:?}, not commit {} of {committer}",
        winner.id
    );
    if let Some(snapshot) = answer.snapshot {
        must!(
            snapshot == now,
            "the conflict brings {snapshot:?}, the table is {now:?}"
        );
    }
    Ok(())
}

async fn malformed_commits_are_errors(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (a, b) = (cx.entry(), cx.entry());
    let old = read(&table).await?.0.token;
    let token = commit(&table, &cx.insert(&old, [a.clone()])).await?;
    let before = read(&table).await?;
    let mut wrong_version = cx.insert(&token, [b.clone()]);
    wrong_version.changes = cx.insert(&old, [b.clone()]).changes;
    for (what, request) in [
        ("an empty commit", cx.insert(&token, [])),
        ("one row twice", cx.insert(&token, [b.clone(), b.clone()])),
        ("rows stamped with another version", wrong_version),
        // The token is stale too: a malformed commit is refused before it is sent.
        ("an empty commit on a stale token", cx.insert(&old, [])),
    ] {
        refused(
            what,
            table.commit(&request).await,
            &[TableErrorKind::InvalidRequest],
        )?;
        same(what, &before, &read(&table).await?)?;
    }
    Ok(())
}

async fn of_many_commits_on_one_version_one_wins(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(cx.another(&table).await?);
    }
    for round in 1..=20_u64 {
        let token = read(&table).await?.0.token;
        let mut racers = Vec::new();
        for client in &clients {
            let client = client.clone();
            let request = cx.insert(&token, [cx.entry()]);
            racers.push(tokio::spawn(async move {
                (request.id, send(&client, &request).await)
            }));
        }
        let mut winner = None;
        for racer in racers {
            match racer.await? {
                (id, Ok(CommitOutcome::Committed(_))) => match winner.replace(id) {
                    None => {}
                    Some(first) => {
                        return Err(crate::Stop::failed(format!(
                            "both {first} and {id} made version {round}"
                        )));
                    }
                },
                (_, Ok(CommitOutcome::Conflict(_))) => {}
                (_, Ok(other)) => return Err(unknown_answer(&other)),
                (_, Err(e)) => {
                    return Err(crate::Stop::failed(format!(
                        "a loser is answered with an error, not a conflict: {e}"
                    )));
                }
            }
        }
        let now = read(&table).await?.0;
        must!(
            now.version() == round && now.rows.len() as u64 == round,
            "after {round} races: version {}, {} rows",
            now.version(),
            now.rows.len()
        );
        must!(
            winner == Some(now.version_row.last_commit()),
            "the commit of {winner:?} was acknowledged, but the table shows {}",
            now.version_row.last_commit()
        );
    }
    Ok(())
}

async fn settings_and_the_core_cell_are_committed(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let start = read(&table).await?.0;
    let mut request = cx.insert(&start.token, []);
    let mut settings = start.version_row.settings.clone();
    settings.num_votes_for_death_declaration = 3;
    request.settings = Some(settings.clone());
    request.core = Some("k\"'ü☃".repeat(100).into());
    commit(&table, &request).await?;
    let now = read(&cx.another(&table).await?).await?.0;
    must!(
        now.version() == 1 && now.version_row.settings == settings,
        "new settings read as {:?}",
        now.version_row.settings
    );
    must!(
        Some(&now.version_row.core) == request.core.as_ref(),
        "the core's cell reads as {:?}",
        now.version_row.core
    );
    Ok(())
}
