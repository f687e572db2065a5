//! Hints continue after restarts of the server, also when it comes back empty. They cost one open
//! query, and none without a listener.

use std::time::Duration;

use futures_util::StreamExt as _;
use membership_core::{HintStream, MembershipTable};

use crate::support::*;
use conformance_tests::helpers::*;

async fn rings(stream: &mut HintStream) -> bool {
    matches!(
        tokio::time::timeout(Duration::from_secs(30), stream.next()).await,
        Ok(Some(()))
    )
}

/// Takes all hints until now.
async fn quiet(stream: &mut HintStream) {
    while let Ok(Some(())) = tokio::time::timeout(Duration::from_millis(500), stream.next()).await {
    }
}

#[tokio::test]
async fn hints_outlive_restarts_and_an_empty_server() {
    let server = server().await;
    let (listener, writer) = (
        connect(server.url()).await.unwrap(),
        connect(server.url()).await.unwrap(),
    );
    let mut stream = listener.hints().unwrap();
    let token = fill(&writer, 1).await;
    assert!(rings(&mut stream).await, "a commit is not heard");
    quiet(&mut stream).await;
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    quiet(&mut stream).await;
    commit(&writer, &insert(&token, [7])).await;
    assert!(
        rings(&mut stream).await,
        "a commit after a restart is not heard"
    );
    // An empty server counts from the beginning: below the index of the query.
    server.wipe().await.unwrap();
    quiet(&mut stream).await;
    fill(&writer, 1).await;
    assert!(
        rings(&mut stream).await,
        "a commit in an emptied server is not heard"
    );
    drop(listener);
    quiet(&mut stream).await;
    assert!(
        tokio::time::timeout(Duration::from_secs(30), stream.next())
            .await
            .unwrap()
            .is_none(),
        "the stream outlives its table"
    );
}
