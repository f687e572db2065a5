//! The rules that every provider applies to the version row before it looks at anything else: may the table be used, and may this commit
//! land. Written once, over the stored text (clauses T3, T5, T12, T16).

use super::error::{Operation, TableError, TableErrorKind};
use super::limits::TableLimits;
use super::{CommitRequest, Discontinuity, Settled, check_token, stored_version_row};
use crate::{VersionRow, VersionToken};

/// The version row that a stored text means, if the table may be used and can be the one that `known` is from. What `read` and `read_row`
/// of a provider begin with.
///
/// `stored` is the text of the version row, none where there is none; `stray` the key of any row of the cluster, and matters only where
/// there is no version row.
///
/// ```
/// use membership_core::{Operation, TableErrorKind, usable_version_row};
/// let absent = usable_version_row(None, None, None, Operation::Read, "mystore").unwrap_err();
/// assert_eq!(absent.kind(), TableErrorKind::NotInitialized);
/// let headless = usable_version_row(None, Some("10.0.0.1-7100-1"), None, Operation::Read, "mystore").unwrap_err();
/// assert_eq!(headless.kind(), TableErrorKind::Damaged);
/// ```
///
/// # Errors
/// `NotInitialized`, `Damaged`, `ForeignTable`, `NewerLayout`, `TableReplaced`, `BeingDeleted`, `TableRolledBack`.
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

/// The error for a missing version row; parameters as of [`usable_version_row`].
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

/// [`usable_version_row`] for a version row that is decoded already.
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

/// What a provider does with a commit, as the stored version row decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is next: write its rows, and this version row in the place of the one that was judged; all or nothing.
    Write(Box<VersionRow>),
    /// It happened already: the answer is *committed*, with this token. Nothing is written.
    Committed(VersionToken),
    /// Somebody else was first: the answer is *conflict*. Nothing is written. The version row as it is.
    Conflict(Box<VersionRow>),
}

impl CommitRequest {
    /// What becomes of this commit, which was [validated](Self::validate), over the stored text of the version row; none where there is
    /// none. Rows are not looked at: an insert of what exists, and an update or removal of what does not, are for the provider to find.
    ///
    /// # Errors
    /// `OutcomeUnknown` where it was sent again and the table has moved too far to tell; `LimitExceeded`; and every way in which the table
    /// is not the one that the commit is for.
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
