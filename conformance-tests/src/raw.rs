//! A cluster past the contract: what somebody with the store's own tools reads and writes.

use async_trait::async_trait;

use crate::Stop;

/// One cluster in the store, past the provider.
#[async_trait]
pub trait RawAccess: Send {
    /// A backup. The default is that of a cluster of which there is nothing.
    type Saved: Default + Send + Sync + 'static;

    /// Puts any text under any row key; the version stays.
    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop>;

    /// Puts any text in the place of the version row.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop>;

    /// Takes the version row away and leaves the rows.
    async fn drop_version_row(&mut self) -> Result<(), Stop>;

    /// Everything of the cluster.
    async fn save(&mut self) -> Result<Self::Saved, Stop>;

    /// Puts a backup in the place of everything that there is.
    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop>;
}
