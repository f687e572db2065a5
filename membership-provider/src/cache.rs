//! The last snapshot that a table read or wrote.

use std::borrow::Borrow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{CommitRequest, Row, Rows, Snapshot, VersionToken};
use tokio::time::Instant;

/// The last snapshot that a table read or wrote, so that its rows are not decoded again and
/// unchanged tables are not sent again. `T` is the snapshot, or a struct that also holds what the
/// store needs beside it (and implements `Borrow<Snapshot>`).
///
/// ```
/// use membership_core::{Rows, SharedSettings, Snapshot, TableId, VersionRow};
/// use membership_provider::SnapshotCache;
///
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// let snapshot = Snapshot::new(row.token(&[]), row, Rows::new());
/// let cache = SnapshotCache::default();
/// assert!(cache.latest().is_none());
/// cache.store(snapshot.clone());
/// assert_eq!(cache.of(&snapshot.token), Some(snapshot));
/// ```
#[derive(Debug)]
pub struct SnapshotCache<T = Snapshot>(Mutex<Option<T>>);

impl<T> Default for SnapshotCache<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> SnapshotCache<T> {
    /// The cache itself, to compare and replace in one step.
    pub fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the snapshot.
    pub fn store(&self, snapshot: T) {
        *self.lock() = Some(snapshot);
    }

    /// Forgets the snapshot.
    pub fn clear(&self) {
        *self.lock() = None;
    }
}

impl<T: Borrow<Snapshot> + Clone> SnapshotCache<T> {
    /// The snapshot, if there is one.
    #[must_use]
    pub fn latest(&self) -> Option<T> {
        self.lock().clone()
    }

    /// The snapshot, if it is the one of this token.
    #[must_use]
    pub fn of(&self, token: &VersionToken) -> Option<T> {
        self.latest()
            .filter(|snapshot| snapshot.borrow().token.same_commit(token))
    }

    /// The rows of the snapshot; none without a snapshot.
    #[must_use]
    pub fn rows(&self) -> Rows {
        self.lock()
            .as_ref()
            .map(|snapshot| snapshot.borrow().rows.clone())
            .unwrap_or_default()
    }

    /// The row that a store holds under `key`: the cached one if it has the same text.
    #[must_use]
    pub fn row(&self, key: &str, body: &str) -> Row {
        crate::decode_row(key, body, &self.rows())
    }
}

impl SnapshotCache {
    /// A commit on the cached snapshot succeeded: stores the snapshot that it made. Does nothing if
    /// another snapshot is cached.
    pub fn committed(&self, request: &CommitRequest, token: &VersionToken) {
        if let Some(base) = self.of(&request.expected) {
            self.store(request.apply_to(&base, token.clone()));
        }
    }
}

/// A snapshot, and the time of the last full read. Reading only what later commits changed keeps it
/// up to date, but misses a change that somebody made by hand, past the version row. So everything
/// is read again after [`INTERVAL`](Self::INTERVAL).
///
/// ```
/// use membership_core::{Rows, SharedSettings, Snapshot, TableId, VersionRow};
/// use membership_provider::{FullRead, SnapshotCache};
///
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// let snapshot = Snapshot::new(row.token(&[]), row, Rows::new());
/// let cache = SnapshotCache::default();
/// cache.store(FullRead::new(snapshot));
/// assert!(cache.latest().is_some_and(|read| !read.is_due()));
/// ```
#[derive(Clone, Debug)]
pub struct FullRead<T = Snapshot> {
    /// The snapshot, or a struct with it.
    pub read: T,
    at: Instant,
}

impl<T> FullRead<T> {
    /// How long only the changes are read.
    pub const INTERVAL: Duration = Duration::from_secs(300);

    /// A full read that began now.
    #[must_use]
    pub fn new(read: T) -> Self {
        Self::begun(Instant::now(), read)
    }

    /// A full read that began at this time.
    #[must_use]
    pub const fn begun(at: Instant, read: T) -> Self {
        Self { read, at }
    }

    /// The same after a read of the changes: the last full read is as old as before.
    #[must_use]
    pub fn changed(&self, read: T) -> Self {
        Self { read, at: self.at }
    }

    /// Whether it is time for the next full read.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.at.elapsed() >= Self::INTERVAL
    }
}

impl<T: Borrow<Snapshot>> Borrow<Snapshot> for FullRead<T> {
    fn borrow(&self) -> &Snapshot {
        self.read.borrow()
    }
}

#[cfg(test)]
mod tests {

    use membership_core::{
        CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, VersionRow,
        WallTime,
    };

    use super::*;

    #[test]
    fn a_commit_on_the_cached_snapshot_is_applied_and_another_is_not() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let token = row.token(&[]);
        let cache = SnapshotCache::default();
        cache.store(Snapshot::new(token.clone(), row, Rows::new()));
        let silo = SiloAddress::new([127, 0, 0, 1].into(), 1, 1);
        let entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::default());
        let commit = CommitRequest::new(token, CommitId::new(1), None, [entry], [], []);
        let next = commit.next_token(&[]);
        cache.committed(&commit, &next);
        assert_eq!(cache.of(&next).map(|snapshot| snapshot.rows.len()), Some(1));
        cache.committed(&commit, &commit.next_token(b"again"));
        assert_eq!(cache.rows().len(), 1);
        assert!(
            cache.of(&commit.expected).is_none(),
            "the cached snapshot is a later one"
        );
        let stored = cache.rows().row(&silo).unwrap().clone();
        assert!(cache.row(stored.key(), stored.body()).is_same(&stored));
        assert!(!cache.row(stored.key(), "{}").is_same(&stored));
        cache.clear();
        assert!(cache.latest().is_none() && cache.rows().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_does_not_put_off_the_next_full_read() {
        let full = FullRead::new(());
        assert!(!full.is_due());
        tokio::time::advance(FullRead::<()>::INTERVAL).await;
        assert!(full.is_due() && full.changed(()).is_due());
        assert!(!FullRead::new(()).is_due());
    }
}
