//! The providers of this build's features.

use super::registry::Connectors;

#[cfg_attr(
    not(any(
        feature = "azure-table",
        feature = "cassandra",
        feature = "consul",
        feature = "dynamodb",
        feature = "etcd",
        feature = "memory",
        feature = "mongodb",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "sqlite",
        feature = "zk"
    )),
    allow(unused_variables)
)]
pub(super) fn register(connectors: &mut Connectors) {
    #[cfg(feature = "memory")]
    {
        let _ = connectors.register("memory", memory::open);
    }
    #[cfg(feature = "azure-table")]
    {
        let _ = connectors.register("azure-table", azure::open);
    }
    #[cfg(feature = "cassandra")]
    {
        let _ = connectors.register("cassandra", cassandra::open);
        let _ = connectors.register_schema("cassandra", cassandra::schema);
    }
    #[cfg(feature = "sqlite")]
    {
        let _ = connectors.register("sqlite", sqlite::open);
    }
    #[cfg(feature = "postgres")]
    {
        for scheme in ["postgres", "postgresql"] {
            let _ = connectors.register(scheme, postgres::open);
            let _ = connectors.register_schema(scheme, postgres::schema);
        }
    }
    #[cfg(feature = "mysql")]
    {
        let _ = connectors.register("mysql", mysql::open);
        let _ = connectors.register_schema("mysql", mysql::schema);
    }
    #[cfg(feature = "dynamodb")]
    {
        let _ = connectors.register("dynamodb", dynamodb::open);
        let _ = connectors.register_schema("dynamodb", dynamodb::schema);
    }
    #[cfg(feature = "redis")]
    {
        for scheme in ["redis", "rediss", "redis+sentinel", "redis+cluster"] {
            let _ = connectors.register(scheme, redis::open);
        }
    }
    #[cfg(feature = "consul")]
    {
        for scheme in ["consul", "consul+https"] {
            let _ = connectors.register(scheme, consul::open);
            let _ = connectors.register_schema(scheme, consul::schema);
        }
    }
    #[cfg(feature = "etcd")]
    {
        for scheme in ["etcd", "etcd+https"] {
            let _ = connectors.register(scheme, etcd::open);
        }
    }
    #[cfg(feature = "mongodb")]
    {
        let _ = connectors.register("mongodb", mongodb::open);
        #[cfg(feature = "mongodb-srv")]
        let _ = connectors.register("mongodb+srv", mongodb::open);
    }
    #[cfg(feature = "zk")]
    {
        let _ = connectors.register("zk", zk::open);
    }
}

#[cfg(feature = "memory")]
mod memory {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};

    use membership_core::{ClusterName, MembershipTable, MemoryStore};

    use crate::connect::Connecting;

    /// Lives as long as the process: two silos that name the same store meet in it.
    static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        let name = url
            .split_once(':')
            .map_or("", |(_, name)| name)
            .trim_start_matches('/')
            .to_owned();
        let store = STORES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name)
            .or_default()
            .clone();
        Box::pin(async move { Ok(Arc::new(store.table(cluster)) as Arc<dyn MembershipTable>) })
    }
}

#[cfg(feature = "azure-table")]
mod azure {
    use std::sync::Arc;

    use membership_azure::{AzureTable, AzureTableConfig};
    use membership_core::{ClusterName, MembershipTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = AzureTable::connect(AzureTableConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }
}

#[cfg(feature = "cassandra")]
mod cassandra {
    use std::sync::Arc;

    use membership_cassandra::{CassandraConfig, CassandraTable};
    use membership_core::{ClusterName, MembershipTable, TableError};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = CassandraTable::connect(CassandraConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }

    /// Keyspace and tables, for `cqlsh`.
    pub(super) fn schema(url: &str) -> Result<String, TableError> {
        Ok(CassandraConfig::from_url(url)?.schema())
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable, TableError};
    use membership_sql::{MysqlConfig, MysqlTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = MysqlTable::connect(MysqlConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }

    /// The tables, and after them the procedure that makes a commit one round trip.
    pub(super) fn schema(url: &str) -> Result<String, TableError> {
        MysqlConfig::from_url(url)?;
        Ok(format!(
            "{}\n{}",
            MysqlConfig::schema_sql(),
            MysqlConfig::procedure_sql()
        ))
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable};
    use membership_sql::{SqliteConfig, SqliteTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = SqliteTable::connect(SqliteConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable, TableError};
    use membership_sql::{PostgresConfig, PostgresTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = PostgresTable::connect(PostgresConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }

    pub(super) fn schema(url: &str) -> Result<String, TableError> {
        Ok(PostgresConfig::from_url(url)?.schema_sql())
    }
}

#[cfg(feature = "dynamodb")]
mod dynamodb {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable, TableError};
    use membership_dynamo::{DynamoConfig, DynamoTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = DynamoTable::connect(DynamoConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }

    /// What `aws dynamodb create-table --cli-input-json` takes.
    pub(super) fn schema(url: &str) -> Result<String, TableError> {
        Ok(DynamoConfig::from_url(url)?.schema())
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable};
    use membership_redis::{RedisConfig, RedisTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = RedisTable::connect(RedisConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }
}

#[cfg(feature = "consul")]
mod consul {
    use std::sync::Arc;

    use membership_consul::{ConsulConfig, ConsulTable};
    use membership_core::{ClusterName, MembershipTable, TableError};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = ConsulTable::connect(ConsulConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }

    /// Consul needs no tables; what silos need is a policy.
    pub(super) fn schema(url: &str) -> Result<String, TableError> {
        Ok(ConsulConfig::from_url(url)?.schema())
    }
}

#[cfg(feature = "mongodb")]
mod mongodb {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable};
    use membership_mongo::{MongoConfig, MongoTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = MongoTable::connect(MongoConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable};
    use membership_etcd::{EtcdConfig, EtcdTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = EtcdTable::connect(EtcdConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }
}

#[cfg(feature = "zk")]
mod zk {
    use std::sync::Arc;

    use membership_core::{ClusterName, MembershipTable};
    use membership_zk::{ZkConfig, ZkTable};

    use crate::connect::Connecting;

    pub(super) fn open(url: String, cluster: ClusterName) -> Connecting {
        Box::pin(async move {
            let table = ZkTable::connect(ZkConfig::from_url(&url)?, cluster).await?;
            Ok(Arc::new(table) as Arc<dyn MembershipTable>)
        })
    }
}
