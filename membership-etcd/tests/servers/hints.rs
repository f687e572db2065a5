//! Hints: a commit sends one, they continue after a restart and a compaction, and without the
//! permission there are none.

use std::time::Duration;

use conformance_tests::proxy::Proxy;
use futures_util::StreamExt as _;
use membership_core::{HintStream, MembershipTable};
use serde_json::json;

use crate::support::shell::Shell;
use crate::support::*;
use conformance_tests::helpers::*;

/// Far longer than a hint takes, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Longer than a hint takes that nothing delays.
const SILENCE: Duration = Duration::from_millis(300);

async fn rings(hints: &mut HintStream) {
    tokio::time::timeout(SOON, hints.next())
        .await
        .expect("a hint")
        .expect("the stream goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_send_hints_also_after_a_restart() {
    let server = locked_server().await;
    let proxy = Proxy::to(server.address()).unwrap();
    let through = server
        .url()
        .replace(&server.address().to_string(), &proxy.address().to_string());
    let (writer, listener) = (
        connect(server.url()).await.unwrap(),
        connect(&through).await.unwrap(),
    );
    let token = fill(&writer, 1).await;
    let idle = proxy.connections();
    let mut hints = listener.hints().unwrap();
    // The first hint reports that the watch has begun.
    rings(&mut hints).await;
    let mut another = listener.hints().unwrap();
    let token = commit(&writer, &insert(&token, [5])).await;
    rings(&mut hints).await;
    rings(&mut another).await;
    assert!(
        proxy.connections() <= idle + 1,
        "one connection for all listeners of a table"
    );
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    // The token was lost with the member's memory; the watch gets a new one.
    rings(&mut hints).await;
    until("the writer is back", async || {
        read_kind(&writer, Some(&token)).await.is_ok()
    })
    .await;
    let token = commit(&writer, &insert(&token, [6])).await;
    rings(&mut hints).await;
    // A compaction may remove the history, because a watch never needs it.
    let shell = Shell::of(server.url()).await.unwrap();
    let now = shell
        .call("/v3/kv/range", json!({ "key": "AA==" }))
        .await
        .unwrap()["header"]["revision"]
        .clone();
    shell
        .call(
            "/v3/kv/compaction",
            json!({ "revision": now, "physical": true }),
        )
        .await
        .unwrap();
    assert!(proxy.cut_connections() > 0);
    rings(&mut hints).await;
    commit(&writer, &insert(&token, [7])).await;
    rings(&mut hints).await;
    let listening = proxy.connections();
    drop((hints, another));
    until("there is no listener any more", async || {
        proxy.connections() < listening
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
    until("the connections are closed", async || {
        proxy.connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_conflict_sends_no_hint() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    let stale = fill(&table, 1).await;
    let token = commit(&table, &insert(&stale, [5])).await;
    let mut hints = table.hints().unwrap();
    rings(&mut hints).await;
    table.commit(&insert(&stale, [6])).await.unwrap();
    table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
    // Hints that follow each other are merged; a late hint would be taken for the commit's own.
    assert!(
        tokio::time::timeout(SILENCE, hints.next()).await.is_err(),
        "it has rung"
    );
    commit(&table, &insert(&token, [6])).await;
    rings(&mut hints).await;
    // One commit makes one hint; the conflict and the heartbeat before it made none.
    assert!(
        tokio::time::timeout(SILENCE, hints.next()).await.is_err(),
        "it has rung once more"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_moves_to_another_member() {
    let cluster = three_members().await;
    let (writer, listener) = (
        connect(&cluster.url()).await.unwrap(),
        connect(&cluster.url()).await.unwrap(),
    );
    let token = fill(&writer, 1).await;
    let mut hints = listener.hints().unwrap();
    rings(&mut hints).await;
    // Both ask the first member first.
    cluster.servers()[0].kill().await.unwrap();
    rings(&mut hints).await;
    until("the others serve", async || {
        read_kind(&writer, Some(&token)).await.is_ok()
    })
    .await;
    commit(&writer, &insert(&token, [5])).await;
    rings(&mut hints).await;
}
