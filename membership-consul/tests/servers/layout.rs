//! The contents of the store, and keys that other programs wrote: clauses T9, T12 and T16.

use membership_core::{MembershipTable, TableErrorKind};

use crate::support::shell::Shell;
use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test]
async fn keys_match_the_readme_and_delete_removes_them() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let table = connect(&format!("{}/apps/silos", server.url()))
        .await
        .unwrap();
    let token = fill(&table, 2).await;
    table.update_i_am_alive(&heartbeat(1, 9)).await.unwrap();
    let token = commit(&table, &remove(&token, 0)).await;
    let names = || async {
        let all = shell.all("apps/").await.unwrap();
        all.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let folder = "apps/silos/default~-blue/";
    let one = silo(1);
    let mark = format!(
        "{folder}version/at/2.{}.{}",
        token.table_id(),
        token.commit()
    );
    let expected = [
        format!("{folder}silo/{one}/alive"),
        format!("{folder}silo/{one}/row"),
        mark,
        format!("{folder}version/core"),
        format!("{folder}version/recent/01"),
        format!("{folder}version/recent/02"),
        format!("{folder}version/settings"),
        format!("{folder}version/table"),
    ];
    assert_eq!(names().await, expected);
    table.delete().await.unwrap();
    assert_eq!(names().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_table_of_orleans_and_other_keys_are_refused_and_left_alone() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let table = connect(server.url()).await.unwrap();
    let folder = shell.folder(&blue());
    for foreign in ["10.0.0.1:7100@17", "10.0.0.1:7100@17/iamalive", "version"] {
        let key = format!("{folder}{foreign}");
        shell
            .put(&key, "{\"Hostname\":\"h\",\"Status\":3}")
            .await
            .unwrap();
        for error in [
            initialize(&table).await.unwrap_err(),
            table.delete().await.unwrap_err(),
        ] {
            assert!(
                error.kind() == TableErrorKind::ForeignTable && error.to_string().contains(&key),
                "{error}"
            );
        }
        assert_eq!(
            read_kind(&table, None).await,
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(shell.all(&folder).await.unwrap().len(), 1);
        shell.remove(&folder).await.unwrap();
    }
    initialize(&table).await.unwrap();
}

/// A new store counts its writes from the beginning: the index of the version row may be the same
/// as before.
#[tokio::test]
async fn an_emptied_server_accepts_no_old_commit() {
    let server = server().await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 3).await;
    server.wipe().await.unwrap();
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::TableReplaced)
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [7])).await,
        TableErrorKind::TableReplaced
    );
    fill(&table, 3).await;
    assert_eq!(
        commit_kind(&table, &insert(&token, [7])).await,
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [7]).again()).await,
        TableErrorKind::TableReplaced
    );
    assert_eq!(read(&table).await.0.rows.len(), 3);
}

/// Orphans are removed with the table; without a table they mean nothing.
#[tokio::test]
async fn delete_removes_orphans() {
    let server = server().await;
    let shell = Shell::of(server.url());
    let table = connect(server.url()).await.unwrap();
    let folder = shell.folder(&blue());
    shell
        .put(&format!("{folder}silo/{}/alive", silo(1)), "7 x")
        .await
        .unwrap();
    assert_eq!(
        read_kind(&table, None).await,
        Err(TableErrorKind::NotInitialized)
    );
    table.delete().await.unwrap();
    assert!(shell.all(&folder).await.unwrap().is_empty());
}
