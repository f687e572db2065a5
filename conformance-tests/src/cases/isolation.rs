//! Clusters that share a store. T9.

use membership_core::{ClusterName, HeartbeatWrite, ReadRequest, TableErrorKind};

use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read, refused, same};

pub(super) const CASES: &[Case] = &[
    case!(clusters_with_nasty_names_are_isolated: T9),
    case!(service_and_cluster_are_told_apart: T9),
];

/// Prefixes of each other, separators, quotes, wildcards, and everything else that has a meaning in
/// some store.
const NAMES: &[&str] = &[
    "a",
    "ab",
    "a/b",
    "a%2Fb",
    "a-b",
    "a_b",
    "a.b",
    "a:b",
    "a|b",
    "a#b",
    "a~-b",
    "a b",
    " a",
    "a ",
    "A",
    "a'b",
    "a\"b",
    "a`b",
    "a\\b",
    "a%",
    "a_",
    "a*",
    "a?",
    "%",
    "_",
    "*",
    "?",
    "[a]",
    "{a}",
    "$a",
    "@a",
    "a;DROP TABLE x;--",
    "å",
    "a\u{30a}",
    "ß",
    "☃",
    "🦀",
    "..",
    ".",
    "~",
    "null",
    "0",
];

async fn clusters_with_nasty_names_are_isolated(cx: Cx) -> Verdict {
    let mut tables: Vec<Table> = Vec::new();
    let shared = cx.entry();
    for name in NAMES {
        let table = cx.client(&cx.cluster_named(name)?).await?;
        refused(
            &format!("the new cluster {name:?}"),
            table.read(&ReadRequest::all()).await,
            &[TableErrorKind::NotInitialized],
        )?;
        table.initialize(&cx.initialize_request()).await?;
        // The same silo in every cluster, with different content.
        let mut entry = shared.clone();
        (*name).clone_into(&mut entry.info.silo_name);
        commit(&table, &cx.insert(&read(&table).await?.0.token, [entry])).await?;
        let heartbeat = membership_core::Heartbeat {
            counter: 1 + tables.len() as u64,
            at: shared.start_time,
        };
        table
            .update_i_am_alive(&HeartbeatWrite::Silo {
                silo: shared.address,
                heartbeat,
            })
            .await?;
        tables.push(table);
    }
    let mut before = Vec::new();
    for (n, (table, name)) in tables.iter().zip(NAMES).enumerate() {
        let now = read(table).await?;
        let seen = now
            .0
            .rows
            .get(&shared.address)
            .map(|e| e.info.silo_name.as_str());
        must!(
            now.0.rows.len() == 1 && seen == Some(*name),
            "cluster {name:?} shows {} rows and the name {seen:?}",
            now.0.rows.len()
        );
        must!(
            now.1.counter(&shared.address) == n as u64 + 1,
            "cluster {name:?} shows the heartbeats {:?}",
            now.1
        );
        before.push(now);
    }
    // Every second cluster is deleted; the others must not change.
    for table in tables.iter().step_by(2) {
        table.delete().await?;
    }
    for (n, (table, name)) in tables.iter().zip(NAMES).enumerate() {
        if n % 2 == 1 {
            same(
                &format!("cluster {name:?} when others are deleted"),
                &before[n],
                &read(table).await?,
            )?;
        } else {
            let gone = cx.another(table).await?.read(&ReadRequest::all()).await;
            refused(
                &format!("the deleted cluster {name:?}"),
                gone,
                &[TableErrorKind::NotInitialized],
            )?;
        }
    }
    Ok(())
}

async fn service_and_cluster_are_told_apart(cx: Cx) -> Verdict {
    let tag = cx.cluster()?.service().to_owned();
    let mut tables = Vec::new();
    for (service, cluster) in [
        ("x", "y/z"),
        ("x/y", "z"),
        ("x", "y"),
        ("y", "x"),
        ("xy", "z"),
        ("x", "yz"),
    ] {
        let name = ClusterName::new(format!("{tag}{service}"), cluster)?;
        cx.own(&name);
        let table = cx.client(&name).await?;
        table.initialize(&cx.initialize_request()).await?;
        tables.push(table);
    }
    for (n, table) in tables.iter().enumerate() {
        for _ in 0..n {
            commit(table, &cx.insert(&read(table).await?.0.token, [cx.entry()])).await?;
        }
    }
    for (n, table) in tables.iter().enumerate() {
        let now = read(table).await?.0;
        must!(
            now.version() == n as u64 && now.rows.len() == n,
            "{} is at version {}, {n} commits were made",
            table.cluster(),
            now.version()
        );
    }
    Ok(())
}
