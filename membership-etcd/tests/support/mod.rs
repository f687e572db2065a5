//! What the tests of this crate share: servers, staging past the contract, entries, commits.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod members;
pub mod shell;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{EtcdCluster, How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_etcd::{EtcdConfig, EtcdTable};

use shell::{Pair, Shell, base};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_ETCD_TEST_URL";
/// The password of the user `root` on the suite's own servers.
pub const SECRET: &str = "correct-horse-battery-staple";
/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_secs(2);

/// Fewer rounds for the cases whose length is a number and nothing else, where everything is done by three servers on one machine. No case is
/// left out and none checks less per round; a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 1_000;
        effort.commits = 600;
        effort.kills = 40;
    }
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        EtcdTable::connect(EtcdConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

/// A store as the suite wants it: with a user, and keeping what it has acknowledged, which etcd always does.
pub enum Store {
    Single(Box<Server>),
    Three(EtcdCluster),
}

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::NoProxy),
];

impl Store {
    /// One member; one that somebody else runs is taken as it is.
    pub async fn single() -> Self {
        let yours = Kind::Etcd
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(Kind::Etcd, if yours { Options::default() } else { ours })
            .await
            .unwrap();
        Self::Single(Box::new(server))
    }

    /// One member whose connections are all encrypted.
    pub async fn encrypted() -> Self {
        let options = Options {
            durable: true,
            tls: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        Self::Single(Box::new(Server::start(Kind::Etcd, options).await.unwrap()))
    }

    /// Three members, whoever leads.
    pub async fn three() -> Self {
        Self::Three(members::start().await)
    }

    pub fn url(&self) -> String {
        match self {
            Self::Single(server) => match server.tls() {
                Some(tls) => format!("{}/?tls_ca={}", server.url(), tls.ca.display()),
                None => server.url().to_owned(),
            },
            Self::Three(members) => members.url(),
        }
    }

    fn is_yours(&self) -> bool {
        matches!(self, Self::Single(server) if server.how() == How::Yours)
    }

    async fn shell(&self) -> Result<Shell, Stop> {
        Shell::of(&self.url()).await
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        match self {
            Self::Single(server) if server.tls().is_some() => "etcd (TLS)".to_owned(),
            Self::Single(_) => "etcd".to_owned(),
            Self::Three(_) => "etcd (three members)".to_owned(),
        }
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.is_yours() { YOURS } else { &[] }
    }

    async fn put_row(&self, cluster: &ClusterName, row: &str, body: &str) -> Result<(), Stop> {
        self.shell()
            .await?
            .put(&format!("{}rows/{row}", base(cluster)), body)
            .await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let shell = self.shell().await?;
        shell
            .replace(
                &format!("{}table/", base(cluster)),
                &shell::version_row(cluster, text)?,
            )
            .await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell()
            .await?
            .delete(&format!("{}table/version", base(cluster)))
            .await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell().await?.replace(&base(cluster), &[]).await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        Ok(Box::new(self.shell().await?.all(&base(cluster)).await?))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Vec<Pair>>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        self.shell().await?.replace(&base(cluster), saved).await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn kill_leader(&self, _: &ClusterName) -> Result<(), Stop> {
        match self {
            Self::Single(_) => self.restart().await,
            Self::Three(members) => Ok(members::kill_leader(members).await?),
        }
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        match self {
            Self::Single(_) if self.is_yours() => {
                return Err(Stop::NotStaged(Capability::Unavailable));
            }
            Self::Single(server) if available => server.start_again().await?,
            Self::Single(server) => server.kill().await?,
            Self::Three(members) => members.set_running(available).await?,
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.is_yours() {
            Err(Stop::NotStaged(Capability::Secret))
        } else {
            Ok(SECRET.to_owned())
        }
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(open(&self.url().replace("//root:", "//nobody:"), cluster).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        if self.is_yours() {
            return Err(Stop::NotStaged(Capability::Proxy));
        }
        let (proxy, url) = match self {
            Self::Single(server) => {
                let proxy = Proxy::to(server.address())?;
                let url = self
                    .url()
                    .replace(&server.address().to_string(), &proxy.address().to_string());
                (proxy, url)
            }
            Self::Three(members) => {
                let proxy = Proxy::to(members.members()[0].address())?;
                for server in &members.members()[1..] {
                    proxy.also(([127, 0, 0, 1], 0).into(), server.address())?;
                }
                let url = members::url(proxy.addresses().iter().map(ToString::to_string));
                (proxy, url)
            }
        };
        let config = EtcdConfig::from_url(&url)?
            .operation_timeout(IMPATIENT)
            .connect_timeout(IMPATIENT);
        Ok(Proxied {
            table: Arc::new(EtcdTable::connect(config, cluster.clone()).await?),
            proxy,
        })
    }

    /// What the README says.
    fn round_trips(&self) -> RoundTrips {
        let ones = RoundTrips::NONE
            .read(1)
            .read_unchanged(1)
            .read_with_barrier(1)
            .read_row(1)
            .commit(1)
            .conflict(1)
            .commit_again(1);
        ones.update_i_am_alive(1).initialize(1).delete(2)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}

/// A server of this test alone, whatever the environment names, with these arguments.
pub async fn server(args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(
        Kind::Etcd,
        Options {
            args,
            local: true,
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

/// One that wants the password.
pub async fn locked_server() -> Server {
    Server::start(
        Kind::Etcd,
        Options {
            password: Some(SECRET.to_owned()),
            local: true,
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

pub fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

pub async fn connect(url: &str) -> Result<EtcdTable, TableError> {
    EtcdTable::connect(EtcdConfig::from_url(url)?, blue()).await
}

/// Waits until something holds, for as long as a busy machine may need.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what}: not within a minute"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
