//! PostgreSQL's errors by what the caller does next.

use std::error::Error as _;
use std::io;

use membership_core::{Operation, TableError, TableErrorKind};
use tokio_postgres::error::{DbError, Severity};

use super::STORE;

/// How far an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was sent yet.
    Before,
    /// A statement was sent that only reads.
    Reading,
    /// A statement was sent that writes.
    Writing,
}

/// An error of this store. [`Inner::run`](super::client::Inner::run) names the operation.
pub(super) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The time is over or the connection is gone: the outcome of a write is unknown.
pub(super) fn lost(phase: Phase, what: &str) -> TableError {
    match phase {
        Phase::Before | Phase::Reading => error(TableErrorKind::Unavailable, what),
        Phase::Writing => error(
            TableErrorKind::OutcomeUnknown,
            format!("{what}, and a write was sent"),
        ),
    }
}

/// From a statement, or from preparing one.
pub(super) fn from_pg(e: tokio_postgres::Error, phase: Phase) -> TableError {
    if let Some(db) = e.as_db_error() {
        return from_server(db, phase).with_source(e);
    }
    let what = match cause(&e) {
        Some(io) => format!("the connection failed ({io})"),
        None if e.is_closed() => "the connection was closed".to_owned(),
        None => format!("the connection failed ({e})"),
    };
    lost(phase, &what).with_source(e)
}

/// From connecting.
pub(super) fn from_connect(e: tokio_postgres::Error) -> TableError {
    if let Some(db) = e.as_db_error() {
        return from_server(db, Phase::Before).with_source(e);
    }
    let io = cause(&e);
    // If rustls refuses the handshake, the certificates are wrong; else the network failed.
    let tls = io
        .and_then(io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>());
    let (kind, what) = match io {
        Some(io) if tls => (
            TableErrorKind::Configuration,
            format!(
                "TLS failed ({io}): `sslrootcert` names the file with the authority of the server's certificate, `sslmode` what is checked"
            ),
        ),
        Some(io) => (
            TableErrorKind::Unavailable,
            format!("cannot connect ({io})"),
        ),
        None if e.is_closed() => (
            TableErrorKind::Unavailable,
            "the server closed the connection".to_owned(),
        ),
        None => {
            let why = e.source().map_or_else(String::new, |s| format!(": {s}"));
            let said = format!("{e}{why}");
            // The driver distinguishes these only by their texts.
            let advice = if said.contains("does not support TLS") {
                ": leave `sslmode` out, or set up TLS on the server"
            } else if said.contains("password missing") {
                ": the server requires a password: put it into the URL or PGPASSWORD"
            } else if said.contains("unexpected message") || said.contains("parsing response") {
                ": is this PostgreSQL?"
            } else {
                ""
            };
            (
                TableErrorKind::Configuration,
                format!("cannot connect ({said}){advice}"),
            )
        }
    };
    error(kind, what).with_source(e)
}

fn cause(e: &tokio_postgres::Error) -> Option<&io::Error> {
    e.source().and_then(|s| s.downcast_ref())
}

/// Severity `ERROR` means that the statement's transaction was rolled back. With a higher one the
/// server closes the connection, maybe after it has committed; so does a pooler, in the protocol
/// before 9.6, which has no machine-readable severity. And some states say that a connection broke
/// or that the outcome of a statement is unknown.
fn from_server(db: &DbError, phase: Phase) -> TableError {
    let gives_up = match db.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => db.severity() != "ERROR",
    };
    if (gives_up || ends_unknown(db.code().code())) && phase == Phase::Writing {
        let what = format!(
            "the server ended the connection ({}: {})",
            db.code().code(),
            db.message()
        );
        return lost(phase, &what);
    }
    if gives_up && db.code().code() == "08P01" && !is_configuration(db.message()) {
        return lost(phase, &format!("a pooler has no server ({})", db.message()));
    }
    let (kind, what) = kind_of(db.code().code());
    error(
        kind,
        format!("{what} ({}: {})", db.code().code(), db.message()),
    )
}

/// Whether the server takes no more announcements, because some session of it has not read them for
/// long. It uses the state of a limit, and names the source file in every language.
pub(super) fn refuses_announcements(e: &TableError) -> bool {
    let source = e.source().and_then(|s| s.downcast_ref());
    let said = source.and_then(tokio_postgres::Error::as_db_error);
    said.is_some_and(|db| db.code().code() == "54000" && db.file() == Some("async.c"))
}

/// Whether PgBouncer refuses a client for what that has set. It uses one state for that and for a
/// server that is gone.
fn is_configuration(message: &str) -> bool {
    ["startup parameter", "no such", "auth", "SSL", "prepared"]
        .iter()
        .any(|what| message.contains(what))
}

/// Whether a statement with this SQLSTATE may have been executed.
fn ends_unknown(code: &str) -> bool {
    code.starts_with("08") || code == "40003"
}

/// The kind of an error that is certainly not applied, by SQLSTATE.
fn kind_of(code: &str) -> (TableErrorKind, &'static str) {
    use TableErrorKind::{
        Busy, Configuration, Damaged, InvalidRequest, LimitExceeded, NotInitialized,
        PermissionDenied, Unavailable,
    };
    match code {
        "40001" => (Busy, "another transaction was in the way"),
        "40P01" => (Busy, "a deadlock with another transaction"),
        "55P03" => (Busy, "another transaction holds the lock"),
        "57014" => (
            Busy,
            "the server ended the statement: its time was over, or it was cancelled",
        ),
        "23505" | "22012" => (Busy, "the rows were changed by hand at the same moment"),
        "28P01" => (PermissionDenied, "the server refuses this user or password"),
        "42501" => (PermissionDenied, "this user may not do that"),
        "42P01" | "3F000" => (NotInitialized, "there are no such tables"),
        "3D000" => (
            Configuration,
            "there is no such database: create it, or correct the URL",
        ),
        "25006" => (
            Unavailable,
            "the server accepts no writes now: it is a standby, or was set to read-only",
        ),
        "22021" => (InvalidRequest, "PostgreSQL accepts no NUL characters"),
        "54000" => (LimitExceeded, "the statement exceeds a limit of the server"),
        "0A000" => (
            Unavailable,
            "the tables were created again with another layout",
        ),
        "08P01" => (
            Configuration,
            "the server or a pooler refuses the request; behind a transaction pooler use `pooler=true`",
        ),
        "53300" => (Unavailable, "the server has too many connections"),
        "57P03" => (Unavailable, "the server is starting or stopping"),
        "26000" | "42P05" => (
            Configuration,
            "prepared statements were lost: behind a transaction pooler use `pooler=true`",
        ),
        _ => match code.get(..2).unwrap_or_default() {
            "28" => (
                PermissionDenied,
                "the server refuses this user from this address: check the user, `sslmode` and pg_hba.conf",
            ),
            "40" => (Busy, "the transaction was rolled back"),
            "53" => (Unavailable, "the server is out of resources"),
            "08" | "57" => (Unavailable, "the server closes connections"),
            "XX" if code != "XX000" => (Damaged, "the server found damage in its files"),
            "58" => (Unavailable, "the server's system failed"),
            "42" => (
                Damaged,
                "the tables do not have the layout this build expects",
            ),
            _ => (Unavailable, "the server failed"),
        },
    }
}

#[cfg(test)]
#[path = "../../tests/unit/postgres/error.rs"]
mod tests;
