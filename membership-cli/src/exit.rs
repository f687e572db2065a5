//! Exit codes, and the error of a command.

use std::convert::Infallible;

use membership::ConnectError;
use membership::admin::{ChangeError, Decodable};
use membership::intent::Refusal;
use membership_core::{ParseClusterError, TableError, TableErrorKind};

use crate::text::reason;

/// How the program ends. The numbers are part of its interface: scripts and supervisors use them.
///
/// ```
/// use membership_cli::Exit;
/// assert_eq!(Exit::DeclaredDead.code(), 3);
/// assert!(Exit::ALL.iter().all(|exit| !exit.meaning().is_empty()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// It ran, but the answer is no: `doctor` found a problem, the survivors of `demo` disagree, a
    /// case of `conformance` failed, or the user did not confirm. Or it was stopped before the end.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The silo was declared dead by the others, or left because no other silo reaches it.
    DeclaredDead = 3,
    /// The silo could not join: port taken, address in use, silos that cannot be reached.
    CannotJoin = 4,
    /// The table cannot be reached, refuses this user, is too busy, or is not initialized; or the
    /// outcome of a write is unknown.
    Unreachable = 5,
    /// The table cannot be used: foreign, of a newer layout, damaged, being deleted; for `watch`
    /// also replaced or rolled back.
    Unusable = 6,
}

impl Exit {
    /// Every way to end.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::DeclaredDead,
        Self::CannotJoin,
        Self::Unreachable,
        Self::Unusable,
    ];

    /// The number that the shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What it means, in one line.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "done",
            Self::Failed => {
                "the answer is no: doctor found a problem, the survivors disagree, a conformance case failed, the user did not confirm; or it was stopped early"
            }
            Self::Usage => "the command line or the configuration is wrong",
            Self::DeclaredDead => {
                "the silo was declared dead, or left because no other silo reaches it"
            }
            Self::CannotJoin => {
                "the silo cannot join: port taken, address in use, or silos that cannot be reached"
            }
            Self::Unreachable => {
                "the table cannot be reached, refuses this user, is too busy, or is not initialized"
            }
            Self::Unusable => {
                "the table cannot be used: foreign, newer layout, damaged, being deleted, replaced or rolled back"
            }
        }
    }

    /// The table of codes, for the end of the help text.
    #[must_use]
    pub fn table() -> String {
        let rows: Vec<String> = Self::ALL
            .iter()
            .map(|exit| format!("  {}  {}", exit.code(), exit.meaning()))
            .collect();
        format!("Exit codes:\n{}", rows.join("\n"))
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What a kind of table error means for the exit code.
impl From<TableErrorKind> for Exit {
    fn from(kind: TableErrorKind) -> Self {
        match kind {
            TableErrorKind::Configuration
            | TableErrorKind::InvalidRequest
            | TableErrorKind::LimitExceeded
            | TableErrorKind::NoSuchRow => Self::Usage,
            TableErrorKind::ForeignTable
            | TableErrorKind::NewerLayout
            | TableErrorKind::BeingDeleted
            | TableErrorKind::TableReplaced
            | TableErrorKind::TableRolledBack
            | TableErrorKind::Damaged => Self::Unusable,
            _ => Self::Unreachable,
        }
    }
}

/// The error of a command: an exit code, and one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub exit: Exit,
    pub message: String,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

/// The change was refused, did not happen, or may have happened.
impl<E: std::fmt::Display + Into<Failure>> From<ChangeError<E>> for Failure {
    fn from(error: ChangeError<E>) -> Self {
        let text = error.to_string();
        match error {
            ChangeError::Refused(refused) => refused.into(),
            ChangeError::NotDone(error) | ChangeError::MayHaveHappened(error) => {
                Self::new(error.kind().into(), text)
            }
            _ => Self::new(Exit::Failed, text),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::usage(refusal.to_string())
    }
}

impl From<Decodable> for Failure {
    fn from(row: Decodable) -> Self {
        Self::usage(row.to_string())
    }
}

impl From<Infallible> for Failure {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        let text = match error.kind() {
            // Whoever has silos, and is told to start one, starts another cluster.
            kind @ TableErrorKind::NotInitialized => format!(
                "there is no table of this cluster: {} [{}]. The first silo makes it; if silos run, compare --table and --cluster with theirs",
                reason(&error),
                kind.as_str()
            ),
            _ => error.to_string(),
        };
        Self::new(error.kind().into(), text)
    }
}

/// Never shows the URL, which may hold a password.
impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Table(error) => error.into(),
            ConnectError::FeatureOff { scheme, feature } => Self::usage(format!(
                "this program was built without `{scheme}:`; install it with: {}",
                install(feature)
            )),
            ConnectError::NoScheme { known } => Self::usage(format!(
                "--table is not a URL: write scheme:rest, for example sqlite:membership.db; this program knows {}",
                schemes(&known)
            )),
            ConnectError::UnknownScheme { scheme, known } => Self::usage(format!(
                "--table: this program does not know the scheme `{scheme}:`; it knows {}",
                schemes(&known)
            )),
            other => Self::usage(other.to_string()),
        }
    }
}

fn schemes(known: &[String]) -> String {
    match known {
        [] => "none".to_owned(),
        some => {
            let some: Vec<String> = some.iter().map(|scheme| format!("{scheme}:")).collect();
            some.join(", ")
        }
    }
}

/// The command that installs this program with a feature.
pub(crate) fn install(feature: &str) -> String {
    format!(
        "cargo install --git {} membership-cli --features {feature}",
        env!("CARGO_PKG_REPOSITORY")
    )
}

impl From<ParseClusterError> for Failure {
    fn from(error: ParseClusterError) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_without_its_feature_says_how_to_install_it() {
        let failure = Failure::from(ConnectError::FeatureOff {
            scheme: "sqlite".into(),
            feature: "sqlite",
        });
        assert_eq!(failure.exit, Exit::Usage);
        assert!(
            failure
                .message
                .ends_with("membership-cli --features sqlite"),
            "{failure}"
        );
    }
}
