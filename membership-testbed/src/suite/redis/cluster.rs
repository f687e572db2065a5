//! Redis Cluster: three masters, and replicas of one of them.

use std::net::SocketAddr;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::helpers::until;
use conformance_tests::servers::Servers;
use membership_core::ClusterName;
use membership_fault_proxy::Proxy;

use super::{AT_ONCE, DURABLE, ask, in_step, proxy, server};
use crate::launch::redis_call;
use crate::{Kind, Server, free_port};

/// How long a node may be silent before the others take it for dead, in milliseconds. Short enough
/// to be waited for, and long enough for a busy machine.
const NODE_TIMEOUT: &str = "3000";
/// The slots of every cluster; a master has a third of them.
const SLOTS: usize = 16_384;

/// Three masters, each of which owns a third of the slots, and replicas of one of them.
pub struct Cluster {
    /// The masters first.
    pub nodes: Vec<Server>,
    /// Clients and nodes reach each node through it.
    pub proxy: Proxy,
}

impl Cluster {
    /// Without replicas.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(kind: Kind) -> Self {
        Self::with_replicas(kind, "", 0).await
    }

    /// So many replicas follow the master that owns this key.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn with_replicas(kind: Kind, key: &str, replicas: usize) -> Self {
        let proxy = proxy(3 + replicas);
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for door in proxy.addresses() {
            let bus = free_port().unwrap().to_string();
            let node = server(kind, &node_arguments(&door.port().to_string(), &bus)).await;
            proxy.set_target_of(door, node.address());
            nodes.push(node);
            buses.push(bus);
        }
        for (n, node) in nodes.iter().enumerate() {
            if n < 3 {
                let (first, last) = (n * SLOTS / 3, (n + 1) * SLOTS / 3 - 1);
                let (first, last) = (first.to_string(), last.to_string());
                ask(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
                let epoch = (n + 1).to_string();
                ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
            }
            if n > 0 {
                let port = proxy.addresses()[n].port().to_string();
                let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &buses[n]];
                ask(&nodes[0], &meet).await;
            }
        }
        let cluster = Self { nodes, proxy };
        cluster.is_whole().await;
        if replicas > 0 {
            cluster.add_replicas(key).await;
        }
        cluster
    }

    /// The nodes after the third follow the master that owns this key.
    async fn add_replicas(&self, key: &str) {
        let master = ask(self.owner(key).await, &["CLUSTER", "MYID"]).await;
        let replicas = &self.nodes[3..];
        for replica in replicas {
            until("a node knows the master", async || {
                ask(replica, &["CLUSTER", "NODES"]).await.contains(&master)
            })
            .await;
            ask(replica, &["CLUSTER", "REPLICATE", &master]).await;
        }
        for replica in replicas {
            in_step(replica).await;
        }
        for node in &self.nodes {
            until("every node knows the replicas", async || {
                let nodes = ask(node, &["CLUSTER", "NODES"]).await;
                nodes.matches("slave").count() == replicas.len() && !nodes.contains("fail")
            })
            .await;
        }
    }

    /// Waits until every node that runs knows that every slot is served.
    ///
    /// # Panics
    /// When one does not within two minutes.
    pub async fn is_whole(&self) {
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        for node in &self.nodes {
            until("the cluster is there", async || {
                let info = ask(node, &["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains(&known)
            })
            .await;
        }
    }

    /// How clients are told to connect: one node is enough.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.proxy.addresses()[0])
    }

    /// How clients connect that know of this node only.
    ///
    /// # Panics
    /// When the node is of another cluster.
    #[must_use]
    pub fn url_of(&self, node: &Server) -> String {
        let mut nodes = self.nodes.iter();
        let at = nodes.position(|n| n.address() == node.address()).unwrap();
        format!("redis+cluster://{}", self.proxy.addresses()[at])
    }

    /// The master that owned this key in the beginning.
    ///
    /// # Panics
    /// When the first node does not answer.
    pub async fn owner(&self, key: &str) -> &Server {
        let addresses = self.addresses();
        let owner = owner(&addresses, key).await;
        let owner = addresses.iter().position(|address| *address == owner);
        &self.nodes[owner.unwrap()]
    }
}

/// The arguments of a node that announces this port, with this port for other nodes.
fn node_arguments<'a>(announced: &'a str, bus: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["--cluster-enabled", "yes"];
    for (name, value) in [
        ("--cluster-config-file", "nodes.conf"),
        ("--cluster-node-timeout", NODE_TIMEOUT),
        // A replica takes over however long it has not heard from its master: what it lacks is
        // lost, and that is what is looked at.
        ("--cluster-replica-validity-factor", "0"),
        ("--cluster-port", bus),
        ("--cluster-announce-ip", "127.0.0.1"),
        ("--cluster-announce-port", announced),
        ("--cluster-announce-bus-port", bus),
    ] {
        arguments.extend([name, value]);
    }
    arguments.extend(AT_ONCE);
    arguments.extend(DURABLE);
    arguments
}

#[async_trait]
impl Servers for Cluster {
    fn url(&self) -> String {
        Self::url(self)
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

    /// The node that owns the cluster's keys, which have its name as their hash tag.
    async fn kill_leader(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let owner = self.owner(&format!("{{{}}}", cluster.store_key())).await;
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
///
/// # Panics
/// When the first node does not answer.
pub async fn owner(nodes: &[SocketAddr], key: &str) -> SocketAddr {
    let (first, question) = (nodes[0], ["CLUSTER", "KEYSLOT", key].map(str::to_owned));
    let asked = tokio::task::spawn_blocking(move || redis_call(first, &question));
    let slot: usize = asked.await.unwrap().unwrap().parse().unwrap();
    let third = (0..3).find(|n| slot < (n + 1) * SLOTS / 3).unwrap();
    nodes[third]
}
