//! Tables: created by many silos at once, without permissions, foreign, newer, damaged, dropped.

use membership_core::{
    ClusterKey, CommitOutcome, HeartbeatWrite, InitializeRequest, MembershipTable, ReadRequest,
    SharedSettings, TableError, TableErrorKind, TableExt, TableId,
};
use membership_sql::PostgresConfig;

use crate::postgres::{Options, Shell};
use crate::{
    commit, config, config_with, connect, heartbeat, initialize, insert, read, server, silo,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_silos_create_the_tables_at_once() {
    let server = server(Options {
        args: vec!["-c".into(), "max_connections=120".into()],
        ..Options::default()
    })
    .await;
    let config = config_with(&server, "schema=a%22b'c&prefix=x_");
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let config = config.clone();
            tokio::spawn(async move {
                let table = connect(config).await?;
                table
                    .initialize(&InitializeRequest::new(
                        TableId::new(n),
                        SharedSettings::default(),
                        ClusterKey::new([7; 32]),
                    ))
                    .await?;
                Ok::<_, TableError>(table.read_all().await?.0.table_id())
            })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap().unwrap());
    }
    assert_eq!(ids.len(), 1);
    // Tables with another prefix are other tables.
    assert_eq!(
        connect(config_with(&server, "schema=a%22b'c"))
            .await
            .unwrap()
            .read_all()
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NotInitialized
    );
}

#[tokio::test]
async fn without_permissions_the_error_names_the_script() {
    let server = server(Options::default()).await;
    let admin = Shell::connect(server.url()).await.unwrap();
    admin.run("CREATE ROLE silo LOGIN PASSWORD 'another-secret'; REVOKE CREATE ON SCHEMA public FROM PUBLIC").await.unwrap();
    let url = format!(
        "postgres://silo:another-secret@{}/postgres",
        server.address()
    );
    let config = PostgresConfig::from_url(&url).unwrap();
    let table = connect(config.clone()).await.unwrap();
    let refused = initialize(&table).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::PermissionDenied);
    assert!(
        refused.to_string().contains("schema_sql")
            && !refused.to_string().contains("another-secret"),
        "{refused}"
    );

    admin.run(&config.schema_sql()).await.unwrap();
    admin.run(&config.schema_sql()).await.unwrap();
    let refused = initialize(&table).await.unwrap_err();
    assert_eq!(
        refused.kind(),
        TableErrorKind::PermissionDenied,
        "{refused}"
    );
    // The permissions that the script names are sufficient for everything.
    admin
        .run(
            "GRANT SELECT ON membership_meta TO silo;
             GRANT SELECT, INSERT, UPDATE, DELETE ON membership_version, membership_silo, membership_heartbeat, membership_cell TO silo",
        )
        .await
        .unwrap();
    let table = connect(config.create(false)).await.unwrap();
    initialize(&table).await.unwrap();
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster { text: "x".into() })
        .await
        .unwrap();
    assert_eq!(
        table
            .read_row(&silo(1), Some(&token))
            .await
            .unwrap()
            .heartbeat
            .map(|h| h.counter),
        Some(1)
    );
    assert!(matches!(
        table.commit(&insert(&token, 1)).await.unwrap(),
        CommitOutcome::Conflict(_)
    ));
    table.delete().await.unwrap();

    let wrong = PostgresConfig::from_url(&url.replace("another-secret", "wrong-password")).unwrap();
    let refused = connect(wrong).await.unwrap_err();
    assert_eq!(
        refused.kind(),
        TableErrorKind::PermissionDenied,
        "{refused}"
    );
    assert!(!format!("{refused} {refused:?}").contains("wrong-password"));
    assert!(
        refused.to_string().contains("user or password"),
        "{refused}"
    );
    assert_eq!(refused.place(), Some(server.address().to_string().as_str()));
    let without = PostgresConfig::from_url(&url.replace(":another-secret", "")).unwrap();
    assert!(
        connect(without)
            .await
            .unwrap_err()
            .to_string()
            .contains("PGPASSWORD")
    );
    // A port without a server.
    let nobody = PostgresConfig::from_url("postgres://silo@127.0.0.1:1/d").unwrap();
    let refused = connect(nobody).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.place()),
        (TableErrorKind::Unavailable, Some("127.0.0.1:1")),
        "{refused}"
    );
    let nowhere = PostgresConfig::from_url(&url.replace("/postgres", "/nowhere").replacen(
        "postgres:",
        "postgresql:",
        1,
    ));
    assert_eq!(
        connect(nowhere.unwrap()).await.unwrap_err().kind(),
        TableErrorKind::Configuration
    );
}

#[tokio::test]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    let server = server(Options::default()).await;
    let admin = Shell::connect(server.url()).await.unwrap();
    let owner = connect(config(&server)).await.unwrap();
    initialize(&owner).await.unwrap();
    admin
        .run(
            "REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE ROLE clients LOGIN PASSWORD 'another-secret';
             GRANT USAGE ON SCHEMA public TO clients;
             GRANT SELECT ON membership_meta, membership_version, membership_silo, membership_heartbeat, membership_cell TO clients",
        )
        .await
        .unwrap();
    let at = server.address();
    for options in ["", "?pooler=true"] {
        let url = format!("postgres://clients:another-secret@{at}/postgres{options}");
        let config = PostgresConfig::from_url(&url).unwrap();
        let client = connect(config).await.unwrap();
        conformance_tests::helpers::may_only_read(&client, &owner).await;
    }
}

#[tokio::test]
async fn foreign_and_newer_tables_are_refused_before_a_write() {
    let server = server(Options::default()).await;
    let admin = Shell::connect(server.url()).await.unwrap();
    let kinds = |sql: &'static str, drop: &'static str| {
        let (server, admin) = (&server, &admin);
        async move {
            admin.run(sql).await.unwrap();
            let kind = connect(config(server)).await.unwrap_err().kind();
            admin.run(drop).await.unwrap();
            kind
        }
    };
    let version = "CREATE TABLE membership_version (Version int)";
    assert_eq!(
        kinds(version, "DROP TABLE membership_version").await,
        TableErrorKind::ForeignTable
    );
    for meta in [
        "CREATE TABLE membership_meta (x int)",
        "CREATE TABLE membership_meta (name text, value text)",
    ] {
        assert_eq!(
            kinds(meta, "DROP TABLE membership_meta").await,
            TableErrorKind::ForeignTable
        );
    }
    // Foreign tables that appear while a handle is in use are refused by `initialize`, and stay as
    // they are.
    let table = connect(config(&server)).await.unwrap();
    admin.run(version).await.unwrap();
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::ForeignTable
    );
    assert_eq!(
        admin
            .ask("SELECT to_regclass('membership_silo') IS NULL")
            .await
            .unwrap(),
        [["t"]]
    );
    admin.run("DROP TABLE membership_version").await.unwrap();

    initialize(&table).await.unwrap();
    let token = read(&table).await.token;
    let newer = "UPDATE membership_meta SET value = '9' WHERE name = 'min_layout'";
    let older = "UPDATE membership_meta SET value = '1' WHERE name = 'min_layout'";
    assert_eq!(kinds(newer, older).await, TableErrorKind::NewerLayout);
    // A client that is already connected is stopped by the version row.
    admin
        .run("UPDATE membership_version SET layout = 9, min_layout = 9")
        .await
        .unwrap();
    assert_eq!(
        table.commit(&insert(&token, 1)).await.unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NewerLayout
    );
    assert_eq!(
        table.delete().await.unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
    // An operator dropped some of the tables: the database was not wiped, and a client that knows
    // the table must not conclude that it was.
    admin.run("UPDATE membership_version SET layout = 1, min_layout = 1; DROP TABLE membership_heartbeat").await.unwrap();
    assert_eq!(
        connect(config(&server)).await.unwrap_err().kind(),
        TableErrorKind::Damaged
    );
    let known = ReadRequest::all()
        .with_known(token.clone())
        .with_barrier(true);
    for error in [
        table.read(&known).await.unwrap_err(),
        table.commit(&insert(&token, 1)).await.unwrap_err(),
    ] {
        assert!(
            error.kind() == TableErrorKind::Damaged
                && error.to_string().contains("membership_heartbeat"),
            "{error}"
        );
    }
    admin
        .run("DROP TABLE membership_meta, membership_version, membership_silo, membership_cell")
        .await
        .unwrap();
    for error in [
        table.read(&known).await.unwrap_err(),
        table.commit(&insert(&token, 1)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), TableErrorKind::TableReplaced, "{error}");
    }
}
