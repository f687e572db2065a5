//! Several servers together: a master with a replica and a sentinel, and a cluster of three. Clients find them by the addresses that they
//! advertise, and these are a proxy's.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::Servers;
use membership_core::ClusterName;
use membership_testbed::{Kind, Server, free_port};

use super::{key, raw, server, shell, until};

/// A replica of a server.
pub async fn replica_of(master: &Server, more: &[&str]) -> Server {
    let port = master.address().port().to_string();
    let args = [
        &[
            "--replicaof",
            "127.0.0.1",
            &port,
            "--repl-diskless-sync-delay",
            "0",
        ],
        more,
    ]
    .concat();
    let replica = server(master.kind(), &args).await;
    in_step(&replica).await;
    replica
}

/// Waits until a replica follows its master.
pub async fn in_step(replica: &Server) {
    until("a replica follows", async || {
        shell::<String>(replica, &["INFO", "replication"])
            .await
            .contains("master_link_status:up")
    })
    .await;
}

/// How long a node of a cluster may be silent before the others take it for dead. Short enough to be waited for, and long enough for a busy
/// machine.
const NODE_TIMEOUT: &str = "3000";

/// Three masters, each of which owns a third of the slots, and replicas of one of them.
pub struct Cluster {
    /// The masters first.
    pub nodes: Vec<Server>,
    pub proxy: Proxy,
}

impl Cluster {
    pub async fn start(kind: Kind) -> Self {
        Self::with_replicas(kind, "", 0).await
    }

    /// So many replicas follow the master that owns this key.
    pub async fn with_replicas(kind: Kind, key: &str, replicas: usize) -> Self {
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = Proxy::on(any, None).unwrap();
        for _ in 1..3 + replicas {
            proxy.also(any, None).unwrap();
        }
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for door in proxy.addresses() {
            let (announced, bus) = (door.port().to_string(), free_port().unwrap().to_string());
            let args = [
                "--cluster-enabled",
                "yes",
                "--cluster-config-file",
                "nodes.conf",
                "--cluster-node-timeout",
                NODE_TIMEOUT,
                // A replica takes over however long it has not heard from its master: what it lacks is lost, and that is what is looked at.
                "--cluster-replica-validity-factor",
                "0",
                "--repl-diskless-sync-delay",
                "0",
                "--cluster-port",
                &bus,
                "--cluster-announce-ip",
                "127.0.0.1",
                "--cluster-announce-port",
                &announced,
                "--cluster-announce-bus-port",
                &bus,
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ];
            let node = server(kind, &args).await;
            proxy.set_target_of(door, node.address());
            nodes.push(node);
            buses.push(bus);
        }
        for (n, node) in nodes.iter().enumerate() {
            if n < 3 {
                let (first, last) = (n * 16384 / 3, (n + 1) * 16384 / 3 - 1);
                shell::<()>(
                    node,
                    &[
                        "CLUSTER",
                        "ADDSLOTSRANGE",
                        &first.to_string(),
                        &last.to_string(),
                    ],
                )
                .await;
                shell::<()>(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).await;
            }
            if n > 0 {
                let port = proxy.addresses()[n].port().to_string();
                shell::<()>(
                    &nodes[0],
                    &["CLUSTER", "MEET", "127.0.0.1", &port, &buses[n]],
                )
                .await;
            }
        }
        let cluster = Self { nodes, proxy };
        cluster.is_whole().await;
        if replicas > 0 {
            let master: String = shell(cluster.owner(key).await, &["CLUSTER", "MYID"]).await;
            for replica in &cluster.nodes[3..] {
                until("a node knows the master", async || {
                    shell::<String>(replica, &["CLUSTER", "NODES"])
                        .await
                        .contains(&master)
                })
                .await;
                shell::<()>(replica, &["CLUSTER", "REPLICATE", &master]).await;
            }
            for replica in &cluster.nodes[3..] {
                in_step(replica).await;
            }
            cluster.knows_replicas(replicas).await;
        }
        cluster
    }

    /// Waits until every node that runs knows that every slot is served.
    pub async fn is_whole(&self) {
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        for node in &self.nodes {
            until("the cluster is there", async || {
                let info: String = shell(node, &["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains(&known)
            })
            .await;
        }
    }

    /// Waits until every node knows so many replicas.
    async fn knows_replicas(&self, replicas: usize) {
        for node in &self.nodes {
            until("everybody knows the replicas", async || {
                let nodes: String = shell(node, &["CLUSTER", "NODES"]).await;
                nodes.matches("slave").count() == replicas && !nodes.contains("fail")
            })
            .await;
        }
    }

    /// How clients are told to connect: one node is enough.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.proxy.addresses()[0])
    }

    /// How clients connect that know of this node only.
    pub fn url_of(&self, node: &Server) -> String {
        let at = self
            .nodes
            .iter()
            .position(|n| n.address() == node.address())
            .unwrap();
        format!("redis+cluster://{}", self.proxy.addresses()[at])
    }

    /// The master that owned this key in the beginning.
    pub async fn owner(&self, key: &str) -> &Server {
        let addresses = self.addresses();
        let owner = owner(&addresses, key).await;
        let owner = addresses.iter().position(|address| *address == owner);
        &self.nodes[owner.unwrap()]
    }
}

#[async_trait]
impl Servers for Cluster {
    fn url(&self) -> String {
        Cluster::url(self)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::address).collect()
    }

    fn is_external(&self) -> bool {
        false
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        for node in &self.nodes {
            node.set_running(running).await?;
        }
        if running {
            self.is_whole().await;
        }
        Ok(())
    }

    /// The node that owns the cluster's keys.
    async fn kill_leader(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let owner = self.owner(&key(cluster, "version")).await;
        owner.set_running(false).await?;
        owner.set_running(true).await?;
        self.is_whole().await;
        Ok(())
    }

    fn advertised_proxy(&self) -> Option<Proxy> {
        Some(self.proxy.clone())
    }
}

/// Of a cluster's nodes, the masters first, the one that owned this key in the beginning.
pub async fn owner(nodes: &[SocketAddr], key: &str) -> SocketAddr {
    let mut first = raw(&format!("redis://{}", nodes[0])).await.unwrap();
    let mut ask = redis::cmd("CLUSTER");
    ask.arg("KEYSLOT").arg(key);
    let slot: usize = ask.query_async(&mut first).await.unwrap();
    let third = (0..3).find(|n| slot < (n + 1) * 16384 / 3).unwrap();
    nodes[third]
}

/// A number from what a server says of its replication.
pub async fn replication(server: &Server, field: &str) -> u64 {
    let info: String = shell(server, &["INFO", "replication"]).await;
    info.lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(field)?
                .strip_prefix(':')?
                .parse()
                .ok()
        })
        .unwrap()
}

/// Waits until this replica has what this master has now.
pub async fn caught_up(replica: &Server, master: &Server) {
    let due = replication(master, "master_repl_offset").await;
    until("the replica has caught up", async || {
        replication(replica, "slave_repl_offset").await >= due
    })
    .await;
}

/// From here on replicas hear nothing of this master any more: it has cut them off, and does not take them back.
pub async fn cut_off(master: &Server) {
    shell::<()>(master, &["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    shell::<()>(master, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    until("the replicas are cut off", async || {
        replication(master, "connected_slaves").await == 0
    })
    .await;
}

/// A master with a replica, watched by a sentinel.
pub struct Watched {
    pub master: Server,
    pub replica: Server,
    pub sentinel: Server,
    pub proxy: Proxy,
}

/// What the sentinel calls the master.
pub const MASTER: &str = "main";

impl Watched {
    /// The sentinel takes the master for dead when it was silent for so long.
    pub async fn start(kind: Kind, patience: Duration) -> Self {
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = Proxy::on(any, None).unwrap();
        proxy.also(any, None).unwrap();
        let doors = proxy.addresses();
        let durable = [
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--replica-announce-ip",
            "127.0.0.1",
            "--replica-announce-port",
        ];
        let announced: Vec<String> = doors.iter().map(|door| door.port().to_string()).collect();
        let master = server(kind, &[&durable[..], &[&announced[0]]].concat()).await;
        proxy.set_target_of(doors[0], master.address());
        let port = announced[0].as_str();
        let follow = [
            "--replicaof",
            "127.0.0.1",
            port,
            "--repl-diskless-sync-delay",
            "0",
        ];
        let replica = server(kind, &[&durable[..], &[&announced[1]], &follow].concat()).await;
        proxy.set_target_of(doors[1], replica.address());
        in_step(&replica).await;
        let config = replica.folder().unwrap().join("sentinel.conf");
        std::fs::write(
            &config,
            format!(
                "sentinel monitor {MASTER} 127.0.0.1 {port} 1\nsentinel down-after-milliseconds {MASTER} {}\n\
                 sentinel failover-timeout {MASTER} 3000\n",
                patience.as_millis()
            ),
        )
        .unwrap();
        let sentinel = server(kind, &[config.to_str().unwrap(), "--sentinel"]).await;
        until("the sentinel knows the replica", async || {
            !shell::<Vec<redis::Value>>(&sentinel, &["SENTINEL", "REPLICAS", MASTER])
                .await
                .is_empty()
        })
        .await;
        Self {
            master,
            replica,
            sentinel,
            proxy,
        }
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{MASTER}", self.sentinel.address())
    }
}

/// To the suite the master is the server: its sentinel is in no hurry.
#[async_trait]
impl Servers for Watched {
    fn url(&self) -> String {
        Watched::url(self)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.master.address()]
    }

    fn is_external(&self) -> bool {
        false
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        self.master.set_running(running).await
    }

    fn advertised_proxy(&self) -> Option<Proxy> {
        Some(self.proxy.clone())
    }
}
