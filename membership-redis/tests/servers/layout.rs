//! The contents of the server, and keys that other programs wrote.

use std::collections::BTreeMap;

use membership_core::{MembershipTable, TableErrorKind};

use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test]
async fn everything_can_be_read_with_redis_cli() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 1).await;
    table.update_i_am_alive(&heartbeat(0, 7)).await.unwrap();
    let mut keys: Vec<String> = shell(&server, &["KEYS", "*"]).await;
    keys.sort();
    let tag = "membership:{default~-blue}";
    assert_eq!(
        keys,
        ["cell", "heartbeats", "rows", "version"].map(|what| format!("{tag}:{what}"))
    );
    let version: BTreeMap<String, String> = shell(&server, &["HGETALL", &keys[3]]).await;
    let names: Vec<&str> = version.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "commit",
            "core",
            "layout",
            "min_layout",
            "recent:1",
            "row_count",
            "settings",
            "table_id",
            "version"
        ]
    );
    assert_eq!(
        (version["version"].as_str(), version["row_count"].as_str()),
        ("1", "1")
    );
    assert_eq!(
        (version["table_id"].as_str(), version["commit"].as_str()),
        (&*token.table_id().to_string(), &*token.commit().to_string())
    );
    let rows: BTreeMap<String, String> = shell(&server, &["HGETALL", &keys[2]]).await;
    assert!(rows["10.0.0.1:0@1"].starts_with("{\"layout\":1"));
    let beats: BTreeMap<String, String> = shell(&server, &["HGETALL", &keys[1]]).await;
    assert_eq!(beats["10.0.0.1:0@1"], "7 1970-01-01T00:00:00.007Z");
    table.delete().await.unwrap();
    assert_eq!(shell::<u64>(&server, &["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn fields_of_newer_builds_survive() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 1).await;
    shell::<()>(
        &server,
        &[
            "HSET",
            &key(&blue(), "version"),
            "moon",
            "{\"deep\":[1]}",
            "word",
            "plain",
        ],
    )
    .await;
    let token = commit(&table, &insert(&token, [5])).await;
    let row = read(&table).await.0.version_row;
    assert_eq!(
        (
            row.extra.0["moon"].to_string(),
            row.extra.0["word"].to_string()
        ),
        ("{\"deep\":[1]}".to_owned(), "\"plain\"".to_owned())
    );
    assert_eq!(
        shell::<String>(&server, &["HGET", &key(&blue(), "version"), "moon"]).await,
        "{\"deep\":[1]}"
    );
    commit(&table, &remove(&token, 5)).await;
}

#[tokio::test]
async fn foreign_keys_are_refused_before_a_write() {
    let server = own_server().await;
    // Small hashes keep their order: two dumps of the same fields are equal.
    let keep_order = ["CONFIG", "SET", "hash-max-listpack-value", "65536"];
    shell::<()>(&server, &keep_order).await;
    let table = table_on(&server, "").await;
    for what in ["version", "rows", "heartbeats", "cell"] {
        shell::<()>(&server, &["FLUSHALL"]).await;
        let token = fill(&table, 2).await;
        table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
        let theirs = key(&blue(), what);
        shell::<()>(&server, &["DEL", &theirs]).await;
        shell::<()>(&server, &["RPUSH", &theirs, "a letter"]).await;
        let before: Vec<Option<Vec<u8>>> = dumps(&server).await;
        let foreign = TableErrorKind::ForeignTable;
        assert_eq!(table.delete().await.unwrap_err().kind(), foreign, "{what}");
        assert_eq!(
            read_kind(&table, None).await.unwrap_err(),
            foreign,
            "{what}"
        );
        if what != "cell" {
            assert_eq!(
                commit_kind(&table, &remove(&token, 1)).await,
                foreign,
                "{what}"
            );
        }
        assert_eq!(
            dumps(&server).await,
            before,
            "{what}: something was written"
        );
    }
    // A foreign hash at the key of the version row.
    shell::<()>(&server, &["FLUSHALL"]).await;
    shell::<()>(&server, &["HSET", &key(&blue(), "version"), "Version", "7"]).await;
    for refused in [
        initialize(&table).await,
        table.delete().await,
        table.update_i_am_alive(&heartbeat(1, 1)).await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), TableErrorKind::ForeignTable);
    }
}

async fn dumps(server: &membership_testbed::Server) -> Vec<Option<Vec<u8>>> {
    let mut all = redis::pipe();
    for what in KEYS {
        all.cmd("DUMP").arg(key(&blue(), what));
    }
    all.query_async(&mut raw(server.url()).await.unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn prefixes_keep_tables_apart() {
    let server = own_server().await;
    let (one, two) = (
        table_on(&server, "prefix=one").await,
        table_on(&server, "prefix=two").await,
    );
    fill(&one, 2).await;
    assert_eq!(
        read_kind(&two, None).await,
        Err(TableErrorKind::NotInitialized)
    );
    fill(&two, 5).await;
    one.delete().await.unwrap();
    assert_eq!(read(&two).await.0.rows.len(), 5);
}

#[tokio::test]
async fn a_baseline_leaves_nothing_behind() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let stick = table.baseline().unwrap();
    stick.read().await.unwrap();
    stick.write().await.unwrap();
    stick.write().await.unwrap();
    stick.read().await.unwrap();
    assert_eq!(shell::<u64>(&server, &["DBSIZE"]).await, 1);
    stick.remove().await.unwrap();
    assert_eq!(shell::<u64>(&server, &["DBSIZE"]).await, 0);
}
