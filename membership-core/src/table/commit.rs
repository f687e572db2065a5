//! One atomic change of the table, and its judgement, which all providers share.

use std::collections::BTreeSet;

use super::check_token;
use super::error::{Operation, TableError, TableErrorKind};
use super::limits::TableLimits;
use crate::model::version::{MAX_CORE_BYTES, RECENT_COMMITS};
use crate::{
    CommitId, CommitRecord, CoreCell, MAX_SAFE_INTEGER, MembershipEntry, Row, Rows, SharedSettings,
    SiloAddress, Snapshot, VersionRow, VersionToken, WallTime,
};

/// A change of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// Inserts a row that must not exist.
    Insert(Row),
    /// Replaces a row that must exist.
    Update(Row),
    /// Removes the row with this key, decodable or not; it must exist.
    Remove(String),
}

impl RowChange {
    /// The key of the changed row.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Insert(row) | Self::Update(row) => row.key(),
            Self::Remove(key) => key,
        }
    }
}

/// Whether a commit is sent for the first time or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// For the first time.
    First,
    /// Again, with the same bytes, because the outcome of the first attempt is unknown.
    Again,
}

/// A commit: the token of the version it is based on, its id, and its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitRequest {
    /// The token of the version that it is based on.
    pub expected: VersionToken,
    /// Its id, chosen by the caller and used for one commit only.
    pub id: CommitId,
    /// Whether it is sent for the first time or again.
    pub attempt: Attempt,
    /// The silo that commits; `None` when a person or another program does.
    pub committer: Option<SiloAddress>,
    /// When it was made, by the committer's clock; recorded for people.
    pub at: Option<WallTime>,
    /// The row changes.
    pub changes: Vec<RowChange>,
    /// New shared settings; `None` = unchanged.
    pub settings: Option<SharedSettings>,
    /// New content of [`VersionRow::core`], at most 1 KiB; `None` = unchanged.
    pub core: Option<CoreCell>,
}

impl CommitRequest {
    /// Creates a commit of entries to insert, entries to update and keys to remove. Sets
    /// `written_at` of every entry to the version that this commit makes, so that a second attempt
    /// has the same bytes.
    #[must_use]
    pub fn new(
        expected: VersionToken,
        id: CommitId,
        committer: Option<SiloAddress>,
        inserts: impl IntoIterator<Item = MembershipEntry>,
        updates: impl IntoIterator<Item = MembershipEntry>,
        removes: impl IntoIterator<Item = String>,
    ) -> Self {
        let version = expected.version().saturating_add(1);
        let stamp = |mut entry: MembershipEntry| {
            entry.written_at = version;
            Row::encode(entry)
        };
        let changes = inserts
            .into_iter()
            .map(|e| RowChange::Insert(stamp(e)))
            .chain(updates.into_iter().map(|e| RowChange::Update(stamp(e))))
            .chain(removes.into_iter().map(RowChange::Remove))
            .collect();
        Self::of_changes(expected, id, changes).by(committer)
    }

    /// Creates a commit of row changes that are stored unchanged; `changes` is empty when only the
    /// settings or the core's cell change.
    #[must_use]
    pub const fn of_changes(expected: VersionToken, id: CommitId, changes: Vec<RowChange>) -> Self {
        Self {
            expected,
            id,
            attempt: Attempt::First,
            committer: None,
            at: None,
            changes,
            settings: None,
            core: None,
        }
    }

    /// Sets the silo that commits.
    #[must_use]
    pub fn by(mut self, committer: impl Into<Option<SiloAddress>>) -> Self {
        self.committer = committer.into();
        self
    }

    /// Records when the commit was made, for people who read the [history](CommitRecord::at).
    #[must_use]
    pub fn made_at(mut self, at: impl Into<Option<WallTime>>) -> Self {
        self.at = at.into();
        self
    }

    /// Sets new shared settings.
    #[must_use]
    pub fn with_settings(mut self, settings: SharedSettings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Puts the hash of the rows that this commit makes into the core's cell; `base` is the snapshot
    /// it is based on. Then silos that hear of this version know by its version row that they have
    /// its rows, and need not read them.
    #[must_use]
    pub fn with_rows_of(mut self, base: &Snapshot) -> Self {
        let (version, rows) = (self.next_version(), self.rows_from(base).content_hash());
        let core = self.core.as_ref().unwrap_or(&base.version_row.core);
        let core = core.with_content_hash(version, rows);
        if core.len() <= MAX_CORE_BYTES {
            self.core = Some(core);
        }
        self
    }

    /// Sets new content of the core's cell.
    #[must_use]
    pub fn with_core(mut self, core: impl Into<CoreCell>) -> Self {
        self.core = Some(core.into());
        self
    }

    /// The same commit for a second attempt after an unknown outcome.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            attempt: Attempt::Again,
            ..self.clone()
        }
    }

    /// The version that this commit makes.
    #[must_use]
    pub fn next_version(&self) -> u64 {
        self.expected.version().saturating_add(1)
    }

    /// Rejects a commit that must not be sent: empty, one row twice, undecodable rows, or larger
    /// than `limits`. Every provider calls it first.
    ///
    /// # Errors
    /// `InvalidRequest` or `LimitExceeded`; nothing was sent.
    pub fn validate(&self, limits: &TableLimits, store: &'static str) -> Result<(), TableError> {
        let fail =
            |kind, message: String| Err(TableError::new(kind, Operation::Commit, store, message));
        if self.changes.is_empty() && self.settings.is_none() && self.core.is_none() {
            return fail(
                TableErrorKind::InvalidRequest,
                "the commit changes nothing".to_owned(),
            );
        }
        if self.next_version() > MAX_SAFE_INTEGER {
            return fail(
                TableErrorKind::LimitExceeded,
                "versions end at 2^53".to_owned(),
            );
        }
        let mut keys = BTreeSet::new();
        let mut bytes = 0;
        for change in &self.changes {
            if !keys.insert(change.key()) {
                return fail(
                    TableErrorKind::InvalidRequest,
                    format!("row {} is changed twice", change.key()),
                );
            }
            if let RowChange::Insert(row) | RowChange::Update(row) = change {
                match row.entry() {
                    None => {
                        return fail(
                            TableErrorKind::InvalidRequest,
                            format!(
                                "row {} cannot be decoded, and must not be written",
                                row.key()
                            ),
                        );
                    }
                    Some(e) if e.written_at != self.next_version() => {
                        return fail(
                            TableErrorKind::InvalidRequest,
                            format!(
                                "row {} says it is written at version {}, but this commit makes {}",
                                row.key(),
                                e.written_at,
                                self.next_version()
                            ),
                        );
                    }
                    Some(_) => {}
                }
                if row.size() > limits.bytes_per_row {
                    return fail(
                        TableErrorKind::LimitExceeded,
                        format!(
                            "row {} has {} bytes, the store takes {}",
                            row.key(),
                            row.size(),
                            limits.bytes_per_row
                        ),
                    );
                }
                bytes += row.size();
            }
        }
        if self.changes.len() > limits.rows_per_commit {
            return fail(
                TableErrorKind::LimitExceeded,
                format!(
                    "the commit changes {} rows, the store takes {} at once",
                    self.changes.len(),
                    limits.rows_per_commit
                ),
            );
        }
        if bytes > limits.bytes_per_commit {
            return fail(
                TableErrorKind::LimitExceeded,
                format!(
                    "the commit has {bytes} bytes, the store takes {} at once",
                    limits.bytes_per_commit
                ),
            );
        }
        if self.core.as_ref().is_some_and(|c| c.len() > MAX_CORE_BYTES) {
            return fail(
                TableErrorKind::LimitExceeded,
                format!("the core's cell has more than {MAX_CORE_BYTES} bytes"),
            );
        }
        Ok(())
    }

    /// Judges this commit by the current version row, before any row is read. Clauses T3, T5 and
    /// T16.
    #[must_use]
    pub fn judge(&self, current: &VersionRow) -> Judgement {
        let expected = &self.expected;
        if current.table_id != expected.table_id() {
            return Judgement::Refused(TableErrorKind::TableReplaced);
        }
        if current.deleting {
            return Judgement::Refused(TableErrorKind::BeingDeleted);
        }
        if current
            .recent
            .iter()
            .any(|r| r.id == self.id && r.version == self.next_version())
        {
            return Judgement::AlreadyCommitted;
        }
        if let Err(how) = check_token(expected, current) {
            return Judgement::Refused(how.into());
        }
        if current.version == expected.version() {
            return Judgement::Apply;
        }
        let gap = current.version - expected.version();
        match self.attempt {
            Attempt::Again if gap > RECENT_COMMITS as u64 => Judgement::OutcomeUnknown,
            _ => Judgement::Conflict,
        }
    }

    /// The version row that this commit makes from `current`.
    #[must_use]
    pub fn next_version_row(&self, current: &VersionRow) -> VersionRow {
        let mut next = current.clone();
        next.version += 1;
        next.layout = next.layout.max(crate::encoding::LAYOUT);
        next.recent.push(CommitRecord {
            version: next.version,
            ..self.record()
        });
        if next.recent.len() > RECENT_COMMITS {
            next.recent.drain(..next.recent.len() - RECENT_COMMITS);
        }
        for change in &self.changes {
            match change {
                RowChange::Insert(_) => next.row_count = next.row_count.saturating_add(1),
                RowChange::Remove(_) => next.row_count = next.row_count.saturating_sub(1),
                RowChange::Update(_) => {}
            }
        }
        if let Some(settings) = &self.settings {
            next.settings = settings.clone();
        }
        if let Some(core) = &self.core {
            next.core.clone_from(core);
        }
        next
    }

    /// The token of the version that this commit makes; for `store` see [`VersionRow::token`].
    #[must_use]
    pub fn next_token(&self, store: &[u8]) -> VersionToken {
        VersionToken::new(
            self.expected.table_id(),
            self.next_version(),
            self.id,
            store,
        )
    }

    /// The snapshot that this commit makes from `base`, the snapshot it was based on; `token` is
    /// from the answer of the table.
    #[must_use]
    pub fn apply_to(&self, base: &Snapshot, token: VersionToken) -> Snapshot {
        Snapshot::new(
            token,
            self.next_version_row(&base.version_row),
            self.rows_from(base),
        )
    }

    fn rows_from(&self, base: &Snapshot) -> Rows {
        let mut rows = base.rows.clone();
        for change in &self.changes {
            match change {
                RowChange::Insert(row) | RowChange::Update(row) => rows.insert(row.clone()),
                RowChange::Remove(key) => {
                    rows.remove(key);
                }
            }
        }
        rows
    }
}

/// The judgement of a commit by the version row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The commit is next: check the rows and apply it.
    Apply,
    /// The commit has already happened.
    AlreadyCommitted,
    /// Another commit was first.
    Conflict,
    /// The commit was sent again, and the table has moved too far to show its outcome: an error of
    /// kind `OutcomeUnknown`.
    OutcomeUnknown,
    /// The table is not the one of the token, or it is being deleted: an error of this kind.
    Refused(TableErrorKind),
}

/// Another commit was first, or a row is missing or already exists. Nothing was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The newest commit of the current table.
    pub newest: Option<CommitRecord>,
    /// The current table, if the store returns it in the same round trip.
    pub snapshot: Option<Snapshot>,
}

impl Conflict {
    /// Creates a conflict with this newest commit and, if the store returns it, the current table.
    #[must_use]
    pub const fn new(newest: Option<CommitRecord>, snapshot: Option<Snapshot>) -> Self {
        Self { newest, snapshot }
    }
}

/// The answer to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitOutcome {
    /// The commit happened; this is the token of the new version.
    Committed(VersionToken),
    /// The commit did not happen and never will.
    Conflict(Conflict),
}

#[cfg(test)]
mod tests;
