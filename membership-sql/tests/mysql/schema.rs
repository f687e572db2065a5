//! Tables: created by many silos at once, names, foreign and newer tables, permissions, missing
//! tables.

use std::time::Duration;

use conformance_tests::helpers::{commit as committed, entry, heartbeat, may_only_read, update};
use membership_core::{ClusterName, MembershipTable, ReadAnswer, ReadRequest, TableErrorKind};
use membership_sql::{MysqlConfig, MysqlProcedure, MysqlTable};
use mysql_async::prelude::Queryable;

use crate::support::MariaDb;
use crate::{insert, made, open, read, request};

pub async fn fifty_silos_create_the_tables_at_once(server: &MariaDb) {
    for table in ["meta", "version", "silo", "heartbeat", "cell"] {
        server
            .sql(&format!("DROP TABLE IF EXISTS membership_{table}"))
            .await
            .unwrap();
    }
    let silos: Vec<_> = (0..50)
        .map(|_| {
            let config = server.config().operation_timeout(Duration::from_secs(60));
            tokio::spawn(async move {
                let table = open(config, "fifty").await?;
                table.initialize(&request()).await?;
                table.read(&ReadRequest::all()).await
            })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for silo in silos {
        let ReadAnswer::Snapshot { snapshot, .. } = silo.await.unwrap().unwrap() else {
            panic!("nothing was known")
        };
        ids.insert(snapshot.table_id());
    }
    assert_eq!(ids.len(), 1);
}

pub async fn names_differ_by_case_and_accent(server: &MariaDb) {
    let mut ids = std::collections::BTreeSet::new();
    for name in ["cafe", "Cafe", "café", "cafe ", "CAFE"] {
        let Ok(name) = ClusterName::new("names", name) else {
            continue;
        };
        let table = MysqlTable::connect(server.config(), name).await.unwrap();
        table.initialize(&request()).await.unwrap();
        ids.insert(read(&table).await.table_id());
    }
    assert!(ids.len() >= 4, "{ids:?}");
}

pub async fn a_foreign_table_is_refused_before_anything_is_written(server: &MariaDb) {
    let mut shell = server.shell().await.unwrap();
    shell.query_drop("CREATE DATABASE foreigners; CREATE TABLE foreigners.membership_silo (id INT PRIMARY KEY)").await.unwrap();
    let url = server.url().replace("/membership?", "/foreigners?");
    // A client that only reads gets the error too, and not the answer that the cluster does not
    // exist.
    let error = open(MysqlConfig::from_url(&url).unwrap(), "c")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::ForeignTable, "{error}");
    let tables: Vec<String> = shell
        .query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'foreigners'")
        .await
        .unwrap();
    assert_eq!(tables, ["membership_silo"]);
    // Tables of this project, first of a newer build, then with another collation.
    shell
        .query_drop("DROP TABLE foreigners.membership_silo; USE foreigners")
        .await
        .unwrap();
    shell.query_drop(MysqlConfig::schema_sql()).await.unwrap();
    shell
        .query_drop("UPDATE membership_meta SET value = '9' WHERE name IN ('layout', 'min_layout')")
        .await
        .unwrap();
    assert_eq!(
        open(MysqlConfig::from_url(&url).unwrap(), "c")
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NewerLayout
    );
    shell
        .query_drop("UPDATE membership_meta SET value = '1' WHERE name IN ('layout', 'min_layout')")
        .await
        .unwrap();
    shell.query_drop("ALTER TABLE membership_silo CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci").await.unwrap();
    let error = open(MysqlConfig::from_url(&url).unwrap(), "c")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error.to_string().contains("COLLATE utf8mb4_bin"),
        "{error}"
    );
    shell.query_drop("DROP DATABASE foreigners").await.unwrap();
}

pub async fn without_permissions_the_error_says_what_to_do(server: &MariaDb) {
    let mut shell = server.shell().await.unwrap();
    shell.query_drop("CREATE DATABASE tight; CREATE USER silo@'127.0.0.1' IDENTIFIED BY 'another-long-secret'").await.unwrap();
    let url = format!(
        "mysql://silo:another-long-secret@{}/tight?procedure=auto",
        server.server.address()
    );
    let config = || MysqlConfig::from_url(&url).unwrap();
    let error = open(config(), "c").await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::PermissionDenied
            && error.to_string().contains("needs SELECT"),
        "{error}"
    );
    assert_eq!(
        error.place(),
        Some(server.server.address().to_string().as_str())
    );
    let wrong = MysqlConfig::from_url(&url.replace("another", "no-such")).unwrap();
    let error = open(wrong, "c").await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::PermissionDenied
            && error.to_string().contains("user or password"),
        "{error}"
    );
    assert!(
        !format!("{error} {error:?}").contains("no-such-long"),
        "{error}"
    );

    shell
        .query_drop("GRANT SELECT, INSERT, UPDATE, DELETE ON tight.* TO silo@'127.0.0.1'")
        .await
        .unwrap();
    let table = open(config(), "c").await.unwrap();
    let error = table.initialize(&request()).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::PermissionDenied
            && error.to_string().contains("schema_sql"),
        "{error}"
    );
    // A user with more permissions runs the printed script.
    shell.query_drop("USE tight").await.unwrap();
    shell.query_drop(MysqlConfig::schema_sql()).await.unwrap();
    table.initialize(&request()).await.unwrap();
    let token = committed(&table, &insert(&read(&table).await.token, 1)).await;
    committed(&table, &update(&token, 1, "x")).await;
    assert_eq!(
        open(config().procedure(MysqlProcedure::Require), "c")
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::Configuration
    );
    let nowhere =
        MysqlConfig::from_url(&server.url().replace("/membership?", "/no_such_database?")).unwrap();
    let error = open(nowhere, "c").await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error.to_string().contains("CREATE DATABASE"),
        "{error}"
    );
    shell
        .query_drop("DROP DATABASE tight; DROP USER silo@'127.0.0.1'")
        .await
        .unwrap();
}

pub async fn a_user_that_may_only_read_is_enough_for_clients(server: &MariaDb) {
    let mut shell = server.shell().await.unwrap();
    shell.query_drop("CREATE DATABASE reading; CREATE USER clients@'127.0.0.1' IDENTIFIED BY 'another-long-secret'").await.unwrap();
    shell.query_drop("USE reading").await.unwrap();
    shell.query_drop(MysqlConfig::schema_sql()).await.unwrap();
    for table in ["meta", "version", "silo", "heartbeat", "cell"] {
        let grant = format!("GRANT SELECT ON membership_{table} TO clients@'127.0.0.1'");
        shell.query_drop(grant).await.unwrap();
    }
    let url = server.url().replace("/membership?", "/reading?");
    let owner = open(MysqlConfig::from_url(&url).unwrap(), "c")
        .await
        .unwrap();
    let address = server.server.address();
    for options in ["", "?pooler=true"] {
        let url = format!("mysql://clients:another-long-secret@{address}/reading{options}");
        let config = MysqlConfig::from_url(&url).unwrap();
        may_only_read(&open(config, "c").await.unwrap(), &owner).await;
    }
    shell
        .query_drop("DROP DATABASE reading; DROP USER clients@'127.0.0.1'")
        .await
        .unwrap();
}

/// The other tables still have the mark of this project: the database was not wiped, and silos must
/// not conclude that it was.
pub async fn a_missing_table_is_damage(server: &MariaDb, procedure: MysqlProcedure) {
    let (table, token) = made(
        server.config().procedure(procedure),
        &format!("missing-{procedure:?}"),
    )
    .await;
    server
        .sql("RENAME TABLE membership_silo TO hidden_silo")
        .await
        .unwrap();
    let known = ReadRequest::all()
        .with_known(token.clone())
        .with_barrier(true);
    for error in [
        table.commit(&update(&token, 1, "x")).await.unwrap_err(),
        table.read(&ReadRequest::all()).await.unwrap_err(),
        table
            .read_row(&entry(1).address, Some(&token))
            .await
            .unwrap_err(),
        table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap_err(),
    ] {
        assert!(
            error.kind() == TableErrorKind::Damaged
                && error.to_string().contains("membership_silo"),
            "{error}"
        );
    }
    server.sql("RENAME TABLE hidden_silo TO membership_silo; RENAME TABLE membership_heartbeat TO hidden_heartbeat").await.unwrap();
    let error = table.read(&known).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Damaged
            && error.to_string().contains("membership_heartbeat"),
        "{error}"
    );
    server
        .sql("RENAME TABLE hidden_heartbeat TO membership_heartbeat")
        .await
        .unwrap();
    assert_eq!(read(&table).await.token, token);
    committed(&table, &update(&token, 1, "y")).await;
}
