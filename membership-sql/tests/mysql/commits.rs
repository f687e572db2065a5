//! Commits beside other clients: deadlocks, held locks, dropped futures, rows inserted by hand,
//! lost connections, the procedure.

use std::time::{Duration, Instant};

use conformance_tests::helpers::{commit as committed, entry, heartbeat, update};
use conformance_tests::proxy::{Fault, Proxy, Stage};
use membership_core::{
    CommitOutcome, MembershipTable, ReadRequest, SharedSettings, TableErrorKind,
};
use membership_sql::{MysqlConfig, MysqlProcedure};
use mysql_async::prelude::Queryable;

use crate::support::{MariaDb, key};
use crate::{cluster, insert, made, open, read};

pub async fn a_deadlock_is_busy_and_changes_nothing(server: &MariaDb) {
    let (table, token) = made(server.config(), "deadlock").await;
    let before = read(&table).await;
    // Another client locks the row, and then wants the version row that the commit has locked: one
    // of the two transactions must end. InnoDB keeps the one that has changed more.
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
    // Waits until the commit waits for the row: then it holds the version row. If the commit comes
    // later, it waits for the version row that this client has locked by then. Both cases end.
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
        // The server renews this list only if no client has read it for 100 ms.
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

pub async fn a_held_lock_is_busy_and_changes_nothing(server: &MariaDb) {
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
    // A commit that waits for a lock does not delay heartbeats and reads.
    table.update_i_am_alive(&heartbeat(1, 7)).await.unwrap();
    assert_eq!(read(&table).await, before);
    other.query_drop("ROLLBACK").await.unwrap();
    committed(&table, &update(&token, 1, "again")).await;
}

/// T14: the future is dropped while the server waits for a lock, or holds one for us.
pub async fn a_dead_client_holds_no_lock(server: &MariaDb) {
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

pub async fn a_row_inserted_by_hand_is_a_conflict(server: &MariaDb) {
    let (table, token) = made(server.config(), "by-hand").await;
    let at = key(&cluster("by-hand"));
    let silo = crate::support::text(&entry(9).address.row_key());
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

/// Without a binary log, other clients see a commit before it survives a crash. If the connection
/// breaks after a conflict with such a commit, the client does not know whether that commit stays.
pub async fn a_conflict_that_a_crash_may_undo_is_not_reported(server: &MariaDb) {
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
            // Another connection has asked again, and has made the commit durable.
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

/// The procedure writes the same version row as this client.
pub async fn the_procedure_and_the_client_commit_the_same(server: &MariaDb) {
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
            request.core = Some(format!("core \"{n}\" \\ 'ж🦀").into());
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
