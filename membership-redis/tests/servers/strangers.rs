//! Servers that answer in the place of the right one: of another kind, of another cluster, with
//! other users, replicas, and former masters. Clauses T6, T13 and T16.

use std::net::SocketAddr;

use membership_core::{MembershipTable, ReadRequest, TableErrorKind, VersionToken};
use membership_testbed::{Kind, Server};

use crate::support::nodes::{Cluster, caught_up, in_step, replica_of};
use crate::support::*;
use conformance_tests::helpers::*;

/// How clients connect that know every node of a cluster, and this server first.
fn url_with_first(first: SocketAddr, cluster: &Cluster) -> String {
    let mut hosts = cluster.proxy.addresses();
    hosts.retain(|host| *host != first);
    hosts.insert(0, first);
    let hosts: Vec<String> = hosts.iter().map(SocketAddr::to_string).collect();
    format!("redis+cluster://{}?operation_timeout=4s", hosts.join(","))
}

/// A single server has every slot.
#[tokio::test]
async fn a_server_that_is_no_node_is_passed_over() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let cluster = Cluster::start(kind).await;
        let alone = server(kind, &[]).await;
        let url = url_with_first(alone.address(), &cluster);
        let table = connect(&url).await.unwrap();
        let token = fill(&table, 3).await;
        assert_eq!(
            shell::<u64>(&alone, &["DBSIZE"]).await,
            0,
            "written to a stranger"
        );
        assert_eq!(
            read(&connect(&cluster.url()).await.unwrap()).await.0.token,
            token
        );
    }
}

/// Every node has users and passwords of its own.
#[tokio::test]
async fn a_node_with_other_users_is_passed_over() {
    let cluster = Cluster::start(Kind::Redis).await;
    let locked = locked_server().await;
    let url = url_with_first(locked.address(), &cluster);
    let table = connect(&url).await.unwrap();
    fill(&table, 3).await;
}

/// The owner is dead, its replica has taken over, and its address belongs to another cluster.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_another_cluster_has_now_is_passed_over() {
    let at = key(&blue(), "version");
    let ours = Cluster::with_replicas(Kind::Redis, &at, 1).await;
    let theirs = Cluster::start(Kind::Redis).await;
    let url = url_with_first(ours.proxy.addresses()[0], &ours);
    let table = connect(&url).await.unwrap();
    let token = fill(&table, 3).await;
    let (owner, heir) = (ours.owner(&at).await, &ours.nodes[3]);
    caught_up(heir, owner).await;
    owner.kill().await.unwrap();
    has_taken_over(&ours).await;
    let nodes = ours.nodes.iter().map(|node| node.address());
    let mut doors = ours.proxy.addresses().into_iter().zip(nodes);
    let door = doors.find(|(_, node)| *node == owner.address()).unwrap().0;
    ours.proxy
        .set_target_of(door, theirs.owner(&at).await.address());
    // The client asks the last owner's address first.
    for _ in 0..3 {
        ours.proxy.cut_connections();
        serves_again("the owner is found", &table, &token).await;
    }
    // A new client is not led astray either, whichever node it names first.
    for first in &ours.proxy.addresses()[..3] {
        let table = connect(&url_with_first(*first, &ours)).await.unwrap();
        initialize(&table).await.unwrap();
        assert_eq!(read(&table).await.0.token, token, "{first}");
    }
    commit(&table, &insert(&token, [7])).await;
    let theirs = theirs.owner(&at).await;
    assert_eq!(shell::<u64>(theirs, &["DBSIZE"]).await, 0);
}

/// Waits until a client reads a version that it knows: until then it may have no answer, and no other one.
async fn serves_again(what: &str, table: &dyn MembershipTable, known: &VersionToken) {
    until(what, async || {
        let answer = read_kind(table, Some(known)).await;
        assert!(
            matches!(answer, Ok(()) | Err(TableErrorKind::Unavailable)),
            "{answer:?}"
        );
        answer.is_ok()
    })
    .await;
}

/// Waits until the fourth node owns what the first owner had, and the masters that run say so.
async fn has_taken_over(cluster: &Cluster) {
    let heir: String = shell(&cluster.nodes[3], &["CLUSTER", "MYID"]).await;
    for node in &cluster.nodes {
        until("the replica has taken over", async || {
            let Ok(mut raw) = raw(node.url()).await else {
                return true;
            };
            let nodes: Result<String, _> = redis::cmd("CLUSTER")
                .arg("NODES")
                .query_async(&mut raw)
                .await;
            nodes.is_ok_and(|nodes| {
                let mut lines = nodes.lines();
                lines.any(|line| line.starts_with(&heir) && line.contains("master"))
            })
        })
        .await;
    }
}

/// A replica that takes writes loses them with the next synchronisation.
#[tokio::test]
async fn a_replica_that_takes_writes_is_refused() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let master = server(kind, &[]).await;
        fill(&table_on(&master, "").await, 3).await;
        let replica = replica_of(&master, &["--replica-read-only", "no"]).await;
        match connect(replica.url()).await {
            Err(e) => assert_eq!(e.kind(), TableErrorKind::Unavailable, "{e}"),
            Ok(table) => {
                let read = table.read(&ReadRequest::all()).await;
                assert_eq!(read.unwrap_err().kind(), TableErrorKind::Unavailable);
            }
        }
    }
}

/// A server that cannot save, as with a full disk.
async fn cannot_save(server: &Server) {
    shell::<()>(server, &["CONFIG", "SET", "save", "900 1"]).await;
    std::fs::remove_dir_all(server.folder().unwrap()).unwrap();
    until("the server cannot save", async || {
        // It may be saving already.
        let mut raw = raw(server.url()).await.unwrap();
        let _saves = redis::cmd("BGSAVE").exec_async(&mut raw).await;
        let about: String = shell(server, &["INFO", "persistence"]).await;
        about.contains("rdb_last_bgsave_status:err")
    })
    .await;
    std::fs::create_dir_all(server.folder().unwrap()).unwrap();
}

/// Valkey's replicas then say so, and not that they are replicas.
#[tokio::test]
async fn a_replica_that_cannot_save_is_refused_and_a_master_is_read() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let master = server(kind, &[]).await;
        let at_master = table_on(&master, "").await;
        let token = fill(&at_master, 3).await;
        // It becomes a replica under connected clients.
        let replica = server(kind, &[]).await;
        let (reads, rows) = (table_on(&replica, "").await, table_on(&replica, "").await);
        let port = master.address().port().to_string();
        shell::<()>(&replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        in_step(&replica).await;
        for server in [&master, &replica] {
            cannot_save(server).await;
        }
        for known in [None, Some(&token)] {
            let refused = Err(TableErrorKind::Unavailable);
            assert_eq!(read_kind(&reads, known).await, refused);
            let row = rows.read_row(&silo(1), known).await;
            assert_eq!(row.unwrap_err().kind(), TableErrorKind::Unavailable);
            assert_eq!(read_kind(&at_master, known).await, Ok(()));
            at_master.read_row(&silo(1), known).await.unwrap();
        }
        assert_eq!(
            commit_kind(&at_master, &insert(&token, [7])).await,
            TableErrorKind::Unavailable
        );
    }
}

/// The owner is frozen until its replica has taken over, and thawed with clients that are connected.
#[tokio::test(flavor = "multi_thread")]
async fn a_thawed_owner_is_left() {
    let at = key(&blue(), "version");
    let cluster = Cluster::with_replicas(Kind::Redis, &at, 1).await;
    let url = url_with_first(cluster.proxy.addresses()[0], &cluster);
    let (reads, commits) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let token = fill(&reads, 3).await;
    assert_eq!(read(&commits).await.0.token, token);
    let owner = cluster.owner(&at).await;
    caught_up(&cluster.nodes[3], owner).await;
    owner.pause().await.unwrap();
    let heir = connect(cluster.nodes[3].url()).await.unwrap();
    until("the replica has taken over", async || {
        read_kind(&heir, Some(&token)).await.is_ok()
    })
    .await;
    let newer = commit(&heir, &insert(&token, [7])).await;
    owner.resume().await.unwrap();
    // While the cluster tells the former owner of its successor, nobody may own the slot for a moment.
    serves_again("the thawed owner is left", &reads, &newer).await;
    commit(&commits, &insert(&newer, [8])).await;
}
