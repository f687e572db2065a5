//! The contract: one call per method.

use std::fmt;
use std::sync::Arc;

use membership_core::{ClusterName, TableError};
use membership_provider::{Provider, StoreProvider};

use super::admin::{Delete, Initialize};
use super::baseline::MysqlBaseline;
use super::client::Inner;
use super::commit::Commit;
use super::config::SCHEMES;
use super::heartbeat::Heartbeat;
use super::read::{Read, ReadRow};
use super::{MysqlConfig, STORE};
use crate::shared::pool::Client as _;
use crate::shared::table::table_over_pool;

/// The membership table of one cluster in MySQL or MariaDB.
///
/// Cheap to clone. All clones share two connections, which are closed after the last clone is
/// dropped, or by [`close`](Self::close). Needs a tokio runtime.
///
/// * A read is one statement on the primary. A read-only server is refused, also when it becomes
///   read-only later.
/// * A read and a heartbeat are one round trip; a commit is two, or one with the stored procedure
///   ([`MysqlConfig::procedure_sql`]).
/// * Every operation ends within the configured time. A commit whose answer was lost is
///   `OutcomeUnknown`; every other operation that ends by time, by a deadlock or by a lock was
///   certainly not applied.
/// * Whether reads are linearizable and commits survive depends on the server's settings and
///   replicas: see [`guarantees`](membership_core::MembershipTable::guarantees).
///
/// Cancellation: dropping a future closes the connection that it used, so that its answer is not
/// taken for another one's. The server rolls back a transaction that it had not begun to commit.
///
/// ```no_run
/// use membership_core::{ClusterKey, InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId};
/// use membership_sql::{MysqlConfig, MysqlTable};
///
/// # async fn example() -> Result<(), membership_core::TableError> {
/// let config = MysqlConfig::new("db.example", "app")
///     .user("silo")
///     .password(std::env::var("DB_PASSWORD").unwrap_or_default());
/// let table = MysqlTable::connect(config, "billing/blue".parse().expect("a cluster name")).await?;
/// let cluster_key = ClusterKey::new([9; 32]); // random
/// let request = InitializeRequest::new(TableId::new(0x5eed), SharedSettings::default(), cluster_key);
/// table.initialize(&request).await?;
/// let answer = table.read(&ReadRequest::all()).await?;
/// # let _ = answer; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MysqlTable(Arc<Inner>);

/// Opens tables by connection string: `mysql:`.
/// Its schema is the statements that create the tables, and then the procedure.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, MysqlConfig::from_url, MysqlTable::connect)
        .with_schema(|_config| MysqlConfig::schema_sql() + "\n" + &MysqlConfig::procedure_sql())
}

impl fmt::Debug for MysqlTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlTable")
            .field("cluster", &self.0.cluster.to_string())
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

impl MysqlTable {
    /// Connects to the server, and refuses one that cannot be used. Missing tables are not an error
    /// and are not created: that is for `initialize`. Writes nothing.
    ///
    /// # Errors
    /// `Configuration` (an old server, no such database, a server that loses commits where that is
    /// refused), `PermissionDenied`, `Unavailable` (also a read-only server), `ForeignTable`,
    /// `NewerLayout`, `Damaged`.
    pub async fn connect(config: MysqlConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::connect(config, cluster).await?)))
    }

    /// Closes both connections after the operations under way. A clone that is used later opens
    /// them again.
    pub async fn close(self) {
        self.0.pool.close().await;
    }

    /// The configuration of this table.
    #[must_use]
    pub fn config(&self) -> &MysqlConfig {
        &self.0.config
    }
}

table_over_pool!(MysqlTable, MysqlBaseline, STORE);
