//! Checks that rows which were read at different moments are as of one version. Clause T6.
//!
//! DynamoDB reads single items linearizably, but a page may show one half of a transaction without
//! the other, and several pages are read while others commit. A transactional read would be atomic,
//! but takes only a hundred items, and is refused while another client commits. So rows are read as
//! they come, and then checked against a version row that was read meanwhile: it lists the last
//! sixteen commits with the keys that each wrote or removed, and each row says at which version it
//! was written. A row that does not match that version is read again. No rows are accepted only
//! because nothing seemed to change.
//!
//! A missing row may never have existed, or may be gone since. The log of commits names the recent
//! removals; the number of rows reveals the others. Where that number proves nothing, because rows
//! were inserted by hand, the version row is read once more: a commit that it does not list changed
//! no row that was read before.
//!
//! This check cannot see an acknowledged update that is still invisible sixteen commits later, and
//! whose row none of those commits touched. DynamoDB acknowledges a transaction when all of it is
//! written, so those sixteen would have to come from clients that did not wait for it. The number
//! of rows reveals inserts and removals even then.
//!
//! Pure: no function here waits or sends a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership_core::{ChangedKeys, Row, Rows, VersionRow};

/// A version row, and what its recent commits removed, by version; none where a record does not
/// say.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) row: Arc<VersionRow>,
    pub(crate) removed: BTreeMap<u64, BTreeSet<String>>,
}

impl Version {
    /// Whether a row matches this version, as far as can be known. A row that no recent commit
    /// touched matches if it is not newer.
    pub(crate) fn explains(&self, key: &str, row: Option<&Row>) -> bool {
        let mut log = Log::default();
        log.take(self);
        explains(
            log.last_changes(self.row.version).get(key),
            self.row.version,
            row,
        )
    }
}

/// The last commit that touched a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastChange {
    /// Its version.
    version: u64,
    /// Whether it removed the row; none where its record does not say.
    removed: Option<bool>,
}

fn explains(change: Option<&LastChange>, now: u64, row: Option<&Row>) -> bool {
    let written = row.map(|row| row.entry().map(|entry| entry.written_at));
    match (change, written) {
        (
            Some(LastChange {
                removed: Some(false),
                ..
            }),
            None,
        )
        | (
            Some(LastChange {
                removed: Some(true),
                ..
            }),
            Some(_),
        ) => false,
        (Some(change), Some(written)) => written == Some(change.version),
        (Some(_), None) | (None, None | Some(None)) => true,
        (None, Some(Some(written))) => written <= now,
    }
}

/// Every commit that one of several version rows lists.
#[derive(Clone, Debug, Default)]
struct Log(BTreeMap<u64, (ChangedKeys, Option<BTreeSet<String>>)>);

impl Log {
    fn take(&mut self, version: &Version) {
        for record in &version.row.recent {
            let known = || {
                (
                    record.changed.clone(),
                    version.removed.get(&record.version).cloned(),
                )
            };
            self.0.entry(record.version).or_insert_with(known);
        }
    }

    /// The last change of each row up to a version.
    fn last_changes(&self, until: u64) -> BTreeMap<&str, LastChange> {
        let mut changes = BTreeMap::new();
        for (version, (changed, removed)) in self.0.range(..=until) {
            let ChangedKeys::Keys(keys) = changed else {
                continue;
            };
            for key in keys {
                let removed = removed.as_ref().map(|removed| removed.contains(key));
                changes.insert(
                    key.as_str(),
                    LastChange {
                        version: *version,
                        removed,
                    },
                );
            }
        }
        changes
    }

    /// The rows that a later commit may have removed.
    fn removed_after(&self, version: u64) -> impl Iterator<Item = &str> {
        self.0
            .range(version.saturating_add(1)..)
            .flat_map(|(_, (changed, removed))| {
                let keys: &[String] = match changed {
                    ChangedKeys::Keys(keys) => keys,
                    ChangedKeys::Count(_) => &[],
                };
                keys.iter()
                    .filter(|key| {
                        removed
                            .as_ref()
                            .is_none_or(|removed| removed.contains(*key))
                    })
                    .map(String::as_str)
            })
    }

    /// Whether it lists every change after one version and up to another.
    fn is_whole(&self, after: u64, until: u64) -> bool {
        if after >= until {
            return after == until;
        }
        let listed = self
            .0
            .range(after + 1..=until)
            .filter(|(_, (changed, _))| matches!(changed, ChangedKeys::Keys(_)));
        listed.count() as u64 == until - after
    }
}

/// Rows that were read at different moments, all of them at version `since` or later.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    rows: Rows,
    since: u64,
    log: Log,
    /// Rows that are newer than `since`, with the version that they were written at.
    newer: BTreeMap<String, u64>,
    /// Rows, or their absence, that were read in one transaction with the version row of that
    /// version.
    exact: BTreeMap<String, u64>,
}

/// The result of checking a draft against a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The table as of that version.
    Whole,
    /// These rows must be read again.
    Doubtful(BTreeSet<String>),
    /// All rows match, but some are missing or were never counted. This is the table as of that
    /// version only if the log lists every commit that happened while the rows were read.
    Unsure {
        /// How many rows are missing.
        missing: u64,
    },
    /// The version rows do not list all commits since: start over.
    TooFar,
}

impl Draft {
    /// Rows that were read at version `since` or later.
    pub(crate) fn new(rows: Rows, since: u64) -> Self {
        let newer = rows
            .entries()
            .filter(|entry| entry.written_at > since)
            .map(|entry| (entry.address.row_key(), entry.written_at))
            .collect();
        Self {
            rows,
            since,
            log: Log::default(),
            newer,
            exact: BTreeMap::new(),
        }
    }

    pub(crate) const fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Takes over the commits that a version row lists. It was read while the rows were read.
    pub(crate) fn take_log(&mut self, version: &Version) {
        self.log.take(version);
    }

    /// Replaces a row that was read again; none: it is absent. `exact`: it was read in one
    /// transaction with the version row of that version.
    pub(crate) fn put(&mut self, key: &str, row: Option<Row>, exact: Option<u64>) {
        self.newer.remove(key);
        match exact {
            Some(version) => self.exact.insert(key.to_owned(), version),
            None => self.exact.remove(key),
        };
        match row {
            Some(row) => {
                if let Some(written) = row
                    .entry()
                    .map(|entry| entry.written_at)
                    .filter(|written| *written > self.since)
                {
                    self.newer.insert(key.to_owned(), written);
                }
                self.rows.insert(row);
            }
            None => {
                self.rows.remove(key);
            }
        }
    }

    /// Whether this is the table as of a version in the log, which may be an earlier one.
    pub(crate) fn verdict(&self, version: &VersionRow) -> Verdict {
        let now = version.version;
        if !self.log.is_whole(self.since, now) {
            return Verdict::TooFar;
        }
        let changes = self.log.last_changes(now);
        let last_change = |key: &str| changes.get(key).map_or(0, |change| change.version);
        let exact = |key: &str| {
            self.exact
                .get(key)
                .is_some_and(|at| *at <= now && last_change(key) <= *at)
        };
        let touched = changes
            .iter()
            .filter(|(key, change)| !explains(Some(*change), now, self.rows.by_key(key)))
            .map(|(key, _)| *key);
        let newer = self
            .newer
            .iter()
            .filter(|(_, written)| **written > now)
            .map(|(key, _)| key.as_str());
        // Removed after this version: they may belong to it.
        let gone = self
            .log
            .removed_after(now)
            .filter(|key| self.rows.by_key(key).is_none());
        let doubtful: BTreeSet<String> = touched
            .chain(newer)
            .chain(gone)
            .filter(|key| !exact(key))
            .map(str::to_owned)
            .collect();
        if !doubtful.is_empty() {
            return Verdict::Doubtful(doubtful);
        }
        let there = self.rows.len() as u64;
        if there == version.row_count && self.rows.undecodable().next().is_none() {
            return Verdict::Whole;
        }
        Verdict::Unsure {
            missing: version.row_count.saturating_sub(there),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{
        CommitId, CommitRequest, InstanceId, MembershipEntry, RowChange, SharedSettings,
        SiloAddress, Snapshot, TableId, WallTime,
    };

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([10, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    fn key(port: u16) -> String {
        entry(port).address.row_key()
    }

    /// The true states of a table, by version.
    struct History(Vec<(Snapshot, Version)>);

    impl History {
        fn new() -> Self {
            let row = Arc::new(VersionRow::initial(
                TableId::new(1),
                SharedSettings::default(),
            ));
            let start = Snapshot::new(row.token(&[]), row.clone(), Rows::new());
            Self(vec![(
                start,
                Version {
                    row,
                    removed: BTreeMap::new(),
                },
            )])
        }

        fn commit(&mut self, inserts: &[u16], updates: &[u16], removes: &[u16]) {
            let (base, before) = self.0.last().unwrap();
            let id = CommitId::new(self.0.len() as u128);
            let of = |ports: &[u16]| ports.iter().map(|port| entry(*port)).collect::<Vec<_>>();
            let removes = removes.iter().map(|port| key(*port));
            let request = CommitRequest::new(
                base.token.clone(),
                id,
                None,
                of(inserts),
                of(updates),
                removes,
            );
            let next = request.apply_to(base, request.next_token(&[]));
            let mut removed = before.removed.clone();
            let gone = request
                .changes
                .iter()
                .filter(|change| matches!(change, RowChange::Remove(_)));
            removed.insert(
                next.version(),
                gone.map(|change| change.key().to_owned()).collect(),
            );
            let version = Version {
                row: next.version_row.clone(),
                removed,
            };
            self.0.push((next, version));
        }

        fn row(&self, at: usize, port: u16) -> Option<Row> {
            self.0[at].0.rows.by_key(&key(port)).cloned()
        }
    }

    fn three() -> History {
        let mut all = History::new();
        all.commit(&[1, 2, 3], &[], &[]);
        all.commit(&[], &[1, 2], &[]);
        all.commit(&[4], &[], &[3]);
        all
    }

    /// The verdict on a draft at a version whose version row was read.
    fn at(draft: &Draft, version: &Version) -> Verdict {
        let mut draft = draft.clone();
        draft.take_log(version);
        draft.verdict(&version.row)
    }

    fn doubtful(ports: &[u16]) -> Verdict {
        Verdict::Doubtful(ports.iter().map(|port| key(*port)).collect())
    }

    /// Rows of different versions, in one draft.
    fn mixed(all: &History, since: u64, states: &[(u16, usize)]) -> Draft {
        Draft::new(
            states
                .iter()
                .filter_map(|(port, at)| all.row(*at, *port))
                .collect(),
            since,
        )
    }

    #[test]
    fn a_quiet_table_is_whole() {
        let all = three();
        for (snapshot, version) in &all.0 {
            let draft = Draft::new(snapshot.rows.clone(), snapshot.version());
            assert_eq!(at(&draft, version), Verdict::Whole);
        }
    }

    #[test]
    fn half_of_a_transaction_is_doubtful() {
        let all = three();
        // An update that is not visible yet; an insert; a removal; and with a matching count.
        for (version, states, expected) in [
            (2, &[(1, 2), (2, 1), (3, 2)][..], &[2][..]),
            (3, &[(1, 3), (2, 3)], &[4]),
            (3, &[(1, 3), (2, 3), (3, 2), (4, 3)], &[3]),
            (3, &[(1, 3), (2, 3), (3, 2)], &[3, 4]),
        ] {
            let draft = mixed(&all, version as u64, states);
            assert_eq!(at(&draft, &all.0[version].1), doubtful(expected));
        }
    }

    #[test]
    fn rows_newer_than_the_version_are_doubtful() {
        let all = three();
        let draft = mixed(&all, 1, &[(1, 1), (2, 2), (3, 1)]);
        assert_eq!(at(&draft, &all.0[1].1), doubtful(&[2]));
        assert_eq!(at(&draft, &all.0[2].1), doubtful(&[1]));
        // A row of version 3 that version 2 does not have; and one that is gone already.
        let draft = mixed(&all, 2, &[(1, 2), (2, 2), (3, 2), (4, 3)]);
        assert_eq!(at(&draft, &all.0[2].1), doubtful(&[4]));
        let draft = mixed(&all, 2, &[(1, 2), (2, 2)]);
        assert_eq!(at(&draft, &all.0[2].1), doubtful(&[3]));
    }

    #[test]
    fn rows_are_repaired_one_by_one() {
        let all = three();
        let mut draft = mixed(&all, 1, &[(1, 1), (2, 2), (3, 1)]);
        draft.put(&key(1), all.row(2, 1), None);
        assert_eq!(at(&draft, &all.0[2].1), Verdict::Whole);
        draft.put(&key(3), None, None);
        assert_eq!(at(&draft, &all.0[2].1), doubtful(&[3]));
        draft.put(&key(4), all.row(3, 4), None);
        assert_eq!(at(&draft, &all.0[3].1), Verdict::Whole);
        assert_eq!(*draft.rows(), all.0[3].0.rows);
    }

    #[test]
    fn a_transactional_read_is_exact_until_the_row_changes() {
        let all = three();
        let junk = Row::decode(key(2), "{");
        let mut draft = mixed(&all, 2, &[(1, 2), (3, 2)]);
        draft.put(&key(2), Some(junk.clone()), None);
        assert_eq!(
            at(&draft, &all.0[2].1),
            doubtful(&[2]),
            "an undecodable row says nothing by itself"
        );
        draft.put(&key(2), Some(junk.clone()), Some(2));
        assert_eq!(at(&draft, &all.0[2].1), Verdict::Unsure { missing: 0 });
        draft.put(&key(3), None, None);
        draft.put(&key(4), all.row(3, 4), None);
        assert_eq!(
            at(&draft, &all.0[3].1),
            Verdict::Unsure { missing: 0 },
            "version 3 did not touch it"
        );
        draft.put(&key(2), Some(junk), Some(1));
        assert_eq!(at(&draft, &all.0[3].1), doubtful(&[2]), "version 2 did not");
    }

    #[test]
    fn missing_rows_are_counted_and_rows_inserted_by_hand_are_not() {
        let mut all = three();
        for _ in 0..16 {
            all.commit(&[], &[4], &[]);
        }
        let (snapshot, version) = all.0.last().unwrap();
        let mut rows = snapshot.rows.clone();
        rows.insert(Row::decode("junk", "{"));
        assert_eq!(
            at(&Draft::new(rows, snapshot.version()), version),
            Verdict::Unsure { missing: 0 }
        );
        let mut rows = snapshot.rows.clone();
        rows.remove(&key(1));
        assert_eq!(
            at(&Draft::new(rows, snapshot.version()), version),
            Verdict::Unsure { missing: 1 }
        );
    }

    #[test]
    fn a_version_row_reaches_sixteen_commits_back() {
        let mut all = three();
        for _ in 0..20 {
            all.commit(&[], &[4], &[]);
        }
        let draft = |at: usize| Draft::new(all.0[at].0.rows.clone(), at as u64);
        assert_eq!(at(&draft(7), &all.0[23].1), doubtful(&[4]));
        assert_eq!(at(&draft(6), &all.0[23].1), Verdict::TooFar);
        assert_eq!(
            at(&draft(23), &all.0[22].1),
            Verdict::TooFar,
            "a version from before the rows were read"
        );
    }

    #[test]
    fn a_row_removed_since_is_not_mistaken_for_one_that_never_existed() {
        let mut all = three();
        for _ in 0..20 {
            all.commit(&[], &[4], &[]);
        }
        all.commit(&[], &[], &[1]);
        // Read while it was being removed: the removal is in no version row yet, then in one.
        let mut draft = Draft::new(all.0[24].0.rows.clone(), 23);
        assert_eq!(at(&draft, &all.0[23].1), Verdict::Unsure { missing: 1 });
        draft.take_log(&all.0[24].1);
        assert_eq!(at(&draft, &all.0[23].1), doubtful(&[1]));
        assert_eq!(at(&draft, &all.0[24].1), Verdict::Whole);
    }

    #[test]
    fn several_version_rows_reach_further_and_an_earlier_version_is_accepted() {
        let mut all = three();
        for n in 10..50 {
            all.commit(&[n], &[], &[]);
        }
        // Everything was read at version 3; rows that were inserted since were read later.
        let mut draft = Draft::new(all.0[3].0.rows.clone(), 3);
        for at in [15, 30, 43] {
            draft.take_log(&all.0[at].1);
        }
        for port in 10..22 {
            draft.put(&key(port), all.row(43, port), None);
        }
        assert_eq!(draft.verdict(&all.0[15].1.row), Verdict::Whole);
        assert!(
            matches!(draft.verdict(&all.0[30].1.row), Verdict::Doubtful(keys) if keys.len() == 15)
        );
        assert_eq!(
            at(&draft, &all.0[3].1),
            doubtful(&(10..22).collect::<Vec<_>>())
        );
    }

    #[test]
    fn a_single_row_matches_its_version_or_not() {
        let all = three();
        let version = &all.0[3].1;
        assert!(
            version.explains(&key(1), all.row(2, 1).as_ref())
                && !version.explains(&key(1), all.row(1, 1).as_ref())
        );
        assert!(
            version.explains(&key(3), None) && !version.explains(&key(3), all.row(1, 3).as_ref())
        );
        assert!(!version.explains(&key(4), None) && version.explains(&key(9), None));
        let mut unsaid = version.clone();
        unsaid.removed.clear();
        assert!(unsaid.explains(&key(4), None));
    }
}
