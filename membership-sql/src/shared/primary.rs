//! Whether the server that answers is still the primary.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use membership_core::TableErrorKind::{TableReplaced, TableRolledBack};
use membership_core::{Durability, Guarantees, Recency, TableError};

/// When an operation looks for another primary: its answer contradicts what the caller knows, so it
/// may be that of a server that was deposed and does not know it. Such a server has written
/// nothing. Clause T16.
#[derive(Default)]
pub(crate) struct Doubts(Mutex<Option<Instant>>);

impl Doubts {
    /// A table that really was rolled back gives such an answer each time.
    const PERIOD: Duration = Duration::from_secs(5);

    /// Whether to look after this error, at most once in a period.
    pub(crate) fn look_again(&self, e: &TableError) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= Self::PERIOD);
        let looks = due && matches!(e.kind(), TableReplaced | TableRolledBack);
        if looks {
            *last = Some(Instant::now());
        }
        looks
    }
}

/// When the server last had replicas, as far as it was asked. One of them may have taken over.
#[derive(Default)]
pub(crate) struct Replicas(Mutex<Option<Instant>>);

impl Replicas {
    /// A server that is cut off forgets its replicas.
    const MEMORY: Duration = Duration::from_secs(3600);

    /// Notes whether it has some now.
    pub(crate) fn note(&self, some: bool) {
        if some {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// Whether it has had none for a while.
    pub(crate) fn none(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|last| last.elapsed() >= Self::MEMORY)
    }
}

/// The guarantees as values.
pub(crate) fn guarantees(linearizable: bool, kept: bool) -> Guarantees {
    let reads = match linearizable {
        true => Recency::Linearizable,
        false => Recency::MonotonicPerClient,
    };
    let durability = match kept {
        true => Durability::Kept,
        false => Durability::MayBeLost,
    };
    Guarantees::new(reads, durability)
}
