//! The operations of `TableExt`, which take more than one operation of the contract. T1, T2, T6,
//! T10.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use membership_core::{
    CauseOfDeath, CleanupPolicy, Death, Gateway, SiloStatus, TableErrorKind, TableExt, WallTime,
};

use crate::case::{Case, Cx, Verdict, case, commit, must, read};

pub(super) const CASES: &[Case] = &[
    case!(gateways_are_active_silos_with_a_port: T6 T10),
    case!(cleanups_at_once_remove_each_row_once: T1 T2 T6),
];

async fn gateways_are_active_silos_with_a_port(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    must!(
        table.gateways().await?.is_empty(),
        "an empty table has gateways"
    );
    let mut due = Vec::new();
    for n in 0..10_u16 {
        let mut entry = cx.entry();
        entry.info.gateway_port = if n == 3 { 0 } else { 30_000 + n };
        entry.status = if [3, 5, 9].contains(&n) {
            SiloStatus::Active
        } else {
            SiloStatus::Joining
        };
        if [5, 9].contains(&n) {
            due.extend(Gateway::of(&entry));
        }
        // As a client does that reads one row and goes on from its version.
        let token = table.read_row(&entry.address, None).await?.token;
        commit(&table, &cx.insert(&token, [entry])).await?;
    }
    due.sort_unstable_by_key(|gateway| gateway.silo);
    let gateways = cx.another(&table).await?.gateways().await?;
    must!(
        due.len() == 2 && gateways == due,
        "the gateways are {gateways:?}, not {due:?}"
    );
    Ok(())
}

async fn cleanups_at_once_remove_each_row_once(cx: Cx) -> Verdict {
    const DEAD: u64 = 12;
    let table = cx.table().await?;
    let at = |ms: u64| WallTime::from_millis(1_000_000 + ms);
    let (mut entries, mut keys) = (vec![cx.entry(), cx.entry()], Vec::new());
    for n in 0..DEAD {
        let mut entry = cx.entry();
        entry.status = SiloStatus::Dead;
        entry.death = Some(Death::new(CauseOfDeath::Left, at(n), None, 1));
        keys.push(entry.address.row_key());
        entries.push(entry);
    }
    let mut token = read(&table).await?.0.token;
    for chunk in entries.chunks(table.limits().rows_per_commit.clamp(1, 5)) {
        token = commit(&table, &cx.insert(&token, chunk.iter().cloned())).await?;
    }
    // A time exactly at the limit is not beyond it.
    let policy = CleanupPolicy::new(at(100), Duration::from_millis(94), 0);
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (client, done) = (cx.another(&table).await?, done.clone());
        tokio::spawn(async move {
            let mut last = 0;
            while !done.load(Ordering::SeqCst) {
                let now = read(&client).await?.0;
                must!(
                    now.version() >= last,
                    "version {} is read after {last}",
                    now.version()
                );
                must!(
                    now.version_row.row_count == now.rows.len() as u64,
                    "{} of {} rows",
                    now.rows.len(),
                    now.version_row.row_count
                );
                last = now.version();
                // Yields, because some stores never wait.
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    };
    let mut cleaners = Vec::new();
    for _ in 0..4 {
        let (cx, client) = (cx.clone(), cx.another(&table).await?);
        cleaners.push(tokio::spawn(async move {
            let mut ids = || cx.commit_id();
            for _ in 0..20 {
                match client.cleanup_defunct_silo_entries(&policy, &mut ids).await {
                    Err(e) if e.kind() == TableErrorKind::Busy => {
                        tokio::time::sleep(Duration::from_millis(5)).await
                    }
                    other => return other,
                }
            }
            client.cleanup_defunct_silo_entries(&policy, &mut ids).await
        }));
    }
    let mut answers = Vec::new();
    for cleaner in cleaners {
        answers.push(cleaner.await);
    }
    done.store(true, Ordering::SeqCst);
    reader.await??;
    let mut removed = Vec::new();
    for answer in answers {
        removed.extend(answer??);
    }
    removed.sort_unstable();
    let mut due = keys[..6].to_vec();
    due.sort_unstable();
    must!(
        removed == due,
        "four cleaners removed {removed:?}, {due:?} died before the limit"
    );
    let now = read(&table).await?.0;
    let risen = now.version() - token.version();
    must!(
        now.rows.len() == entries.len() - 6 && (1..=6).contains(&risen),
        "{} rows are left after {risen} commits",
        now.rows.len()
    );
    let mut policy = policy;
    policy.older_than = Duration::from_millis(93);
    let removed = table
        .cleanup_defunct_silo_entries(&policy, &mut || cx.commit_id())
        .await?;
    must!(
        removed == keys[6..7],
        "a moment later {removed:?} was removed, not {:?}",
        &keys[6..7]
    );
    Ok(())
}
