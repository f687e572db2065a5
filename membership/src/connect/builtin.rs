//! The providers of this project: the feature of each, how it is made, and its schemes. Those of this
//! build's features are there.

use std::sync::Arc;

use membership_provider::Provider;

use super::known::Known;

macro_rules! builtin {
    ($($feature:literal => $($provider:expr)?, [$($scheme:literal),+];)+) => {
        /// Every scheme, whether or not this build has it.
        pub(super) const KNOWN: &[Known] =
            &[$($(Known { scheme: $scheme, feature: $feature },)+)+];

        /// The providers of this build.
        pub(super) fn providers() -> Vec<Arc<dyn Provider>> {
            vec![$($(
                #[cfg(feature = $feature)]
                Arc::new($provider),
            )?)+]
        }
    };
}

builtin! {
    "memory" => memory::MemoryProvider, ["memory"];
    "azure-table" => membership_azure::provider(), ["azure-table"];
    "cassandra" => membership_cassandra::provider(), ["cassandra"];
    "consul" => membership_consul::provider(), ["consul", "consul+https"];
    "dynamodb" => membership_dynamo::provider(), ["dynamodb"];
    "etcd" => membership_etcd::provider(), ["etcd", "etcd+https"];
    "mongodb" => membership_mongo::provider(), ["mongodb"];
    // The provider of MongoDB, built with a resolver.
    "mongodb-srv" => , ["mongodb+srv"];
    "mssql" => membership_sql::mssql_provider(), ["mssql"];
    "mysql" => membership_sql::mysql_provider(), ["mysql"];
    "nats" => membership_nats::provider(), ["nats"];
    "postgres" => membership_sql::postgres_provider(), ["postgres", "postgresql"];
    "redis" => membership_redis::provider(), ["redis", "rediss", "redis+sentinel", "redis+cluster"];
    "sqlite" => membership_sql::sqlite_provider(), ["sqlite"];
    "zk" => membership_zk::provider(), ["zk"];
}

#[cfg(feature = "memory")]
mod memory {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};

    use async_trait::async_trait;
    use membership_core::{ClusterName, MembershipTable, MemoryStore, TableError};
    use membership_provider::Provider;

    /// Exists as long as the process, so that two silos that name the same store share it.
    static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());

    /// Opens tables by connection string: `memory:`, with any name after it.
    pub(super) struct MemoryProvider;

    #[async_trait]
    impl Provider for MemoryProvider {
        fn schemes(&self) -> &'static [&'static str] {
            &["memory"]
        }

        async fn connect(
            &self,
            url: &str,
            cluster: ClusterName,
        ) -> Result<Arc<dyn MembershipTable>, TableError> {
            let name = url.split_once(':').map_or("", |(_, name)| name);
            let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
            let store = stores
                .entry(name.trim_start_matches('/').to_owned())
                .or_default();
            Ok(Arc::new(store.table(cluster)))
        }
    }
}
