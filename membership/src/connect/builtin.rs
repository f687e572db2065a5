//! The providers of this build's features.

use std::sync::Arc;

use membership_provider::Provider;

/// One line per store.
pub(super) fn providers() -> Vec<Arc<dyn Provider>> {
    vec![
        #[cfg(feature = "memory")]
        Arc::new(memory::MemoryProvider),
        #[cfg(feature = "azure-table")]
        Arc::new(membership_azure::provider()),
        #[cfg(feature = "cassandra")]
        Arc::new(membership_cassandra::provider()),
        #[cfg(feature = "consul")]
        Arc::new(membership_consul::provider()),
        #[cfg(feature = "dynamodb")]
        Arc::new(membership_dynamo::provider()),
        #[cfg(feature = "etcd")]
        Arc::new(membership_etcd::provider()),
        #[cfg(feature = "mongodb")]
        Arc::new(membership_mongo::provider()),
        #[cfg(feature = "mssql")]
        Arc::new(membership_sql::mssql_provider()),
        #[cfg(feature = "mysql")]
        Arc::new(membership_sql::mysql_provider()),
        #[cfg(feature = "nats")]
        Arc::new(membership_nats::provider()),
        #[cfg(feature = "postgres")]
        Arc::new(membership_sql::postgres_provider()),
        #[cfg(feature = "redis")]
        Arc::new(membership_redis::provider()),
        #[cfg(feature = "sqlite")]
        Arc::new(membership_sql::sqlite_provider()),
        #[cfg(feature = "zk")]
        Arc::new(membership_zk::provider()),
    ]
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
