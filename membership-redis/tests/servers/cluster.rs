//! Redis Cluster: the owner of the slot is found, and found again when the slot has moved.

use conformance_tests::launch::{Kind, Server};
use membership_core::{Durability, MembershipTable, Recency, TableErrorKind};

use crate::support::nodes::Cluster;
use crate::support::table::*;
use crate::support::*;

#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let cluster = Cluster::start(kind).await;
        let table = connect(&cluster.url()).await.unwrap();
        let guarantees = table.guarantees();
        assert_eq!((guarantees.reads, guarantees.durability), (Recency::MonotonicPerClient, Durability::MayBeLost));
        let mut token = fill(&table, 3).await;
        // With a key missing, commands of several keys are refused while a slot moves.
        table.update_i_am_alive(&beat(1, 0)).await.unwrap();
        let at = key(&blue(), "version");
        let slot = shell::<u64>(&cluster.nodes[0], &["CLUSTER", "KEYSLOT", &at]).await.to_string();
        for _ in 0..2 {
            let from = cluster.owner_now(&at).await;
            let to = cluster.nodes.iter().find(|node| node.address() != from.address()).unwrap();
            let (from_id, to_id): (String, String) = (shell(from, &["CLUSTER", "MYID"]).await, shell(to, &["CLUSTER", "MYID"]).await);
            shell::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
            shell::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
            // Nothing has moved yet.
            token = commit(&table, &insert(&token, [token.version() + 10])).await;
            let port = to.address().port().to_string();
            let keys: Vec<String> = shell(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
            // Some keys here, some there: certainly not applied, and to be tried again.
            shell::<()>(from, &["MIGRATE", "127.0.0.1", &port, &keys[0], "0", "5000"]).await;
            assert_eq!(commit_kind(&table, &insert(&token, [99])).await, TableErrorKind::Busy);
            for key in &keys[1..] {
                shell::<()>(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await;
            }
            // Everything is there, and the slot is not yet: ASK.
            token = commit(&table, &insert(&token, [token.version() + 10])).await;
            table.update_i_am_alive(&beat(1, token.version())).await.unwrap();
            for node in [to, from] {
                shell::<()>(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
            }
            // MOVED.
            token = commit(&table, &insert(&token, [token.version() + 10])).await;
            assert_eq!(read(&table).await.0.token, token);
        }
        // Another client begins at a node that owns nothing of it.
        assert_eq!(read(&connect(&cluster.url()).await.unwrap()).await.0.token, token);
    }
}

#[tokio::test]
async fn a_cluster_without_the_slots_owner_is_unavailable() {
    let cluster = Cluster::start(Kind::Redis).await;
    let table = connect(&format!("{}?operation_timeout=2s", cluster.url())).await.unwrap();
    let token = fill(&table, 3).await;
    let owner = cluster.owner_now(&key(&blue(), "version")).await;
    owner.kill().await.unwrap();
    let kind = commit_kind(&table, &insert(&token, [7])).await;
    assert!(matches!(kind, TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable), "{kind:?}");
    assert_eq!(read_kind(&table, Some(&token)).await, Err(TableErrorKind::Unavailable));
    owner.start_again().await.unwrap();
    until("the owner is back", async || read_kind(&table, Some(&token)).await.is_ok()).await;
}

#[tokio::test]
async fn a_plain_url_to_a_cluster_says_what_to_use() {
    let cluster = Cluster::start(Kind::Redis).await;
    let at = key(&blue(), "version");
    let owner = cluster.owner_now(&at).await.address();
    let stranger = cluster.nodes.iter().find(|node| node.address() != owner).unwrap();
    let table = connect(stranger.url()).await.unwrap();
    let error = initialize(&table).await.unwrap_err();
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

impl Cluster {
    async fn owner_now(&self, key: &str) -> &Server {
        for node in &self.nodes {
            let mut raw = raw(node.url()).await.unwrap();
            if redis::cmd("HLEN").arg(key).exec_async(&mut raw).await.is_ok() {
                return node;
            }
        }
        panic!("nobody owns {key}");
    }
}
