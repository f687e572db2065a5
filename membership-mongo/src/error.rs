//! MongoDB's errors by what the caller does next.
//!
//! A write that the server refused before it started certainly did not happen. A write may have
//! happened if its node stopped being the primary meanwhile, if a majority did not confirm it in
//! time, or if it was never answered.

use membership_core::{Operation, TableError, TableErrorKind as Kind};
use membership_provider::{Secrets, one_line};
use mongodb::bson::{Bson, Document};
use mongodb::error::{Error, ErrorKind};

use crate::STORE;

/// An error of this store. [`Inner::run`](crate::client::Inner::run) names the operation.
pub(crate) fn error(kind: Kind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// Other clients changed the document before each attempt.
pub(crate) fn changed_each_time() -> TableError {
    error(
        Kind::Busy,
        "the cluster's document changed before every attempt",
    )
}

/// The server's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) text: String,
}

/// The code for a document that exists.
const DUPLICATE_KEY: i32 = 11_000;

impl Refusal {
    pub(crate) const fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }

    /// From the part of an answer that has a code and a text.
    fn of(part: &Document) -> Self {
        let code = match part.get("code") {
            Some(Bson::Int32(code)) => *code,
            Some(Bson::Int64(code)) => i32::try_from(*code).unwrap_or(0),
            _ => 0,
        };
        Self {
            code,
            text: part.get_str("errmsg").unwrap_or_default().to_owned(),
        }
    }

    /// The first statement of a write that failed. The other statements may have been executed.
    pub(crate) fn of_statement(answer: &Document) -> Option<(i32, Self)> {
        let first = answer
            .get_array("writeErrors")
            .ok()?
            .first()?
            .as_document()?;
        Some((first.get_i32("index").unwrap_or(0), Self::of(first)))
    }

    /// Why a write that was executed is not confirmed.
    pub(crate) fn of_concern(answer: &Document) -> Option<Self> {
        answer.get_document("writeConcernError").ok().map(Self::of)
    }

    /// Whether the refused write may have happened nevertheless, and what to do.
    pub(crate) fn into_error(self, secrets: &Secrets) -> TableError {
        use Kind::{
            Busy, Configuration, Damaged, LimitExceeded, OutcomeUnknown, PermissionDenied,
            Unavailable,
        };
        let (kind, what) = match self.code {
            13 | 8000 => (
                PermissionDenied,
                "the user lacks permission: grant what the README of membership-mongo lists under Permissions",
            ),
            18 => (PermissionDenied, "the server refuses this user or password"),
            // Checked before anything is executed.
            10_107 | 13_435 | 10_058 => (Unavailable, "this server is no longer the primary"),
            13_436 => (
                Unavailable,
                "this server is neither primary nor secondary now",
            ),
            // No longer the primary, shut down, or out of time: maybe while it executed the write.
            11_602 | 189 => (OutcomeUnknown, "the primary stepped down meanwhile"),
            11_600 | 91 => (OutcomeUnknown, "the server shut down meanwhile"),
            50 | 262 => (
                OutcomeUnknown,
                "the server ran out of time: is a majority of the replica set there?",
            ),
            112 | 24 | 46 | 462 | DUPLICATE_KEY => (Busy, "the server is busy with another write"),
            10_334 | 17_419 | 17_420 | 2 if self.text.contains("size") || self.code != 2 => (
                LimitExceeded,
                "the cluster's document would be larger than the 16 MB that MongoDB takes",
            ),
            2 | 14 | 28 | 40 | 54 => (
                Damaged,
                "the cluster's document has the wrong shape: run `membership doctor`",
            ),
            59 | 72 | 115 | 123 | 148 | 238 | 303 | 322 | 323 | 20 => (
                Configuration,
                "the server cannot do this: MongoDB 4.4 or newer is needed, as a replica set or sharded",
            ),
            // The server did not start, or does not say how far it came.
            _ => (OutcomeUnknown, "the server refuses"),
        };
        error(
            kind,
            format!(
                "{what} ({}, code {})",
                one_line(&secrets.hide(&self.text)),
                self.code
            ),
        )
    }
}

/// A write was executed, and it is unknown whether it stays.
pub(crate) fn unconfirmed(refusal: &Refusal, secrets: &Secrets) -> TableError {
    let text = format!(
        "the primary has it, but a majority has not confirmed it ({}, code {})",
        one_line(&secrets.hide(&refusal.text)),
        refusal.code
    );
    error(Kind::OutcomeUnknown, text)
}

/// The driver's errors. `at` names the servers.
pub(crate) fn from_client(e: &Error, at: &str, secrets: &Secrets) -> TableError {
    use Kind::{Busy, Configuration, OutcomeUnknown, PermissionDenied, Unavailable};
    let said = |text: &str| one_line(&secrets.hide(text));
    // The labels with which the server says that it did not start.
    let refused_early = e.contains_label(mongodb::error::SYSTEM_OVERLOADED_ERROR)
        && e.contains_label(mongodb::error::RETRYABLE_ERROR);
    match &*e.kind {
        ErrorKind::Command(refused) if refused_early => {
            let (text, code) = (said(&refused.message), refused.code);
            error(
                Busy,
                format!("the server is overloaded ({text}, code {code})"),
            )
        }
        ErrorKind::Command(refused) => {
            let (code, text) = (refused.code, refused.message.clone());
            Refusal { code, text }.into_error(secrets)
        }
        ErrorKind::ServerSelection { message, .. } => not_found(message, at, secrets),
        ErrorKind::Authentication { message, .. } => error(
            PermissionDenied,
            format!(
                "{at} refuses this user or password: check them and authSource ({})",
                said(message)
            ),
        ),
        ErrorKind::InvalidTlsConfig { message, .. } => error(
            Configuration,
            format!("the TLS configuration cannot work: {}", said(message)),
        ),
        ErrorKind::InvalidArgument { message, .. } => error(Configuration, said(message)),
        ErrorKind::IncompatibleServer { message, .. } => error(
            Configuration,
            format!("{at}: MongoDB 4.4 or newer is needed ({})", said(message)),
        ),
        ErrorKind::DnsResolve { message, .. } => error(
            Unavailable,
            format!("the name of {at} cannot be resolved ({})", said(message)),
        ),
        ErrorKind::SessionsNotSupported => error(
            Configuration,
            format!("{at} has no sessions: MongoDB 4.4 or newer is needed"),
        ),
        ErrorKind::Shutdown => error(
            Configuration,
            "the application shut down the client that this table uses",
        ),
        // Also while connecting, which looks the same as a later failure.
        ErrorKind::Io(io) => error(
            OutcomeUnknown,
            format!("the connection to {at} broke ({})", said(&io.to_string())),
        ),
        _ => error(
            OutcomeUnknown,
            format!("{at}: {}", said(&e.kind.to_string())),
        ),
    }
}

/// A member also reports this for a moment after its start.
pub(crate) const SET_IS_MISSING: &str =
    "has no replica set: if it was never created, rs.initiate() creates it";

/// No primary, or none that can be reached. Nothing was sent.
fn not_found(message: &str, at: &str, secrets: &Secrets) -> TableError {
    // The last error of each server is in the middle of a long line.
    let why = message
        .split_once("Error: ")
        .map_or(message, |(_, why)| why);
    let why = why
        .split(", labels:")
        .next()
        .unwrap_or(why)
        .trim_start_matches("Kind: ");
    let why = one_line(&secrets.hide(why));
    let tls = [
        "certificate",
        "UnknownIssuer",
        "InvalidCertificate",
        "TLS",
        "HandshakeFailure",
    ];
    if tls.iter().any(|word| message.contains(word)) {
        let text = format!(
            "{at}: TLS failed; check tls, tlsCAFile and the name in the server's certificate ({why})"
        );
        return error(Kind::Configuration, text);
    }
    if message.contains("Set Name")
        && message.contains("Type: ReplicaSetNoPrimary, Set Name")
        && !message.contains("Error: ")
    {
        return error(
            Kind::Unavailable,
            format!(
                "{at} has no primary now, or its replica set has another name than replicaSet says"
            ),
        );
    }
    if message.contains("Type: RsGhost") && !message.contains("Error: ") {
        return error(Kind::Unavailable, format!("{at} {SET_IS_MISSING}"));
    }
    let hint = if message.contains("unexpected end of file") {
        "; does it want TLS (tls=true)?"
    } else if message.contains("tls handshake eof") {
        "; does it speak TLS?"
    } else {
        ""
    };
    error(
        Kind::Unavailable,
        format!("no primary can be reached at {at} ({why}){hint}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{
        Busy, Configuration, Damaged, LimitExceeded, OutcomeUnknown, PermissionDenied, Unavailable,
    };
    use mongodb::bson::doc;

    #[test]
    fn every_code_has_a_kind() {
        for (code, kind) in [
            (13, PermissionDenied),
            (18, PermissionDenied),
            (10_107, Unavailable),
            (13_435, Unavailable),
            (13_436, Unavailable),
            (11_602, OutcomeUnknown),
            (189, OutcomeUnknown),
            (11_600, OutcomeUnknown),
            (91, OutcomeUnknown),
            (50, OutcomeUnknown),
            (64, OutcomeUnknown),
            (6, OutcomeUnknown),
            (1, OutcomeUnknown),
            (112, Busy),
            (DUPLICATE_KEY, Busy),
            (10_334, LimitExceeded),
            (17_419, LimitExceeded),
            (28, Damaged),
            (123, Configuration),
            (59, Configuration),
        ] {
            assert_eq!(
                Refusal {
                    code,
                    text: String::new()
                }
                .into_error(&Secrets::default())
                .kind(),
                kind,
                "{code}"
            );
        }
    }

    #[test]
    fn an_unconfirmed_write_has_an_unknown_outcome_for_every_reason() {
        for code in [64, 100, 91, 189, 10_107, 11_602, 50] {
            let answer = doc! { "ok": 1, "n": 1, "writeConcernError": { "code": code, "errmsg": "waiting for replication timed out" } };
            let refusal = Refusal::of_concern(&answer).unwrap();
            assert_eq!(
                unconfirmed(&refusal, &Secrets::default()).kind(),
                OutcomeUnknown,
                "{code}"
            );
        }
        assert_eq!(Refusal::of_concern(&doc! { "ok": 1, "n": 1 }), None);
        let failed = doc! { "ok": 1, "n": 1, "writeErrors": [{ "index": 1, "code": 11000, "errmsg": "E11000 duplicate key" }] };
        let (index, refusal) = Refusal::of_statement(&failed).unwrap();
        assert_eq!((index, refusal.code), (1, DUPLICATE_KEY));
    }

    #[test]
    fn one_line_says_why_no_primary_is_reached() {
        let refused = "Server selection timeout: No available servers. Topology: { Type: Single, Servers: [ { Address: 127.0.0.1:1, Type: \
                       Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {}, source: None } ] }";
        let e = not_found(refused, "127.0.0.1:1", &Secrets::default());
        assert!(
            e.kind() == Unavailable
                && e.to_string()
                    .contains("127.0.0.1:1 (I/O error: Connection refused (os error 111))"),
            "{e}"
        );
        let tls = "No available servers. Topology: { Servers: [ { Error: Kind: I/O error: invalid peer certificate: UnknownIssuer, labels: {} } ] }";
        assert_eq!(
            not_found(tls, "a", &Secrets::default()).kind(),
            Configuration
        );
        let ghost = "Server selection timeout: None of the available servers suitable for criteria ReadPreference(Primary). Topology: { Type: \
                     Unknown, Servers: [ { Address: a:1, Type: RsGhost, Average RTT: 1ms, Last Update Time: 2026-01-01 } ] }";
        let e = not_found(ghost, "a:1", &Secrets::default());
        assert!(
            e.kind() == Unavailable
                && e.to_string().contains("a:1 has no replica set")
                && e.to_string().contains("rs.initiate()"),
            "{e}"
        );
    }
}
