//! What PostgreSQL says, as what the caller does next.

use std::error::Error as _;
use std::io;

use membership_core::{Operation, TableError, TableErrorKind};
use tokio_postgres::error::{DbError, Severity};

use super::STORE;

/// What was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing of the operation was sent yet.
    Before,
    /// Something was sent that writes nothing.
    Reading,
    /// Something was sent that writes.
    Writing,
}

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
pub(super) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The time is over, or the connection is gone: nobody knows what became of what was sent.
pub(super) fn lost(phase: Phase, what: &str) -> TableError {
    match phase {
        Phase::Before | Phase::Reading => error(TableErrorKind::Unavailable, what),
        Phase::Writing => error(
            TableErrorKind::OutcomeUnknown,
            format!("{what}, and a write was on its way"),
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

/// From making a connection.
pub(super) fn from_connect(e: tokio_postgres::Error) -> TableError {
    if let Some(db) = e.as_db_error() {
        return from_server(db, Phase::Before).with_source(e);
    }
    let io = cause(&e);
    // A handshake that TLS itself refuses is a matter of certificates; any other failure is one of the network.
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
            // The client library tells these apart by their words only.
            let advice = if said.contains("does not support TLS") {
                ": leave `sslmode` out, or set up TLS on the server"
            } else if said.contains("password missing") {
                ": the server wants a password; put it into the URL or PGPASSWORD"
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

/// An answer of severity `ERROR` means that the statement's transaction was rolled back. Above that the server gives up the connection, and
/// may do so after it has committed; so does a pooler, in the words of the protocol before 9.6, which has no severity for programs. And some
/// states say by themselves that a connection broke, or that it is not known what became of a statement.
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
    let (kind, what) = judge(db.code().code());
    error(
        kind,
        format!("{what} ({}: {})", db.code().code(), db.message()),
    )
}

/// Whether a statement with this SQLSTATE may have been carried out.
fn ends_unknown(code: &str) -> bool {
    code.starts_with("08") || code == "40003"
}

/// The kind of an error that is certainly not applied, by SQLSTATE.
fn judge(code: &str) -> (TableErrorKind, &'static str) {
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
            "the server ended the statement: its time was over, or somebody cancelled it",
        ),
        "23505" | "22012" => (
            Busy,
            "somebody changed the rows past the table at the same moment",
        ),
        "28P01" => (PermissionDenied, "the server refuses this user or password"),
        "42501" => (PermissionDenied, "this user may not do that"),
        "42P01" | "3F000" => (NotInitialized, "there are no such tables"),
        "3D000" => (
            Configuration,
            "there is no such database: make it, or correct the URL",
        ),
        "25006" => (
            Unavailable,
            "the server takes no writes now: it is a standby, or was set to read-only",
        ),
        "22021" => (InvalidRequest, "PostgreSQL takes no NUL characters"),
        "54000" => (LimitExceeded, "the server takes less at once"),
        "0A000" => (Unavailable, "the tables were made anew in another shape"),
        "08P01" => (
            Configuration,
            "the server or a pooler before it does not take this; behind a transaction pooler use `pooler=true`",
        ),
        "53300" => (Unavailable, "the server has too many connections"),
        "57P03" => (Unavailable, "the server is starting or stopping"),
        "26000" | "42P05" => (
            Configuration,
            "the session is shared with others: behind a transaction pooler use `pooler=true` (prepared statements got lost)",
        ),
        _ => match code.get(..2).unwrap_or_default() {
            "28" => (
                PermissionDenied,
                "the server does not let this user in from here: look at the user, at `sslmode` and at pg_hba.conf",
            ),
            "40" => (Busy, "the transaction was rolled back"),
            "53" => (Unavailable, "the server has run out of something"),
            "08" | "57" => (Unavailable, "the server ends connections"),
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
mod tests {
    use super::*;

    #[test]
    fn states_are_judged_by_what_to_do_next() {
        for (code, kind) in [
            ("40001", TableErrorKind::Busy),
            ("40P01", TableErrorKind::Busy),
            ("55P03", TableErrorKind::Busy),
            ("57014", TableErrorKind::Busy),
            ("53300", TableErrorKind::Unavailable),
            ("57P01", TableErrorKind::Unavailable),
            ("57P02", TableErrorKind::Unavailable),
            ("57P03", TableErrorKind::Unavailable),
            ("25006", TableErrorKind::Unavailable),
            ("42501", TableErrorKind::PermissionDenied),
            ("42P01", TableErrorKind::NotInitialized),
            ("42703", TableErrorKind::Damaged),
            ("3D000", TableErrorKind::Configuration),
            ("28P01", TableErrorKind::PermissionDenied),
            ("28000", TableErrorKind::PermissionDenied),
            ("XX001", TableErrorKind::Damaged),
            ("XX000", TableErrorKind::Unavailable),
            ("53100", TableErrorKind::Unavailable),
        ] {
            assert_eq!(judge(code).0, kind, "{code}");
        }
    }

    #[test]
    fn a_lost_write_is_of_unknown_outcome_and_a_lost_read_is_not() {
        assert!(
            ["08P01", "08006", "40003"].into_iter().all(ends_unknown)
                && !["40001", "42P01", "57014"].into_iter().any(ends_unknown)
        );
        assert_eq!(
            lost(Phase::Writing, "x").kind(),
            TableErrorKind::OutcomeUnknown
        );
        assert_eq!(
            lost(Phase::Reading, "x").kind(),
            TableErrorKind::Unavailable
        );
        assert_eq!(lost(Phase::Before, "x").kind(), TableErrorKind::Unavailable);
    }
}
