//! What can be wrong with a PostgreSQL server, and what only this store has; the shared suite has everything else.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "support/postgres/mod.rs"]
mod postgres;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use membership_core::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, Durability, Heartbeat, HeartbeatWrite,
    InitializeRequest, InstanceId, MembershipEntry, MembershipTable, ReadAnswer, ReadRequest,
    SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind, TableExt, TableId,
    VersionToken, WallTime,
};
use membership_sql::{PostgresConfig, PostgresFailover, PostgresSslMode, PostgresTable};
use membership_testbed::{Kind, Server};
use postgres::{Options, Shell, ours};

/// How long anything may take before the test gives up: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn blue() -> ClusterName {
    "billing/blue".parse().unwrap()
}

async fn server(options: Options) -> Server {
    Server::start(Kind::Postgres, ours(options)).await.unwrap()
}

fn config(server: &Server) -> PostgresConfig {
    PostgresConfig::from_url(server.url()).unwrap()
}

/// The same server for another user or with other options.
fn config_with(server: &Server, options: &str) -> PostgresConfig {
    PostgresConfig::from_url(&format!("{}?{options}", server.url())).unwrap()
}

async fn connect(config: PostgresConfig) -> Result<PostgresTable, TableError> {
    PostgresTable::connect(config, blue()).await
}

async fn initialize(table: &PostgresTable) -> Result<(), TableError> {
    table
        .initialize(&InitializeRequest::new(
            TableId::new(7),
            SharedSettings::default(),
        ))
        .await
}

async fn ready(server: &Server) -> PostgresTable {
    let table = connect(config(server)).await.unwrap();
    initialize(&table).await.unwrap();
    table
}

async fn read(table: &PostgresTable) -> Snapshot {
    table.read_all().await.unwrap().0
}

fn silo(n: u64) -> SiloAddress {
    format!("10.0.0.1:7000@{n}").parse().unwrap()
}

fn insert(token: &VersionToken, n: u64) -> CommitRequest {
    let entry = MembershipEntry::new(
        silo(n),
        InstanceId::new(u128::from(n)),
        WallTime::from_millis(1),
    );
    let id = CommitId::new((u128::from(token.version()) << 64) | u128::from(n));
    CommitRequest::new(token.clone(), id, None, [entry], [], [])
}

async fn commit(table: &PostgresTable, request: &CommitRequest) -> VersionToken {
    match table.commit(request).await.unwrap() {
        CommitOutcome::Committed(token) => token,
        other => panic!("{other:?}"),
    }
}

fn heartbeat(n: u64, counter: u64) -> HeartbeatWrite {
    HeartbeatWrite::Silo {
        silo: silo(n),
        heartbeat: Heartbeat {
            counter,
            at: WallTime::from_millis(counter),
        },
    }
}

/// Waits until something is so.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_make_the_tables_at_once() {
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
    // Tables of another prefix are other tables.
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
async fn who_may_not_make_tables_is_told_how_to_get_them() {
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
    // The grants that the script names are enough for everything.
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
    // Nobody there.
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
async fn somebody_elses_and_newer_tables_are_refused_unwritten() {
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
    // Foreign tables that come under a handle are refused by `initialize`, and stay as they are.
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
    // Whoever is connected already is stopped by the version row.
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
    // Some of the tables dropped by hand: nothing was wiped, and whoever knows the table must not take it for that.
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

/// A server that ends with the test, however that ends.
struct Standby(std::process::Child);

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_standby_is_refused_and_the_primary_behind_it_is_found() {
    let primary = server(Options {
        local: true,
        ..Options::default()
    })
    .await;
    let table = ready(&primary).await;
    assert_eq!(table.guarantees().durability, Durability::Kept);
    let folder = primary.folder().unwrap().join("run").join("standby");
    let copied = primary
        .command("pg_basebackup")
        .unwrap()
        .args([
            "-h",
            primary.folder().unwrap().join("run").to_str().unwrap(),
            "-p",
            &primary.address().port().to_string(),
            "-U",
            "postgres",
        ])
        .args([
            "-D",
            folder.to_str().unwrap(),
            "--checkpoint=fast",
            "--no-sync",
            "-R",
        ])
        .output()
        .unwrap();
    assert!(
        copied.status.success(),
        "{}",
        String::from_utf8_lossy(&copied.stderr)
    );
    let port = membership_testbed::free_port().unwrap();
    let log = std::fs::File::create(primary.folder().unwrap().join("standby.log")).unwrap();
    let standby = primary
        .command("postgres")
        .unwrap()
        .args([
            "-D",
            folder.to_str().unwrap(),
            "-p",
            &port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
        ])
        .args([
            "-c",
            &format!("unix_socket_directories={}", folder.display()),
            "-c",
            "dynamic_shared_memory_type=mmap",
        ])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .map(Standby)
        .unwrap();
    let there = format!("127.0.0.1:{port}");
    let url = primary
        .url()
        .replace(&primary.address().to_string(), &there);
    until("the standby answers", async || {
        Shell::connect(&url).await.is_ok()
    })
    .await;
    let refused = connect(PostgresConfig::from_url(&url).unwrap())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration);
    assert!(refused.to_string().contains("standby"), "{refused}");
    // Of several hosts the one that takes writes is used.
    let both = primary.url().replace(
        &primary.address().to_string(),
        &format!("{there},{}", primary.address()),
    );
    let table = connect(PostgresConfig::from_url(&both).unwrap())
        .await
        .unwrap();
    commit(&table, &insert(&read(&table).await.token, 1)).await;
    // An asynchronous standby that may be promoted can lose the last commits, unless somebody says that it is never promoted.
    let admin = Shell::connect(primary.url()).await.unwrap();
    until("the standby streams", async || {
        admin
            .ask("SELECT count(*) FROM pg_stat_replication")
            .await
            .unwrap()
            == [["1"]]
    })
    .await;
    let detected = connect(config(&primary)).await.unwrap();
    assert_eq!(detected.guarantees().durability, Durability::MayBeLost);
    let safe = connect(config(&primary).failover(PostgresFailover::Safe))
        .await
        .unwrap();
    assert_eq!(safe.guarantees().durability, Durability::Kept);
    drop(standby);

    // A wait for a synchronous standby that somebody cancels: the commit is there, and nobody knows whether it will stay.
    admin
        .run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        .await
        .unwrap();
    admin.run("SELECT pg_reload_conf()").await.unwrap();
    until("the setting is there", async || {
        admin.ask("SHOW synchronous_standby_names").await.unwrap() == [["*"]]
    })
    .await;
    let request = insert(&read(&table).await.token, 2);
    let waiting = {
        let (table, request) = (table.clone(), request.clone());
        tokio::spawn(async move { table.commit(&request).await })
    };
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("the commit waits and is cancelled", async || {
        !admin.ask(cancel).await.unwrap().is_empty()
    })
    .await;
    let unknown = waiting.await.unwrap().unwrap_err();
    assert_eq!(unknown.kind(), TableErrorKind::OutcomeUnknown, "{unknown}");
    assert!(unknown.to_string().contains("standbys"), "{unknown}");
    assert!(matches!(
        table.commit(&request.again()).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
}

#[tokio::test]
async fn whatever_isolation_is_the_default_the_table_works() {
    for default in ["serializable", "repeatable read"] {
        let options = Options {
            args: vec![
                "-c".into(),
                format!("default_transaction_isolation={default}"),
            ],
            ..Options::default()
        };
        let server = server(options).await;
        ready(&server).await;
        for (pooler, cluster) in [(false, "a"), (true, "b")] {
            let cluster: ClusterName = cluster.parse().unwrap();
            let config = config(&server).pooler(pooler);
            let table = PostgresTable::connect(config.clone(), cluster.clone())
                .await
                .unwrap();
            initialize(&table).await.unwrap();
            let start = read(&table).await.token;
            let tasks: Vec<_> = (0..4)
                .map(|me| {
                    let (config, cluster, mut token) =
                        (config.clone(), cluster.clone(), start.clone());
                    tokio::spawn(async move {
                        let table = PostgresTable::connect(config, cluster).await.unwrap();
                        let (mut mine, mut n) = (Vec::new(), 0);
                        while mine.len() < 10 {
                            n += 1;
                            match table.commit(&insert(&token, 1000 * me + n)).await {
                                Ok(CommitOutcome::Committed(next)) => {
                                    mine.push(next.version());
                                    token = next;
                                }
                                Ok(CommitOutcome::Conflict(c)) => token = c.snapshot.unwrap().token,
                                Err(e) if e.kind() == TableErrorKind::Busy && pooler => {
                                    token = read(&table).await.token
                                }
                                Err(e) => panic!("{e}"),
                                Ok(other) => panic!("{other:?}"),
                            }
                        }
                        mine
                    })
                })
                .collect();
            let mut versions = Vec::new();
            for task in tasks {
                versions.extend(task.await.unwrap());
            }
            versions.sort_unstable();
            assert_eq!(
                versions,
                (1..=40).collect::<Vec<u64>>(),
                "{default}, pooler {pooler}"
            );
        }
    }
}

#[tokio::test]
async fn a_read_only_server_is_refused_and_turns_writes_away() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let token = read(&table).await.token;
    let admin = Shell::connect(server.url()).await.unwrap();
    admin
        .run("ALTER ROLE postgres SET default_transaction_read_only = on")
        .await
        .unwrap();
    let refused = connect(config(&server)).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration);
    assert!(
        refused
            .to_string()
            .contains("default_transaction_read_only"),
        "{refused}"
    );
    admin
        .run("ALTER ROLE postgres RESET default_transaction_read_only")
        .await
        .unwrap();
    commit(&table, &insert(&token, 1)).await;
}

#[tokio::test]
async fn a_held_lock_is_busy_within_the_time_and_never_a_conflict() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    let holder = Shell::connect(server.url()).await.unwrap();
    for pooler in [false, true] {
        // The server gives up a fifth of this earlier: on a busy machine, too, its answer is to come in time.
        let hasty = connect(
            config(&server)
                .pooler(pooler)
                .operation_timeout(Duration::from_secs(5)),
        )
        .await
        .unwrap();
        holder
            .run("BEGIN; SELECT 1 FROM membership_version FOR UPDATE")
            .await
            .unwrap();
        let request = insert(&token, 2);
        let error = hasty.commit(&request).await.unwrap_err();
        assert_eq!(
            error.kind(),
            TableErrorKind::Busy,
            "pooler {pooler}: {error}"
        );
        // Readers and heartbeats wait for nobody.
        assert_eq!(read(&hasty).await.token, token);
        hasty.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
        holder.run("ROLLBACK").await.unwrap();
        assert_eq!(
            read(&table).await.token,
            token,
            "what was answered Busy did not happen"
        );
    }
    // While it waited, somebody else was first: a conflict with the newest table, not an error.
    holder
        .run("BEGIN; SELECT 1 FROM membership_version FOR UPDATE")
        .await
        .unwrap();
    let mut waiting: Vec<_> = (10..14)
        .map(|n| {
            let (table, token) = (table.clone(), token.clone());
            let config = config(&server);
            tokio::spawn(async move {
                let other = connect(config).await.unwrap();
                let answer = other.commit(&insert(&token, n)).await.unwrap();
                drop(table);
                answer
            })
        })
        .collect();
    let admin = Shell::connect(server.url()).await.unwrap();
    let waiters = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until("four commits wait", async || {
        admin.ask(waiters).await.unwrap() == [["4"]]
    })
    .await;
    holder.run("ROLLBACK").await.unwrap();
    let mut committed = 0;
    for waiter in waiting.drain(..) {
        match waiter.await.unwrap() {
            CommitOutcome::Committed(_) => committed += 1,
            CommitOutcome::Conflict(c) => {
                let snapshot = c.snapshot.unwrap();
                assert_eq!(
                    (snapshot.version(), snapshot.rows.len()),
                    (token.version() + 1, 2)
                );
                assert_eq!(c.newest.map(|r| r.version), Some(token.version() + 1));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(committed, 1);
}

#[tokio::test]
async fn a_frozen_server_ends_in_time_and_the_handle_lives_on() {
    let server = server(Options::default()).await;
    ready(&server).await;
    let table = connect(config(&server).operation_timeout(Duration::from_millis(700)))
        .await
        .unwrap();
    let token = read(&table).await.token;
    server.pause().await.unwrap();
    let began = Instant::now();
    let request = insert(&token, 1);
    let ask = ReadRequest::all();
    let (read_kind, commit_kind) = tokio::join!(table.read(&ask), table.commit(&request));
    assert_eq!(read_kind.unwrap_err().kind(), TableErrorKind::Unavailable);
    assert_eq!(
        commit_kind.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        table.commit(&request.again()).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown,
        "the first may have happened"
    );
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    server.resume().await.unwrap();
    let mut answer = table.commit(&request.again()).await;
    while answer
        .as_ref()
        .is_err_and(|e| e.kind() != TableErrorKind::InvalidRequest)
        && began.elapsed() < PATIENCE
    {
        answer = table.commit(&request.again()).await;
    }
    assert!(matches!(answer.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(read(&table).await.rows.len(), 1);
}

#[tokio::test]
async fn commits_are_heard_and_a_restart_only_costs_time() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let listener = connect(config(&server)).await.unwrap();
    let mut hints = listener.hints().unwrap();
    let mut again = listener.hints().unwrap();
    let ring = async |hints: &mut membership_core::HintStream| {
        tokio::time::timeout(PATIENCE, hints.next()).await.unwrap()
    };
    // Once when it begins to listen.
    assert_eq!(ring(&mut hints).await, Some(()));
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    assert_eq!(
        (ring(&mut hints).await, ring(&mut again).await),
        (Some(()), Some(()))
    );
    // A silent commit is not heard; nor is one of another cluster.
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'membership'";
    let admin = Shell::connect(server.url()).await.unwrap();
    assert_eq!(
        admin.ask(connections).await.unwrap(),
        [["3"]],
        "one of the table, two of the listener"
    );
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    assert_eq!(
        ring(&mut hints).await,
        Some(()),
        "once after each new connection"
    );
    until("the table is back", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
    commit(&table, &insert(&token, 2)).await;
    assert_eq!(ring(&mut hints).await, Some(()));
    drop(listener);
    let end = async { while hints.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, end)
        .await
        .expect("the stream ends with the handle");
    let admin = Shell::connect(server.url()).await.unwrap();
    until("its connections are closed", async || {
        admin.ask(connections).await.unwrap() == [["1"]]
    })
    .await;
    assert!(
        connect(config(&server).hints(false))
            .await
            .unwrap()
            .hints()
            .is_none()
    );
    assert!(
        connect(config(&server).pooler(true))
            .await
            .unwrap()
            .hints()
            .is_none()
    );
}

#[tokio::test]
async fn behind_a_pooler_nothing_is_left_in_the_session() {
    let server = server(Options {
        args: vec!["-c".into(), "log_statement=all".into()],
        ..Options::default()
    })
    .await;
    let table = connect(config(&server).pooler(true)).await.unwrap();
    initialize(&table).await.unwrap();
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster { text: "x".into() })
        .await
        .unwrap();
    assert!(matches!(
        table.read(&ReadRequest::all().with_known(token)).await,
        Ok(ReadAnswer::Unchanged { .. })
    ));
    let log = server.log().unwrap();
    let own: Vec<&str> = log.lines().filter(|l| l.contains("membership_")).collect();
    assert!(!own.is_empty());
    // An unnamed statement is logged under `<unnamed>`; a named one by its name.
    for line in log.lines().filter(|l| l.contains("execute ")) {
        assert!(line.contains("execute <unnamed>"), "{line}");
    }
    for word in ["LISTEN", "PREPARE", "DISCARD", "pg_advisory_lock"] {
        assert!(!log.contains(word), "{word} was sent");
    }
    assert!(
        !log.lines()
            .any(|l| l.contains("statement: SET") || l.contains("statement: set"))
    );
    assert!(log.contains("set_config('synchronous_commit', 'on', true)"));
}

#[tokio::test]
async fn connections_are_encrypted_as_asked() {
    let server = server(Options {
        tls: true,
        ..Options::default()
    })
    .await;
    let ca = server.tls().unwrap().ca.clone();
    let admin_url = server.url().to_owned();
    let encrypted = async |table: &PostgresTable| {
        initialize(table).await.unwrap();
        let admin = Shell::connect(&admin_url).await.unwrap();
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'membership'";
        admin.ask(sql).await.unwrap() == [["t"]]
    };
    for mode in [PostgresSslMode::Prefer, PostgresSslMode::Require] {
        let table = connect(config(&server).ssl_mode(mode)).await.unwrap();
        assert!(encrypted(&table).await, "{mode:?}");
    }
    for mode in [
        PostgresSslMode::Require,
        PostgresSslMode::VerifyCa,
        PostgresSslMode::VerifyFull,
    ] {
        let table = connect(config(&server).ssl_mode(mode).ssl_root_cert(&ca))
            .await
            .unwrap();
        assert!(encrypted(&table).await, "{mode:?}");
    }
    let plain = connect(config(&server).ssl_mode(PostgresSslMode::Disable))
        .await
        .unwrap();
    assert!(!encrypted(&plain).await);
    // Another authority, and a name that is not in the certificate.
    let stranger = self::server(Options {
        tls: true,
        ..Options::default()
    })
    .await;
    let other_ca = stranger.tls().unwrap().ca.clone();
    for mode in [
        PostgresSslMode::VerifyCa,
        PostgresSslMode::VerifyFull,
        PostgresSslMode::Require,
    ] {
        let refused = connect(config(&server).ssl_mode(mode).ssl_root_cert(&other_ca))
            .await
            .unwrap_err();
        assert_eq!(
            refused.kind(),
            TableErrorKind::Configuration,
            "{mode:?}: {refused}"
        );
        assert!(refused.to_string().contains("sslrootcert"), "{refused}");
    }
    let misnamed = |mode: &str| {
        let url = format!(
            "{}?sslmode={mode}&sslrootcert={}&hostaddr=127.0.0.1",
            server.url().replace("127.0.0.1", "elsewhere.example"),
            ca.display()
        );
        connect(PostgresConfig::from_url(&url).unwrap())
    };
    assert_eq!(
        misnamed("verify-full").await.unwrap_err().kind(),
        TableErrorKind::Configuration
    );
    misnamed("verify-ca").await.unwrap();
    // A server without TLS, asked for it.
    let bare = self::server(Options::default()).await;
    let refused = connect(config(&bare).ssl_mode(PostgresSslMode::Require))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration, "{refused}");
    assert!(
        refused.to_string().contains("does not support TLS"),
        "{refused}"
    );
    let missing = connect(
        config(&bare)
            .ssl_mode(PostgresSslMode::VerifyFull)
            .ssl_root_cert("/no/such/file"),
    )
    .await
    .unwrap_err();
    assert!(missing.to_string().contains("/no/such/file"), "{missing}");
}

#[tokio::test]
async fn rows_changed_by_hand_stop_a_commit_as_a_whole() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    let holder = Shell::connect(server.url()).await.unwrap();
    // Somebody inserts the same row past the table, and has not committed it yet.
    let row = format!(
        "BEGIN; INSERT INTO membership_silo (cluster, silo, status, written_at, body) VALUES ('{}', '{}', '', 0, '')",
        blue().store_key(),
        silo(2).row_key()
    );
    holder.run(&row).await.unwrap();
    let waiting = {
        let (table, request) = (table.clone(), insert(&token, 2));
        tokio::spawn(async move { table.commit(&request).await })
    };
    let admin = Shell::connect(server.url()).await.unwrap();
    let waiters = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until("the commit waits", async || {
        admin.ask(waiters).await.unwrap() == [["1"]]
    })
    .await;
    holder.run("COMMIT").await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Busy, "{error}");
    let now = read(&table).await;
    assert_eq!(
        (now.token, now.rows.len()),
        (token, 2),
        "the version did not move"
    );
    // Arc is what silos hold.
    let shared: Arc<dyn MembershipTable> = Arc::new(table);
    assert!(format!("{shared:?}").contains("billing/blue"));
}
