//! What the tests of this crate share: servers, staging past the contract, entries, commits.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod nodes;
pub mod table;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{Backend, Capability, Checkpoint, Proxied, Reason, Stop, child};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_redis::{RedisConfig, RedisTable};
use redis::aio::MultiplexedConnection;

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
    redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

pub async fn open(url: &str, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(RedisTable::connect(RedisConfig::from_url(url)?, cluster.clone()).await?))
}

pub fn key(cluster: &ClusterName, what: &str) -> String {
    format!("membership:{{{}}}:{what}", cluster.store_key())
}

pub const KEYS: [&str; 4] = ["version", "rows", "heartbeats", "cell"];

/// A single server as the suite wants it: durable, with a password. One that somebody else runs is taken as it is.
pub struct Single {
    pub server: Server,
}

type Saved = Vec<(&'static str, Option<Vec<u8>>)>;

const YOURS: &[(Capability, Reason)] =
    &[(Capability::Restart, Reason::Managed), (Capability::Unavailable, Reason::Managed), (Capability::Secret, Reason::NoSecret)];

impl Single {
    pub async fn start(kind: Kind) -> Self {
        let yours = kind.url_variables().iter().any(|name| std::env::var_os(name).is_some());
        let ours = Options { durable: true, password: Some(SECRET.to_owned()), ..Options::default() };
        let server = Server::start(kind, if yours { Options::default() } else { ours }).await.unwrap();
        Self { server }
    }

    /// How clients are told to connect.
    pub fn url(&self) -> String {
        match self.server.how() {
            How::Yours => self.server.url().to_owned(),
            How::Container | How::Local => format!("{}/?durability=kept", self.server.url()),
        }
    }

    async fn shell(&self) -> Result<MultiplexedConnection, Stop> {
        Ok(raw(self.server.url()).await?)
    }
}

#[async_trait]
impl Backend for Single {
    fn name(&self) -> String {
        self.server.kind().name().to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.server.how() == How::Yours { YOURS } else { &[] }
    }

    async fn put_row(&self, cluster: &ClusterName, row: &str, body: &str) -> Result<(), Stop> {
        redis::cmd("HSET").arg(key(cluster, "rows")).arg(row).arg(body).exec_async(&mut self.shell().await?).await?;
        Ok(())
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let mut all = redis::pipe();
        let at = key(cluster, "version");
        all.atomic().cmd("DEL").arg(&at);
        for (field, value) in fields(text)? {
            all.cmd("HSET").arg(&at).arg(field).arg(value);
        }
        all.exec_async(&mut self.shell().await?).await?;
        Ok(())
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        redis::cmd("DEL").arg(key(cluster, "version")).exec_async(&mut self.shell().await?).await?;
        Ok(())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let keys: Vec<String> = KEYS.iter().map(|what| key(cluster, what)).collect();
        redis::cmd("DEL").arg(keys).exec_async(&mut self.shell().await?).await?;
        Ok(())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let mut all = redis::pipe();
        all.atomic();
        for what in KEYS {
            all.cmd("DUMP").arg(key(cluster, what));
        }
        let dumps: Vec<Option<Vec<u8>>> = all.query_async(&mut self.shell().await?).await?;
        let saved: Saved = KEYS.into_iter().zip(dumps).collect();
        Ok(Box::new(saved))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved.downcast_ref::<Saved>().ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let mut all = redis::pipe();
        all.atomic();
        for (what, dump) in saved {
            all.cmd("DEL").arg(key(cluster, what));
            if let Some(dump) = dump {
                all.cmd("RESTORE").arg(key(cluster, what)).arg(0).arg(&dump[..]);
            }
        }
        all.exec_async(&mut self.shell().await?).await?;
        Ok(())
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            self.server.start_again().await?
        } else {
            self.server.kill().await?
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.server.how() == How::Yours { Err(Stop::NotStaged(Capability::Secret)) } else { Ok(SECRET.to_owned()) }
    }

    async fn refused_client(&self, cluster: &ClusterName) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(open(&format!("redis://nobody:{SECRET}@{}", self.server.address()), cluster).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let proxy = Proxy::to(self.server.address())?;
        let url = self.server.url().replace(&self.server.address().to_string(), &proxy.address().to_string());
        let config = RedisConfig::from_url(&url)?.operation_timeout(IMPATIENT).connect_timeout(IMPATIENT);
        Ok(Proxied { table: Arc::new(RedisTable::connect(config, cluster.clone()).await?), proxy })
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
    let plain = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (name, value) in row.as_object().ok_or_else(|| Stop::failed("no object"))? {
        match (name.as_str(), value.as_array()) {
            ("recent", Some(records)) => {
                for record in records {
                    out.push((format!("recent:{}", record["version"].as_u64().unwrap_or(0) % 16), record.to_string()));
                }
                let last = records.last().map_or_else(|| "0".repeat(32), |record| plain(&record["id"]));
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
    Server::start(kind, Options { args, ..Options::default() }).await.unwrap()
}

/// One that wants the password.
pub async fn locked_server() -> Server {
    Server::start(Kind::Redis, Options { password: Some(SECRET.to_owned()), ..Options::default() }).await.unwrap()
}

/// A server that belongs to this test, whatever the environment names: what is done to it would not be done to somebody else's.
pub async fn own_server() -> Server {
    server(Kind::Redis, &["--loglevel", "notice"]).await
}

/// A table on it, with options of the URL.
pub async fn table_on(server: &Server, options: &str) -> RedisTable {
    connect(&format!("{}/?{options}", server.url())).await.unwrap()
}

pub fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

pub async fn connect(url: &str) -> Result<RedisTable, TableError> {
    RedisTable::connect(RedisConfig::from_url(url)?, blue()).await
}

/// One command by an administrator.
pub async fn shell<T: redis::FromRedisValue>(server: &Server, line: &[&str]) -> T {
    redis::cmd(line[0]).arg(&line[1..]).query_async(&mut raw(server.url()).await.unwrap()).await.unwrap()
}

/// Waits until something holds, for as long as a busy machine may need.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
