//! What a store can hold and what its answers are worth, as values.

use serde::{Deserialize, Serialize};

/// How much fits; exceeding one is refused before anything is sent (clause T11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TableLimits {
    /// Row changes in one commit, at least 2.
    pub rows_per_commit: usize,
    /// Bytes of key and text of one row.
    pub bytes_per_row: usize,
    /// Bytes of all rows of one commit together.
    pub bytes_per_commit: usize,
    /// Rows in the table.
    pub rows: usize,
}

impl TableLimits {
    /// Limits in the order of the fields.
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
    /// As recent as every commit acknowledged to anybody before it began.
    Linearizable,
    /// Never older than what this client has read or written before.
    MonotonicPerClient,
}

/// Whether an acknowledged commit survives a failover of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// It does.
    Kept,
    /// It may be lost, and then shows as `TableRolledBack`.
    MayBeLost,
}

/// What a store's answers are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Guarantees {
    /// How recent reads are.
    pub reads: Recency,
    /// Whether acknowledged commits are kept.
    pub durability: Durability,
}

impl Guarantees {
    /// What reads and acknowledged commits are worth.
    #[must_use]
    pub const fn new(reads: Recency, durability: Durability) -> Self {
        Self { reads, durability }
    }
}
