//! Unit tests of `src/sqlite/error.rs`, which includes them.

use super::*;
use rusqlite::ffi;

fn sqlite(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("words".to_owned()))
}

#[test]
fn certain_and_unknown_outcomes_are_distinguished() {
    for (code, before, within) in [
        (ffi::SQLITE_BUSY, Kind::Busy, Kind::Busy),
        (ffi::SQLITE_BUSY_SNAPSHOT, Kind::Busy, Kind::Busy),
        (ffi::SQLITE_FULL, Kind::Unavailable, Kind::Unavailable),
        (
            ffi::SQLITE_IOERR_FSYNC,
            Kind::Unavailable,
            Kind::OutcomeUnknown,
        ),
        (
            ffi::SQLITE_READONLY_DBMOVED,
            Kind::TableReplaced,
            Kind::TableReplaced,
        ),
        (
            ffi::SQLITE_READONLY,
            Kind::PermissionDenied,
            Kind::PermissionDenied,
        ),
        (ffi::SQLITE_NOTADB, Kind::ForeignTable, Kind::OutcomeUnknown),
        (ffi::SQLITE_CORRUPT, Kind::Damaged, Kind::OutcomeUnknown),
    ] {
        assert_eq!(from_sqlite(sqlite(code)).kind(), before, "{code}");
        assert_eq!(from_commit(sqlite(code)).kind(), within, "{code}");
    }
}
