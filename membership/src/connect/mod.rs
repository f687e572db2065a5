//! From a connection string to a table: the scheme picks the provider.

mod builtin;
mod error;
mod known;
mod registry;

pub use error::ConnectError;
pub use registry::{Connecting, Connectors};

use std::sync::Arc;

use membership_core::{ClusterName, MembershipTable};

/// Opens the table of a cluster with the providers of this build: [`Connectors::default`], then
/// [`Connectors::connect`].
///
/// | scheme | provider | feature |
/// |---|---|---|
/// | `memory:` or `memory:name` | in this process; each name is a store of its own | `memory` |
/// | `sqlite:path` | one file, shared by the processes of one machine | `sqlite` |
/// | `postgres://`, `postgresql://` | PostgreSQL, run with 12 to 17 | `postgres` |
/// | `mysql://` | MySQL or MariaDB, run with MariaDB 10.11 and 11.4 | `mysql` |
/// | `mssql://` | SQL Server or Azure SQL, not run yet | `mssql` |
/// | `redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://` | Redis or Valkey | `redis` |
/// | `dynamodb://region/table` | Amazon DynamoDB | `dynamodb` |
/// | `consul://`, `consul+https://` | Consul, run with 1.8 | `consul` |
/// | `nats://` | NATS with JetStream, run with 2.12 to 2.15 | `nats` |
/// | `etcd://`, `etcd+https://` | etcd, run with 3.4 to 3.6 | `etcd` |
/// | `mongodb://` | MongoDB, run with 6.0, a replica set or sharded | `mongodb` |
/// | `mongodb+srv://` | the same, its hosts in DNS | `mongodb-srv` |
/// | `azure-table://` | Azure Table storage | `azure-table` |
/// | `cassandra://` | Cassandra, run with 5.0 | `cassandra` |
/// | `zk://` | ZooKeeper, run with 3.6 to 3.9 | `zk` |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "memory")] {
/// let table = membership::connect("memory:demo", "billing/blue".parse()?).await?;
/// assert_eq!(table.store(), "memory");
/// # }
/// let error = membership::connect("oracle://scott:tiger@db", "blue".parse()?).await.unwrap_err();
/// assert!(!error.to_string().contains("tiger"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ConnectError`], which names the scheme and what to do, and never shows what comes after it.
/// Cancel safe.
pub async fn connect(
    url: &str,
    cluster: ClusterName,
) -> Result<Arc<dyn MembershipTable>, ConnectError> {
    Connectors::default().connect(url, cluster).await
}
