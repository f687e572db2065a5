//! Keyspace and tables: clauses T1 and T12.

use std::sync::Arc;

use membership_cassandra::{CassandraConfig, CassandraTable};
use membership_core::{MembershipTable, TableErrorKind};
use membership_testbed::Server;
use scylla::client::session_builder::SessionBuilder;

use crate::support::*;
use conformance_tests::helpers::*;

pub async fn many_clients_create_one_keyspace(server: &Server) {
    // The timeout is long, because the machine may be busy with other tests.
    let url = at(server, "by_many", "operation_timeout=30s");
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let url = url.clone();
        all.spawn(async move {
            let table = connect(&url).await.unwrap();
            initialize(&table).await.unwrap();
            read(&table).await.0.version_row.table_id
        });
    }
    let mut ids = all.join_all().await;
    ids.dedup();
    assert_eq!(ids.len(), 1, "each made a table of its own: {ids:?}");
}

pub async fn a_keyspace_that_may_not_be_created_is_described(server: &Server) {
    let table = connect(&at(server, "by_hand", "create=false&replication=1"))
        .await
        .unwrap();
    let error = initialize(&table).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Configuration, "{error}");
    assert!(
        error
            .to_string()
            .contains("CREATE TABLE IF NOT EXISTS \"by_hand\".silos"),
        "{error}"
    );
    let shell = Shell::open(server.url()).await.unwrap();
    for statement in table
        .config()
        .schema()
        .split(';')
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        shell.run(statement, ()).await.unwrap();
    }
    fill(&table, 2).await;
    assert_eq!(read(&table).await.0.rows.len(), 2);
}

pub async fn tables_with_other_columns_are_refused(server: &Server) {
    let shell = Shell::open(server.url()).await.unwrap();
    shell.run("CREATE KEYSPACE foreigners WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", ()).await.unwrap();
    shell
        .run(
            "CREATE TABLE foreigners.silos (cluster text PRIMARY KEY, version int)",
            (),
        )
        .await
        .unwrap();
    let error = match connect(&at(server, "foreigners", "")).await {
        Ok(table) => initialize(&table).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), TableErrorKind::ForeignTable, "{error}");
    let left = shell
        .run(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'foreigners'",
            (),
        )
        .await
        .unwrap();
    assert_eq!(left.len(), 1, "something was made beside it: {left:?}");
}

pub async fn serial_consistency_is_stored_with_the_table(server: &Server) {
    let url = at(server, "deciders", "");
    let table = connect(&url).await.unwrap();
    let token = fill(&table, 1).await;
    let local = connect(&at(
        server,
        "deciders",
        "serial=LOCAL_SERIAL&datacenter=datacenter1",
    ))
    .await
    .unwrap();
    for error in [
        initialize(&local).await.unwrap_err(),
        local.commit(&insert(&token, [7])).await.unwrap_err(),
        local.read_row(&silo(0), None).await.unwrap_err(),
        local.delete().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), TableErrorKind::Configuration, "{error}");
        assert!(
            error.to_string().contains("LOCAL_SERIAL datacenter1"),
            "{error}"
        );
    }
    assert_eq!(read(&table).await.0.rows.len(), 1);
    // The same in the other direction.
    let local = connect(&at(
        server,
        "local_ones",
        "serial=LOCAL_SERIAL&datacenter=datacenter1",
    ))
    .await
    .unwrap();
    let token = fill(&local, 1).await;
    commit(&local, &update(&token, 0, "locally")).await;
    let error = initialize(&connect(&at(server, "local_ones", "")).await.unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Configuration, "{error}");
    // A data centre that does not exist has no nodes to serve the table.
    let nowhere = connect(&at(
        server,
        "local_ones",
        "serial=LOCAL_SERIAL&datacenter=moon",
    ))
    .await;
    let error = match nowhere {
        Ok(table) => initialize(&table).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("data centre"), "{error}");
}

pub async fn an_existing_session_is_used(server: &Server) {
    let session = SessionBuilder::new()
        .known_node(server.address().to_string())
        .user("cassandra", SECRET)
        .build()
        .await
        .unwrap();
    let config = CassandraConfig::from_session(Arc::new(session), "by_many");
    let table = CassandraTable::connect(config, "green".parse().unwrap())
        .await
        .unwrap();
    fill(&table, 3).await;
    assert_eq!(read(&table).await.0.rows.len(), 3);
    table.delete().await.unwrap();
}

/// All nodes (here one) agree that the tables are missing.
pub async fn dropped_tables_are_reported(server: &Server) {
    let url = at(server, "dropped", "");
    let shell = Shell::open(server.url()).await.unwrap();
    let before = connect(&url).await.unwrap();
    assert_eq!(
        read_kind(&before, None).await,
        Err(TableErrorKind::NotInitialized)
    );
    assert_eq!(
        before
            .update_i_am_alive(&heartbeat(0, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NotInitialized
    );
    before.delete().await.unwrap();
    for drop_them in ["DROP TABLE dropped.silos", "DROP KEYSPACE dropped"] {
        let table = connect(&url).await.unwrap();
        let token = fill(&table, 1).await;
        table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
        shell.run(drop_them, ()).await.unwrap();
        assert_eq!(
            read_kind(&table, Some(&token)).await,
            Err(TableErrorKind::TableReplaced),
            "{drop_them}"
        );
        assert_eq!(
            read_kind(&table, None).await,
            Err(TableErrorKind::NotInitialized),
            "{drop_them}"
        );
        let of_row = table.read_row(&silo(0), Some(&token)).await.unwrap_err();
        assert_eq!(
            of_row.kind(),
            TableErrorKind::TableReplaced,
            "{drop_them}: {of_row}"
        );
        assert_eq!(
            commit_kind(&table, &insert(&token, [5])).await,
            TableErrorKind::TableReplaced,
            "{drop_them}"
        );
        table.delete().await.unwrap();
        // The table is created again; the handles know the old one.
        initialize(&table).await.unwrap();
        assert_eq!(
            read_kind(&before, Some(&token)).await,
            Err(TableErrorKind::TableReplaced),
            "{drop_them}"
        );
    }
}
