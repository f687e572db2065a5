//! A primary whose standby is gone, and a former primary that goes on: what one of both alone knows.

use std::time::Duration;

use membership_core::{CommitOutcome, Durability, MembershipTable, TableErrorKind};

use crate::postgres::Shell;
use crate::standby::{Standby, primary, wait_for_none, wait_for_standbys};
use crate::{commit, config, connect, insert, read, ready, until};

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
