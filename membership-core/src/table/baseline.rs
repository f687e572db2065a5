//! The cost of the store itself, as the baseline for benchmarks of a table.

use std::fmt;

use async_trait::async_trait;

use crate::table::TableError;

/// The store's own cheapest write and read, over the same connection and with the same durability
/// as those of the table.
///
/// A result such as "a commit takes 0.4 ms" depends on the machine as much as on the table.
/// Together with the store's own cheapest write in the same run, it shows what the table adds. Only
/// benchmarks use this trait.
///
/// # Cancellation
/// Every future may be dropped. The next call overwrites what was written, and
/// [`remove`](Self::remove) removes it.
#[async_trait]
pub trait Baseline: fmt::Debug + Send + Sync + 'static {
    /// Names the operation of [`write`](Self::write) in the terms of the store, for example
    /// `SET of one key`.
    fn write_is(&self) -> &'static str;

    /// Names the operation of [`read`](Self::read) in the terms of the store.
    fn read_is(&self) -> &'static str;

    /// Overwrites about 100 bytes under a key of its own, outside every cluster, with the
    /// durability of a commit.
    ///
    /// # Errors
    /// The errors of the store.
    async fn write(&self) -> Result<(), TableError>;

    /// Reads these bytes, with the recency of the table's reads. Before the first write it reads
    /// zero bytes; that is not an error.
    ///
    /// # Errors
    /// The errors of the store.
    async fn read(&self) -> Result<(), TableError>;

    /// Removes these bytes from the store.
    ///
    /// # Errors
    /// The errors of the store.
    async fn remove(&self) -> Result<(), TableError>;
}
