//! Limits and guarantees of a store, as values.

use serde::{Deserialize, Serialize};

/// Limits of a table. A request that exceeds one is refused before anything is sent (clause T11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TableLimits {
    /// Maximum number of row changes in one commit, at least 2.
    pub rows_per_commit: usize,
    /// Maximum size of key and text of one row, in bytes; at most 1 MiB, because silos send no longer
    /// rows to each other.
    pub bytes_per_row: usize,
    /// Maximum size of all rows of one commit, in bytes.
    pub bytes_per_commit: usize,
    /// Maximum number of rows in the table.
    pub rows: usize,
}

impl TableLimits {
    /// Creates limits; the parameters are in the order of the fields.
    #[must_use]
    pub const fn new(
        rows_per_commit: usize,
        bytes_per_row: usize,
        bytes_per_commit: usize,
        rows: usize,
    ) -> Self {
        Self {
            rows_per_commit,
            bytes_per_row,
            bytes_per_commit,
            rows,
        }
    }
}

/// How recent a read without a barrier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recency {
    /// A read includes every commit that was acknowledged to any client before the read began.
    Linearizable,
    /// A read is never older than what this client has read or written before.
    MonotonicPerClient,
}

/// Whether an acknowledged commit survives a failover of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// It survives.
    Kept,
    /// It may be lost; this is reported as `TableRolledBack`.
    MayBeLost,
}

/// Guarantees of a store for its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Guarantees {
    /// How recent reads are.
    pub reads: Recency,
    /// Whether acknowledged commits survive a failover.
    pub durability: Durability,
}

impl Guarantees {
    /// Creates guarantees for reads and acknowledged commits.
    #[must_use]
    pub const fn new(reads: Recency, durability: Durability) -> Self {
        Self { reads, durability }
    }
}
