//! Clusters that share a store. T9.

use membership_core::{ClusterName, HeartbeatWrite, ReadRequest, TableError, TableErrorKind};

use crate::case::{Case, Cx, Table, Verdict, case, commit, must, read, refused, same};

pub(super) const CASES: &[Case] = &[
    case!(clusters_with_nasty_names_are_isolated: T9),
    case!(clusters_with_the_longest_names_are_isolated: T9 T11),
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
    // Alike to people, to a collation, or after a conversion.
    "i",
    "I",
    "ı",
    "İ",
    "K",
    "\u{212a}",
    "ss",
    "ſ",
    "ａ",
    "a\u{200b}",
    "a\u{a0}",
    "\u{feff}a",
    "\u{202e}a",
    "a\u{2028}",
    "\u{10ffff}",
    // Words of languages, file systems and databases.
    "__proto__",
    "nul",
    "a.",
    "a..",
    "--",
    "1e3",
];

async fn clusters_with_nasty_names_are_isolated(cx: Cx) -> Verdict {
    let mut clusters = Vec::new();
    for name in NAMES {
        clusters.push(cx.cluster_named(name)?);
    }
    isolated(&cx, clusters, |_| false).await
}

/// The most characters of each part of a name.
const LONGEST: usize = 150;

/// Names of the greatest length that differ in their last character, and in their length. A store
/// may refuse a name that is too long for its keys, as a limit; it never shortens one.
async fn clusters_with_the_longest_names_are_isolated(cx: Cx) -> Verdict {
    let tag = cx.cluster()?.service().to_owned();
    let filled = |begin: &str, with: &str, last: &str| {
        let begun = begin.chars().count() + last.chars().count();
        let fill = with.repeat(LONGEST.saturating_sub(begun));
        format!("{begin}{fill}{last}")
    };
    let mut clusters = Vec::new();
    for with in ["a", "~", "/", "%", "å", "🦀"] {
        let longest = filled("", with, "y");
        let shorter: String = longest.chars().take(LONGEST - 1).collect();
        for name in [longest, filled("", with, "z"), shorter] {
            clusters.push(ClusterName::new(tag.as_str(), name)?);
        }
        for last in ["y", "z"] {
            let service = filled(&tag, with, last);
            clusters.push(ClusterName::new(service.as_str(), filled("", with, "y"))?);
            clusters.push(ClusterName::new(service, "y")?);
        }
    }
    for cluster in &clusters {
        cx.own(cluster);
    }
    isolated(&cx, clusters, |e| e.kind() == TableErrorKind::LimitExceeded).await
}

/// One silo in every cluster, with different content; then every second cluster is deleted. A
/// cluster whose name is refused is left out.
async fn isolated(
    cx: &Cx,
    clusters: Vec<ClusterName>,
    is_refused: fn(&TableError) -> bool,
) -> Verdict {
    let (mut tables, mut names): (Vec<Table>, Vec<String>) = (Vec::new(), Vec::new());
    let all = clusters.len();
    let shared = cx.entry();
    for cluster in clusters {
        let name = format!("{cluster}: {}", tables.len());
        let table = match cx.backend().client(&cluster).await {
            Err(e) if is_refused(&e) => {
                cx.disown(&cluster);
                continue;
            }
            table => table?,
        };
        match table.read(&ReadRequest::all()).await {
            Err(e) if is_refused(&e) => {
                cx.disown(&cluster);
                continue;
            }
            answer => refused(
                &format!("the new cluster {name:?}"),
                answer,
                &[TableErrorKind::NotInitialized],
            )?,
        };
        table.initialize(&cx.initialize_request()).await?;
        let mut entry = shared.clone();
        entry.info.silo_name.clone_from(&name);
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
        names.push(name);
    }
    must!(
        !tables.is_empty(),
        "every name is refused, and a store has at least some"
    );
    if tables.len() < all {
        cx.measured(format!("{} of {all} names are refused", all - tables.len()));
    }
    let mut before = Vec::new();
    for (n, (table, name)) in tables.iter().zip(&names).enumerate() {
        let now = read(table).await?;
        let seen = now
            .0
            .rows
            .get(&shared.address)
            .map(|e| e.info.silo_name.as_str());
        must!(
            now.0.rows.len() == 1 && seen == Some(name.as_str()),
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
    for (n, (table, name)) in tables.iter().zip(&names).enumerate() {
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
