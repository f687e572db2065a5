//! SQLite's errors by what the caller does next.

use std::io;

use membership_core::{Operation, TableError, TableErrorKind as Kind};
use rusqlite::ErrorCode;

use super::STORE;

/// A file that was moved or deleted while it was open: `SQLITE_READONLY_DBMOVED`.
const READONLY_DBMOVED: i32 = 8 | (4 << 8);

/// An error of this store. [`Worker::call`](super::worker::Worker::call) names the operation.
pub(super) fn error(kind: Kind, message: impl Into<String>) -> TableError {
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
        ) => (Kind::Busy, "another process holds the lock"),
        Some(ErrorCode::SchemaChanged) => (Kind::Busy, "the layout is being changed"),
        Some(ErrorCode::OperationInterrupted | ErrorCode::OperationAborted) => {
            (Kind::Busy, "it was interrupted")
        }
        Some(ErrorCode::NotADatabase) => (
            Kind::ForeignTable,
            "the file is not a SQLite database, or is encrypted",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            Kind::Damaged,
            "the file is damaged: restore it from a backup, or delete it",
        ),
        Some(ErrorCode::ReadOnly) if extended == READONLY_DBMOVED => (
            Kind::TableReplaced,
            "the file was moved or deleted while it was open",
        ),
        Some(ErrorCode::ReadOnly) => (
            Kind::PermissionDenied,
            "the file or its directory is read-only",
        ),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (Kind::PermissionDenied, "the file may not be used")
        }
        Some(ErrorCode::CannotOpen) => (Kind::Unavailable, "the file cannot be opened"),
        Some(ErrorCode::DiskFull) => (Kind::Unavailable, "the disk is full"),
        Some(ErrorCode::SystemIoFailure) => (Kind::Unavailable, "the disk failed"),
        Some(ErrorCode::OutOfMemory) => (Kind::Unavailable, "there is no memory left"),
        Some(ErrorCode::NoLargeFileSupport) => (
            Kind::Configuration,
            "the file system does not support large files",
        ),
        Some(ErrorCode::TooBig) => (Kind::LimitExceeded, "a value is larger than SQLite accepts"),
        // A statement that does not match the table: another layout under our names, or a change by
        // hand.
        _ => (
            Kind::Damaged,
            "the table does not have the layout this build expects",
        ),
    };
    // The text of a SQLite error contains names of tables and columns, never values.
    error(kind, format!("{what} ({e})")).with_source(e)
}

/// Of COMMIT itself: certain or unknown.
///
/// A lock that is not available and a full disk stop it before the commit mark is in the log. After
/// any other failure the mark may be there, and the recovery after a crash may find it.
pub(super) fn from_commit(e: rusqlite::Error) -> TableError {
    match e.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly,
        ) => from_sqlite(e),
        _ => error(
            Kind::OutcomeUnknown,
            format!("the disk failed during a commit ({e})"),
        )
        .with_source(e),
    }
}

/// Of reading the metadata of the file.
pub(super) fn from_io(e: io::Error) -> TableError {
    let kind = match e.kind() {
        io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
        _ => Kind::Unavailable,
    };
    error(kind, format!("the file cannot be examined ({e})")).with_source(e)
}

#[cfg(test)]
#[path = "../../tests/unit/sqlite/error.rs"]
mod tests;
