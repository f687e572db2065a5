//! Hints: a commit sends one, they continue after a restart, and without the permission there are
//! none.

use std::time::Duration;

use futures_util::StreamExt;
use membership_core::{HintStream, MembershipTable};
use membership_testbed::Kind;

use crate::support::nodes::Cluster;
use crate::support::*;
use conformance_tests::helpers::*;

/// Far longer than a hint takes, also on a busy machine.
const SOON: Duration = Duration::from_secs(30);

async fn rings(hints: &mut HintStream) {
    tokio::time::timeout(SOON, hints.next())
        .await
        .expect("a hint")
        .expect("the stream goes on");
}

async fn subscribers(server: &membership_testbed::Server) -> u64 {
    let all: Vec<redis::Value> = shell(server, &["PUBSUB", "NUMSUB", &key(&blue(), "hints")]).await;
    redis::from_redis_value(all[1].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_send_hints_also_after_a_restart() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = server(kind, &["--appendonly", "yes", "--appendfsync", "always"]).await;
        let (writer, listener) = (table_on(&server, "").await, table_on(&server, "").await);
        let token = fill(&writer, 1).await;
        assert_eq!(
            subscribers(&server).await,
            0,
            "without a listener, no connection is opened"
        );
        let mut hints = listener.hints().unwrap();
        // The first hint reports that the subscription has begun.
        rings(&mut hints).await;
        assert_eq!(subscribers(&server).await, 1);
        let mut another = listener.hints().unwrap();
        let token = commit(&writer, &insert(&token, [5])).await;
        rings(&mut hints).await;
        rings(&mut another).await;
        assert_eq!(
            subscribers(&server).await,
            1,
            "one connection for all listeners of a table"
        );
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
        rings(&mut hints).await;
        until("the writer is back", async || {
            read_kind(&writer, Some(&token)).await.is_ok()
        })
        .await;
        commit(&writer, &insert(&token, [6])).await;
        rings(&mut hints).await;
        drop((hints, another));
        until("the connection is closed", async || {
            subscribers(&server).await == 0
        })
        .await;
        let mut again = listener.hints().unwrap();
        rings(&mut again).await;
        drop(listener);
        assert_eq!(
            tokio::time::timeout(SOON, again.next())
                .await
                .expect("the stream ends"),
            None
        );
        until("the connection is closed", async || {
            subscribers(&server).await == 0
        })
        .await;
    }
}

#[tokio::test]
async fn a_conflict_sends_no_hint() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let stale = fill(&table, 1).await;
    commit(&table, &insert(&stale, [5])).await;
    let mut hints = table.hints().unwrap();
    rings(&mut hints).await;
    table.commit(&insert(&stale, [6])).await.unwrap();
    table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
    // Both came after the subscription, on a server that executes one command after the other.
    assert!(futures_util::FutureExt::now_or_never(hints.next()).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_every_node_sends_hints() {
    let cluster = Cluster::start(Kind::Redis).await;
    let (writer, listener) = (
        connect(&cluster.url()).await.unwrap(),
        connect(&cluster.url()).await.unwrap(),
    );
    let token = fill(&writer, 1).await;
    let mut hints = listener.hints().unwrap();
    rings(&mut hints).await;
    commit(&writer, &insert(&token, [5])).await;
    rings(&mut hints).await;
}

#[tokio::test]
async fn without_permission_to_subscribe_or_publish_only_hints_are_missing() {
    let server = own_server().await;
    shell::<()>(
        &server,
        &[
            "ACL",
            "SETUSER",
            "quiet",
            "on",
            ">s3cret-s3cret",
            "~*",
            "+@all",
            "resetchannels",
        ],
    )
    .await;
    let table = connect(&format!("redis://quiet:s3cret-s3cret@{}", server.address()))
        .await
        .unwrap();
    let mut hints = table.hints().unwrap();
    let token = fill(&table, 1).await;
    commit(&table, &insert(&token, [5])).await;
    until("the subscription is refused", async || {
        !shell::<Vec<redis::Value>>(&server, &["ACL", "LOG"])
            .await
            .is_empty()
    })
    .await;
    assert!(futures_util::FutureExt::now_or_never(hints.next()).is_none());
    assert_eq!(read(&table).await.0.rows.len(), 2);
}
