//! What the tests of this crate share: servers, staging past the contract, entries, commits.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod shell;
pub mod three;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_consul::{ConsulConfig, ConsulTable};
use membership_core::{ClusterName, MembershipTable, TableError};
use shell::{Pair, Shell};
use three::Three;

/// Where the killed process finds the servers.
pub const URL: &str = "MEMBERSHIP_CONSUL_TEST_URL";
/// The token of the tests' own servers, which refuse everybody else.
pub const SECRET: &str = "0c0ffee0-5ec2-4e75-8a11-5add1e5ba77e";
/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_secs(2);

/// Fewer rounds for the cases whose length is a number and nothing else: each commit waits for a disk. No case is left out, and none checks less
/// per round; a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.commits = 1_000;
    }
}

/// The same once more, for what depends on how the servers are reached, and not on how often something is done.
pub fn shortest(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 300;
        effort.commits = 300;
        effort.kills = 10;
        effort.rows = 500;
    }
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        ConsulTable::connect(ConsulConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

/// Consul as the suite wants it: one server or three of ours, or one that somebody else runs.
pub enum Store {
    One(Server),
    Three(Three),
}

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::NoProxy),
];

impl Store {
    /// One server, that of the environment if it names one.
    pub async fn single() -> Self {
        let yours = Kind::Consul
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        Self::One(
            Server::start(Kind::Consul, if yours { Options::default() } else { ours })
                .await
                .unwrap(),
        )
    }

    /// Both sides show certificates.
    pub async fn encrypted() -> Self {
        let args = vec!["-hcl=verify_incoming = true".to_owned()];
        let options = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            tls: true,
            args,
            ..Options::default()
        };
        Self::One(Server::start(Kind::Consul, options).await.unwrap())
    }

    pub async fn three() -> Self {
        Self::Three(Three::start().await)
    }

    fn tls(&self) -> Option<String> {
        match self {
            Self::One(server) => {
                let tls = server.tls()?;
                let (ca, certificate, key) = (
                    tls.ca.display(),
                    tls.client_certificate.display(),
                    tls.client_key.display(),
                );
                Some(format!("tls_ca={ca}&tls_cert={certificate}&tls_key={key}"))
            }
            Self::Three(_) => None,
        }
    }

    pub fn url(&self) -> String {
        match (self, self.tls()) {
            (Self::One(server), Some(tls)) => format!("{}?{tls}", server.url()),
            (Self::One(server), None) => server.url().to_owned(),
            (Self::Three(three), _) => three.0.url(),
        }
    }

    fn is_yours(&self) -> bool {
        matches!(self, Self::One(server) if server.how() == How::Yours)
    }

    fn servers(&self) -> Vec<&Server> {
        match self {
            Self::One(server) => vec![server],
            Self::Three(three) => three.0.servers().iter().collect(),
        }
    }

    pub fn shell(&self) -> Shell {
        Shell::of(&self.url())
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        match self {
            Self::One(server) if server.tls().is_some() => "consul (TLS)".to_owned(),
            Self::One(_) => "consul".to_owned(),
            Self::Three(_) => "consul (three servers)".to_owned(),
        }
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.is_yours() { YOURS } else { &[] }
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        let shell = self.shell();
        let key = key.replace('%', "%25").replace('/', "%2F");
        shell
            .put(&format!("{}silo/{key}/row", shell.folder(cluster)), body)
            .await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let shell = self.shell();
        let folder = shell.folder(cluster);
        shell
            .replace(
                &format!("{folder}version/"),
                &shell::version_keys(&folder, text)?,
            )
            .await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let shell = self.shell();
        shell
            .remove(&format!("{}version/", shell.folder(cluster)))
            .await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let shell = self.shell();
        shell.remove(&shell.folder(cluster)).await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let shell = self.shell();
        Ok(Box::new(shell.all(&shell.folder(cluster)).await?))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Vec<Pair>>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let shell = self.shell();
        shell.replace(&shell.folder(cluster), saved).await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn kill_leader(&self, _: &ClusterName) -> Result<(), Stop> {
        match self {
            Self::One(_) => self.restart().await,
            Self::Three(three) => Ok(three.kill_leader().await?),
        }
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            // Several can serve only together.
            let starting = self.servers().into_iter().map(Server::start_again);
            futures_util::future::try_join_all(starting).await?;
        } else {
            for server in self.servers() {
                server.kill().await?;
            }
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
        // Contains the secret, and is not it.
        Some(
            open(
                &self
                    .url()
                    .replace(&format!(":{SECRET}@"), &format!(":x{SECRET}@")),
                cluster,
            )
            .await,
        )
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        if self.is_yours() {
            return Err(Stop::NotStaged(Capability::Proxy));
        }
        // A door for each server.
        let servers = self.servers();
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = Proxy::on(any, None)?;
        for _ in 1..servers.len() {
            proxy.also(any, None)?;
        }
        let mut url = self.url();
        for (door, server) in proxy.addresses().into_iter().zip(servers) {
            proxy.set_target_of(door, server.address());
            url = url.replace(&server.address().to_string(), &door.to_string());
        }
        let config = ConsulConfig::from_url(&url)?.operation_timeout(IMPATIENT);
        Ok(Proxied {
            table: Arc::new(ConsulTable::connect(config, cluster.clone()).await?),
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
            .update_i_am_alive(1);
        ones.conflict(2).commit_again(2).initialize(1).delete(2)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}

/// A server that belongs to this test, whatever the environment names: what is done to it would not be done to somebody else's.
pub async fn server() -> Server {
    Server::start(
        Kind::Consul,
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

pub async fn connect(url: &str) -> Result<ConsulTable, TableError> {
    ConsulTable::connect(ConsulConfig::from_url(url)?, blue()).await
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
