//! What can go wrong with a MySQL or MariaDB server, staged on MariaDB; the shared suite has the rest.
#![cfg(feature = "mysql")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "support/mysql.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::helpers::{commit as committed, entry, heartbeat, silo, unique, update};
use conformance_tests::proxy::{Fault, Proxy, Stage};
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, InitializeRequest, MembershipTable,
    ReadAnswer, ReadRequest, SharedSettings, Snapshot, TableError, TableErrorKind, TableId,
    VersionToken,
};
use membership_sql::{MysqlConfig, MysqlProcedure, MysqlSslMode, MysqlTable};
use membership_testbed::{Kind, Options, Server};
use mysql_async::prelude::Queryable;
use support::{IMPATIENT, MariaDb, SECRET, key};

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

fn insert(on: &VersionToken, n: u64) -> CommitRequest {
    conformance_tests::helpers::insert(on, [n])
}

fn request() -> InitializeRequest {
    InitializeRequest::new(TableId::new(unique()), SharedSettings::default())
}

async fn open(config: MysqlConfig, name: &str) -> Result<MysqlTable, TableError> {
    MysqlTable::connect(config, cluster(name)).await
}

async fn made(config: MysqlConfig, name: &str) -> (MysqlTable, VersionToken) {
    let table = open(config, name).await.unwrap();
    table.initialize(&request()).await.unwrap();
    let token = read(&table).await.token;
    let token = committed(&table, &insert(&token, 1)).await;
    (table, token)
}

async fn read(table: &MysqlTable) -> Snapshot {
    match table.read(&ReadRequest::all()).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot,
        other => panic!("{other:?}"),
    }
}

/// Everything of a server that no option of ours has to put right first.
#[tokio::test(flavor = "multi_thread")]
async fn one_server() {
    let server = MariaDb::start("procedure=never").await;
    round_trips(&server, 2).await;
    fifty_at_once(&server).await;
    names_differ_by_case_and_accent(&server).await;
    a_deadlock_is_busy_and_changes_nothing(&server).await;
    a_held_lock_is_busy_and_changes_nothing(&server).await;
    a_dead_client_holds_no_lock(&server).await;
    a_row_put_there_by_hand_is_a_conflict(&server).await;
    a_conflict_that_a_crash_may_take_back_is_not_told(&server).await;
    a_foreign_table_is_refused_before_anything_is_written(&server).await;
    without_permissions_the_error_says_what_to_do(&server).await;
    poolers_may_forget_everything(&server).await;
    both_ways_of_committing_write_the_same(&server).await;
    the_baseline_leaves_nothing(&server).await;
    round_trips(&server, 1).await;
    for procedure in [MysqlProcedure::Never, MysqlProcedure::Require] {
        read_only_is_refused_also_when_it_becomes_so(&server, procedure).await;
        a_table_that_is_missing_is_damage(&server, procedure).await;
    }
}

/// What the README says: counted through a proxy, after the connections are made.
async fn round_trips(server: &MariaDb, of_a_commit: u64) {
    let proxy = Proxy::to(server.server.address()).unwrap();
    let url = server.server.url().replace(
        &server.server.address().to_string(),
        &proxy.address().to_string(),
    );
    let config = MysqlConfig::from_url(&url).unwrap();
    let config = if of_a_commit == 1 {
        server.make_procedure().await;
        config.procedure(MysqlProcedure::Require)
    } else {
        config.procedure(MysqlProcedure::Never)
    };
    let (table, token) = made(config, &format!("trips-{of_a_commit}")).await;
    let count = |since: u64| proxy.round_trips() - since;

    let start = proxy.round_trips();
    let token = committed(&table, &update(&token, 1, "x")).await;
    assert_eq!(count(start), of_a_commit, "commit");

    let start = proxy.round_trips();
    let CommitOutcome::Conflict(conflict) = table.commit(&insert(&token, 1)).await.unwrap() else {
        panic!("the row is there")
    };
    assert_eq!(count(start), of_a_commit, "conflict");
    assert_eq!(conflict.snapshot.unwrap().token, token);

    let start = proxy.round_trips();
    table
        .read(
            &ReadRequest::all()
                .with_known(token.clone())
                .with_heartbeats(false)
                .with_barrier(true),
        )
        .await
        .unwrap();
    table.read(&ReadRequest::all()).await.unwrap();
    assert_eq!(count(start), 2, "two reads");

    let start = proxy.round_trips();
    table
        .read_row(&entry(1).address, Some(&token))
        .await
        .unwrap();
    assert_eq!(count(start), 1, "read_row");

    let start = proxy.round_trips();
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    assert_eq!(count(start), 1, "update_i_am_alive");
}

async fn fifty_at_once(server: &MariaDb) {
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

async fn names_differ_by_case_and_accent(server: &MariaDb) {
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

async fn a_deadlock_is_busy_and_changes_nothing(server: &MariaDb) {
    let (table, token) = made(server.config(), "deadlock").await;
    let before = read(&table).await;
    // Somebody holds the row, and wants the version row that the commit holds: one of the two must go. InnoDB spares who has changed more.
    let mut other = server.shell().await.unwrap();
    let at = key(&cluster("deadlock"));
    let ballast: Vec<_> = (0..500).map(|n| format!("('ballast {n}', '')")).collect();
    other.query_drop("START TRANSACTION").await.unwrap();
    other
        .query_drop(format!(
            "INSERT INTO membership_cell (cluster, text) VALUES {}",
            ballast.join(", ")
        ))
        .await
        .unwrap();
    other
        .query_drop(format!(
            "UPDATE membership_silo SET status = 'x' WHERE cluster = {at}"
        ))
        .await
        .unwrap();
    let writing = {
        let table = table.clone();
        let token = token.clone();
        tokio::spawn(async move { table.commit(&update(&token, 1, "mine")).await })
    };
    // The commit has the version row when this waits for it, or comes to it when this has it; both end.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !writing.is_finished() && Instant::now() < deadline {
        let waits: Option<u64> = server
            .shell()
            .await
            .unwrap()
            .query_first(
                "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
            )
            .await
            .unwrap();
        if waits.unwrap_or(0) > 0 {
            break;
        }
        // The server makes this list anew only when nobody has looked at it for 100 ms.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    other
        .query_drop(format!(
            "UPDATE membership_version SET name = 'y' WHERE cluster = {at}"
        ))
        .await
        .unwrap();
    let error = writing.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("deadlock"), "{error}");
    other.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(read(&table).await, before);
    committed(&table, &update(&token, 1, "again")).await;
}

async fn a_held_lock_is_busy_and_changes_nothing(server: &MariaDb) {
    let (table, token) = made(
        server.config().operation_timeout(Duration::from_secs(4)),
        "held",
    )
    .await;
    let before = read(&table).await;
    let mut other = server.shell().await.unwrap();
    other.query_drop("START TRANSACTION").await.unwrap();
    other
        .query_drop(format!(
            "SELECT * FROM membership_version WHERE cluster = {} FOR UPDATE",
            key(&cluster("held"))
        ))
        .await
        .unwrap();
    let error = table.commit(&update(&token, 1, "mine")).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Busy, "{error}");
    // Who waits for a lock does not keep the silo from beating or reading.
    table.update_i_am_alive(&heartbeat(1, 7)).await.unwrap();
    assert_eq!(read(&table).await, before);
    other.query_drop("ROLLBACK").await.unwrap();
    committed(&table, &update(&token, 1, "again")).await;
}

/// T14: the future is dropped while the server waits for a lock, or holds one for us.
async fn a_dead_client_holds_no_lock(server: &MariaDb) {
    let (table, mut token) = made(server.config(), "dropped").await;
    let other = open(server.config(), "dropped").await.unwrap();
    for n in 0..40_u64 {
        let lost = update(&token, 1, "lost");
        let _ = tokio::time::timeout(Duration::from_micros(100 * n), table.commit(&lost)).await;
        let began = Instant::now();
        token = match other
            .commit(&update(&token, 1, &n.to_string()))
            .await
            .unwrap()
        {
            CommitOutcome::Committed(token) => token,
            CommitOutcome::Conflict(c) => {
                let snapshot = c.snapshot.unwrap();
                assert_eq!(
                    snapshot.token,
                    lost.next_token(&[]),
                    "only the dropped one can have been first"
                );
                snapshot.token
            }
            other => panic!("{other:?}"),
        };
        assert!(
            began.elapsed() < Duration::from_secs(4),
            "the lock of a dropped commit was held"
        );
    }
}

async fn a_row_put_there_by_hand_is_a_conflict(server: &MariaDb) {
    let (table, token) = made(server.config(), "by-hand").await;
    let at = key(&cluster("by-hand"));
    let silo = support::text(&entry(9).address.row_key());
    server
        .sql(&format!(
            "INSERT INTO membership_silo VALUES ({at}, {silo}, '', 0, 'x')"
        ))
        .await
        .unwrap();
    let CommitOutcome::Conflict(conflict) = table.commit(&insert(&token, 9)).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(conflict.snapshot.unwrap().token, token);
}

/// Without a binary log the commit that was in the way is seen before it lasts. Whoever loses the connection then does not know whether it does.
async fn a_conflict_that_a_crash_may_take_back_is_not_told(server: &MariaDb) {
    let proxy = Proxy::to(server.server.address()).unwrap();
    let url = server.server.url().replace(
        &server.server.address().to_string(),
        &proxy.address().to_string(),
    );
    let (table, stale) = made(
        MysqlConfig::from_url(&url)
            .unwrap()
            .procedure(MysqlProcedure::Never),
        "taken-back",
    )
    .await;
    let token = committed(&table, &update(&stale, 1, "x")).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for there in [nobody, server.server.address()] {
        proxy.set_target(there);
        proxy.set_fault_after(1, Fault::Cut(Stage::AfterRequest));
        let answer = table.commit(&insert(&stale, 2)).await;
        assert!(proxy.has_fired());
        match answer {
            Err(error) => assert!(
                there == nobody && error.kind() == TableErrorKind::Unavailable,
                "{error}"
            ),
            // Another connection has asked again, and made sure of it.
            Ok(CommitOutcome::Conflict(conflict)) if there != nobody => {
                assert_eq!(conflict.snapshot.unwrap().token, token)
            }
            Ok(other) => panic!("{other:?}"),
        }
        proxy.set_target(server.server.address());
        table.read(&ReadRequest::all()).await.unwrap();
        let CommitOutcome::Conflict(_) = table.commit(&insert(&stale, 2)).await.unwrap() else {
            panic!("the token is stale")
        };
    }
}

async fn a_foreign_table_is_refused_before_anything_is_written(server: &MariaDb) {
    let mut shell = server.shell().await.unwrap();
    shell.query_drop("CREATE DATABASE foreigners; CREATE TABLE foreigners.membership_silo (id INT PRIMARY KEY)").await.unwrap();
    let url = server.url().replace("/membership?", "/foreigners?");
    // Also who only looks is told, and not that there is no such cluster.
    let error = open(MysqlConfig::from_url(&url).unwrap(), "c")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::ForeignTable, "{error}");
    let tables: Vec<String> = shell
        .query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'foreigners'")
        .await
        .unwrap();
    assert_eq!(tables, ["membership_silo"]);
    // Ours, by a newer build; and ours, with an engine that has no transactions.
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

async fn without_permissions_the_error_says_what_to_do(server: &MariaDb) {
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
    // Somebody who may runs what is printed.
    shell.query_drop("USE tight").await.unwrap();
    shell.query_drop(MysqlConfig::schema_sql()).await.unwrap();
    table.initialize(&request()).await.unwrap();
    let token = committed(&table, &insert(&read(&table).await.token, 1)).await;
    // Somebody who may only look can read.
    shell
        .query_drop("REVOKE INSERT, UPDATE, DELETE ON tight.* FROM silo@'127.0.0.1'")
        .await
        .unwrap();
    let reader = open(config(), "c").await.unwrap();
    assert_eq!(read(&reader).await.token, token);
    let error = reader.commit(&update(&token, 1, "x")).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
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

/// What a pooler does between two transactions, done by hand: the server's defaults come back.
async fn poolers_may_forget_everything(server: &MariaDb) {
    let mut shell = server.shell().await.unwrap();
    shell
        .query_drop("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
        .await
        .unwrap();
    shell
        .query_drop("SET GLOBAL tx_isolation = 'READ-UNCOMMITTED'")
        .await
        .unwrap();
    let (table, token) = made(server.config().pooler(true), "pooled").await;
    let token = committed(&table, &update(&token, 1, "o'b\\x")).await;
    table.update_i_am_alive(&heartbeat(1, 3)).await.unwrap();
    let CommitOutcome::Conflict(conflict) = table.commit(&insert(&token, 1)).await.unwrap() else {
        panic!("the row is there")
    };
    assert_eq!(
        conflict
            .snapshot
            .unwrap()
            .rows
            .get(&entry(1).address)
            .unwrap()
            .info
            .silo_name,
        "o'b\\x"
    );
    // And a default that is wrong changes nothing for who keeps its connection.
    let direct = open(server.config(), "pooled").await.unwrap();
    committed(&direct, &update(&token, 1, "y")).await;
    table.delete().await.unwrap();
    assert_eq!(
        direct.read(&ReadRequest::all()).await.unwrap_err().kind(),
        TableErrorKind::NotInitialized
    );
    shell
        .query_drop("SET GLOBAL sql_mode = DEFAULT")
        .await
        .unwrap();
    shell
        .query_drop("SET GLOBAL tx_isolation = DEFAULT")
        .await
        .unwrap();
}

/// The version row that the procedure makes is the one that this client makes.
async fn both_ways_of_committing_write_the_same(server: &MariaDb) {
    server.make_procedure().await;
    let (first, token) = made(server.config().procedure(MysqlProcedure::Never), "both").await;
    let second = open(server.config().procedure(MysqlProcedure::Require), "both")
        .await
        .unwrap();
    let mut base = read(&first).await;
    assert_eq!(base.token, token);
    for n in 2..40_u64 {
        let table = if n % 2 == 0 { &second } else { &first };
        let mut request = insert(&base.token, n);
        request.committer = (n % 3 == 0).then(|| entry(1).address);
        if n % 5 == 0 {
            request.core = Some(format!("core \"{n}\" \\ 'ж🦀"));
            request.settings = Some(SharedSettings::default());
        }
        if n > 10 {
            let key = entry(n - 9).address.row_key();
            request
                .changes
                .push(membership_core::RowChange::Remove(key));
        }
        let token = committed(table, &request).await;
        let expected = request.apply_to(&base, token);
        let now = read(&first).await;
        assert_eq!(now, expected, "commit {n}");
        base = now;
    }
    server
        .sql("DROP PROCEDURE membership_commit_1")
        .await
        .unwrap();
    let error = second.commit(&insert(&base.token, 50)).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error.to_string().contains("procedure_sql"),
        "{error}"
    );
}

async fn the_baseline_leaves_nothing(server: &MariaDb) {
    let (table, _) = made(server.config(), "baseline").await;
    let before = server
        .sql("SELECT cluster FROM membership_cell")
        .await
        .unwrap()
        .len();
    let baseline = table.baseline().unwrap();
    baseline.read().await.unwrap();
    baseline.write().await.unwrap();
    baseline.write().await.unwrap();
    baseline.read().await.unwrap();
    assert_eq!(
        server
            .sql("SELECT cluster FROM membership_cell")
            .await
            .unwrap()
            .len(),
        before + 1
    );
    baseline.remove().await.unwrap();
    assert_eq!(
        server
            .sql("SELECT cluster FROM membership_cell")
            .await
            .unwrap()
            .len(),
        before
    );
}

/// By a user who may write there nevertheless.
async fn read_only_is_refused_also_when_it_becomes_so(server: &MariaDb, procedure: MysqlProcedure) {
    let config = || server.config().procedure(procedure);
    let (table, token) = made(config(), &format!("read-only-{procedure:?}")).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    server.sql("SET GLOBAL read_only = 1").await.unwrap();
    // First what writes: each meets a connection that was made while all was well.
    let commit = table.commit(&update(&token, 1, "x")).await.unwrap_err();
    server.sql("SET GLOBAL read_only = 0").await.unwrap();
    assert_eq!(read(&table).await.token, token);
    server.sql("SET GLOBAL read_only = 1").await.unwrap();
    for error in [
        commit,
        table.update_i_am_alive(&heartbeat(1, 2)).await.unwrap_err(),
        table.read(&ReadRequest::all()).await.unwrap_err(),
        table.commit(&update(&token, 1, "x")).await.unwrap_err(),
        open(config(), "read-only").await.unwrap_err(),
    ] {
        assert!(
            error.kind() == TableErrorKind::Unavailable && error.to_string().contains("primary"),
            "{error}"
        );
    }
    server.sql("SET GLOBAL read_only = 0").await.unwrap();
    assert_eq!(read(&table).await.token, token);
    committed(&table, &update(&token, 1, "y")).await;
}

/// The others still have the mark of this project: nothing was wiped, and silos must not take it for that.
async fn a_table_that_is_missing_is_damage(server: &MariaDb, procedure: MysqlProcedure) {
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

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lose_commits_are_said_or_refused() {
    let server = MariaDb::start_with("", &["--innodb-flush-log-at-trx-commit=2"]).await;
    let table = open(server.config(), "lossy").await.unwrap();
    assert_eq!(table.guarantees().durability, Durability::MayBeLost);
    let error = open(server.config().require_durable(true), "lossy")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error
                .to_string()
                .contains("innodb_flush_log_at_trx_commit = 2"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_what_the_mode_says() {
    let options = Options {
        tls: true,
        password: Some(SECRET.to_owned()),
        ..Options::default()
    };
    let server = Server::start(Kind::MariaDb, options).await.unwrap();
    let base = server.url().split('?').next().unwrap().to_owned();
    let config = |mode: MysqlSslMode| {
        MysqlConfig::from_url(&base)
            .unwrap()
            .ssl_mode(mode)
            .operation_timeout(IMPATIENT)
    };
    let ca = server.tls().unwrap().ca.clone();
    for config in [
        config(MysqlSslMode::Disabled),
        config(MysqlSslMode::Preferred),
        config(MysqlSslMode::Required),
        config(MysqlSslMode::VerifyCa).ssl_ca(&ca),
        config(MysqlSslMode::VerifyIdentity).ssl_ca(&ca),
    ] {
        let said = format!("{config:?}");
        let table = open(config, "tls")
            .await
            .unwrap_or_else(|e| panic!("{said}: {e}"));
        table.initialize(&request()).await.unwrap();
    }
    // No public authority knows this server.
    let error = open(config(MysqlSslMode::VerifyIdentity), "tls")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration && error.to_string().contains("certificate"),
        "{error}"
    );
    assert!(
        error.to_string().contains("ssl-ca") && error.to_string().matches('[').count() == 1,
        "one error, not two: {error}"
    );
    // A server that wants it.
    let mut shell = mysql_async::Conn::from_url(&base).await.unwrap();
    shell
        .query_drop("SET GLOBAL require_secure_transport = ON")
        .await
        .unwrap();
    let error = open(config(MysqlSslMode::Disabled), "tls")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::PermissionDenied && error.to_string().contains("ssl-mode"),
        "{error}"
    );
    // A server without TLS.
    let plain = MariaDb::start("").await;
    assert!(
        open(plain.config().ssl_mode(MysqlSslMode::Preferred), "tls")
            .await
            .is_ok()
    );
    let error = open(plain.config().ssl_mode(MysqlSslMode::Required), "tls")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error.to_string().contains("offers no TLS"),
        "{error}"
    );
}

/// A server that stops answering, and one that is killed and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_or_dies_costs_only_time() {
    let server = MariaDb::start("procedure=never").await;
    let (table, token) = made(server.config().operation_timeout(IMPATIENT), "hangs").await;
    let table = Arc::new(table);
    let beaten = table.read_row(&silo(1), None).await.unwrap().heartbeat;
    server.server.pause().await.unwrap();
    let began = Instant::now();
    let (all, lost, write) = (ReadRequest::all(), update(&token, 1, "x"), heartbeat(1, 1));
    let (read_error, commit_error, beat_error) = tokio::join!(
        table.read(&all),
        table.commit(&lost),
        table.update_i_am_alive(&write)
    );
    assert_eq!(read_error.unwrap_err().kind(), TableErrorKind::Unavailable);
    // The first flight of a commit only asks.
    assert_eq!(
        commit_error.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    let beat_error = beat_error.unwrap_err();
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    server.server.resume().await.unwrap();
    assert_eq!(read(&table).await.token, token);
    // Reads and heartbeats take turns on one connection. When the read's time is over, so is the heartbeat's: it has had its turn or not.
    match beat_error.kind() {
        TableErrorKind::OutcomeUnknown => {}
        TableErrorKind::Busy | TableErrorKind::Unavailable => {
            assert_eq!(
                table.read_row(&silo(1), None).await.unwrap().heartbeat,
                beaten,
                "{beat_error}"
            );
        }
        _ => panic!("{beat_error}"),
    }
    let token = committed(&table, &update(&token, 1, "y")).await;
    server.server.kill().await.unwrap();
    assert_eq!(
        table.read(&ReadRequest::all()).await.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    server.server.start_again().await.unwrap();
    committed(&table, &update(&token, 1, "z")).await;
}
