//! What differs between servers: how the files are created, how the server is started, and the
//! smallest real call that it answers.

mod azurite;
mod cassandra;
pub(super) mod clustered;
mod consul;
mod dynamodb;
mod etcd;
pub(super) mod ground;
mod mariadb;
mod mongodb;
mod nats;
mod postgres;
mod redis;
pub(super) mod special;
mod sqlserver;
mod wire;
mod zookeeper;

use clustered::Clustered;
use special::Software;

#[cfg(feature = "suite")]
pub(crate) use wire::redis_call;

use crate::kind::Kind;

/// The software of a kind of server.
pub(super) fn of(kind: Kind) -> &'static dyn Software {
    match kind {
        Kind::Redis => &redis::Redis {
            program: "redis-server",
            image: "redis:7.4",
            offers_tls: true,
        },
        Kind::Valkey => &redis::Redis {
            program: "valkey-server",
            image: "valkey/valkey:8.1",
            offers_tls: false,
        },
        Kind::Postgres => &postgres::Postgres,
        Kind::MariaDb => &mariadb::MariaDb,
        Kind::Azurite => &azurite::Azurite,
        Kind::MongoDb => &mongodb::MongoDb,
        Kind::DynamoDb => &dynamodb::DynamoDb,
        Kind::Consul => &consul::Consul,
        Kind::Etcd => &etcd::Etcd,
        Kind::ZooKeeper => &zookeeper::ZooKeeper,
        Kind::Cassandra => &cassandra::Cassandra,
        Kind::Nats => &nats::Nats,
        Kind::SqlServer => &sqlserver::SqlServer,
    }
}

/// How several servers of a kind become one cluster, if the launcher supports that.
pub(super) fn clustered(kind: Kind) -> Option<&'static dyn Clustered> {
    match kind {
        Kind::Cassandra => Some(&cassandra::Cassandra),
        Kind::Consul => Some(&consul::Consul),
        Kind::Etcd => Some(&etcd::Etcd),
        Kind::MongoDb => Some(&mongodb::MongoDb),
        Kind::Nats => Some(&nats::Nats),
        Kind::ZooKeeper => Some(&zookeeper::ZooKeeper),
        _ => None,
    }
}
