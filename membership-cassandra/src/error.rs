//! What Cassandra says, as what the caller does next.
//!
//! A lightweight transaction can end without an answer in two ways. Either the server that carried it out says that it does not know: then
//! it does nothing more, and the next serial read completes or rules out what is left. Or nobody says anything: then a server may still be
//! at work on it, and no read is the last word.

use membership_core::{Operation, TableError, TableErrorKind};
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};
use scylla::statement::Consistency;

use crate::STORE;

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// What is not known of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nothing: it did not happen.
    None,
    /// Whether it happened; but nobody is at work on it any more.
    Settled,
    /// Whether it happened, and whether it still will.
    Open,
}

/// A request that did not succeed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: TableError,
    pub(crate) doubt: Doubt,
    /// The session is of no use any more.
    pub(crate) ends_session: bool,
    /// Others were at the same partition, or the node was busy: it may well be answered the next time.
    pub(crate) passes: bool,
}

impl Failed {
    /// It did not happen.
    pub(crate) fn certain(error: TableError) -> Self {
        Self {
            error,
            doubt: Doubt::None,
            ends_session: false,
            passes: false,
        }
    }

    pub(crate) fn unanswered(writes: bool, why: &str, at: &str) -> Self {
        Self::doubtful(writes, Doubt::Open, why, at)
    }

    fn doubtful(writes: bool, doubt: Doubt, why: &str, at: &str) -> Self {
        let (kind, doubt) = if writes {
            (TableErrorKind::OutcomeUnknown, doubt)
        } else {
            (TableErrorKind::Unavailable, Doubt::None)
        };
        Self {
            error: error(kind, why).at(at),
            doubt,
            ends_session: false,
            passes: false,
        }
    }
}

/// From a request to a session that exists.
pub(crate) fn failed(e: &ExecutionError, writes: bool, at: &str) -> Failed {
    let certain = |kind, message: String| Failed::certain(error(kind, message).at(at));
    match e {
        ExecutionError::ConnectionPoolError(pool)
        | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(pool)) => Failed {
            ends_session: true,
            ..Failed::certain(without_pool(pool, at))
        },
        ExecutionError::EmptyPlan => Failed {
            ends_session: true,
            ..certain(
                TableErrorKind::Unavailable,
                "no node is known that may be asked: is the data centre right?".to_owned(),
            )
        },
        // Nothing but the text of the statement was sent.
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }) => {
            let failed = attempt(first_attempt, false, at);
            Failed {
                doubt: Doubt::None,
                ..failed
            }
        }
        ExecutionError::LastAttemptError(e) => attempt(e, writes, at),
        ExecutionError::RequestTimeout(_) => Failed::unanswered(writes, "no answer in time", at),
        ExecutionError::BadQuery(_) => {
            certain(TableErrorKind::InvalidRequest, shorten(&e.to_string()))
        }
        _ => Failed::unanswered(writes, &shorten(&e.to_string()), at),
    }
}

fn attempt(e: &RequestAttemptError, writes: bool, at: &str) -> Failed {
    match e {
        RequestAttemptError::DbError(e, text) => said(e, text, writes, at),
        RequestAttemptError::UnableToAllocStreamId => Failed::certain(
            error(
                TableErrorKind::Busy,
                "the connection has as many requests as it takes",
            )
            .at(at),
        ),
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_) => {
            Failed::certain(error(TableErrorKind::InvalidRequest, shorten(&e.to_string())).at(at))
        }
        RequestAttemptError::BrokenConnectionError(_) => {
            let failed = Failed::unanswered(
                writes,
                &format!("the connection broke off ({})", shorten(&e.to_string())),
                at,
            );
            Failed {
                ends_session: true,
                ..failed
            }
        }
        _ => Failed::unanswered(writes, &shorten(&e.to_string()), at),
    }
}

/// What a server answers instead of doing it.
fn said(e: &DbError, text: &str, writes: bool, at: &str) -> Failed {
    use TableErrorKind::{Busy, Configuration, NotInitialized, PermissionDenied, Unavailable};
    /// The code of `CAS_WRITE_UNKNOWN`, which the driver has no name for.
    const CAS_WRITE_UNKNOWN: i32 = 0x1700;
    let text = shorten(text);
    let certain =
        |kind, what: &str| Failed::certain(error(kind, format!("{what} ({text})")).at(at));
    // A transaction that was accepted is written to the replicas in the end, and that last step can be refused as well.
    let perhaps = |failed: Failed| Failed {
        doubt: if writes { Doubt::Settled } else { Doubt::None },
        ..failed
    };
    match e {
        DbError::Unavailable {
            consistency,
            required,
            alive,
        } => {
            let failed = certain(
                Unavailable,
                &format!("{alive} of {required} replicas that are needed are up"),
            );
            // Who asks at this level has accepted nothing yet.
            if matches!(consistency, Consistency::Serial | Consistency::LocalSerial) {
                failed
            } else {
                perhaps(failed)
            }
        }
        // What a statement means is looked up before anything is carried out. Prepared again, it was forgotten again: tables are being made.
        DbError::Unprepared { .. } => Failed {
            passes: true,
            ..certain(Busy, "the node forgets what was prepared")
        },
        DbError::IsBootstrapping => certain(Unavailable, "the node is still starting"),
        DbError::Overloaded | DbError::RateLimitReached { .. } => {
            perhaps(certain(Busy, "the node has too much to do"))
        }
        DbError::Unauthorized => certain(
            PermissionDenied,
            "the user may not do this: grant it what the README of membership-cassandra lists under Permissions",
        ),
        DbError::AuthenticationError => {
            certain(PermissionDenied, "the servers refuse this user or password")
        }
        DbError::Invalid | DbError::ConfigError if is_missing(text.as_str()) => {
            certain(NotInitialized, "keyspace or tables do not exist")
        }
        DbError::Invalid | DbError::ConfigError | DbError::SyntaxError | DbError::ProtocolError => {
            certain(
                Configuration,
                "the servers do not take the request: Cassandra 4.0 or newer, or ScyllaDB, is needed",
            )
        }
        // A round of a transaction that came to nothing may have left its proposal with a few replicas.
        DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. } => {
            let failed = Failed::doubtful(
                writes,
                Doubt::Settled,
                &format!("too few replicas answered in time ({text})"),
                at,
            );
            Failed {
                passes: true,
                ..failed
            }
        }
        DbError::Other(CAS_WRITE_UNKNOWN) => {
            let failed = Failed::doubtful(
                writes,
                Doubt::Settled,
                &format!("others were at the same partition ({text})"),
                at,
            );
            Failed {
                passes: true,
                ..failed
            }
        }
        // A table that was made a moment ago is announced before it can be used.
        _ => {
            let failed = Failed::unanswered(
                writes,
                &format!("the node failed by itself ({e}: {text})"),
                at,
            );
            Failed {
                passes: text.contains("Unknown CF"),
                ..failed
            }
        }
    }
}

/// How servers say that there is no such keyspace or table: a number for it does not exist.
fn is_missing(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("does not exist")
        || text.contains("unconfigured table")
        || text.contains("can't find a column family")
}

fn without_pool(e: &ConnectionPoolError, at: &str) -> TableError {
    match e {
        ConnectionPoolError::Broken {
            last_connection_error,
        } => without_connection(last_connection_error, at, false),
        other => error(TableErrorKind::Unavailable, shorten(&other.to_string())).at(at),
    }
}

/// From making a session: nothing was sent.
pub(crate) fn not_connected(e: &NewSessionError, at: &str, tls: bool) -> TableError {
    match e {
        NewSessionError::FailedToResolveAnyHostname(_) => {
            error(TableErrorKind::Unavailable, "no host of this name is found").at(at)
        }
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken {
                last_connection_error,
            },
        )) => without_connection(last_connection_error, at, tls),
        other => error(TableErrorKind::Unavailable, shorten(&other.to_string())).at(at),
    }
}

fn without_connection(e: &ConnectionError, at: &str, tls: bool) -> TableError {
    use TableErrorKind::{Configuration, PermissionDenied, Unavailable};
    let text = shorten(&chain(e));
    let (kind, what) = match e {
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.get_error() {
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _) => {
                (PermissionDenied, "the servers refuse this user or password")
            }
            ConnectionSetupRequestErrorKind::MissingAuthentication => (
                PermissionDenied,
                "the servers want a password: put it into the URL, or MEMBERSHIP_CASSANDRA_USERNAME and MEMBERSHIP_CASSANDRA_PASSWORD",
            ),
            ConnectionSetupRequestErrorKind::DbError(..) => {
                (Unavailable, "the server does not serve yet")
            }
            _ if tls => (Unavailable, "cannot be reached with TLS"),
            _ => (
                Unavailable,
                "this does not answer as Cassandra does; where clients must use TLS, add tls=true",
            ),
        },
        _ if text.contains("certificate") => (
            Configuration,
            "the server's certificate is refused: tls_ca names the file with the authority that signed it",
        ),
        _ if tls
            && (text.contains("corrupt message")
                || text.contains("InvalidContentType")
                || text.contains("eof")) =>
        {
            (
                Configuration,
                "the server does not speak TLS here: leave tls out, or turn it on there",
            )
        }
        ConnectionError::ConnectTimeout => (Unavailable, "the server does not answer in time"),
        _ => (Unavailable, "the server cannot be reached"),
    };
    error(kind, format!("{what} ({text})")).at(at)
}

/// The error and its causes, the innermost last.
fn chain(e: &dyn std::error::Error) -> String {
    let mut all = e.to_string();
    let mut cause = e.source();
    while let Some(e) = cause {
        let text = e.to_string();
        if !all.contains(&text) {
            all.push_str(": ");
            all.push_str(&text);
        }
        cause = e.source();
    }
    all
}

pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(240).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{
        Busy, Configuration, NotInitialized, OutcomeUnknown, PermissionDenied, Unavailable,
    };
    use scylla::errors::WriteType;

    fn of(e: DbError, text: &str, writes: bool) -> (TableErrorKind, Doubt) {
        let failed = failed(
            &ExecutionError::LastAttemptError(RequestAttemptError::DbError(e, text.to_owned())),
            writes,
            "h:9042",
        );
        assert!(
            failed.error.to_string().contains("h:9042"),
            "{}",
            failed.error
        );
        (failed.error.kind(), failed.doubt)
    }

    #[test]
    fn every_answer_says_what_to_do() {
        let timeout = |write_type| DbError::WriteTimeout {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
            write_type,
        };
        let down = |consistency| DbError::Unavailable {
            consistency,
            required: 2,
            alive: 1,
        };
        for (e, text, written, read) in [
            (
                timeout(WriteType::Cas),
                "",
                (OutcomeUnknown, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                timeout(WriteType::Simple),
                "",
                (OutcomeUnknown, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::Other(0x1700),
                "",
                (OutcomeUnknown, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::ServerError,
                "",
                (OutcomeUnknown, Doubt::Open),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::Overloaded,
                "",
                (Busy, Doubt::Settled),
                (Busy, Doubt::None),
            ),
            (
                down(Consistency::Serial),
                "",
                (Unavailable, Doubt::None),
                (Unavailable, Doubt::None),
            ),
            (
                down(Consistency::Quorum),
                "",
                (Unavailable, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::IsBootstrapping,
                "",
                (Unavailable, Doubt::None),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::Unauthorized,
                "",
                (PermissionDenied, Doubt::None),
                (PermissionDenied, Doubt::None),
            ),
            (
                DbError::AuthenticationError,
                "",
                (PermissionDenied, Doubt::None),
                (PermissionDenied, Doubt::None),
            ),
            (
                DbError::Invalid,
                "table silos does not exist",
                (NotInitialized, Doubt::None),
                (NotInitialized, Doubt::None),
            ),
            (
                DbError::Invalid,
                "unconfigured table silos",
                (NotInitialized, Doubt::None),
                (NotInitialized, Doubt::None),
            ),
            (
                DbError::Invalid,
                "Undefined column name",
                (Configuration, Doubt::None),
                (Configuration, Doubt::None),
            ),
        ] {
            assert_eq!(
                (of(e.clone(), text, true), of(e.clone(), text, false)),
                (written, read),
                "{e}: {text}"
            );
        }
    }

    #[test]
    fn what_passes_is_known() {
        let passes = |e: DbError, text: &str| {
            failed(
                &ExecutionError::LastAttemptError(RequestAttemptError::DbError(e, text.to_owned())),
                false,
                "h:9042",
            )
            .passes
        };
        let slow = DbError::ReadTimeout {
            consistency: Consistency::Serial,
            received: 0,
            required: 1,
            data_present: false,
        };
        assert!(passes(slow, "") && passes(DbError::Other(0x1700), ""));
        assert!(passes(
            DbError::ServerError,
            "java.lang.IllegalArgumentException: Unknown CF f380e780-e5c7-11f1-98f3-71ab9105318d"
        ));
        assert!(
            !passes(DbError::ServerError, "java.lang.NullPointerException")
                && !passes(DbError::Unauthorized, "")
        );
    }

    #[test]
    fn what_was_not_sent_is_certain() {
        let refused = ConnectionError::IoError(std::sync::Arc::new(std::io::Error::from(
            std::io::ErrorKind::ConnectionRefused,
        )));
        let pool = ConnectionPoolError::Broken {
            last_connection_error: refused,
        };
        let failed = failed(&ExecutionError::ConnectionPoolError(pool), true, "h:9042");
        assert_eq!(
            (failed.error.kind(), failed.doubt, failed.ends_session),
            (Unavailable, Doubt::None, true)
        );
    }
}
