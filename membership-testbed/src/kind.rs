//! The kinds of servers, and their names.

use std::fmt;
use std::str::FromStr;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Redis.
    Redis,
    /// Valkey, which speaks the protocol of Redis.
    Valkey,
    /// PostgreSQL.
    Postgres,
    /// MariaDB, which speaks the protocol of MySQL.
    MariaDb,
    /// Azurite, which speaks the protocol of Azure Table storage. It keeps its data when it is
    /// stopped, and loses the last seconds when it is killed.
    Azurite,
    /// MongoDB: a replica set of one member.
    MongoDb,
    /// DynamoDB Local, which speaks the protocol of Amazon DynamoDB.
    DynamoDb,
    /// Consul: one server agent.
    Consul,
    /// etcd: a cluster of one member, or of several that the test names.
    Etcd,
    /// ZooKeeper: one server, unless its arguments name others.
    ZooKeeper,
    /// Apache Cassandra: one node.
    Cassandra,
    /// NATS with JetStream: one server, unless its arguments name others.
    Nats,
    /// SQL Server: only as a container, or a server of yours.
    SqlServer,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Redis,
        Self::Valkey,
        Self::Postgres,
        Self::MariaDb,
        Self::Azurite,
        Self::MongoDb,
        Self::DynamoDb,
        Self::Consul,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Cassandra,
        Self::Nats,
        Self::SqlServer,
    ];

    /// Its name on command lines, in folders and in reports: lower case, without spaces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Azurite => "azurite",
            Self::MongoDb => "mongodb",
            Self::DynamoDb => "dynamodb",
            Self::Consul => "consul",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
            Self::Cassandra => "cassandra",
            Self::Nats => "nats",
            Self::SqlServer => "sqlserver",
        }
    }

    /// The environment variables that name an external server, in the order in which they are read.
    #[must_use]
    pub fn url_variables(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &["MEMBERSHIP_TEST_REDIS_URL"],
            Self::Valkey => &["MEMBERSHIP_TEST_VALKEY_URL"],
            Self::Postgres => &["MEMBERSHIP_TEST_POSTGRES_URL"],
            Self::MariaDb => &["MEMBERSHIP_TEST_MARIADB_URL", "MEMBERSHIP_TEST_MYSQL_URL"],
            Self::Azurite => &[
                "MEMBERSHIP_TEST_AZURITE_URL",
                "MEMBERSHIP_TEST_AZURE_TABLE_URL",
            ],
            Self::MongoDb => &["MEMBERSHIP_TEST_MONGODB_URL"],
            Self::DynamoDb => &["MEMBERSHIP_TEST_DYNAMODB_URL"],
            Self::Consul => &["MEMBERSHIP_TEST_CONSUL_URL"],
            Self::Etcd => &["MEMBERSHIP_TEST_ETCD_URL"],
            Self::ZooKeeper => &["MEMBERSHIP_TEST_ZOOKEEPER_URL", "MEMBERSHIP_TEST_ZK_URL"],
            Self::Cassandra => &["MEMBERSHIP_TEST_CASSANDRA_URL"],
            Self::Nats => &["MEMBERSHIP_TEST_NATS_URL"],
            Self::SqlServer => &["MEMBERSHIP_TEST_SQLSERVER_URL", "MEMBERSHIP_TEST_MSSQL_URL"],
        }
    }
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
