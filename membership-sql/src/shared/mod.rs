//! What the stores share: decoded rows, and statements about the same tables.

mod cache;
pub(crate) mod layout;
#[cfg(any(feature = "mysql", feature = "mssql"))]
pub(crate) mod pool;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
mod primary;
#[cfg(any(feature = "mysql", feature = "mssql"))]
pub(crate) mod table;

pub(crate) use cache::DecodeCache;
use membership_core::{Heartbeat, Heartbeats};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
pub(crate) use primary::{Doubts, Replicas, guarantees};

/// An unsigned number as a column; ours end at 2^53.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mssql"))]
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Sorts a heartbeat by whether its silo has a row (clause T8). One under a key that is not a silo's
/// belongs to an undecodable row.
pub(crate) fn add(to: &mut Heartbeats, key: &str, heartbeat: Heartbeat, has_row: bool) {
    match key.parse() {
        Ok(silo) if has_row => _ = to.silos.insert(silo, heartbeat),
        Ok(silo) => _ = to.orphans.insert(silo),
        Err(_) => {}
    }
}

/// A stored heartbeat. Only the counter matters: an unreadable time becomes 1970.
pub(crate) fn heartbeat(counter: u64, at: Option<&str>) -> Heartbeat {
    let at = at.and_then(|at| at.parse().ok());
    Heartbeat {
        counter,
        at: at.unwrap_or_default(),
    }
}

/// The status and the version of a row, for people with a SQL shell.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn shown(row: &membership_core::Row) -> (&'static str, u64) {
    row.entry()
        .map_or(("", 0), |e| (e.status.as_str(), e.written_at))
}
