//! Access to a cluster past the contract: reads and writes of somebody with the store's own tools.

use async_trait::async_trait;

use crate::Stop;

/// One cluster in the store, accessed past the provider.
#[async_trait]
pub trait RawAccess: Send {
    /// A backup. The default is the backup of a cluster that does not exist.
    type Saved: Default + Send + Sync + 'static;

    /// Writes any text under any row key; the version stays.
    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop>;

    /// Replaces the version row by any text.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop>;

    /// Removes the row with this key and keeps its heartbeat, unless the store holds one inside the
    /// other. Without a key it removes the version row and keeps the rows.
    async fn drop_row(&mut self, key: Option<&str>) -> Result<(), Stop>;

    /// How many records the store keeps of the cluster. See
    /// [`Backend::count`](crate::Backend::count).
    async fn count(&mut self) -> Result<usize, Stop>;

    /// Saves everything of the cluster.
    async fn save(&mut self) -> Result<Self::Saved, Stop>;

    /// Replaces everything of the cluster by a backup.
    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop>;
}
