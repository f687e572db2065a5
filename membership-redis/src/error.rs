//! Redis's errors, by what the caller does next.
//!
//! A server's error means that the script wrote nothing: each script checks before it writes, and
//! what can still stop it stops it at its first write. Only a missing answer is uncertain, and one
//! that is not the server's: of a proxy that lost it, or to another request.

use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::{Secrets, one_line, unanswered};
use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind, Value};

use crate::STORE;

/// The codes that matter, anywhere in a message: Redis 6 puts the code of a command that failed
/// within a script into the middle of the text.
const CODES: [&str; 17] = [
    "NOPERM",
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "WRONGTYPE",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "CROSSSLOT",
    "NOSCRIPT",
    "NOAUTH",
    "WRONGPASS",
    "BUSY",
    "MOVED",
    "ASK",
];

/// An error of this table. The caller sets the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// A configuration that cannot work.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// An answer that no script of ours gives.
pub(crate) fn unexpected(value: &Value) -> TableError {
    wrong(format!(
        "{}: is this Redis or Valkey?",
        said_by_nobody(value)
    ))
}

/// The same to a script that writes: it may be the answer to another request, and the script may
/// have been executed.
pub(crate) fn unexpected_after_write(value: &Value) -> TableError {
    unanswered(STORE, true, &said_by_nobody(value))
}

fn said_by_nobody(value: &Value) -> String {
    let what = match value {
        Value::Nil => "nothing",
        Value::Array(_) => "a list that is not one of its answers",
        _ => "a value that is not one of its answers",
    };
    format!("the script was answered with {what}")
}

/// A server's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(server: &ServerError) -> Self {
        let text = server.details().unwrap_or_default().to_owned();
        let code = server.code();
        Self {
            code: real_code(code, &text).to_owned(),
            text,
        }
    }

    /// From an error of the client library.
    pub(crate) fn of(e: &RedisError) -> Option<Self> {
        let code = e.code()?;
        let text = e.detail().unwrap_or_default();
        Some(Self {
            code: real_code(code, text).to_owned(),
            text: text.to_owned(),
        })
    }

    /// The node that a MOVED or ASK names; an empty host means the node that answered.
    pub(crate) fn target(&self) -> Option<(String, u16)> {
        let (host, port) = self
            .text
            .split_ascii_whitespace()
            .nth(1)?
            .rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((
            if host == "?" {
                String::new()
            } else {
                host.to_owned()
            },
            port.parse().ok()?,
        ))
    }

    /// What a replica says that takes no writes.
    pub(crate) fn of_replica() -> Self {
        Self {
            code: "READONLY".to_owned(),
            text: "its role is replica".to_owned(),
        }
    }

    /// Whether the server does not serve this table any more, so that a new connection is needed.
    /// (Valkey says `MISCONF` on a replica, too.)
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(
            self.code.as_str(),
            "READONLY" | "MASTERDOWN" | "LOADING" | "CLUSTERDOWN" | "NOAUTH" | "MOVED" | "MISCONF"
        )
    }

    /// Whether no server of Redis or Valkey says this: their codes are words in capitals. What stands
    /// in front of a server says it, and may have passed the request on.
    pub(crate) fn is_foreign(&self) -> bool {
        !self
            .code
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b == b'_')
    }

    pub(crate) fn into_error(self, secrets: &Secrets) -> TableError {
        use TableErrorKind::{Busy, Configuration, ForeignTable, PermissionDenied, Unavailable};
        let (kind, what) = match self.code.as_str() {
            "NOPERM" => (
                PermissionDenied,
                "the user may not do this: grant it what the README of membership-redis lists under Permissions",
            ),
            "NOAUTH" => (
                PermissionDenied,
                "the server wants a password: put it into the URL or MEMBERSHIP_REDIS_PASSWORD",
            ),
            "WRONGPASS" => (PermissionDenied, "the server refuses this user or password"),
            "DENIED" => (
                PermissionDenied,
                "the server takes no connections from here (protected mode)",
            ),
            "NOSCRIPT" => (
                PermissionDenied,
                "the server does not keep scripts: the user may not load them; grant +script|load",
            ),
            "READONLY" => (
                Unavailable,
                "this server is a replica; connect to the master, or use redis+sentinel:// or redis+cluster://",
            ),
            "MASTERDOWN" => (
                Unavailable,
                "this server is a replica that has lost its master",
            ),
            "LOADING" => (Unavailable, "the server is loading its data"),
            "CLUSTERDOWN" => (Unavailable, "the cluster has no master for this table now"),
            "MOVED" | "ASK" => (
                Unavailable,
                "the cluster moves this table from node to node; use redis+cluster://",
            ),
            "OOM" => (Unavailable, "the server is out of memory (maxmemory)"),
            "MISCONF" => (
                Unavailable,
                "the server cannot save to its disk and takes no writes",
            ),
            "NOREPLICAS" => (
                Unavailable,
                "the master has fewer replicas than its min-replicas-to-write",
            ),
            "BUSY" => (Busy, "the server is running a long script"),
            "TRYAGAIN" => (Busy, "the cluster is moving this table to another node"),
            "WRONGTYPE" => (
                ForeignTable,
                "one of the keys holds another program's data: use another prefix",
            ),
            "CROSSSLOT" => (
                Configuration,
                "the server does not keep the keys of one hash tag together",
            ),
            "NOPROTO" => (
                Configuration,
                "the server does not speak RESP3: Redis 6.2 or newer, or Valkey, is needed",
            ),
            _ => other(&self.text),
        };
        error(
            kind,
            format!(
                "{what} ({} {})",
                self.code,
                one_line(&secrets.hide(&self.text))
            ),
        )
    }
}

/// An answer that only its text distinguishes. The script was refused before its first write.
fn other(text: &str) -> (TableErrorKind, &'static str) {
    use TableErrorKind::{Busy, Configuration, Unavailable};
    if text.contains("max number of clients") {
        (Unavailable, "the server has as many clients as it takes")
    } else if text.contains("DB index") {
        (
            Configuration,
            "the server has no database of this number: correct the URL",
        )
    } else if text.contains("unknown command") || text.contains("SELECT is not allowed") {
        (Configuration, "the server does not support this command")
    } else if text.contains("killed by user") {
        (Busy, "the script was killed before it wrote anything")
    } else {
        (Unavailable, "the server refuses")
    }
}

/// The code that counts: a script's error may have it in the middle. Redis 6 begins with `ERR Error
/// running script`, or with `@user_script: 6: -READONLY` where the script returns the error of a
/// command.
fn real_code<'a>(code: &'a str, text: &str) -> &'a str {
    if code != "ERR" && CODES.contains(&code) {
        return code;
    }
    inner_code(code, text).unwrap_or(code)
}

fn inner_code(code: &str, text: &str) -> Option<&'static str> {
    if !text.contains("script") && !code.contains("script") {
        return None;
    }
    // A missing permission has no code: the first text is Redis up to 7.0, the second newer
    // versions and Valkey.
    if text.contains("user executing the script") || text.contains("ACL failure in script") {
        return Some("NOPERM");
    }
    let words = || {
        text.split(|c: char| !c.is_ascii_uppercase())
            .filter(|w| w.len() > 2)
    };
    words().find_map(|word| CODES.into_iter().find(|code| *code == word))
}

/// The error of a connection that was not made: nothing was sent.
pub(crate) fn not_connected(e: &RedisError, encrypted: bool, secrets: &Secrets) -> TableError {
    use TableErrorKind::{Configuration, PermissionDenied, Unavailable};
    if let Some(refusal) = Refusal::of(e) {
        return refusal.into_error(secrets);
    }
    let said = secrets.hide(&e.to_string());
    let (kind, what) = match e.kind() {
        ErrorKind::AuthenticationFailed => {
            (PermissionDenied, "the server refuses this user or password")
        }
        ErrorKind::RESP3NotSupported => (
            Configuration,
            "the server is too old: Redis 6.2 or newer, or Valkey, is needed",
        ),
        ErrorKind::InvalidClientConfig => (Configuration, "the configuration cannot be used"),
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            (PermissionDenied, "the user may not do this")
        }
        // The client library has no kind for it; rustls's text says so.
        _ if encrypted && said.contains("certificate") => (
            Configuration,
            "the server's certificate is refused: tls_ca names the file with the authority that signed it",
        ),
        _ if e.is_timeout() && !encrypted => (Unavailable, "the server does not answer in time"),
        _ if encrypted => (
            Unavailable,
            "cannot be reached with TLS (use redis:// for a server without TLS)",
        ),
        _ if e.is_connection_dropped() && !e.is_connection_refusal() => (
            Unavailable,
            "the server closed the connection (use rediss:// for a server that requires TLS)",
        ),
        _ => (Unavailable, "the server cannot be reached"),
    };
    error(kind, format!("{what} ({})", one_line(&said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{Busy, Configuration, ForeignTable, PermissionDenied, Unavailable};

    fn refusal(line: &str) -> Refusal {
        let (code, text) = line.split_once(' ').unwrap();
        let text = text.to_owned();
        Refusal {
            code: real_code(code, &text).to_owned(),
            text,
        }
    }

    #[test]
    fn every_code_has_its_kind() {
        for (line, kind) in [
            (
                "LOADING Redis is loading the dataset in memory",
                Unavailable,
            ),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                Busy,
            ),
            ("CLUSTERDOWN Hash slot not served", Unavailable),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Busy,
            ),
            (
                "READONLY You can't write against a read only replica. script: 1f, on @user_script:12.",
                Unavailable,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Unavailable,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
                Unavailable,
            ),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable),
            (
                "NOPERM User joe has no permissions to run the 'hset' command",
                PermissionDenied,
            ),
            ("NOAUTH Authentication required.", PermissionDenied),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                PermissionDenied,
            ),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Unavailable,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                ForeignTable,
            ),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                Configuration,
            ),
            ("ERR max number of clients reached", Unavailable),
            ("ERR unknown command 'EVALSHA'", Configuration),
            ("ERR DB index is out of range", Configuration),
            (
                "ERR Error running script (call to f_1): Script killed by user with SCRIPT KILL...",
                Busy,
            ),
            // Redis 6 wraps the error of a command within a script.
            (
                "ERR Error running script (call to f_ab): @user_script:1: @user_script: 1: -OOM command not allowed",
                Unavailable,
            ),
            (
                "ERR Error running script (call to f_ab): @user_script:1: WRONGTYPE Operation against a key",
                ForeignTable,
            ),
            (
                "ERR Error running script (call to f_ab): @user_script:9: -READONLY You can't write against a read only replica.",
                Unavailable,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 7acd, on @user_script:9.",
                PermissionDenied,
            ),
            (
                "ERR ACL failure in script: User m has no permissions to run the 'hset' command script: on @user_script:1.",
                PermissionDenied,
            ),
        ] {
            let error = refusal(line).into_error(&Secrets::default());
            assert_eq!(error.kind(), kind, "{line}: {error}");
        }
    }

    /// The client then looks for the successor.
    #[test]
    fn the_error_of_a_replica_is_recognized_in_every_version() {
        for line in [
            "READONLY You can't write against a read only replica. script: 1f, on @user_script:6.",
            "@user_script: 6: -READONLY You can't write against a read only replica.",
            "ERR Error running script (call to f_ab): @user_script:9: -READONLY You can't write against a read only replica.",
        ] {
            let refusal = refusal(line);
            assert!(
                refusal.code == "READONLY" && refusal.ends_connection(),
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn a_servers_error_is_never_uncertain() {
        for code in CODES {
            let error = Refusal {
                code: code.to_owned(),
                text: String::new(),
            }
            .into_error(&Secrets::default());
            assert_ne!(error.kind(), TableErrorKind::OutcomeUnknown, "{code}");
        }
    }

    #[test]
    fn an_error_of_a_proxy_is_not_the_servers() {
        for (line, foreign) in [
            ("upstream failure", true),
            ("no upstream host", true),
            ("ERR unknown command 'EVALSHA'", false),
            ("NOSCRIPT No matching script.", false),
            ("@user_script: 6: -READONLY You can't write.", false),
        ] {
            assert_eq!(refusal(line).is_foreign(), foreign, "{line}");
        }
    }

    #[test]
    fn redirections_name_a_node() {
        assert_eq!(
            refusal("MOVED 3999 10.0.0.7:6381").target(),
            Some(("10.0.0.7".to_owned(), 6381))
        );
        assert_eq!(
            refusal("ASK 3999 fe80::1:6381").target(),
            Some(("fe80::1".to_owned(), 6381))
        );
        assert_eq!(
            refusal("MOVED 3999 :6381").target(),
            Some((String::new(), 6381))
        );
        assert_eq!(refusal("MOVED 3999").target(), None);
    }

    #[test]
    fn secrets_are_hidden() {
        let secrets = Secrets::new([Some("hunter2".to_owned())]);
        let error = refusal(
            "ERR unknown command `HELLO`, with args beginning with: `3` `AUTH` `default` `hunter2`",
        )
        .into_error(&secrets);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
