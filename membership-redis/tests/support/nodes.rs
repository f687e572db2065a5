//! Several servers together: a master with a replica and a sentinel, and a cluster of three. Clients find them by the addresses that they
//! advertise, and these are a proxy's.

use std::time::Duration;

use conformance_tests::launch::{Kind, Server, free_port};
use conformance_tests::proxy::Proxy;

use super::{server, shell, until};

/// A replica of a server.
pub async fn replica_of(master: &Server, more: &[&str]) -> Server {
    let follow = format!("127.0.0.1 {}", master.address().port());
    let args = [&["--replicaof", &follow, "--repl-diskless-sync-delay", "0"], more].concat();
    let replica = server(master.kind(), &args).await;
    in_step(&replica).await;
    replica
}

/// Waits until a replica follows its master.
pub async fn in_step(replica: &Server) {
    until("a replica follows", async || shell::<String>(replica, &["INFO", "replication"]).await.contains("master_link_status:up")).await;
}

/// Three masters, each of which owns a third of the slots.
pub struct Cluster {
    pub nodes: Vec<Server>,
    pub proxy: Proxy,
}

impl Cluster {
    pub async fn start(kind: Kind) -> Self {
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = Proxy::on(any, None).unwrap();
        proxy.also(any, None).unwrap();
        proxy.also(any, None).unwrap();
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
                "5000",
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
            let (first, last) = (n * 16384 / 3, (n + 1) * 16384 / 3 - 1);
            shell::<()>(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await;
            shell::<()>(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).await;
            if n > 0 {
                let port = proxy.addresses()[n].port().to_string();
                shell::<()>(&nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &buses[n]]).await;
            }
        }
        let cluster = Self { nodes, proxy };
        cluster.is_whole().await;
        cluster
    }

    /// Waits until every node knows that every slot is served.
    pub async fn is_whole(&self) {
        for node in &self.nodes {
            until("the cluster is there", async || {
                let info: String = shell(node, &["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            })
            .await;
        }
    }

    /// How clients are told to connect: one node is enough.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.proxy.addresses()[0])
    }

    /// The node that owns this key.
    pub async fn owner(&self, key: &str) -> &Server {
        let slot: u64 = shell(&self.nodes[0], &["CLUSTER", "KEYSLOT", key]).await;
        let third = (0..3).find(|n| slot < (n + 1) * 16384 / 3).unwrap();
        &self.nodes[usize::try_from(third).unwrap()]
    }
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
        let durable = ["--appendonly", "yes", "--appendfsync", "always", "--replica-announce-ip", "127.0.0.1", "--replica-announce-port"];
        let announced: Vec<String> = doors.iter().map(|door| door.port().to_string()).collect();
        let master = server(kind, &[&durable[..], &[&announced[0]]].concat()).await;
        proxy.set_target_of(doors[0], master.address());
        let port = announced[0].as_str();
        let whom = format!("127.0.0.1 {port}");
        let follow = ["--replicaof", &whom, "--repl-diskless-sync-delay", "0"];
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
            !shell::<Vec<redis::Value>>(&sentinel, &["SENTINEL", "REPLICAS", MASTER]).await.is_empty()
        })
        .await;
        Self { master, replica, sentinel, proxy }
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{MASTER}", self.sentinel.address())
    }
}
