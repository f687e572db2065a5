//! The rules that every provider applies to the version row before it looks at anything else: may the table be used, and may this commit
//! land. Written once, over the stored text (clauses T3, T5, T12, T16).

use super::error::{Operation, TableError, TableErrorKind};
use super::limits::TableLimits;
use super::{CommitRequest, Discontinuity, Judgement, check_token};
use crate::encoding::{VersionRowError, decode_version_row};
use crate::{VersionRow, VersionToken};

/// The kind of error that an unreadable version row is.
pub(super) fn kind_of(why: &VersionRowError) -> TableErrorKind {
    match why {
        VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
        VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
        VersionRowError::Damaged(_) => TableErrorKind::Damaged,
    }
}

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
    let fail = |kind, message: String| TableError::new(kind, during, store, message);
    let Some(text) = stored else {
        return Err(match (known, stray) {
            (Some(_), _) => fail(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone".to_owned(),
            ),
            (None, Some(key)) => fail(
                TableErrorKind::Damaged,
                "rows stand there without a version row".to_owned(),
            )
            .with_key(key),
            (None, None) => fail(
                TableErrorKind::NotInitialized,
                "the cluster has no version row".to_owned(),
            ),
        });
    };
    let row = decode_version_row(text).map_err(|why| fail(kind_of(&why), why.to_string()))?;
    match known.map_or(Ok(()), |known| check_token(known, &row)) {
        Err(Discontinuity::Replaced) => Err(fail(
            TableErrorKind::TableReplaced,
            format!("the table is {} now", row.table_id),
        )),
        _ if row.deleting => Err(fail(
            TableErrorKind::BeingDeleted,
            "the cluster is being deleted".to_owned(),
        )),
        Err(Discontinuity::RolledBack) => Err(fail(
            TableErrorKind::TableRolledBack,
            format!("version {} is not what the known one became", row.version),
        )),
        Ok(()) => Ok(row),
    }
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
        let fail = |kind, message: String| TableError::new(kind, Operation::Commit, store, message);
        let Some(text) = stored else {
            return Err(fail(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone".to_owned(),
            ));
        };
        let row = decode_version_row(text).map_err(|why| fail(kind_of(&why), why.to_string()))?;
        match self.judge(&row) {
            Judgement::Apply => {
                let next = self.next_version_row(&row);
                let rows = usize::try_from(next.row_count).unwrap_or(usize::MAX);
                if rows > limits.rows && next.row_count > row.row_count {
                    let message = format!(
                        "the table would have {rows} rows, the store takes {}",
                        limits.rows
                    );
                    return Err(fail(TableErrorKind::LimitExceeded, message));
                }
                Ok(Decision::Write(Box::new(next)))
            }
            Judgement::AlreadyCommitted => Ok(Decision::Committed(self.next_token(&[]))),
            Judgement::Conflict => Ok(Decision::Conflict(Box::new(row))),
            Judgement::OutcomeUnknown => {
                let message = format!(
                    "the table has moved from version {} to {} since",
                    self.expected.version(),
                    row.version
                );
                Err(fail(TableErrorKind::OutcomeUnknown, message))
            }
            Judgement::Refused(kind) => Err(fail(
                kind,
                format!(
                    "the table, at version {}, is not the one the commit is for",
                    row.version
                ),
            )),
        }
    }
}
