//! The checks that every provider applies to the version row first: may the table be used, and may
//! this commit happen. Written once, over the stored text (clauses T3, T5, T12, T16).

use super::error::{Operation, TableError, TableErrorKind};
use super::limits::TableLimits;
use super::{CommitRequest, Discontinuity, Settled, check_token, stored_version_row};
use crate::{VersionRow, VersionToken};

/// Decodes the version row if the table may be used and can be a successor of the version that
/// `known` names. The first step of `read` and `read_row` in every provider.
///
/// `stored` is the text of the version row, `None` when it is missing. `stray` is the key of any
/// row of the cluster; it is used only when the version row is missing.
///
/// ```
/// use membership_core::{Operation, TableErrorKind, usable_version_row};
/// let absent = usable_version_row(None, None, None, Operation::Read, "mystore").unwrap_err();
/// assert_eq!(absent.kind(), TableErrorKind::NotInitialized);
/// let stray = Some("10.0.0.1-7100-1");
/// let headless = usable_version_row(None, stray, None, Operation::Read, "mystore").unwrap_err();
/// assert_eq!(headless.kind(), TableErrorKind::Damaged);
/// ```
///
/// # Errors
/// `NotInitialized`, `Damaged`, `ForeignTable`, `NewerLayout`, `TableReplaced`, `BeingDeleted`,
/// `TableRolledBack`.
pub fn usable_version_row(
    stored: Option<&str>,
    stray: Option<&str>,
    known: Option<&VersionToken>,
    during: Operation,
    store: &'static str,
) -> Result<VersionRow, TableError> {
    let text = stored.ok_or_else(|| missing_version_row(stray, known, during, store))?;
    let row = stored_version_row(text, during, store)?;
    check_version_row(&row, known, during, store)?;
    Ok(row)
}

/// The error for a missing version row; for the parameters see [`usable_version_row`].
#[must_use]
pub fn missing_version_row(
    stray: Option<&str>,
    known: Option<&VersionToken>,
    during: Operation,
    store: &'static str,
) -> TableError {
    let fail = |kind, message: &str| TableError::new(kind, during, store, message);
    match (known, stray) {
        (Some(_), _) => fail(
            TableErrorKind::TableReplaced,
            "the known version row is gone",
        ),
        (None, Some(key)) => fail(
            TableErrorKind::Damaged,
            "the cluster has rows but no version row",
        )
        .with_key(key),
        (None, None) => fail(
            TableErrorKind::NotInitialized,
            "the cluster has no version row",
        ),
    }
}

/// The checks of [`usable_version_row`] for a decoded version row.
///
/// # Errors
/// `TableReplaced`, `BeingDeleted`, `TableRolledBack`.
pub fn check_version_row(
    row: &VersionRow,
    known: Option<&VersionToken>,
    during: Operation,
    store: &'static str,
) -> Result<(), TableError> {
    let (kind, message) = match known.map_or(Ok(()), |known| check_token(known, row)) {
        Err(Discontinuity::Replaced) => (
            TableErrorKind::TableReplaced,
            format!("the table is {} now", row.table_id),
        ),
        _ if row.deleting => (
            TableErrorKind::BeingDeleted,
            "the cluster is being deleted".to_owned(),
        ),
        Err(Discontinuity::RolledBack) => (
            TableErrorKind::TableRolledBack,
            format!("version {} is not what the known one became", row.version),
        ),
        Ok(()) => return Ok(()),
    };
    Err(TableError::new(kind, during, store, message))
}

/// What a provider does with a commit, according to the stored version row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The commit is next: write its rows, and replace the judged version row by this one, all or
    /// nothing.
    Write(Box<VersionRow>),
    /// The commit has already happened: answer *committed* with this token. Write nothing.
    Committed(VersionToken),
    /// Another commit was first: answer *conflict*. Write nothing. Contains the current version
    /// row.
    Conflict(Box<VersionRow>),
}

impl CommitRequest {
    /// Decides about this [validated](Self::validate) commit by the stored text of the version row
    /// (`None` when it is missing). Rows are not checked: the provider must detect an insert of an
    /// existing row, and an update or removal of a missing one.
    ///
    /// # Errors
    /// `OutcomeUnknown` when the commit was sent again and the table has moved too far to show its
    /// outcome; `LimitExceeded`; and the errors for a table that is not the one of the commit.
    pub fn decide(
        &self,
        stored: Option<&str>,
        limits: &TableLimits,
        store: &'static str,
    ) -> Result<Decision, TableError> {
        let missing = || missing_version_row(None, Some(&self.expected), Operation::Commit, store);
        let text = stored.ok_or_else(missing)?;
        let row = stored_version_row(text, Operation::Commit, store)?;
        match self.settle(&row, store)? {
            Settled::Apply => {
                self.check_room(row.row_count, limits, store)?;
                Ok(Decision::Write(Box::new(self.next_version_row(&row))))
            }
            Settled::Committed => Ok(Decision::Committed(self.next_token(&[]))),
            Settled::Conflict => Ok(Decision::Conflict(Box::new(row))),
        }
    }
}
