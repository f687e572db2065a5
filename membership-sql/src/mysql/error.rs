//! The errors of MySQL and MariaDB by what the caller does next.

use membership_core::{Operation, TableError, TableErrorKind};
use mysql_async::{DriverError, Error, ServerError};

use super::STORE;

/// An error of this store. [`Client::run`](crate::shared::pool::Client::run) names the operation.
pub(super) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The grants, for errors about permissions.
const GRANTS: &str = "the user needs SELECT, INSERT, UPDATE and DELETE on the tables membership_%, CREATE to create them, \
                      and EXECUTE on membership_commit_1 where it is used";
/// How another user can create the tables.
pub(super) const PRINT: &str = "a user who may create tables must run what `membership schema --table mysql://…` prints (`MysqlConfig::schema_sql`)";

/// There is no such table.
pub(super) const NO_SUCH_TABLE: u16 = 1146;
/// A row with this key exists.
pub(super) const DUPLICATE_KEY: u16 = 1062;
/// There is no such procedure.
pub(super) const NO_SUCH_PROCEDURE: u16 = 1305;
/// It may not be called.
pub(super) const MAY_NOT_CALL: u16 = 1370;
/// It has another number of arguments.
pub(super) const OTHER_ARGUMENTS: u16 = 1318;

/// The code of an error from the server.
pub(super) const fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Server(e) => Some(e.code),
        _ => None,
    }
}

/// Whether the connection is useless after this error: it is closed, or its server no longer
/// accepts writes.
pub(super) const fn ends_connection(error: &Error) -> bool {
    match error {
        Error::Server(e) => matches!(
            e.code,
            // Shutting down, killed, idle for too long; read-only; not part of its cluster; packets
            // that the server did not understand.
            1053 | 1077..=1079 | 1152..=1161 | 1184 | 1290 | 1317 | 1836 | 1927 | 4031 | 1047 | 1792 | 3168
        ),
        _ => true,
    }
}

/// Before a transaction's COMMIT: certainly not applied.
pub(super) fn from_mysql(e: Error) -> TableError {
    let (kind, what) = match &e {
        Error::Server(server) => kind_of(server),
        Error::Io(_) => (
            TableErrorKind::Unavailable,
            "the server cannot be reached, or the connection broke",
        ),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => (
            TableErrorKind::Configuration,
            "the server offers no TLS, and `ssl-mode` asks for it: leave that out, or set up TLS on the server",
        ),
        Error::Driver(
            DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled,
        ) => (
            TableErrorKind::Configuration,
            "the server requires an unsupported authentication; use caching_sha2_password or mysql_native_password",
        ),
        Error::Driver(DriverError::PacketTooLarge) => {
            (TableErrorKind::LimitExceeded, "the packet is too large")
        }
        Error::Url(_) => (
            TableErrorKind::Configuration,
            "the server's address cannot be used",
        ),
        Error::Driver(_) | Error::Other(_) => (TableErrorKind::Unavailable, "the connection broke"),
    };
    let message = match &e {
        // The server's texts contain tables, columns, users and hosts, never a password.
        Error::Server(s) => format!("{what} ({}: {})", s.code, s.message),
        Error::Io(io) => format!("{what} ({io})"),
        _ => what.to_owned(),
    };
    // The driver's texts of other errors may contain bytes of a packet, and are not passed on.
    match e {
        Error::Server(s) => error(kind, message).with_source(s),
        _ => error(kind, message),
    }
}

/// Of COMMIT itself, or of a call that contains one: certain or unknown.
pub(super) fn from_commit(e: Error) -> TableError {
    match code(&e) {
        // A deadlock, a lock timeout, a row changed by another node or snapshot (Galera certifies
        // at COMMIT), read-only, outside of its cluster, rolled back by group replication: nothing
        // is committed.
        Some(1213 | 1205 | 1020 | 1290 | 1836 | 1792 | 1047 | 3101) => from_mysql(e),
        _ => {
            let e = from_mysql(e);
            error(
                TableErrorKind::OutcomeUnknown,
                format!("the answer to the commit was lost: {}", e.message()),
            )
            .with_source(e)
        }
    }
}

fn kind_of(e: &ServerError) -> (TableErrorKind, &'static str) {
    use TableErrorKind as K;
    match e.code {
        1213 => (
            K::Busy,
            "a deadlock, and this transaction was the one that was rolled back",
        ),
        1205 => (K::Busy, "another transaction held a lock for too long"),
        1020 | 3572 | 1015 => (K::Busy, "another transaction was in the way"),
        3024 | 1969 | 1028 => (K::Busy, "it took longer than the server allows"),
        1317 => (K::Unavailable, "it was interrupted"),
        1040 | 1203 | 1226 => (K::Unavailable, "the server has too many connections"),
        1053 | 1077..=1079 | 1927 | 4031 | 1152 | 1154..=1161 | 1184 => (
            K::Unavailable,
            "the server shuts down or closed the connection",
        ),
        1047 => (
            K::Unavailable,
            "the server is not ready (a Galera node outside its cluster answers so)",
        ),
        1290 | 1836 | 1792 => (
            K::Unavailable,
            "the server is read-only, like a replica: the URL must lead to the primary",
        ),
        3101 | 3100 => (
            K::Unavailable,
            "the server's replication rolled the transaction back",
        ),
        1021 | 1037 | 1038 | 1041 | 1114 | 1135 | 1206 => {
            (K::Unavailable, "the server is out of room")
        }
        1045 | 1698 => (
            K::PermissionDenied,
            "the server refuses this user or password",
        ),
        1130 => (
            K::PermissionDenied,
            "the server refuses this machine: create the user for this host, or for '%'",
        ),
        3118 | 4151 => (
            K::PermissionDenied,
            "the account is locked: ALTER USER … ACCOUNT UNLOCK",
        ),
        3159 => (
            K::PermissionDenied,
            "the server requires TLS: add ssl-mode=required or a stricter one to the URL",
        ),
        1044 | 1095 | 1142 | 1143 | 1227 | 1370 | 1410 => (K::PermissionDenied, GRANTS),
        1820 | 1862 => (K::PermissionDenied, "the password has expired"),
        1049 => (
            K::Configuration,
            "there is no such database: CREATE DATABASE first, or correct the URL",
        ),
        1046 => (K::Configuration, "no database is selected"),
        1665 => (
            K::Configuration,
            "binlog_format is STATEMENT: MIXED or ROW is needed",
        ),
        1305 | 1318 => (
            K::Configuration,
            "the stored procedure is missing, or of another version",
        ),
        1153 => (
            K::LimitExceeded,
            "the packet is larger than max_allowed_packet",
        ),
        1406 | 1118 | 1301 => (K::LimitExceeded, "a value is longer than its column"),
        NO_SUCH_TABLE => (K::NotInitialized, "the database does not have the tables"),
        // A statement that does not fit the table: a foreign layout under our names, or ours
        // changed by hand.
        1054 | 1064 | 1136 | 1267 | 1270 | 1271 | 1364 | 1366 | 1347 | DUPLICATE_KEY => (
            K::Damaged,
            "the tables do not have the layout this build expects",
        ),
        _ => (K::Unavailable, "the server refused"),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/mysql/error.rs"]
mod tests;
