//! Whether what was read together belongs together. Clause T6.
//!
//! DynamoDB reads single items linearizably, but a page, and even more so several, may show one half of a transaction without the other, and
//! goes on while others commit. A transactional read would be atomic; it takes a hundred items, and is refused while somebody commits. So
//! rows are read as they come, and then held against a version row that was read meanwhile: it lists the last sixteen commits, with the keys
//! that each has written or removed, and each row says which version wrote it. A row that is not as it must be at that version is read
//! again. Nothing is ever accepted because it looks quiet.
//!
//! A row that is not there may never have been, or be gone since. Of the removals that were heard of, the log tells; of those that were not,
//! the number of rows. Where that number proves nothing, because somebody has put rows there by hand, the version row is read once more:
//! what it does not list has not happened to any row that was read before.
//!
//! What this cannot see is an update that was acknowledged, is still invisible sixteen commits later, and whose row none of those has
//! touched. DynamoDB acknowledges a transaction when all of it is written, so those sixteen would have to be the work of clients that did not
//! wait for it. Inserts and removals are told even then, by the number of rows.
//!
//! Pure: nothing here waits or asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership_core::{ChangedKeys, Row, Rows, VersionRow};

/// A version row, and what its recent commits have removed, by version; none where a record does not say.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) row: Arc<VersionRow>,
    pub(crate) removed: BTreeMap<u64, BTreeSet<String>>,
}

impl Version {
    /// Whether a row is as it must be at this version, as far as that can be known: of a row that none of the recent commits touched, that
    /// it is not newer.
    pub(crate) fn explains(&self, key: &str, row: Option<&Row>) -> bool {
        let mut log = Log::default();
        log.take(self);
        explains(log.fates(self.row.version).get(key), self.row.version, row)
    }
}

/// What the last commit that touched a row did to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    /// The version that it made.
    version: u64,
    /// Whether it removed the row; none where its record does not say.
    removed: Option<bool>,
}

fn explains(fate: Option<&Fate>, now: u64, row: Option<&Row>) -> bool {
    let written = row.map(|row| row.entry().map(|entry| entry.written_at));
    match (fate, written) {
        (
            Some(Fate {
                removed: Some(false),
                ..
            }),
            None,
        )
        | (
            Some(Fate {
                removed: Some(true),
                ..
            }),
            Some(_),
        ) => false,
        (Some(fate), Some(written)) => written == Some(fate.version),
        (Some(_), None) | (None, None | Some(None)) => true,
        (None, Some(Some(written))) => written <= now,
    }
}

/// Every commit that one of several version rows has listed.
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
    fn fates(&self, until: u64) -> BTreeMap<&str, Fate> {
        let mut fates = BTreeMap::new();
        for (version, (changed, removed)) in self.0.range(..=until) {
            let ChangedKeys::Keys(keys) = changed else {
                continue;
            };
            for key in keys {
                let removed = removed.as_ref().map(|removed| removed.contains(key));
                fates.insert(
                    key.as_str(),
                    Fate {
                        version: *version,
                        removed,
                    },
                );
            }
        }
        fates
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

    /// Whether it has every change after one version and up to another.
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

/// Rows that were read at different moments, none of them before `since` was the version or could be made from it.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    rows: Rows,
    since: u64,
    log: Log,
    /// Rows that are newer than `since`, with the version that wrote them.
    newer: BTreeMap<String, u64>,
    /// Rows, or their absence, that were read in one transaction with the version row of that version.
    exact: BTreeMap<String, u64>,
}

/// What a draft is, held against a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The table as of that version.
    Whole,
    /// These must be read again.
    Doubtful(BTreeSet<String>),
    /// Nothing speaks against it, but so many rows are not there, or some are that nobody counted: it depends on whether everything was
    /// heard that happened while the rows were read.
    Unsure {
        /// How many rows fewer than were counted.
        missing: u64,
    },
    /// The version rows do not list everything that happened since: begin anew.
    TooFar,
}

impl Draft {
    /// Rows that were read after the version was `since`, or that are the table as of `since`.
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

    /// A version row that was read meanwhile: what it lists is known from now on.
    pub(crate) fn hear(&mut self, version: &Version) {
        self.log.take(version);
    }

    /// A row, or its absence, as it was read again; `exact`: in one transaction with the version row of that version.
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

    /// Whether this is the table as of a version that was heard of, which may be an earlier one.
    pub(crate) fn verdict(&self, version: &VersionRow) -> Verdict {
        let now = version.version;
        if !self.log.is_whole(self.since, now) {
            return Verdict::TooFar;
        }
        let fates = self.log.fates(now);
        let last_change = |key: &str| fates.get(key).map_or(0, |fate| fate.version);
        let exact = |key: &str| {
            self.exact
                .get(key)
                .is_some_and(|at| *at <= now && last_change(key) <= *at)
        };
        let touched = fates
            .iter()
            .filter(|(key, fate)| !explains(Some(*fate), now, self.rows.by_key(key)))
            .map(|(key, _)| *key);
        let newer = self
            .newer
            .iter()
            .filter(|(_, written)| **written > now)
            .map(|(key, _)| key.as_str());
        // Not there any more, perhaps, and there at this version.
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

    /// Every state of a table, by version, as it is in truth.
    struct History(Vec<(Snapshot, Version)>);

    impl History {
        fn new() -> Self {
            let row = Arc::new(VersionRow::initial(
                TableId::new(1),
                SharedSettings::default(),
            ));
            let start = Snapshot {
                token: row.token(&[]),
                version_row: row.clone(),
                rows: Rows::new(),
            };
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

    /// What a draft is at a version, of which its reader has heard.
    fn at(draft: &Draft, version: &Version) -> Verdict {
        let mut draft = draft.clone();
        draft.hear(version);
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
            assert_eq!(
                at(
                    &Draft::new(snapshot.rows.clone(), snapshot.version()),
                    version
                ),
                Verdict::Whole
            );
        }
    }

    #[test]
    fn half_of_a_transaction_is_seen() {
        let all = three();
        // An update that is not there yet; an insert that is not; a removal that is not; and with a count that is right.
        assert_eq!(
            at(&mixed(&all, 2, &[(1, 2), (2, 1), (3, 2)]), &all.0[2].1),
            doubtful(&[2])
        );
        assert_eq!(
            at(&mixed(&all, 3, &[(1, 3), (2, 3)]), &all.0[3].1),
            doubtful(&[4])
        );
        assert_eq!(
            at(
                &mixed(&all, 3, &[(1, 3), (2, 3), (3, 2), (4, 3)]),
                &all.0[3].1
            ),
            doubtful(&[3])
        );
        assert_eq!(
            at(&mixed(&all, 3, &[(1, 3), (2, 3), (3, 2)]), &all.0[3].1),
            doubtful(&[3, 4])
        );
    }

    #[test]
    fn what_is_newer_than_the_version_is_seen() {
        let all = three();
        let draft = mixed(&all, 1, &[(1, 1), (2, 2), (3, 1)]);
        assert_eq!(at(&draft, &all.0[1].1), doubtful(&[2]));
        assert_eq!(at(&draft, &all.0[2].1), doubtful(&[1]));
        // A row of version 3 that version 2 knows nothing of; and one that is gone already.
        assert_eq!(
            at(
                &mixed(&all, 2, &[(1, 2), (2, 2), (3, 2), (4, 3)]),
                &all.0[2].1
            ),
            doubtful(&[4])
        );
        assert_eq!(
            at(&mixed(&all, 2, &[(1, 2), (2, 2)]), &all.0[2].1),
            doubtful(&[3])
        );
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
    fn what_a_transaction_showed_is_believed_until_the_row_is_touched() {
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
            "version 3 left it alone"
        );
        draft.put(&key(2), Some(junk), Some(1));
        assert_eq!(at(&draft, &all.0[3].1), doubtful(&[2]), "version 2 did not");
    }

    #[test]
    fn rows_that_are_gone_are_missed_and_rows_put_there_by_hand_are_not_minded() {
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
    fn a_row_that_is_gone_since_is_not_taken_for_one_that_never_was() {
        let mut all = three();
        for _ in 0..20 {
            all.commit(&[], &[4], &[]);
        }
        all.commit(&[], &[], &[1]);
        // Read while it was being removed: the removal is in no version row yet, then in one.
        let mut draft = Draft::new(all.0[24].0.rows.clone(), 23);
        assert_eq!(at(&draft, &all.0[23].1), Verdict::Unsure { missing: 1 });
        draft.hear(&all.0[24].1);
        assert_eq!(at(&draft, &all.0[23].1), doubtful(&[1]));
        assert_eq!(at(&draft, &all.0[24].1), Verdict::Whole);
    }

    #[test]
    fn several_version_rows_reach_further_and_an_earlier_one_will_do() {
        let mut all = three();
        for n in 10..50 {
            all.commit(&[n], &[], &[]);
        }
        // Everything was read at version 3; one row that came since as well, and one that is there again.
        let mut draft = Draft::new(all.0[3].0.rows.clone(), 3);
        for at in [15, 30, 43] {
            draft.hear(&all.0[at].1);
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
    fn a_single_row_is_explained_or_not() {
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
