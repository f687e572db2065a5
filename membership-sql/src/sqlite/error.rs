//! What SQLite says, as what the caller does next.

use std::io;

use membership_core::{Operation, TableError, TableErrorKind};
use rusqlite::ErrorCode;

use super::STORE;

/// A file that was moved or deleted while it was open: `SQLITE_READONLY_DBMOVED`.
const READONLY_DBMOVED: i32 = 8 | (4 << 8);

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
pub(super) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// Before a transaction's COMMIT: certainly not applied.
pub(super) fn from_sqlite(e: rusqlite::Error) -> TableError {
    let code = e.sqlite_error_code();
    let extended = e.sqlite_error().map_or(0, |e| e.extended_code);
    let (kind, what) = match code {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => (TableErrorKind::Busy, "another process holds the lock"),
        Some(ErrorCode::SchemaChanged) => (TableErrorKind::Busy, "the layout is being changed"),
        Some(ErrorCode::OperationInterrupted | ErrorCode::OperationAborted) => {
            (TableErrorKind::Busy, "it was interrupted")
        }
        Some(ErrorCode::NotADatabase) => (
            TableErrorKind::ForeignTable,
            "the file is not a SQLite database, or is encrypted",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            TableErrorKind::Damaged,
            "the file is damaged: restore it from a backup, or delete it",
        ),
        Some(ErrorCode::ReadOnly) if extended == READONLY_DBMOVED => (
            TableErrorKind::TableReplaced,
            "the file was moved or deleted while it was open",
        ),
        Some(ErrorCode::ReadOnly) => (
            TableErrorKind::PermissionDenied,
            "the file or its directory is read-only",
        ),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (TableErrorKind::PermissionDenied, "the file may not be used")
        }
        Some(ErrorCode::CannotOpen) => (TableErrorKind::Unavailable, "the file cannot be opened"),
        Some(ErrorCode::DiskFull) => (TableErrorKind::Unavailable, "the disk is full"),
        Some(ErrorCode::SystemIoFailure) => (TableErrorKind::Unavailable, "the disk failed"),
        Some(ErrorCode::OutOfMemory) => (TableErrorKind::Unavailable, "there is no memory left"),
        Some(ErrorCode::NoLargeFileSupport) => (
            TableErrorKind::Configuration,
            "the file system takes no large files",
        ),
        Some(ErrorCode::TooBig) => (
            TableErrorKind::LimitExceeded,
            "a value is larger than SQLite takes",
        ),
        // A statement that does not fit the table: somebody else's layout under our names, or ours changed by hand.
        _ => (
            TableErrorKind::Damaged,
            "the table does not have the layout this build expects",
        ),
    };
    // The text of a SQLite error holds names of tables and columns, never values.
    error(kind, format!("{what} ({e})")).with_source(e)
}

/// From COMMIT itself: what is certain and what is not.
///
/// A lock that could not be had and a full disk stop it before the commit mark is in the log. After any other failure the mark may be
/// there, and a recovery after a crash may find it.
pub(super) fn from_commit(e: rusqlite::Error) -> TableError {
    match e.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly,
        ) => from_sqlite(e),
        _ => error(
            TableErrorKind::OutcomeUnknown,
            format!("the disk failed in the middle of a commit ({e})"),
        )
        .with_source(e),
    }
}

/// From looking at the file by its name.
pub(super) fn from_io(e: io::Error) -> TableError {
    let kind = match e.kind() {
        io::ErrorKind::PermissionDenied => TableErrorKind::PermissionDenied,
        _ => TableErrorKind::Unavailable,
    };
    error(kind, format!("the file cannot be looked at ({e})")).with_source(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn sqlite(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("words".to_owned()))
    }

    #[test]
    fn certain_and_uncertain_are_told_apart() {
        for (code, before, within) in [
            (ffi::SQLITE_BUSY, TableErrorKind::Busy, TableErrorKind::Busy),
            (
                ffi::SQLITE_BUSY_SNAPSHOT,
                TableErrorKind::Busy,
                TableErrorKind::Busy,
            ),
            (
                ffi::SQLITE_FULL,
                TableErrorKind::Unavailable,
                TableErrorKind::Unavailable,
            ),
            (
                ffi::SQLITE_IOERR_FSYNC,
                TableErrorKind::Unavailable,
                TableErrorKind::OutcomeUnknown,
            ),
            (
                ffi::SQLITE_READONLY_DBMOVED,
                TableErrorKind::TableReplaced,
                TableErrorKind::TableReplaced,
            ),
            (
                ffi::SQLITE_READONLY,
                TableErrorKind::PermissionDenied,
                TableErrorKind::PermissionDenied,
            ),
            (
                ffi::SQLITE_NOTADB,
                TableErrorKind::ForeignTable,
                TableErrorKind::OutcomeUnknown,
            ),
            (
                ffi::SQLITE_CORRUPT,
                TableErrorKind::Damaged,
                TableErrorKind::OutcomeUnknown,
            ),
        ] {
            assert_eq!(from_sqlite(sqlite(code)).kind(), before, "{code}");
            assert_eq!(from_commit(sqlite(code)).kind(), within, "{code}");
        }
    }
}
