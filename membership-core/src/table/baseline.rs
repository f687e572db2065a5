//! What the store itself costs: the measure that a benchmark holds the table against.

use std::fmt;

use async_trait::async_trait;

use crate::table::TableError;

/// The store's own cheapest write and read, over the same connection and with the same durability as the table's.
///
/// A figure like "a commit takes 0.4 ms" says as much about the machine as about the table. Beside the store's own cheapest write in the
/// same run, it says what the table adds. Nothing but benchmarks uses this.
///
/// # Cancellation
/// Every future may be dropped; what was written is overwritten by the next call and removed by [`remove`](Self::remove).
#[async_trait]
pub trait Baseline: fmt::Debug + Send + Sync + 'static {
    /// What [`write`](Self::write) is, in the store's own words, for example `SET of one key`.
    fn write_is(&self) -> &'static str;

    /// What [`read`](Self::read) is, in the store's own words.
    fn read_is(&self) -> &'static str;

    /// Overwrites about 100 bytes under one key of its own, apart from every cluster, durable as a commit is.
    ///
    /// # Errors
    /// What the store says.
    async fn write(&self) -> Result<(), TableError>;

    /// Reads them back, as recent as the table's reads are. Zero bytes before the first write; that is no error.
    ///
    /// # Errors
    /// What the store says.
    async fn read(&self) -> Result<(), TableError>;

    /// Leaves nothing of it in the store.
    ///
    /// # Errors
    /// What the store says.
    async fn remove(&self) -> Result<(), TableError>;
}
