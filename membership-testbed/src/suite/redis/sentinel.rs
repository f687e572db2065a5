//! A master with a replica, watched by a sentinel.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::helpers::until;
use conformance_tests::servers::Servers;
use membership_core::ClusterName;
use membership_fault_proxy::Proxy;

use super::{AT_ONCE, DURABLE, ask, caught_up, cut_off, follows, in_step, proxy, server, try_ask};
use crate::{Kind, Server};

/// Up to here a sentinel takes a frozen master for dead while a test waits.
const HURRY: Duration = Duration::from_secs(10);
/// How long clients write what no replica hears of.
const UNHEARD: Duration = Duration::from_millis(100);
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
    /// Whether the next failovers lose commits.
    pub loses: AtomicBool,
    frozen: Mutex<Option<usize>>,
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
            loses: AtomicBool::new(false),
            frozen: Mutex::default(),
            proxy,
        }
    }

    /// Which of both is the master now (0: the first one), and not the one that is frozen.
    async fn master_now(&self, frozen: Option<usize>) -> Option<usize> {
        for n in (0..2).filter(|n| Some(*n) != frozen) {
            let said = try_ask(self.node(n), &["INFO", "replication"]).await;
            let is_master = said.is_ok_and(|said| said.contains("role:master"));
            if is_master && self.sentinel_says(n).await {
                return Some(n);
            }
        }
        None
    }

    /// Waits until one of both is the master.
    async fn leading(&self, frozen: Option<usize>) -> usize {
        let leading = AtomicUsize::new(0);
        until("one of both is the master", async || {
            let master = self.master_now(frozen).await;
            leading.store(master.unwrap_or_default(), Ordering::SeqCst);
            master.is_some()
        })
        .await;
        leading.into_inner()
    }

    /// Whether the sentinel leads clients to this server.
    async fn sentinel_says(&self, server: usize) -> bool {
        let address = format!("address={},", self.proxy.addresses()[server]);
        ask(&self.sentinel, &["INFO", "sentinel"])
            .await
            .contains(&address)
    }

    fn node(&self, n: usize) -> &Server {
        match n {
            0 => &self.master,
            _ => &self.replica,
        }
    }

    fn frozen(&self) -> MutexGuard<'_, Option<usize>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Ends what [`cut_off`] began.
async fn takes_replicas(server: &Server) {
    let allow = ["ACL", "SETUSER", "default", "+psync", "+sync"];
    until("replicas are taken again", async || {
        try_ask(server, &allow).await.is_ok()
    })
    .await;
}

/// To the suite the master is the server, unless its sentinel is in a hurry.
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

    /// A sentinel in a hurry has the replica take over.
    fn have_successors(&self) -> bool {
        self.patience <= HURRY
    }

    async fn leader(&self, _: &ClusterName) -> Result<SocketAddr, Stop> {
        Ok(self.node(self.leading(None).await).address())
    }

    /// The replica has what the master acknowledged, unless the failover shall lose commits: then
    /// it hears nothing of the last ones.
    async fn depose(&self, _: &ClusterName) -> Result<(), Stop> {
        // A former master may not have become a replica yet.
        self.rejoined().await?;
        let leader = self.leading(None).await;
        let (master, replica) = (self.node(leader), self.node(1 - leader));
        if self.loses.load(Ordering::SeqCst) {
            cut_off(master).await;
            tokio::time::sleep(UNHEARD).await;
        } else {
            caught_up(replica, master).await;
        }
        master.pause().await?;
        *self.frozen() = Some(leader);
        self.leading(Some(leader)).await;
        Ok(())
    }

    async fn thaw(&self) -> Result<(), Stop> {
        let frozen = self.frozen().take();
        if let Some(frozen) = frozen {
            self.node(frozen).resume().await?;
        }
        Ok(())
    }

    /// Both sides of the replication are what the sentinel says, and replicas are taken again.
    async fn rejoined(&self) -> Result<(), Stop> {
        for server in [&self.master, &self.replica] {
            takes_replicas(server).await;
        }
        // The sentinel may let the other one take over meanwhile, so each turn asks who leads.
        until("one of both follows the other", async || {
            match self.master_now(None).await {
                Some(master) => follows(self.node(1 - master)).await,
                None => false,
            }
        })
        .await;
        Ok(())
    }

    fn advertised_proxy(&self) -> Option<Proxy> {
        Some(self.proxy.clone())
    }
}
