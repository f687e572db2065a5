//! A master with a replica, watched by a sentinel.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::helpers::until;
use conformance_tests::servers::Servers;
use membership_fault_proxy::Proxy;

use super::{AT_ONCE, DURABLE, ask, in_step, proxy, server};
use crate::{Kind, Server};

/// What the sentinel calls the master.
pub const MASTER: &str = "main";

/// A master with a replica, watched by a sentinel.
pub struct Watched {
    /// The master in the beginning.
    pub master: Server,
    /// Its replica.
    pub replica: Server,
    /// Who tells clients which of them is the master.
    pub sentinel: Server,
    /// More of them.
    others: Vec<Server>,
    patience: Duration,
    /// Clients and servers reach master and replica through it.
    pub proxy: Proxy,
}

impl Watched {
    /// The sentinel takes the master for dead when it was silent for so long.
    ///
    /// # Panics
    /// When they do not start.
    pub async fn start(kind: Kind, patience: Duration) -> Self {
        let proxy = proxy(2);
        let doors = proxy.addresses();
        let ports: Vec<String> = doors.iter().map(|door| door.port().to_string()).collect();
        let announce = [
            "--replica-announce-ip",
            "127.0.0.1",
            "--replica-announce-port",
        ];
        let own = |n: usize| [DURABLE, &announce, &[ports[n].as_str()]].concat();
        let master = server(kind, &own(0)).await;
        proxy.set_target_of(doors[0], master.address());
        let port = ports[0].as_str();
        let follow = ["--replicaof", "127.0.0.1", port];
        let replica = server(kind, &[&own(1), &follow[..], AT_ONCE].concat()).await;
        proxy.set_target_of(doors[1], replica.address());
        in_step(&replica).await;
        let sentinel = sentinel(&replica, "sentinel.conf", port, patience).await;
        until("the sentinel knows the replica", async || {
            ask(&sentinel, &["SENTINEL", "REPLICAS", MASTER]).await != "0"
        })
        .await;
        Self {
            master,
            replica,
            sentinel,
            others: Vec::new(),
            patience,
            proxy,
        }
    }

    /// Adds so many sentinels, and waits until all know each other: then a failover needs most of
    /// them.
    ///
    /// # Panics
    /// When they do not start.
    pub async fn add_sentinels(&mut self, number: usize) {
        let port = self.proxy.addresses()[0].port().to_string();
        for n in 0..number {
            let name = format!("sentinel-{n}.conf");
            let more = sentinel(&self.replica, &name, &port, self.patience).await;
            self.others.push(more);
        }
        for one in self.others.iter().chain([&self.sentinel]) {
            until("the sentinels know each other", async || {
                let known = ask(one, &["SENTINEL", "SENTINELS", MASTER]).await;
                known == self.others.len().to_string()
            })
            .await;
        }
    }

    /// How clients are told to connect.
    #[must_use]
    pub fn url(&self) -> String {
        let all = [&self.sentinel].into_iter().chain(&self.others);
        let all: Vec<String> = all.map(|one| one.address().to_string()).collect();
        format!("redis+sentinel://{}/{MASTER}", all.join(","))
    }
}

/// A sentinel of the master at this port, with its settings in a file beside the replica's.
async fn sentinel(replica: &Server, file: &str, port: &str, patience: Duration) -> Server {
    let config = replica.folder().unwrap().join(file);
    let text = format!(
        "sentinel monitor {MASTER} 127.0.0.1 {port} 1\n\
         sentinel down-after-milliseconds {MASTER} {}\n\
         sentinel failover-timeout {MASTER} 3000\n",
        patience.as_millis()
    );
    std::fs::write(&config, text).unwrap();
    server(replica.kind(), &[config.to_str().unwrap(), "--sentinel"]).await
}

/// To the suite the master is the server: its sentinel is in no hurry.
#[async_trait]
impl Servers for Watched {
    fn url(&self) -> String {
        Self::url(self)
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
