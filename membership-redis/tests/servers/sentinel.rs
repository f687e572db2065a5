//! A master, a replica and a sentinel: the master is found, and found again after it has died.

use std::time::Duration;

use conformance_tests::launch::Kind;
use membership_core::{Durability, MembershipTable, Recency, TableErrorKind};

use crate::support::nodes::Watched;
use crate::support::table::*;
use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_dead_master_is_found() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(1)).await;
        let table = connect(&format!("{}?min_replicas=1&operation_timeout=3s", watched.url())).await.unwrap();
        let guarantees = table.guarantees();
        assert_eq!((guarantees.reads, guarantees.durability), (Recency::MonotonicPerClient, Durability::MayBeLost));
        let token = fill(&table, 3).await;
        watched.master.kill().await.unwrap();
        let kind = commit_kind(&table, &insert(&token, [7])).await;
        assert!(matches!(kind, TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable), "{kind:?}");
        let calm = connect_when_possible(&watched).await;
        // Confirmed by the replica before: still there.
        assert_eq!(read(&calm).await.0.token, token);
        until("the old handle follows", async || read_kind(&table, Some(&token)).await.is_ok()).await;
        commit(&calm, &insert(&token, [8])).await;
        assert_eq!(read(&table).await.0.version(), token.version() + 1);
    }
}

async fn connect_when_possible(watched: &Watched) -> membership_redis::RedisTable {
    let found = std::cell::RefCell::new(None);
    until("the replica is promoted", async || {
        let Ok(table) = connect(&format!("{}?operation_timeout=2s", watched.url())).await else { return false };
        if read_kind(&table, None).await.is_err() {
            return false;
        }
        *found.borrow_mut() = Some(table);
        true
    })
    .await;
    found.into_inner().unwrap()
}

#[tokio::test]
async fn an_unknown_master_is_a_configuration_error() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(1)).await;
    let url = format!("redis+sentinel://{}/other", watched.sentinel.address());
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Configuration);
    assert!(error.to_string().contains("`other`"), "{error}");
    // One sentinel that is away is no harm.
    let url = format!("redis+sentinel://127.0.0.1:1,{}/main", watched.sentinel.address());
    fill(&connect(&url).await.unwrap(), 1).await;
}
