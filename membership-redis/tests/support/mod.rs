//! What the tests of this crate share: Redis as the suite's store, and servers for single tests.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

pub mod load;
mod staging;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::helpers::new_user;
pub use conformance_tests::helpers::{blue, until};
use conformance_tests::servers::{ServerBackend, Store, with_user};
use conformance_tests::{RoundTrips, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_redis::{RedisConfig, RedisTable};
pub use membership_testbed::suite::SECRET;
pub use membership_testbed::suite::redis as nodes;
use membership_testbed::{Kind, Options, Server, suite};
use redis::aio::MultiplexedConnection;

use staging::Raw;

pub async fn raw(url: &str) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(10)))
        .set_response_timeout(Some(Duration::from_secs(30)));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

pub fn key(cluster: &ClusterName, what: &str) -> String {
    format!("membership:{{{}}}:{what}", cluster.store_key())
}

pub const KEYS: [&str; 4] = ["version", "rows", "heartbeats", "cell"];

/// The README's line for this user.
pub fn readme_line(user: &str) -> Vec<String> {
    let text = include_str!("../../README.md");
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("ACL SETUSER {user} ")))
        .unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Redis or Valkey, whether one server, Sentinel or Cluster.
pub struct Redis;

#[async_trait]
impl Store for Redis {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = RedisTable::connect(RedisConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Raw::open(backend, cluster).await
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let user = new_user();
        let mut acl = redis::cmd("ACL");
        for word in readme_line("clients").iter().skip(1) {
            match word.as_str() {
                "clients" => acl.arg(&user),
                word if word.starts_with('>') => acl.arg(format!(">{SECRET}")),
                word => acl.arg(word),
            };
        }
        let mut shell = staging::administrator(backend).await?;
        acl.exec_async(&mut shell).await?;
        Ok(with_user(&backend.url(), &user, SECRET))
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.delete(1).initialize(2)
    }

    fn proxies_external(&self) -> bool {
        true
    }
}

/// A server without persistence, with these arguments.
pub async fn server(kind: Kind, args: &[&str]) -> Server {
    suite::own_server(kind, args, Options::default()).await
}

/// A server with a password.
pub async fn locked_server() -> Server {
    let password = Some(SECRET.to_owned());
    let options = Options {
        password,
        ..Options::default()
    };
    Server::start(Kind::Redis, options).await.unwrap()
}

/// A server for one test alone, whatever the environment names.
pub async fn own_server() -> Server {
    server(Kind::Redis, &["--loglevel", "notice"]).await
}

/// A table on it, with options of the URL.
pub async fn table_on(server: &Server, options: &str) -> RedisTable {
    connect(&format!("{}/?{options}", server.url()))
        .await
        .unwrap()
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
