//! What the tests of this crate share: servers, staging past the contract, entries, commits.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod load;
pub mod nodes;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_redis::{RedisConfig, RedisTable};
use redis::aio::MultiplexedConnection;

use nodes::{Cluster, Watched};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_REDIS_TEST_URL";
/// The password of every server that the suite runs on.
pub const SECRET: &str = "correct-horse-battery-staple";

/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_secs(2);

pub async fn raw(url: &str) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(10)))
        .set_response_timeout(Some(Duration::from_secs(30)));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        RedisTable::connect(RedisConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

pub fn key(cluster: &ClusterName, what: &str) -> String {
    format!("membership:{{{}}}:{what}", cluster.store_key())
}

pub const KEYS: [&str; 4] = ["version", "rows", "heartbeats", "cell"];

/// A store as the suite wants it: durable, and where it is one server of ours, with a password.
pub struct Store {
    name: String,
    place: Place,
}

enum Place {
    Single(Server),
    /// Its certificates are trusted by name.
    Encrypted(Server),
    Cluster(Cluster),
    Sentinel(Box<Watched>),
}

type Saved = Vec<(&'static str, Option<Vec<u8>>)>;

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
];
const OPEN: &[(Capability, Reason)] = &[(Capability::Secret, Reason::NoSecret)];

impl Store {
    /// One server; one that somebody else runs is taken as it is.
    pub async fn single(kind: Kind) -> Self {
        let yours = kind
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = Server::start(kind, if yours { Options::default() } else { ours })
            .await
            .unwrap();
        Self {
            name: kind.to_string(),
            place: Place::Single(server),
        }
    }

    /// One server that speaks TLS only.
    pub async fn encrypted(kind: Kind) -> Self {
        let options = Options {
            durable: true,
            tls: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        Self {
            name: format!("{kind} (TLS)"),
            place: Place::Encrypted(Server::start(kind, options).await.unwrap()),
        }
    }

    /// Three nodes.
    pub async fn cluster(kind: Kind) -> Self {
        Self {
            name: format!("{kind} (Cluster)"),
            place: Place::Cluster(Cluster::start(kind).await),
        }
    }

    /// A master with a replica and a sentinel that is in no hurry: a restart is no reason for a failover.
    pub async fn sentinel(kind: Kind) -> Self {
        Self {
            name: format!("{kind} (Sentinel)"),
            place: Place::Sentinel(Box::new(
                Watched::start(kind, Duration::from_secs(60)).await,
            )),
        }
    }

    /// How clients are told to connect.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Single(server) if server.how() == How::Yours => server.url().to_owned(),
            Place::Single(server) => format!("{}/?durability=kept", server.url()),
            Place::Encrypted(server) => {
                format!(
                    "{}/?durability=kept&tls_ca={}",
                    server.url(),
                    server.tls().unwrap().ca.display()
                )
            }
            Place::Cluster(cluster) => cluster.url(),
            Place::Sentinel(watched) => watched.url(),
        }
    }

    fn servers(&self) -> Vec<&Server> {
        match &self.place {
            Place::Single(server) | Place::Encrypted(server) => vec![server],
            Place::Cluster(cluster) => cluster.nodes.iter().collect(),
            Place::Sentinel(watched) => vec![&watched.master],
        }
    }

    /// An administrator's connection to the server that has this cluster's keys.
    async fn shell(&self, cluster: &ClusterName) -> Result<MultiplexedConnection, Stop> {
        match &self.place {
            Place::Single(server) => Ok(raw(server.url()).await?),
            Place::Encrypted(server) => {
                let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
                let root_cert = Some(std::fs::read(
                    &server.tls().ok_or_else(|| Stop::failed("no TLS"))?.ca,
                )?);
                let certificates = redis::TlsCertificates {
                    client_tls: None,
                    root_cert,
                };
                Ok(redis::Client::build_with_tls(server.url(), certificates)?
                    .get_multiplexed_async_connection()
                    .await?)
            }
            Place::Cluster(nodes) => {
                Ok(raw(nodes.owner(&key(cluster, "version")).await.url()).await?)
            }
            Place::Sentinel(watched) => Ok(raw(watched.master.url()).await?),
        }
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        match &self.place {
            Place::Single(server) if server.how() == How::Yours => YOURS,
            Place::Single(_) | Place::Encrypted(_) => &[],
            Place::Cluster(_) | Place::Sentinel(_) => OPEN,
        }
    }

    async fn put_row(&self, cluster: &ClusterName, row: &str, body: &str) -> Result<(), Stop> {
        redis::cmd("HSET")
            .arg(key(cluster, "rows"))
            .arg(row)
            .arg(body)
            .exec_async(&mut self.shell(cluster).await?)
            .await?;
        Ok(())
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let mut all = redis::pipe();
        let at = key(cluster, "version");
        all.atomic().cmd("DEL").arg(&at);
        for (field, value) in fields(text)? {
            all.cmd("HSET").arg(&at).arg(field).arg(value);
        }
        all.exec_async(&mut self.shell(cluster).await?).await?;
        Ok(())
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        redis::cmd("DEL")
            .arg(key(cluster, "version"))
            .exec_async(&mut self.shell(cluster).await?)
            .await?;
        Ok(())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let keys: Vec<String> = KEYS.iter().map(|what| key(cluster, what)).collect();
        redis::cmd("DEL")
            .arg(keys)
            .exec_async(&mut self.shell(cluster).await?)
            .await?;
        Ok(())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let mut all = redis::pipe();
        all.atomic();
        for what in KEYS {
            all.cmd("DUMP").arg(key(cluster, what));
        }
        let dumps: Vec<Option<Vec<u8>>> = all.query_async(&mut self.shell(cluster).await?).await?;
        let saved: Saved = KEYS.into_iter().zip(dumps).collect();
        Ok(Box::new(saved))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Saved>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let mut all = redis::pipe();
        all.atomic();
        for (what, dump) in saved {
            all.cmd("DEL").arg(key(cluster, what));
            if let Some(dump) = dump {
                all.cmd("RESTORE")
                    .arg(key(cluster, what))
                    .arg(0)
                    .arg(&dump[..]);
            }
        }
        all.exec_async(&mut self.shell(cluster).await?).await?;
        Ok(())
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn kill_leader(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let Place::Cluster(nodes) = &self.place else {
            return self.restart().await;
        };
        let owner = nodes.owner(&key(cluster, "version")).await;
        owner.kill().await?;
        owner.start_again().await?;
        nodes.is_whole().await;
        Ok(())
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if self
            .not_applicable()
            .iter()
            .any(|(what, _)| *what == Capability::Unavailable)
        {
            return Err(Stop::NotStaged(Capability::Unavailable));
        }
        for server in self.servers() {
            if available {
                server.start_again().await?
            } else {
                server.kill().await?
            }
        }
        if let (true, Place::Cluster(cluster)) = (available, &self.place) {
            cluster.is_whole().await;
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
        let url = self
            .url()
            .replace(&format!("//:{SECRET}@"), &format!("//nobody:{SECRET}@"));
        Some(open(&url, cluster).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let (url, proxy) = match &self.place {
            Place::Single(server) | Place::Encrypted(server) => {
                let proxy = Proxy::to(server.address())?;
                (
                    self.url()
                        .replace(&server.address().to_string(), &proxy.address().to_string()),
                    proxy,
                )
            }
            Place::Cluster(nodes) => (self.url(), nodes.proxy.clone()),
            Place::Sentinel(watched) => (self.url(), watched.proxy.clone()),
        };
        let config = RedisConfig::from_url(&url)?
            .operation_timeout(IMPATIENT)
            .connect_timeout(IMPATIENT);
        Ok(Proxied {
            table: Arc::new(RedisTable::connect(config, cluster.clone()).await?),
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
        ones.update_i_am_alive(1).delete(1).initialize(2)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}

/// A version row's text as the fields of its hash; whatever is none becomes a field all the same.
fn fields(text: &str) -> Result<Vec<(String, String)>, Stop> {
    let mut out = Vec::new();
    let row: serde_json::Value = serde_json::from_str(text)?;
    let plain = |value: &serde_json::Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    for (name, value) in row.as_object().ok_or_else(|| Stop::failed("no object"))? {
        match (name.as_str(), value.as_array()) {
            ("recent", Some(records)) => {
                for record in records {
                    out.push((
                        format!("recent:{}", record["version"].as_u64().unwrap_or(0) % 16),
                        record.to_string(),
                    ));
                }
                let last = records
                    .last()
                    .map_or_else(|| "0".repeat(32), |record| plain(&record["id"]));
                out.push(("commit".to_owned(), last));
            }
            ("deleting", _) => out.push((name.clone(), "1".to_owned())),
            _ => out.push((name.clone(), plain(value))),
        }
    }
    Ok(out)
}

/// A server that forgets everything, with these arguments.
pub async fn server(kind: Kind, args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(
        kind,
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
        Kind::Redis,
        Options {
            password: Some(SECRET.to_owned()),
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

/// A server that belongs to this test, whatever the environment names: what is done to it would not be done to somebody else's.
pub async fn own_server() -> Server {
    server(Kind::Redis, &["--loglevel", "notice"]).await
}

/// A table on it, with options of the URL.
pub async fn table_on(server: &Server, options: &str) -> RedisTable {
    connect(&format!("{}/?{options}", server.url()))
        .await
        .unwrap()
}

pub fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

pub async fn connect(url: &str) -> Result<RedisTable, TableError> {
    RedisTable::connect(RedisConfig::from_url(url)?, blue()).await
}

/// One command by an administrator.
pub async fn shell<T: redis::FromRedisValue>(server: &Server, line: &[&str]) -> T {
    redis::cmd(line[0])
        .arg(&line[1..])
        .query_async(&mut raw(server.url()).await.unwrap())
        .await
        .unwrap()
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
