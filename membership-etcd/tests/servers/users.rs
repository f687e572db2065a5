//! Users: tokens that members forget, wrong passwords, missing permissions. Clauses T4, T5, T15.

use std::sync::Arc;

use membership_core::{CommitOutcome, MembershipTable, TableErrorKind};
use membership_testbed::Server;
use serde_json::json;

use crate::support::shell::{Shell, add_user};
use crate::support::*;
use conformance_tests::helpers::*;

/// Creates a user with this permission on the keys below a prefix.
async fn user(server: &Server, name: &str, may: &str, prefix: &str) -> String {
    let shell = Shell::of(server.url()).await.unwrap();
    add_user(&shell, name, may, prefix).await.unwrap();
    format!("etcd://{name}:{SECRET}@{}", server.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_tokens_are_renewed_and_no_write_is_sent_twice() {
    let server = locked_server().await;
    let tables: Vec<_> = futures_util::future::join_all((0..4).map(|_| connect(server.url())))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let mut token = fill(&tables[0], 3).await;
    for n in 0..3 {
        // Tokens are in the member's memory.
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
        // A read finds the connection that ended with the member. Then there is a new connection,
        // with an old token.
        for table in &tables {
            until("the member is back", async || {
                read_kind(table, None).await.is_ok()
            })
            .await;
        }
        token = commit(&tables[n], &insert(&token, [10 + n as u64])).await;
        tables[n + 1]
            .update_i_am_alive(&heartbeat(1, n as u64))
            .await
            .unwrap();
    }
    // A write is the first request with the old token: etcd refuses it before it does anything.
    let shell = Shell::of(server.url()).await.unwrap();
    let before = token.version();
    for n in 0..5 {
        shell
            .call(
                "/v3/auth/user/changepw",
                json!({ "name": "root", "password": SECRET }),
            )
            .await
            .unwrap();
        token = commit(&tables[0], &insert(&token, [20 + n])).await;
    }
    assert_eq!(
        (token.version(), read(&tables[1]).await.0.rows.len()),
        (before + 5, 3 + 3 + 5)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_go_on_while_tokens_are_revoked() {
    let server = locked_server().await;
    let table = Arc::new(connect(server.url()).await.unwrap());
    let token = fill(&*table, 1).await;
    let shell = Shell::of(server.url()).await.unwrap();
    let revoking = tokio::spawn(async move {
        loop {
            shell
                .call(
                    "/v3/auth/user/changepw",
                    json!({ "name": "root", "password": SECRET }),
                )
                .await
                .unwrap();
        }
    });
    let writers: Vec<_> = (0..4_u64)
        .map(|writer| {
            let (table, mut token) = (Arc::clone(&table), token.clone());
            tokio::spawn(async move {
                for n in 0..10 {
                    let request = insert(&token, [100 + writer * 10 + n]);
                    let mut request = request;
                    loop {
                        match table.commit(&request).await {
                            Ok(CommitOutcome::Committed(made)) => {
                                token = made;
                                break;
                            }
                            Ok(CommitOutcome::Conflict(conflict)) => {
                                request = insert(
                                    &conflict.snapshot.unwrap().token,
                                    [100 + writer * 10 + n],
                                )
                            }
                            // The token is revoked again before it is used, several times in a row:
                            // certainly nothing was done.
                            Err(e) => assert_eq!(e.kind(), TableErrorKind::PermissionDenied, "{e}"),
                            Ok(other) => panic!("{other:?}"),
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    revoking.abort();
    let now = read(&*table).await.0;
    assert_eq!((now.version(), now.rows.len()), (41, 41));
}

#[tokio::test]
async fn authentication_may_be_turned_on_and_off_under_a_running_client() {
    let server = locked_server().await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 1).await;
    let shell = Shell::of(server.url()).await.unwrap();
    shell.call("/v3/auth/disable", json!({})).await.unwrap();
    let token = commit(&table, &insert(&token, [5])).await;
    // A new client needs no authentication, and continues without a token.
    let late = connect(server.url()).await.unwrap();
    let token = commit(&late, &insert(&token, [6])).await;
    let stranger = connect(&format!("etcd://{}", server.address()))
        .await
        .unwrap();
    Shell::of(&format!("etcd://{}", server.address()))
        .await
        .unwrap()
        .call("/v3/auth/enable", json!({}))
        .await
        .unwrap();
    let token = commit(&late, &insert(&token, [7])).await;
    commit(&table, &insert(&token, [8])).await;
    let error = stranger.commit(&insert(&token, [9])).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::PermissionDenied
            && error.to_string().contains("put user and password"),
        "{error}"
    );
}

#[tokio::test]
async fn missing_permissions_are_reported() {
    let server = locked_server().await;
    let at = server.address();
    let right = user(&server, "membership", "READWRITE", "membership/").await;
    let other = user(&server, "other", "READWRITE", "elsewhere/").await;
    // The permissions that the README lists are sufficient for everything.
    let table = connect(&right).await.unwrap();
    fill(&table, 3).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    table.read_row(&silo(1), None).await.unwrap();
    let baseline = table.baseline().unwrap();
    baseline.write().await.unwrap();
    baseline.read().await.unwrap();
    baseline.remove().await.unwrap();

    let denied = TableErrorKind::PermissionDenied;
    for (url, words) in [
        (format!("etcd://{at}"), "put user and password"),
        (
            format!("etcd://root:wrong-{SECRET}@{at}"),
            "for the user `root`",
        ),
        (
            format!("etcd://nobody:{SECRET}@{at}"),
            "for the user `nobody`",
        ),
        (other, "below the prefix"),
    ] {
        let error = connect(&url).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(
            error.kind() == denied && shown.contains(words) && !shown.contains(SECRET),
            "{error}"
        );
        assert_eq!(error.place(), Some(at.to_string().as_str()), "{error}");
    }
    table.delete().await.unwrap();
}

#[tokio::test]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    let server = locked_server().await;
    let clients = user(&server, "clients", "READ", "membership/").await;
    let owner = connect(server.url()).await.unwrap();
    may_only_read(&connect(&clients).await.unwrap(), &owner).await;
}
