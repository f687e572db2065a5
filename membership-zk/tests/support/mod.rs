//! What the tests of this crate share: servers, staging past the contract.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod shell;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use conformance_tests::launch::{Ensemble, How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_zk::{ZkConfig, ZkTable};

use shell::{Saved, Shell};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_ZK_TEST_URL";
/// The password of every server that the suite runs on.
pub const SECRET: &str = "correct-horse-battery-staple";
/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_secs(2);

/// Fewer rounds for the cases whose length is a number and nothing else: each connection that is cut on purpose costs the client's pauses before
/// it connects again, which takes most of the time that the share of `cargo xtask test` may take. No case is left out and none checks less per
/// round; a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 1_000;
        effort.commits = 600;
        effort.kills = 40;
    }
}

/// The same once more, for what depends on how the table is reached, and not on how often something is done.
pub fn shortest(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 500;
        effort.commits = 300;
        effort.kills = 20;
        effort.rows = 1_000;
    }
}

pub async fn connect(url: &str, cluster: &ClusterName) -> Result<ZkTable, TableError> {
    ZkTable::connect(ZkConfig::from_url(url)?, cluster.clone()).await
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(connect(url, cluster).await?))
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A store as the suite wants it: durable, and where it is ours, with a password.
pub struct Store {
    name: &'static str,
    place: Place,
}

enum Place {
    Single(Box<Server>),
    Encrypted(Box<Server>),
    Ensemble(Box<Ensemble>),
}

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
];

impl Store {
    /// One server; one that somebody else runs is taken as it is.
    pub async fn single() -> Self {
        let yours = Kind::ZooKeeper
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(
            Kind::ZooKeeper,
            if yours { Options::default() } else { ours },
        )
        .await
        .unwrap();
        Self {
            name: "zookeeper",
            place: Place::Single(Box::new(server)),
        }
    }

    /// One server that takes encrypted connections.
    pub async fn encrypted() -> Self {
        let options = Options {
            durable: true,
            tls: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(Kind::ZooKeeper, options).await.unwrap();
        Self {
            name: "zookeeper (TLS)",
            place: Place::Encrypted(Box::new(server)),
        }
    }

    /// Three servers.
    pub async fn ensemble() -> Self {
        let ensemble = Ensemble::start(3, Some(SECRET)).await.unwrap();
        Self {
            name: "zookeeper (three servers)",
            place: Place::Ensemble(Box::new(ensemble)),
        }
    }

    fn servers(&self) -> Vec<&Server> {
        match &self.place {
            Place::Single(server) | Place::Encrypted(server) => vec![server],
            Place::Ensemble(ensemble) => ensemble.servers().iter().collect(),
        }
    }

    /// How clients are told to connect.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Single(server) => server.url().to_owned(),
            Place::Encrypted(server) => format!(
                "{}?tls=true&tls_ca={}",
                server.url(),
                server.tls().unwrap().ca.display()
            ),
            Place::Ensemble(ensemble) => ensemble.url(),
        }
    }

    /// What was staged shows whichever server is asked: a read without a barrier need not be newer than that.
    async fn is_everywhere(&self) -> Result<(), Stop> {
        if let Place::Ensemble(ensemble) = &self.place {
            for server in ensemble.servers() {
                Shell::open(server.url()).await?.client.sync("/").await?;
            }
        }
        Ok(())
    }

    async fn shell(&self) -> Result<Shell, Stop> {
        Shell::open(&self.url()).await
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        match &self.place {
            Place::Single(server) if server.how() == How::Yours => YOURS,
            _ => &[],
        }
    }

    async fn put_row(&self, cluster: &ClusterName, row: &str, body: &str) -> Result<(), Stop> {
        self.shell()
            .await?
            .put(&format!("{}/{row}", shell::znode(cluster)), body.as_bytes())
            .await?;
        self.is_everywhere().await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.shell()
            .await?
            .put(&shell::znode(cluster), text.as_bytes())
            .await?;
        self.is_everywhere().await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell().await?.put(&shell::znode(cluster), b"").await?;
        self.is_everywhere().await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell().await?.remove(&shell::znode(cluster)).await?;
        self.is_everywhere().await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        Ok(Box::new(
            self.shell().await?.save(&shell::znode(cluster)).await?,
        ))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Saved>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let shell = self.shell().await?;
        shell.remove(&shell::znode(cluster)).await?;
        shell.restore(saved).await?;
        self.is_everywhere().await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn kill_leader(&self, _: &ClusterName) -> Result<(), Stop> {
        match &self.place {
            Place::Ensemble(ensemble) => {
                let killed = ensemble.kill_leader().await?;
                // The others have somebody who leads before the killed one can.
                ensemble.leader_but(Some(killed)).await?;
                Ok(ensemble.start_again(killed).await?)
            }
            _ => self.restart().await,
        }
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if self
            .not_applicable()
            .iter()
            .any(|(what, _)| *what == Capability::Unavailable)
        {
            return Err(Stop::NotStaged(Capability::Unavailable));
        }
        if available {
            // None of several serves before most of them are there.
            for started in
                futures_util::future::join_all(self.servers().into_iter().map(Server::start_again))
                    .await
            {
                started?;
            }
        } else {
            for server in self.servers() {
                server.kill().await?;
            }
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self
            .not_applicable()
            .iter()
            .any(|(what, _)| *what == Capability::Secret)
        {
            return Err(Stop::NotStaged(Capability::Secret));
        }
        Ok(SECRET.to_owned())
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(
            open(
                &self.url().replace(SECRET, &format!("not-{SECRET}")),
                cluster,
            )
            .await,
        )
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let mut url = self.url();
        let any = ([127, 0, 0, 1], 0).into();
        let mut proxy: Option<Proxy> = None;
        for server in self.servers() {
            let target = server.address();
            let door = match &proxy {
                Some(proxy) => proxy.also(any, target)?,
                None => proxy.insert(Proxy::on(any, target)?).address(),
            };
            url = url.replace(&target.to_string(), &door.to_string());
        }
        // With the longest session that these servers give: pings are then too rare to be taken for monitoring by connections of its own.
        let config = ZkConfig::from_url(&url)?
            .operation_timeout(IMPATIENT)
            .session_timeout(Duration::from_secs(10));
        let proxy = proxy.ok_or_else(|| Stop::failed("no server"))?;
        Ok(Proxied {
            table: Arc::new(ZkTable::connect(config, cluster.clone()).await?),
            proxy,
        })
    }

    /// What the README says.
    fn round_trips(&self) -> RoundTrips {
        let reads = RoundTrips::NONE
            .read(1)
            .read_unchanged(1)
            .read_with_barrier(2)
            .read_row(1);
        reads
            .commit(1)
            .conflict(2)
            .commit_again(2)
            .update_i_am_alive(1)
            .initialize(2)
    }

    /// A request names as many rows as fit into a quarter of what the server takes.
    fn pages(&self, rows: usize, bytes: usize) -> u64 {
        let pages = (rows * 2 * 128)
            .div_ceil(256 << 10)
            .max((rows * bytes.max(1 << 10)).div_ceil(4 << 20));
        u64::try_from(pages.max(1)).unwrap()
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}
