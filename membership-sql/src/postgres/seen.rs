//! The newest version that this client was shown. A former primary that goes on shows an older one,
//! and reads must not go back to it unnoticed. Clause T6.

use std::sync::{Mutex, MutexGuard, PoisonError};

use membership_core::{
    Operation, TableError, TableErrorKind as Kind, VersionRow, VersionToken, check_version_row,
};

use super::STORE;

#[derive(Default)]
pub(super) struct Seen(Mutex<Option<VersionToken>>);

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Option<VersionToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an operation that begins now must not go back behind. Others may end before it, and
    /// have seen more.
    pub(super) fn newest(&self) -> Option<VersionToken> {
        self.lock().clone()
    }

    /// This version is the truth, whatever was seen before.
    pub(super) fn set(&self, token: &VersionToken) {
        *self.lock() = Some(token.clone());
    }

    /// A version was read; `since` is what was the newest when the read began.
    ///
    /// # Errors
    /// `TableRolledBack`: it is older, or on another path.
    pub(super) fn note(
        &self,
        row: &VersionRow,
        since: Option<&VersionToken>,
    ) -> Result<(), TableError> {
        // A table that was made anew shows its id, and is not an older one.
        let same_table = since.filter(|since| since.table_id() == row.table_id);
        check_version_row(row, same_table, Operation::Read, STORE)?;
        let mut newest = self.lock();
        let is_newer = newest.as_ref().is_none_or(|newest| {
            newest.table_id() != row.table_id || newest.version() <= row.version
        });
        if is_newer {
            *newest = Some(row.token(&[]));
        }
        Ok(())
    }

    /// Who was told that the table went back gets what there is from then on.
    pub(super) fn told<T>(&self, answer: Result<T, TableError>) -> Result<T, TableError> {
        if matches!(&answer, Err(e) if e.kind() == Kind::TableRolledBack) {
            *self.lock() = None;
        }
        answer
    }
}
