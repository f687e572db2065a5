//! What the three stores share: decoded rows, and statements about the same tables.

mod cache;
pub(crate) mod layout;

pub(crate) use cache::DecodeCache;

/// When an operation looks for another primary: its answer contradicts what the caller knows, so it
/// may be that of a server that was deposed and does not know it. Such a server has written
/// nothing. Clause T16.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Default)]
pub(crate) struct Doubts(std::sync::Mutex<Option<std::time::Instant>>);

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Doubts {
    /// A table that really was rolled back gives such an answer each time.
    const PERIOD: std::time::Duration = std::time::Duration::from_secs(5);

    /// Whether to look after this error, at most once in a period.
    pub(crate) fn look_again(&self, e: &membership_core::TableError) -> bool {
        use membership_core::TableErrorKind::{TableReplaced, TableRolledBack};
        let doubted = matches!(e.kind(), TableReplaced | TableRolledBack);
        let mut last = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if doubted && last.is_none_or(|last| last.elapsed() >= Self::PERIOD) {
            *last = Some(std::time::Instant::now());
            return true;
        }
        false
    }
}

/// An unsigned number as a column; ours end at 2^53.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A stored heartbeat. Only the counter matters: an unreadable time becomes 1970.
pub(crate) fn heartbeat(counter: u64, at: Option<&str>) -> membership_core::Heartbeat {
    let at = at.and_then(|at| at.parse().ok());
    membership_core::Heartbeat {
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
