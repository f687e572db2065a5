//! Time and randomness from the system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use membership_core::{ClusterKey, WallTime};

/// This machine's clock.
pub(crate) fn wall() -> WallTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A cluster key for a cluster that no silo joins.
pub(crate) fn random_key() -> ClusterKey {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&random().to_ne_bytes());
    bytes[16..].copy_from_slice(&random().to_ne_bytes());
    ClusterKey::new(bytes)
}

/// 128 random bits.
pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Without randomness: unique on this machine, which is all that ids of commits need.
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        return nanos << 32 | u128::from(std::process::id());
    }
    u128::from_le_bytes(bytes)
}

/// A random time up to `most`.
pub(crate) fn jitter(most: Duration) -> Duration {
    let share = (random() % 1000) as u32;
    most * share / 1000
}
