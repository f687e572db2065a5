//! What the baselines of all stores write: see [`Baseline`](membership_core::Baseline).

use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// A value as large as a small row.
///
/// ```
/// assert_eq!(membership_provider::baseline::CONTENT.len(), 100);
/// ```
pub const CONTENT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

/// A name that no other baseline on this machine has.
///
/// ```
/// use membership_provider::baseline::unique_name;
/// assert_ne!(unique_name(), unique_name());
/// ```
#[must_use]
pub fn unique_name() -> String {
    format!("{}-{}", std::process::id(), next_number())
}

/// A number that was not given before: for stores that skip a write which changes nothing.
///
/// ```
/// use membership_provider::baseline::next_number;
/// assert_ne!(next_number(), next_number());
/// ```
#[must_use]
pub fn next_number() -> u64 {
    COUNT.fetch_add(1, Ordering::Relaxed)
}
