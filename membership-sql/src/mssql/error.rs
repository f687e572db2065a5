//! The errors of SQL Server by what the caller does next.

use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::one_line;
use tiberius::error::{Error, TokenError};

use super::STORE;

/// An error of this store. [`Client::run`](crate::shared::pool::Client::run) names the operation.
pub(super) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The grants, for errors about permissions.
const GRANTS: &str = "the user needs SELECT, INSERT, UPDATE and DELETE on the tables membership_%, and CREATE TABLE to create them";
/// How another user can create the tables.
pub(super) const PRINT: &str = "a user who may create tables must run what `membership schema --table mssql://…` prints (`MssqlConfig::schema_sql`)";

/// There is no such table.
pub(super) const NO_SUCH_TABLE: u32 = 208;
/// A column is missing.
pub(super) const NO_SUCH_COLUMN: u32 = 207;
/// A table of this name exists.
const TABLE_EXISTS: u32 = 2714;
/// The class from which the server ends the connection: it does not say how far it was.
const FATAL: u8 = 20;

/// How far a batch was when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It only reads, or is done again if it fails.
    Reading,
    /// It writes, and its COMMIT had not begun as far as the answer shows.
    Writing,
    /// Its COMMIT had begun.
    Committing,
}

/// Whether the connection is useless after this error.
pub(super) fn ends_connection(e: &Error) -> bool {
    match e {
        Error::Server(e) => e.class() >= FATAL || matches!(e.code(), 596 | 6005),
        _ => true,
    }
}

/// From a batch. An error below the class that ends the connection rolls the batch's transaction
/// back, if it came before COMMIT.
pub(super) fn from_batch(e: Error, phase: Phase) -> TableError {
    let certain = match &e {
        _ if phase == Phase::Reading => true,
        Error::Server(_) => phase == Phase::Writing && !ends_connection(&e),
        _ => false,
    };
    let e = from_mssql(e);
    if certain {
        return e;
    }
    let message = format!("the answer to the commit was lost: {}", e.message());
    error(TableErrorKind::OutcomeUnknown, message).with_source(e)
}

/// Certainly not applied.
pub(super) fn from_mssql(e: Error) -> TableError {
    let (kind, message) = match &e {
        Error::Server(server) => {
            let (kind, what) = kind_of(server);
            // The server's texts contain tables, columns, users and hosts, never a password.
            let said = one_line(server.message());
            (kind, format!("{what} ({}: {said})", server.code()))
        }
        // Trying again does not make a certificate trusted.
        Error::Tls(why) => (
            TableErrorKind::Configuration,
            format!(
                "TLS failed ({}): check tls_ca, the file with the authority of the server's certificate, and encrypt",
                one_line(why)
            ),
        ),
        Error::Io { kind, .. } => (
            TableErrorKind::Unavailable,
            format!("the server cannot be reached, or the connection broke ({kind})"),
        ),
        Error::Protocol(why) if why.contains("encryption level") => (
            TableErrorKind::Configuration,
            "server and client do not agree on encryption: correct encrypt, or set up TLS on the server"
                .to_owned(),
        ),
        Error::Routing { host, .. } => (
            TableErrorKind::Unavailable,
            format!("the server sends clients on to {}, again and again", one_line(host)),
        ),
        // The driver's other texts may contain bytes of a packet, and are not passed on.
        _ => (
            TableErrorKind::Unavailable,
            "the answer does not follow the protocol: is this SQL Server?".to_owned(),
        ),
    };
    match e {
        Error::Server(server) => error(kind, message).with_source(server),
        _ => error(kind, message),
    }
}

/// Whether clients that create tables at the same time got into each other's way.
pub(super) fn collides(e: &Error) -> bool {
    matches!(
        e.code(),
        Some(TABLE_EXISTS | 1205 | 1222 | 2627 | NO_SUCH_TABLE)
    )
}

fn kind_of(e: &TokenError) -> (TableErrorKind, &'static str) {
    use TableErrorKind as K;
    match e.code() {
        1205 => (
            K::Busy,
            "a deadlock, and this transaction was the one that was rolled back",
        ),
        1222 => (K::Busy, "another transaction held a lock for too long"),
        3960 | 3961 => (K::Busy, "another transaction was in the way"),
        2601 | 2627 => (K::Busy, "the rows were changed by hand at the same moment"),
        // Azure SQL. The class says whether the connection ends, and so whether it is certain.
        10928 | 10929 | 40549..=40553 | 49918..=49920 => (
            K::Busy,
            "the server limits this database's use of resources",
        ),
        40501 => (K::Busy, "the server is busy and turns requests away"),
        40197 | 40143 | 40166 | 40540 | 40613 | 40627 | 40648 | 42108 | 42109 => (
            K::Unavailable,
            "the database is not available now: it moves, or starts",
        ),
        // An availability group.
        3906 | 3908 | 976 | 978 | 982 | 983 | 10636 | 41131 => (
            K::Unavailable,
            "the database accepts no writes now, like a secondary: the address must lead to the primary",
        ),
        596 | 6005 | 6006 | 17142 | 17148 | 18401 | 904 | 921 | 922 | 927 | 942 | 945 | 3449 => {
            (K::Unavailable, "the server or the database starts or stops")
        }
        701 | 1101 | 1105 | 1204 | 3257 | 8645 | 8651 | 9002 | 17300 | 17189 | 40544 => {
            (K::Unavailable, "the server is out of room")
        }
        4060 => (
            K::Configuration,
            "there is no such database, or this user may not open it: create it, or correct the URL",
        ),
        18456 | 18452 | 18470 | 18486 | 18487 | 18488 | 33134..=33136 => (
            K::PermissionDenied,
            "the server refuses this user, password or token",
        ),
        40532 | 40615 | 40914 | 47073 => (
            K::PermissionDenied,
            "the server refuses this machine: allow its address in the firewall of the server",
        ),
        229 | 230 | 262 | 297 | 300 | 916 | 2760 | 15247 => (K::PermissionDenied, GRANTS),
        2628 | 8152 => (K::LimitExceeded, "a value is longer than its column"),
        NO_SUCH_TABLE => (K::NotInitialized, "the database does not have the tables"),
        NO_SUCH_COLUMN | 213 | 245 | 257 | 515 | 2812 | 8114 | 13609 => (
            K::Damaged,
            "the tables do not have the layout this build expects",
        ),
        _ => (K::Unavailable, "the server refused"),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/mssql/error.rs"]
mod tests;
