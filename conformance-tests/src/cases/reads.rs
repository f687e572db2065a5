//! What a read shows. T6.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use membership_core::{HeartbeatWrite, ReadAnswer, ReadRequest, TableExt};

use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read, unknown_answer};

pub(super) const CASES: &[Case] = &[
    case!(a_known_version_is_unchanged: T6),
    case!(a_row_comes_with_its_version: T6),
    case!(a_read_sees_what_was_acknowledged: T6),
    case!(reads_do_not_tear_while_commits_flow: T6 T2),
];

async fn a_known_version_is_unchanged(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let entry = cx.entry();
    let old = read(&table).await?.0.token;
    let token = commit(&table, &cx.insert(&old, [entry.clone()])).await?;
    let beat = membership_core::Heartbeat {
        counter: 1,
        at: entry.start_time,
    };
    table
        .update_i_am_alive(&HeartbeatWrite::Silo {
            silo: entry.address,
            heartbeat: beat,
        })
        .await?;
    for barrier in [false, true] {
        for wanted in [false, true] {
            let request = |known| {
                ReadRequest::all()
                    .with_known(known)
                    .with_heartbeats(wanted)
                    .with_barrier(barrier)
            };
            let seen = |heartbeats: &Option<membership_core::Heartbeats>| {
                heartbeats.as_ref().map(|h| h.counter(&entry.address)) == wanted.then_some(1)
            };
            match table.read(&request(Some(token.clone()))).await? {
                ReadAnswer::Unchanged { heartbeats } => {
                    must!(
                        seen(&heartbeats),
                        "unchanged comes with {heartbeats:?}, asked for: {wanted}"
                    )
                }
                // A store that cannot find out cheaply may send the same rows again.
                ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats,
                } => {
                    must!(
                        snapshot.token.same_commit(&token) && seen(&heartbeats),
                        "an unchanged table reads as {snapshot:?}, {heartbeats:?}"
                    );
                }
                other => return Err(unknown_answer(&other)),
            }
            for known in [None, Some(old.clone())] {
                match table.read(&request(known.clone())).await? {
                    ReadAnswer::Snapshot {
                        snapshot,
                        heartbeats,
                    } => {
                        must!(
                            snapshot.version() == 1
                                && snapshot.rows.len() == 1
                                && seen(&heartbeats),
                            "with {known:?}: {snapshot:?} {heartbeats:?}"
                        );
                    }
                    ReadAnswer::Unchanged { .. } => {
                        return Err(crate::Stop::failed(format!(
                            "unchanged, though {known:?} is not current"
                        )));
                    }
                    other => return Err(unknown_answer(&other)),
                }
            }
        }
    }
    let (all, _) = table.read_all().await?;
    must!(
        all.rows.get(&entry.address).is_some(),
        "read_all does not show the row"
    );
    Ok(())
}

async fn a_row_comes_with_its_version(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (mut a, missing) = (cx.entry(), cx.entry());
    let mut token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, [a.clone(), cx.entry()]),
    )
    .await?;
    for turn in 0..5 {
        a.info.silo_name = format!("turn {turn}");
        token = commit(&table, &cx.update(&token, [a.clone()])).await?;
        let got = table.read_row(&a.address, Some(&token)).await?;
        must!(
            got.token.same_commit(&token),
            "the row comes with {:?}, not {token:?}",
            got.token
        );
        let entry = got.row.as_ref().and_then(membership_core::Row::entry);
        must!(
            entry.is_some_and(
                |e| e.info.silo_name == a.info.silo_name && e.written_at == token.version()
            ) && got.heartbeat.is_none(),
            "the row reads as {got:?}"
        );
        let none = table.read_row(&missing.address, None).await?;
        must!(
            none.row.is_none() && none.heartbeat.is_none() && none.token.same_commit(&token),
            "a missing row reads as {none:?}"
        );
        let version_row = &read(&table).await?.0.version_row;
        must!(
            none.version_row.as_ref() == Some(version_row),
            "without a known version the version row comes along; a whole read shows {version_row:?}, this one {:?}",
            none.version_row
        );
    }
    Ok(())
}

async fn a_read_sees_what_was_acknowledged(cx: Cx) -> Verdict {
    let writer = cx.table().await?;
    let reader = cx.another(&writer).await?;
    let linearizable = cx.must_be_linearizable(&*writer);
    let mut token = read(&writer).await?.0.token;
    for _ in 0..30 {
        token = commit(&writer, &cx.insert(&token, [cx.entry()])).await?;
        for (client, barrier, who) in [
            (&writer, false, "the writer"),
            (&reader, true, "a barrier"),
            (&reader, false, "another client"),
        ] {
            if who == "another client" && !linearizable {
                continue;
            }
            match client
                .read(
                    &ReadRequest::all()
                        .with_heartbeats(false)
                        .with_barrier(barrier),
                )
                .await?
            {
                ReadAnswer::Snapshot { snapshot, .. } if snapshot.version() >= token.version() => {}
                other => {
                    return Err(crate::Stop::failed(format!(
                        "{who} does not see version {}: {other:?}",
                        token.version()
                    )));
                }
            }
        }
    }
    Ok(())
}

const GROUP: usize = 24;

async fn reads_do_not_tear_while_commits_flow(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let size = GROUP.min(table.limits().rows_per_commit);
    let entries: Vec<_> = (0..size).map(|_| cx.entry()).collect();
    let mut token = commit(
        &table,
        &cx.insert(&read(&table).await?.0.token, entries.clone()),
    )
    .await?;
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for n in 0..4 {
        let (client, done, silo) = (
            cx.another(&table).await?,
            done.clone(),
            entries[n % size].address,
        );
        readers.push(tokio::spawn(async move {
            let verdict = watch(&client, &done, size, silo).await;
            done.store(
                verdict.is_err() || done.load(Ordering::SeqCst),
                Ordering::SeqCst,
            );
            verdict
        }));
    }
    for turn in 0..150 {
        if done.load(Ordering::SeqCst) {
            break;
        }
        let marked = entries.iter().cloned().map(|mut e| {
            e.info.role = format!("turn {turn}");
            e
        });
        token = commit(&table, &cx.update(&token, marked)).await?;
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await??;
    }
    Ok(())
}

async fn watch(
    client: &Table,
    done: &AtomicBool,
    size: usize,
    silo: membership_core::SiloAddress,
) -> Verdict {
    let (mut newest, mut last) = (0, false);
    while !last {
        last = done.load(Ordering::SeqCst);
        let (now, _) = read(client).await?;
        must!(
            now.version() >= newest,
            "version {} was read after version {newest}",
            now.version()
        );
        must!(
            now.rows.len() == size,
            "version {} has {} rows, not {size}",
            now.version(),
            now.rows.len()
        );
        for e in now.rows.entries() {
            must!(
                e.written_at == now.version(),
                "version {} shows a row written at version {}",
                now.version(),
                e.written_at
            );
        }
        let one = client.read_row(&silo, None).await?;
        let written = one
            .row
            .as_ref()
            .and_then(|r| r.entry())
            .map(|e| e.written_at);
        must!(
            written == Some(one.token.version()),
            "read_row shows a row written at {written:?} at version {}",
            one.token.version()
        );
        newest = one.token.version().max(now.version());
        tokio::task::yield_now().await;
    }
    Ok(())
}
