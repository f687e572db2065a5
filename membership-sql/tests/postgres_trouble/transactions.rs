//! Transactions of other clients: isolation levels, held locks, rows inserted by hand.

use std::sync::Arc;
use std::time::Duration;

use membership_core::{ClusterName, CommitOutcome, MembershipTable, TableErrorKind};
use membership_sql::PostgresTable;

use crate::postgres::{Options, Shell};
use crate::standby::{wait_for_none, wait_for_standbys};
use crate::{
    blue, commit, config, connect, heartbeat, initialize, insert, read, ready, server, silo, until,
};

#[tokio::test]
async fn commits_work_under_every_default_isolation() {
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
async fn a_held_lock_is_busy_within_the_timeout() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    let holder = Shell::connect(server.url()).await.unwrap();
    for pooler in [false, true] {
        // The server gives up after four fifths of this time, so that its answer arrives in time
        // also on a busy machine.
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
        // Reads and heartbeats do not wait for the lock.
        assert_eq!(read(&hasty).await.token, token);
        hasty.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
        holder.run("ROLLBACK").await.unwrap();
        assert_eq!(
            read(&table).await.token,
            token,
            "what was answered Busy did not happen"
        );
    }
    // Another commit came first during the wait: a conflict with the newest table, not an error.
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
async fn a_row_inserted_by_hand_fails_the_whole_commit() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    let holder = Shell::connect(server.url()).await.unwrap();
    // Another program inserts the same row directly, and has not committed yet.
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
    // Silos hold the table as an `Arc`.
    let shared: Arc<dyn MembershipTable> = Arc::new(table);
    assert!(format!("{shared:?}").contains("billing/blue"));
}

/// A session that does not read its announcements fills the queue of all databases. Before
/// PostgreSQL 17 that takes 8 GB.
#[tokio::test(flavor = "multi_thread")]
async fn commits_need_no_announcement() {
    let plain = server(Options::default()).await;
    let admin = Shell::connect(plain.url()).await.unwrap();
    let version = &admin.ask("SHOW server_version_num").await.unwrap()[0][0];
    if version.parse::<u32>().unwrap() < 170_000 {
        println!("not applicable to version {version}: its queue cannot be made small");
        return;
    }
    let server = server(Options {
        args: vec!["-c".into(), "max_notify_queue_pages=64".into()],
        ..Options::default()
    })
    .await;
    let table = ready(&server).await;
    let token = read(&table).await.token;
    let deaf = Shell::connect(server.url()).await.unwrap();
    deaf.run("LISTEN other").await.unwrap();
    deaf.run("BEGIN; SELECT 1").await.unwrap();
    let loud = Shell::connect(server.url()).await.unwrap();
    let notify = "SELECT pg_notify('other', n || repeat('x', 7900)) FROM generate_series(1, 10) n";
    let filled = async || loud.run(notify).await.is_err();
    until("the queue is full", filled).await;
    commit(&table, &insert(&token, 1)).await;
    assert_eq!(read(&table).await.rows.len(), 1);
}

const CONNECTIONS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'membership'";

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_holds_back_no_read_or_heartbeat() {
    let server = server(Options::default()).await;
    let mut token = {
        let table = ready(&server).await;
        commit(&table, &insert(&read(&table).await.token, 1)).await
    };
    let holder = Shell::connect(server.url()).await.unwrap();
    let admin = Shell::connect(server.url()).await.unwrap();
    let waiters = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for pooler in [false, true] {
        let table = connect(config(&server).pooler(pooler)).await.unwrap();
        until("no other client is connected", async || {
            admin.ask(CONNECTIONS).await.unwrap() == [["1"]]
        })
        .await;
        holder
            .run("BEGIN; SELECT 1 FROM membership_version FOR UPDATE")
            .await
            .unwrap();
        let waiting = {
            let (table, request) = (table.clone(), insert(&token, token.version() + 2));
            tokio::spawn(async move { table.commit(&request).await })
        };
        until("the commit waits", async || {
            admin.ask(waiters).await.unwrap() == [["1"]]
        })
        .await;
        let (beat, one, all) = (heartbeat(1, token.version()), silo(1), read(&table));
        let (beaten, found, row) = tokio::join!(
            table.update_i_am_alive(&beat),
            all,
            table.read_row(&one, None)
        );
        beaten.unwrap();
        row.unwrap();
        assert_eq!(found.token, token);
        assert!(!waiting.is_finished(), "they waited for the commit");
        assert_eq!(
            admin.ask(CONNECTIONS).await.unwrap(),
            [["2"]],
            "pooler {pooler}: one beside the one that waits"
        );
        holder.run("ROLLBACK").await.unwrap();
        match waiting.await.unwrap().unwrap() {
            CommitOutcome::Committed(next) => token = next,
            other => panic!("{other:?}"),
        }
        assert_eq!(read(&table).await.token, token);
        until("the second connection is closed", async || {
            admin.ask(CONNECTIONS).await.unwrap() == [["1"]]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_cancelled() {
    let server = server(Options::default()).await;
    let mut token = read(&ready(&server).await).await.token;
    let admin = Shell::connect(server.url()).await.unwrap();
    // A commit waits for ever for a standby that does not come: no timeout of the server ends that.
    for pooler in [false, true] {
        wait_for_standbys(&admin).await;
        let hasty = config(&server)
            .pooler(pooler)
            .operation_timeout(Duration::from_secs(3));
        let table = connect(hasty).await.unwrap();
        let request = insert(&token, token.version() + 1);
        let unknown = table.commit(&request).await.unwrap_err();
        assert_eq!(unknown.kind(), TableErrorKind::OutcomeUnknown, "{unknown}");
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until("the server waits no longer", async || {
            admin.ask(waiting).await.unwrap() == [["0"]]
        })
        .await;
        wait_for_none(&admin).await;
        token = commit(&table, &request.again()).await;
    }
    wait_for_standbys(&admin).await;
    // A heartbeat waits for the standby as well, and holds back no read.
    let table = connect(config(&server)).await.unwrap();
    let beating = {
        let table = table.clone();
        tokio::spawn(async move { table.update_i_am_alive(&heartbeat(1, 1)).await })
    };
    until("the heartbeat waits", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        admin.ask(waiting).await.unwrap() == [["1"]]
    })
    .await;
    let row = table.read_row(&silo(1), None).await.unwrap();
    assert_eq!(row.token, token);
    assert!(!beating.is_finished(), "the read waited for the heartbeat");
}
