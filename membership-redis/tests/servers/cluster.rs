//! Redis Cluster: the client finds the owner of the slot, and finds it again when the slot has
//! moved.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use membership_core::{
    CommitId, CommitOutcome, CommitRequest, Durability, HeartbeatWrite, MembershipTable,
    ReadAnswer, ReadRequest, Recency, TableError, TableErrorKind, VersionToken,
};
use membership_testbed::{Kind, Server};

use crate::support::load::{Load, Phase};
use crate::support::nodes::{Cluster, caught_up, cut_off, in_step};
use crate::support::*;
use conformance_tests::helpers::*;
use conformance_tests::silent::SilentHost;

#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let cluster = Cluster::start(kind).await;
        let table = connect(&cluster.url()).await.unwrap();
        let guarantees = table.guarantees();
        assert_eq!(
            (guarantees.reads, guarantees.durability),
            (Recency::MonotonicPerClient, Durability::MayBeLost)
        );
        let mut token = fill(&table, 3).await;
        // While a slot moves, commands of several keys are refused if one of the keys is missing.
        table.update_i_am_alive(&heartbeat(1, 0)).await.unwrap();
        let at = key(&blue(), "version");
        let slot = shell::<u64>(&cluster.nodes[0], &["CLUSTER", "KEYSLOT", &at])
            .await
            .to_string();
        for _ in 0..2 {
            let from = owner_now(&cluster, &at).await;
            let to = cluster
                .nodes
                .iter()
                .find(|node| node.address() != from.address())
                .unwrap();
            let (from_id, to_id): (String, String) = (
                shell(from, &["CLUSTER", "MYID"]).await,
                shell(to, &["CLUSTER", "MYID"]).await,
            );
            shell::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
            shell::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
            // Nothing has moved yet.
            token = commit(&table, &insert(&token, [token.version() + 10])).await;
            let port = to.address().port().to_string();
            let keys: Vec<String> = shell(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
            // Some keys have moved, some have not: certainly not applied, and to be tried again.
            shell::<()>(
                from,
                &["MIGRATE", "127.0.0.1", &port, &keys[0], "0", "5000"],
            )
            .await;
            assert_eq!(
                commit_kind(&table, &insert(&token, [99])).await,
                TableErrorKind::Busy
            );
            for key in &keys[1..] {
                shell::<()>(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await;
            }
            // All keys have moved, but the slot has not: ASK.
            token = commit(&table, &insert(&token, [token.version() + 10])).await;
            table
                .update_i_am_alive(&heartbeat(1, token.version()))
                .await
                .unwrap();
            epochs_agree(&cluster).await;
            for node in [to, from] {
                shell::<()>(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
            }
            // The slot has moved: MOVED.
            let request = insert(&token, [token.version() + 10]);
            token = match once_agreed(async || table.commit(&request).await).await {
                CommitOutcome::Committed(token) => token,
                other => panic!("{other:?}"),
            };
            assert_eq!(token_once_agreed(&table).await, token);
        }
        // Another client begins at a node that owns none of the keys.
        let other = once_agreed(async || connect(&cluster.url()).await).await;
        assert_eq!(token_once_agreed(&other).await, token);
    }
}

/// While a slot moves, the nodes refuse a command of several keys if one of the keys is missing: so a
/// new table has them all, and so has an older one after a silo has started on it.
#[tokio::test]
async fn a_moving_slot_serves_a_table_without_heartbeats() {
    let cluster = Cluster::start(Kind::Redis).await;
    let table = connect(&cluster.url()).await.unwrap();
    let token = fill(&table, 3).await;
    let at = key(&blue(), "version");
    let from = owner_now(&cluster, &at).await;
    // As an older build left it.
    for what in ["heartbeats", "cell"] {
        shell::<()>(from, &["DEL", &key(&blue(), what)]).await;
    }
    initialize(&table).await.unwrap();
    let to = cluster
        .nodes
        .iter()
        .find(|node| node.address() != from.address())
        .unwrap();
    let slot = shell::<u64>(from, &["CLUSTER", "KEYSLOT", &at])
        .await
        .to_string();
    let (from_id, to_id): (String, String) = (
        shell(from, &["CLUSTER", "MYID"]).await,
        shell(to, &["CLUSTER", "MYID"]).await,
    );
    shell::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    shell::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    let (_, heartbeats) = read(&table).await;
    assert_eq!((heartbeats.silos.len(), heartbeats.cluster), (0, None));
    table.update_i_am_alive(&heartbeat(1, 0)).await.unwrap();
    table.read_row(&silo(1), None).await.unwrap();
    let token = commit(&table, &remove(&token, 2)).await;
    // Every key has moved, and the slot has not.
    let port = to.address().port().to_string();
    let keys: Vec<String> = shell(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
    for key in &keys {
        shell::<()>(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await;
    }
    for text in ["\0", "x"] {
        let text = text.to_owned();
        let cell = HeartbeatWrite::Cluster { text: text.clone() };
        table.update_i_am_alive(&cell).await.unwrap();
        assert_eq!(read(&table).await.1.cluster, Some(text));
    }
    commit(&table, &remove(&token, 1)).await;
}

/// While a slot moves, a script may not touch a key that it has emptied: so it empties none that it
/// still needs. Clause T2.
#[tokio::test]
async fn a_commit_that_replaces_every_row_in_a_moving_slot_is_whole() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let cluster = Cluster::start(kind).await;
        let table = connect(&cluster.url()).await.unwrap();
        let token = fill(&table, 2).await;
        table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
        let at = key(&blue(), "version");
        let from = owner_now(&cluster, &at).await;
        // As an older build left it: with that heartbeat alone.
        shell::<()>(from, &["HDEL", &key(&blue(), "heartbeats"), ""]).await;
        let mut nodes = cluster.nodes.iter();
        let to = nodes.find(|node| node.address() != from.address()).unwrap();
        let slot: u64 = shell(from, &["CLUSTER", "KEYSLOT", &at]).await;
        let to_id: String = shell(to, &["CLUSTER", "MYID"]).await;
        let moves = ["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &to_id];
        shell::<()>(from, &moves).await;
        let request = CommitRequest::new(
            token,
            CommitId::new(unique()),
            None,
            [entry(8), entry(9)],
            [],
            [silo(0).row_key(), silo(1).row_key()],
        );
        let token = commit(&table, &request).await;
        let fields = ["HMGET", &at, "version", "row_count"];
        let counted: Vec<u64> = shell(from, &fields).await;
        assert_eq!(counted, [token.version(), 2]);
        let mut rows: Vec<String> = shell(from, &["HKEYS", &key(&blue(), "rows")]).await;
        rows.sort();
        assert_eq!(rows, [8, 9].map(|n| silo(n).row_key()));
    }
}

/// Tries again while the nodes of a cluster may redirect in a circle: until every node has heard
/// that a slot has moved. Nothing has happened in the meantime.
async fn once_agreed<T>(operation: impl AsyncFn() -> Result<T, TableError>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match operation().await {
            Err(error)
                if error.kind() == TableErrorKind::Unavailable && Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            other => break other.unwrap(),
        }
    }
}

/// Waits until the masters have heard of each other's epochs, and no two have the same one. A slot is given
/// to another node by a new epoch: one that has been taken already would be settled between the two
/// nodes later, and the slot with it, maybe in favour of neither.
async fn epochs_agree(cluster: &Cluster) {
    until("the nodes agree about epochs", async || {
        let (mut current, mut own) = (BTreeSet::new(), BTreeSet::new());
        for node in &cluster.nodes {
            let info: String = shell(node, &["CLUSTER", "INFO"]).await;
            let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
            current.insert(of("cluster_current_epoch:").map(str::to_owned));
            own.insert(of("cluster_my_epoch:").map(str::to_owned));
        }
        current.len() == 1 && own.len() == cluster.nodes.len()
    })
    .await;
}

/// The token that is read, as [`once_agreed`].
async fn token_once_agreed(table: &dyn MembershipTable) -> VersionToken {
    match once_agreed(async || table.read(&ReadRequest::all()).await).await {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot.token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cluster_without_the_slots_owner_is_unavailable() {
    let cluster = Cluster::start(Kind::Redis).await;
    let table = connect(&format!("{}?operation_timeout=2s", cluster.url()))
        .await
        .unwrap();
    let token = fill(&table, 3).await;
    let owner = owner_now(&cluster, &key(&blue(), "version")).await;
    owner.kill().await.unwrap();
    let kind = commit_kind(&table, &insert(&token, [7])).await;
    assert!(
        matches!(
            kind,
            TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable
        ),
        "{kind:?}"
    );
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Unavailable)
    );
    owner.start_again().await.unwrap();
    until("the owner is back", async || {
        read_kind(&table, Some(&token)).await.is_ok()
    })
    .await;
}

/// Of the nodes in the URL only the owner serves, and nobody but itself calls it the owner: whoever
/// asks the others finds out that they are silent, and does not ask them again in the same search.
#[tokio::test]
async fn silent_nodes_beside_the_owner_are_waited_for_once() {
    let cluster = Cluster::start(Kind::Redis).await;
    let owner = owner_now(&cluster, &key(&blue(), "version")).await;
    let silent = [SilentHost::start().await, SilentHost::start().await];
    let [one, other] = silent.each_ref().map(SilentHost::address);
    let url = format!("redis+cluster://{one},{},{other}", owner.address());
    let table = connect(&url).await.unwrap();
    fill(&table, 3).await;
    for _ in 0..3 {
        let began = Instant::now();
        let anew = ReadRequest::all().with_new_connection(true);
        table.read(&anew).await.unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_millis(1_800), "{took:?}");
    }
}

/// Writers with one handle each, on a table that the owner's replicas already have: if a takeover
/// lost the beginning of the table, no writer could continue.
async fn writers(cluster: &Cluster) -> Load {
    fill(&connect(&cluster.url()).await.unwrap(), 0).await;
    let owner = owner_now(cluster, &key(&blue(), "version")).await;
    for replica in &cluster.nodes[3..] {
        caught_up(replica, owner).await;
    }
    let mut tables = Vec::new();
    for _ in 0..4 {
        tables.push(
            connect(&format!("{}?operation_timeout=2s", cluster.url()))
                .await
                .unwrap(),
        );
    }
    Load::start(tables)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_dead_owner_is_followed_under_load() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let at = key(&blue(), "version");
        let cluster = Cluster::with_replicas(kind, &at, 2).await;
        let load = writers(&cluster).await;
        load.everybody_commits(20).await;
        let owner = owner_now(&cluster, &at).await;
        load.enter(Phase::Trouble);
        owner.kill().await.unwrap();
        load.enter(Phase::After);
        load.everybody_commits(20).await;
        // The killed owner comes back as a replica of its successor.
        owner.start_again().await.unwrap();
        in_step(owner).await;
        load.enter(Phase::After);
        load.everybody_commits(20).await;
        let ended = load.end(&connect(&cluster.url()).await.unwrap()).await;
        let lost = ended.lost();
        assert!(
            lost.is_empty() || ended.told > 0,
            "versions {lost:?} are lost, and no writer got an error"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_takeover_loses_nothing() {
    let at = key(&blue(), "version");
    let cluster = Cluster::with_replicas(Kind::Redis, &at, 1).await;
    let load = writers(&cluster).await;
    load.everybody_commits(20).await;
    load.enter(Phase::Trouble);
    let heir = &cluster.nodes[3];
    shell::<()>(heir, &["CLUSTER", "FAILOVER"]).await;
    until("the replica is the owner", async || {
        shell::<String>(heir, &["INFO", "replication"])
            .await
            .contains("role:master")
    })
    .await;
    load.enter(Phase::After);
    load.everybody_commits(20).await;
    let ended = load.end(&connect(&cluster.url()).await.unwrap()).await;
    assert_eq!((ended.lost(), ended.told), (Vec::new(), 0));
}

/// Commits that the successor never received are lost although they were acknowledged. A client
/// that knows them gets an error, and none of them is applied or returns.
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_a_takeover_loses_are_reported() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let at = key(&blue(), "version");
        let cluster = Cluster::with_replicas(kind, &at, 2).await;
        let owner = owner_now(&cluster, &at).await;
        // The client knows only the owner's address; it learns the other nodes from the owner.
        let table = connect(&format!("{}?operation_timeout=3s", cluster.url_of(owner)))
            .await
            .unwrap();
        let old = fill(&table, 3).await;
        for replica in &cluster.nodes[3..] {
            caught_up(replica, owner).await;
        }
        // Most nodes name the owner.
        let barrier = ReadRequest::all().with_barrier(true);
        table.read(&barrier).await.unwrap();
        cut_off(owner).await;
        let mut lost = old.clone();
        for n in 7..10 {
            lost = commit(&table, &insert(&lost, [n])).await;
        }
        owner.kill().await.unwrap();
        until("the table is served again", async || {
            read_kind(&table, Some(&lost)).await != Err(TableErrorKind::Unavailable)
        })
        .await;
        assert_eq!(
            read_kind(&table, Some(&lost)).await,
            Err(TableErrorKind::TableRolledBack)
        );
        for request in [insert(&lost, [20]), update(&lost, 1, "x"), remove(&lost, 1)] {
            assert_eq!(
                commit_kind(&table, &request).await,
                TableErrorKind::TableRolledBack
            );
            assert_eq!(
                commit_kind(&table, &request.again()).await,
                TableErrorKind::TableRolledBack
            );
        }
        // A client that knew nothing newer continues, also with the same handle.
        assert_eq!(read(&table).await.0.token, old);
        let token = commit(&table, &insert(&old, [30])).await;
        owner.start_again().await.unwrap();
        in_step(owner).await;
        assert_eq!(
            read_kind(&table, Some(&lost)).await,
            Err(TableErrorKind::TableRolledBack)
        );
        let now = read(&connect(&cluster.url_of(owner)).await.unwrap())
            .await
            .0;
        assert_eq!(now.token, token);
        assert!(
            (7..10).all(|n| now.rows.get(&silo(n)).is_none()) && now.rows.get(&silo(30)).is_some()
        );
    }
}

#[tokio::test]
async fn a_plain_url_to_a_cluster_says_what_to_use() {
    let cluster = Cluster::start(Kind::Redis).await;
    let at = key(&blue(), "version");
    let owner = owner_now(&cluster, &at).await.address();
    let stranger = cluster
        .nodes
        .iter()
        .find(|node| node.address() != owner)
        .unwrap();
    let table = connect(stranger.url()).await.unwrap();
    let error = initialize(&table).await.unwrap_err();
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

/// The node that owns this key now.
async fn owner_now<'a>(cluster: &'a Cluster, key: &str) -> &'a Server {
    for node in &cluster.nodes {
        let mut raw = raw(node.url()).await.unwrap();
        let ask = redis::cmd("HLEN").arg(key).exec_async(&mut raw).await;
        if ask.is_ok() {
            return node;
        }
    }
    panic!("no node owns {key}");
}
