//! A primary whose standby is gone, and a former primary that goes on: what one of both alone knows.

use std::time::{Duration, Instant};

use membership_core::{
    CommitOutcome, Durability, MembershipTable, ReadAnswer, ReadRequest, TableError,
    TableErrorKind, VersionToken,
};
use membership_sql::{PostgresConfig, PostgresFailover};

use crate::postgres::Shell;
use crate::standby::{Standby, primary, url_of, wait_for_none, wait_for_standbys};
use crate::{commit, config, connect, heartbeat, insert, read, ready, silo, until};

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
const CANCEL: &str =
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A commit that only this server has is lost if the standby takes over. To send it again changes
/// nothing, and so waits for nothing by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_standby_lacks_is_not_acknowledged_when_it_is_sent_again() {
    let primary = primary().await;
    let token = read(&ready(&primary).await).await.token;
    let standby = Standby::of(&primary).await;
    let admin = Shell::connect(primary.url()).await.unwrap();
    wait_for_standbys(&admin).await;
    let hasty = config(&primary).operation_timeout(Duration::from_secs(3));
    let table = connect(hasty).await.unwrap();
    assert_eq!(table.guarantees().durability, Durability::Kept);
    let token = commit(&table, &insert(&token, 1)).await;
    let stopped = standby.pause(&admin).await;
    let request = insert(&token, 2);
    let waiting = {
        let (table, request) = (table.clone(), request.clone());
        tokio::spawn(async move { table.commit(&request).await })
    };
    until("the commit waits and is cancelled", async || {
        !admin.ask(CANCEL).await.unwrap().is_empty()
    })
    .await;
    let unknown = waiting.await.unwrap().unwrap_err();
    assert_eq!(unknown.kind(), TableErrorKind::OutcomeUnknown, "{unknown}");
    for request in [request.again(), request.clone()] {
        let again = table.commit(&request).await;
        let again = again.expect_err("acknowledged, and the standby does not have it");
        assert_eq!(again.kind(), TableErrorKind::OutcomeUnknown, "{again}");
    }
    // The standby comes back, and has it.
    let _standby = stopped.start();
    until("the commit is acknowledged", async || {
        matches!(
            table.commit(&request.again()).await,
            Ok(CommitOutcome::Committed(_))
        )
    })
    .await;
}

/// Commits and heartbeats wait for the standby; reads wait for neither.
#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_for_no_commit_and_no_heartbeat() {
    let primary = primary().await;
    let table = ready(&primary).await;
    let mut token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    drop(table);
    let admin = Shell::connect(primary.url()).await.unwrap();
    wait_for_standbys(&admin).await;
    for pooler in [false, true] {
        let table = connect(config(&primary).pooler(pooler)).await.unwrap();
        let committing = {
            let (table, request) = (table.clone(), insert(&token, token.version() + 1));
            tokio::spawn(async move { table.commit(&request).await })
        };
        until("the commit waits", async || {
            admin.ask(WAITING).await.unwrap() == [["1"]]
        })
        .await;
        let beating = {
            let table = table.clone();
            tokio::spawn(async move { table.update_i_am_alive(&heartbeat(1, 1)).await })
        };
        until("the heartbeat waits", async || {
            admin.ask(WAITING).await.unwrap() == [["2"]]
        })
        .await;
        let began = Instant::now();
        table.read(&ReadRequest::all()).await.unwrap();
        table.read_row(&silo(1), None).await.unwrap();
        let took = began.elapsed();
        assert!(!beating.is_finished() && !committing.is_finished());
        assert!(took < Duration::from_secs(2), "the reads took {took:?}");
        until("both are cancelled", async || {
            admin.ask(CANCEL).await.unwrap();
            beating.is_finished() && committing.is_finished()
        })
        .await;
        assert!(beating.await.unwrap().is_err());
        committing.await.unwrap().unwrap_err();
        token = insert(&token, token.version() + 1).next_token(&[]);
        let connections =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'membership'";
        until("the other connections are closed", async || {
            table.read(&ReadRequest::all()).await.unwrap();
            admin.ask(connections).await.unwrap() == [["1"]]
        })
        .await;
    }
}

/// The warning is all that tells such a commit from one that the standbys have.
#[tokio::test(flavor = "multi_thread")]
async fn the_warning_of_a_cancelled_wait_arrives_whatever_the_user_has_set() {
    let primary = primary().await;
    let mut token = read(&ready(&primary).await).await.token;
    let admin = Shell::connect(primary.url()).await.unwrap();
    admin
        .run("ALTER ROLE postgres SET client_min_messages = error")
        .await
        .unwrap();
    for pooler in [false, true] {
        let table = connect(config(&primary).pooler(pooler)).await.unwrap();
        wait_for_standbys(&admin).await;
        let request = insert(&token, token.version() + 1);
        let waiting = {
            let (table, request) = (table.clone(), request.clone());
            tokio::spawn(async move { table.commit(&request).await })
        };
        until("the commit waits and is cancelled", async || {
            !admin.ask(CANCEL).await.unwrap().is_empty()
        })
        .await;
        let unknown = waiting.await.unwrap();
        let unknown = unknown.expect_err("acknowledged, and no standby has it");
        assert_eq!(unknown.kind(), TableErrorKind::OutcomeUnknown, "{unknown}");
        wait_for_none(&admin).await;
        token = commit(&table, &request.again()).await;
    }
}

/// What was checked at connecting may change under the connection.
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_wait_no_longer_are_not_promised_to_be_kept() {
    let primary = primary().await;
    let token = read(&ready(&primary).await).await.token;
    let _standby = Standby::of(&primary).await;
    let admin = Shell::connect(primary.url()).await.unwrap();
    wait_for_standbys(&admin).await;
    let table = connect(config(&primary)).await.unwrap();
    let token = commit(&table, &insert(&token, 1)).await;
    assert_eq!(table.guarantees().durability, Durability::Kept);
    wait_for_none(&admin).await;
    // The session that commits reads the setting a moment later.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let token = commit(&table, &insert(&token, 2)).await;
    assert_eq!(table.guarantees().durability, Durability::MayBeLost);
    wait_for_standbys(&admin).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    commit(&table, &insert(&token, 3)).await;
    assert_eq!(table.guarantees().durability, Durability::Kept);
}

/// A client that states no version gets nothing older than it has seen, unless it is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_does_not_take_a_client_back() {
    let primary = primary().await;
    let token = {
        let table = ready(&primary).await;
        commit(&table, &insert(&read(&table).await.token, 1)).await
    };
    let standby = Standby::of(&primary).await;
    let hosts = format!("{},{}", standby.address(), primary.address());
    let both = PostgresConfig::from_url(&url_of(&primary, &hosts)).unwrap();
    let there = Shell::connect(&standby.url(&primary)).await.unwrap();
    there.run("SELECT pg_promote()").await.unwrap();
    drop(there);
    let both = both.failover(PostgresFailover::Detect);
    let (all, one, known) = (
        connect(both.clone()).await.unwrap(),
        connect(both.clone()).await.unwrap(),
        connect(both).await.unwrap(),
    );
    let newer = commit(&all, &insert(&token, 2)).await;
    for table in [&all, &one, &known] {
        let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await.unwrap()
        else {
            panic!("nothing was known");
        };
        assert_eq!(snapshot.token, newer, "the new primary");
    }
    // The new primary is gone; the former one answers.
    drop(standby);
    let older = ReadRequest::all().with_known(token.clone());
    let shown = |answer: ReadAnswer| match answer {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot.token,
        _ => token.clone(),
    };
    let read_all = async || all.read(&ReadRequest::all()).await.map(shown);
    rolled_back("table", &newer, read_all).await;
    let read_row = async || one.read_row(&silo(1), None).await.map(|row| row.token);
    rolled_back("row", &newer, read_row).await;
    rolled_back("known table", &newer, async || {
        known.read(&older).await.map(shown)
    })
    .await;
    // Who was told, or asks over a new connection, gets what there is.
    for (table, request) in [
        (&all, ReadRequest::all()),
        (&known, ReadRequest::all().with_new_connection(true)),
    ] {
        match table.read(&request).await.unwrap() {
            ReadAnswer::Snapshot { snapshot, .. } => assert_eq!(snapshot.token, token),
            other => panic!("{other:?}"),
        }
    }
    commit(&all, &insert(&token, 3)).await;
}

/// What is read is older than what was seen. The processes of a server that is killed may still show the
/// newest table for a moment, and say once that they end.
async fn rolled_back(
    what: &str,
    newest: &VersionToken,
    read: impl AsyncFn() -> Result<VersionToken, TableError>,
) {
    let mut answer = read().await;
    until("the server that is gone answers no more", async || {
        let answers = match &answer {
            Ok(token) => token == newest,
            Err(e) => e.kind() == TableErrorKind::Unavailable,
        };
        if answers {
            answer = read().await;
        }
        !answers
    })
    .await;
    let told = answer
        .err()
        .unwrap_or_else(|| panic!("an older {what} is shown"));
    assert_eq!(told.kind(), TableErrorKind::TableRolledBack, "{told}");
}
