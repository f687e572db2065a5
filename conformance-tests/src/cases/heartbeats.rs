//! Heartbeats. T7, T8.

use std::collections::BTreeSet;

use membership_core::{Heartbeat, HeartbeatWrite, Row, SiloAddress, TableErrorKind, WallTime};

use crate::Capability;
use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read, refused};

pub(super) const CASES: &[Case] = &[
    case!(a_heartbeat_changes_only_the_heartbeat: T7),
    case!(heartbeats_never_make_commits_conflict: T7 T4),
    case!(the_clusters_own_cell_is_kept: T7),
    case!(a_heartbeat_creates_no_row: T8),
    case!(a_heartbeat_without_a_row_is_refused: T8),
    case!(heartbeats_without_a_row_are_named: T8),
    case!(a_commit_does_not_move_a_heartbeat_back: T8),
    case!(a_removed_row_takes_its_heartbeat_along: T8),
];

async fn beat(
    table: &Table,
    silo: SiloAddress,
    counter: u64,
) -> Result<(), membership_core::TableError> {
    let heartbeat = Heartbeat {
        counter,
        at: WallTime::from_millis(1_763_000_000_007 + counter),
    };
    let write = HeartbeatWrite::Silo { silo, heartbeat };
    for _ in 0..20 {
        match table.update_i_am_alive(&write).await {
            Err(e) if e.kind() == TableErrorKind::Busy => tokio::task::yield_now().await,
            other => return other,
        }
    }
    table.update_i_am_alive(&write).await
}

async fn a_heartbeat_changes_only_the_heartbeat(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let (a, b) = (cx.entry(), cx.entry());
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [a.clone(), b.clone()]),
    )
    .await?;
    let before = read(&other).await?;
    must!(
        before.1.silos.is_empty(),
        "there are heartbeats that no client wrote: {:?}",
        before.1
    );
    for counter in 1..=10 {
        beat(&table, a.address, counter).await?;
        let (now, heartbeats) = read(&other).await?;
        must!(
            now == before.0,
            "a heartbeat turned {:?} into {now:?}",
            before.0
        );
        let due = Heartbeat {
            counter,
            at: WallTime::from_millis(1_763_000_000_007 + counter),
        };
        must!(
            heartbeats.silos.len() == 1 && heartbeats.silos.get(&a.address) == Some(&due),
            "{due:?} reads as {heartbeats:?}"
        );
        let row = other.read_row(&a.address, None).await?;
        must!(
            row.heartbeat == Some(due) && row.token.same_commit(&token),
            "the row reads as {row:?}"
        );
    }
    // The token is older than all those heartbeats.
    commit(&table, &cx.update(&token, [a])).await?;
    Ok(())
}

async fn heartbeats_never_make_commits_conflict(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let mut token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    let mut beaters = Vec::new();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for _ in 0..3 {
        let (client, silo, done) = (cx.another(&table).await?, entry.address, done.clone());
        beaters.push(tokio::spawn(async move {
            let mut counter = 0;
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                counter += 1;
                beat(&client, silo, counter).await?;
                tokio::task::yield_now().await;
            }
            Ok::<_, membership_core::TableError>(())
        }));
    }
    let mut verdict = Ok(());
    for _ in 0..100 {
        match commit(&table, &cx.update(&token, [entry.clone()])).await {
            Ok(next) => token = next,
            Err(stop) => {
                verdict = Err(stop);
                break;
            }
        }
        tokio::task::yield_now().await;
    }
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    for beater in beaters {
        beater.await??;
    }
    verdict
}

async fn the_clusters_own_cell_is_kept(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let before = read(&table).await?;
    must!(
        before.1.cluster.is_none(),
        "a new table's own cell holds {:?}",
        before.1.cluster
    );
    for text in [
        "short".to_owned(),
        "'\"\\%_☃\n".repeat(400),
        "x".repeat(4096),
        String::new(),
    ] {
        let text: String = text
            .chars()
            .take(4096)
            .scan(0, |bytes, c| {
                *bytes += c.len_utf8();
                (*bytes <= 4096).then_some(c)
            })
            .collect();
        table
            .update_i_am_alive(&HeartbeatWrite::Cluster { text: text.clone() })
            .await?;
        let (now, heartbeats) = read(&cx.another(&table).await?).await?;
        must!(
            heartbeats.cluster.as_deref() == Some(text.as_str()),
            "{} bytes read as {:?}",
            text.len(),
            heartbeats.cluster
        );
        must!(
            now == before.0 && heartbeats.silos.is_empty(),
            "the cluster's cell changed something else: {now:?}"
        );
    }
    let long = HeartbeatWrite::Cluster {
        text: "x".repeat(4097),
    };
    refused(
        "4097 bytes",
        table.update_i_am_alive(&long).await,
        &[TableErrorKind::LimitExceeded],
    )?;
    Ok(())
}

async fn a_heartbeat_creates_no_row(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (there, missing) = (cx.entry(), cx.entry());
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [there.clone()]),
    )
    .await?;
    // The heartbeat may be refused or become an orphan; a row is not allowed.
    let _ = beat(&table, missing.address, 1).await;
    let check = |now: membership_core::Snapshot, beats: membership_core::Heartbeats| {
        must!(
            now.rows.by_key(&missing.address.row_key()).is_none(),
            "the heartbeat made a row: {now:?}"
        );
        must!(
            !beats.silos.contains_key(&missing.address),
            "a silo without a row is shown with a heartbeat"
        );
        must!(
            now.version_row.row_count == now.rows.len() as u64,
            "{} rows are counted, {} read",
            now.version_row.row_count,
            now.rows.len()
        );
        Ok(())
    };
    let (now, beats) = read(&table).await?;
    check(now, beats)?;
    let one = table.read_row(&missing.address, None).await?;
    must!(
        one.row.is_none() && one.heartbeat.is_none(),
        "the missing row reads as {one:?}"
    );
    commit(&table, &cx.update(&token, [there])).await?;
    let (now, beats) = read(&cx.another(&table).await?).await?;
    check(now, beats)
}

async fn a_heartbeat_without_a_row_is_refused(cx: Cx) -> Verdict {
    cx.needs(Capability::RefusesOrphanHeartbeats)?;
    let table = cx.table().await?;
    let missing = cx.entry().address;
    refused(
        "a heartbeat without a row",
        beat(&table, missing, 1).await,
        &[TableErrorKind::NoSuchRow],
    )?;
    Ok(())
}

/// Of a silo whose row was removed by hand, and of one that never had a row. Which heartbeats the
/// store kept shows when the rows are put back: exactly those must have been named.
async fn heartbeats_without_a_row_are_named(cx: Cx) -> Verdict {
    cx.needs(Capability::RawAccess)?;
    let table = cx.table().await?;
    let (stays, removed, never) = (cx.entry(), cx.entry(), cx.entry());
    let start = read(&table).await?.0.token;
    commit(&table, &cx.insert(&start, [stays.clone(), removed.clone()])).await?;
    beat(&table, stays.address, 1).await?;
    beat(&table, removed.address, 2).await?;
    let late = never.address;
    let accepted = match beat(&table, late, 3).await {
        Err(e) if e.kind() == TableErrorKind::NoSuchRow => false,
        answer => answer.map(|()| true)?,
    };
    let (backend, cluster) = (cx.backend(), table.cluster());
    // Another row keeps the number of rows that the commits left, which some stores compare.
    let spare = cx.entry().address.row_key();
    backend.put_row(cluster, &spare, "by hand").await?;
    let rowless = [removed, never].map(Row::encode);
    backend.drop_row(cluster, rowless[0].key()).await?;
    let (now, named) = read(&cx.another(&table).await?).await?;
    must!(
        now.rows.len() == 2 && named.silos.keys().eq([&stays.address]),
        "with the row of one silo, and one without a heartbeat, the table reads as {now:?} with {named:?}"
    );
    for row in &rowless {
        backend.put_row(cluster, row.key(), row.body()).await?;
    }
    let (_, all) = read(&cx.another(&table).await?).await?;
    must!(
        all.orphans.is_empty(),
        "every heartbeat has a row, and these are named: {:?}",
        all.orphans
    );
    let mut kept: BTreeSet<SiloAddress> = all.silos.into_keys().collect();
    must!(
        kept.remove(&stays.address),
        "the heartbeat of a row that nobody changed is gone"
    );
    must!(
        named.orphans == kept,
        "the store kept the heartbeats of {kept:?} without their rows, and names {:?}",
        named.orphans
    );
    must!(
        accepted == kept.contains(&late),
        "the heartbeat of {late}, which never had a row, was {}, and these were kept: {kept:?}",
        if accepted { "accepted" } else { "refused" }
    );
    table.delete().await?;
    let left = backend.count(cluster).await?;
    must!(left == 0, "{left} records are left after delete");
    Ok(())
}

async fn a_commit_does_not_move_a_heartbeat_back(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let mut token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [entry.clone()]),
    )
    .await?;
    let writer = cx.another(&table).await?;
    for counter in 1..=20 {
        // The committer read the table before this heartbeat.
        beat(&writer, entry.address, counter).await?;
        token = commit(&table, &cx.update(&token, [entry.clone()])).await?;
        let now = read(&table).await?.1.counter(&entry.address);
        must!(
            now == counter,
            "after a commit the heartbeat is {now}, not {counter}"
        );
    }
    Ok(())
}

async fn a_removed_row_takes_its_heartbeat_along(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (a, b) = (cx.entry(), cx.entry());
    let token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [a.clone(), b.clone()]),
    )
    .await?;
    beat(&table, a.address, 1).await?;
    beat(&table, b.address, 2).await?;
    commit(&table, &cx.remove(&token, [a.address.row_key()])).await?;
    let beats = read(&table).await?.1;
    must!(
        beats.silos.len() == 1 && beats.counter(&b.address) == 2,
        "after the removal the heartbeats are {beats:?}"
    );
    Ok(())
}
