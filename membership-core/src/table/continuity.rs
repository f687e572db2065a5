//! Detects that the table is no longer the one that was known. Clause T16.

use super::error::TableErrorKind;
use crate::{Row, Snapshot, VersionRow, VersionToken};

/// How a table differs from the one that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Discontinuity {
    /// It was deleted or created again.
    Replaced,
    /// It was rolled back, and may have moved forward on another path.
    RolledBack,
}

impl From<Discontinuity> for TableErrorKind {
    fn from(d: Discontinuity) -> Self {
        match d {
            Discontinuity::Replaced => Self::TableReplaced,
            Discontinuity::RolledBack => Self::TableRolledBack,
        }
    }
}

/// Checks that a version row can be a successor of the version that `known` names. It cannot detect
/// what later commits hide: only the rows show that a table was rolled back and has since moved
/// more than 16 versions past the known one; see [`check_snapshot`].
///
/// # Errors
/// The [`Discontinuity`].
pub fn check_token(known: &VersionToken, now: &VersionRow) -> Result<(), Discontinuity> {
    if now.table_id != known.table_id() {
        return Err(Discontinuity::Replaced);
    }
    if now.version < known.version() {
        return Err(Discontinuity::RolledBack);
    }
    let commit = if now.version == known.version() {
        Some(now.last_commit())
    } else {
        now.record(known.version()).map(|r| r.id)
    };
    match commit {
        Some(id) if id != known.commit() => Err(Discontinuity::RolledBack),
        _ => Ok(()),
    }
}

/// Checks that a snapshot can be a successor of `known`. Besides the check of [`check_token`], no
/// row with an old `written_at` may have changed, and no unknown row may have one.
///
/// # Errors
/// The [`Discontinuity`].
pub fn check_snapshot(known: &Snapshot, now: &Snapshot) -> Result<(), Discontinuity> {
    check_token(&known.token, &now.version_row)?;
    if known.version() == now.version() {
        return if known.rows.digest() == now.rows.digest() {
            Ok(())
        } else {
            Err(Discontinuity::RolledBack)
        };
    }
    let is_unknown = |row: &Row, before: Option<&Row>| match before {
        Some(old) if old.is_same(row) || old.hash() == row.hash() => false,
        // A row that was damaged and repaired by hand keeps its old `written_at`.
        Some(old) if old.entry().is_none() => false,
        _ => row.entry().is_some_and(|e| e.written_at <= known.version()),
    };
    let unknown = match now.changed_since(known) {
        Some(changed) => changed
            .iter()
            .filter_map(|s| Some((s, now.rows.row(s)?)))
            .any(|(s, row)| is_unknown(row, known.rows.twin(s, row))),
        None => now
            .rows
            .beside(&known.rows)
            .any(|(row, before)| is_unknown(row, before)),
    };
    if unknown {
        Err(Discontinuity::RolledBack)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CommitId, CommitRequest, InstanceId, MembershipEntry, Rows, SharedSettings, SiloAddress,
        TableId, WallTime,
    };

    fn empty(table: u128) -> Snapshot {
        let version_row = VersionRow::initial(TableId::new(table), SharedSettings::default());
        Snapshot::new(version_row.token(&[]), version_row, Rows::new())
    }

    fn then(base: &Snapshot, id: u128, port: u16) -> Snapshot {
        let e = MembershipEntry::new(
            SiloAddress::new([127, 0, 0, 1].into(), port, 1),
            InstanceId::new(id),
            WallTime::default(),
        );
        let commit = CommitRequest::new(base.token.clone(), CommitId::new(id), None, [e], [], []);
        commit.apply_to(base, commit.next_token(&[]))
    }

    #[test]
    fn a_table_with_newer_commits_is_the_same_table() {
        let a = then(&empty(1), 1, 1);
        let b = then(&then(&a, 2, 2), 3, 3);
        assert_eq!(check_snapshot(&a, &b), Ok(()));
        assert_eq!(check_snapshot(&b, &b), Ok(()));
    }

    #[test]
    fn wiped_rolled_back_and_forked_tables_are_detected() {
        let a = then(&empty(1), 1, 1);
        let b = then(&a, 2, 2);
        assert_eq!(
            check_snapshot(&a, &then(&empty(2), 1, 1)),
            Err(Discontinuity::Replaced)
        );
        assert_eq!(check_snapshot(&b, &a), Err(Discontinuity::RolledBack));
        let fork = then(&then(&a, 7, 7), 8, 8);
        assert_eq!(check_snapshot(&b, &fork), Err(Discontinuity::RolledBack));
        // Only the rows show a fork that has moved more than 16 versions.
        let mut far = then(&a, 7, 7);
        for i in 0..20 {
            far = then(&far, 100 + i, 100 + u16::try_from(i).unwrap());
        }
        assert_eq!(check_token(&b.token, &far.version_row), Ok(()));
        assert_eq!(check_snapshot(&b, &far), Err(Discontinuity::RolledBack));
    }
}
