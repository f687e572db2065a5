//! The version row and the rows that were read last, so that they are not decoded again. Stored
//! texts are always read and compared, so that a change by hand is noticed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use membership_core::{Row, Rows, Snapshot, TableError, VersionRow};
use membership_provider::decode_row;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
use membership_provider::merge_rows;

/// `K` is what a version row is stored as.
pub(crate) struct DecodeCache<K = String>(Mutex<Known<K>>);

struct Known<K> {
    version: Option<(K, Arc<VersionRow>)>,
    rows: Rows,
}

impl<K> Default for DecodeCache<K> {
    fn default() -> Self {
        let (version, rows) = (None, Rows::new());
        Self(Mutex::new(Known { version, rows }))
    }
}

impl<K: Clone + PartialEq> DecodeCache<K> {
    fn lock(&self) -> MutexGuard<'_, Known<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version row, decoded unless it is the last one.
    ///
    /// # Errors
    /// The errors of `decode`.
    pub(crate) fn version(
        &self,
        stored: &K,
        decode: impl FnOnce(&K) -> Result<VersionRow, TableError>,
    ) -> Result<Arc<VersionRow>, TableError> {
        if let Some((known, row)) = &self.lock().version
            && known == stored
        {
            return Ok(Arc::clone(row));
        }
        let row = Arc::new(decode(stored)?);
        self.set_version(stored.clone(), Arc::clone(&row));
        Ok(row)
    }

    pub(crate) fn set_version(&self, stored: K, row: Arc<VersionRow>) {
        self.lock().version = Some((stored, row));
    }

    pub(crate) fn rows(&self) -> Rows {
        self.lock().rows.clone()
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn forget_rows(&self) {
        self.lock().rows = Rows::new();
    }

    /// The row with this text.
    pub(crate) fn row(&self, key: &str, body: &str) -> Row {
        decode_row(key, body, &self.rows())
    }

    /// The table with these rows, which are remembered.
    pub(crate) fn snapshot(&self, version_row: Arc<VersionRow>, rows: Rows) -> Snapshot {
        self.lock().rows = rows.clone();
        Snapshot::new(version_row.token(&[]), version_row, rows)
    }
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
impl<K: Clone + PartialEq> DecodeCache<K> {
    /// The rows with these keys and texts.
    pub(crate) fn merge<T: AsRef<str>, B: AsRef<str>>(&self, stored: &[(T, B)]) -> Rows {
        merge_rows(stored, &self.rows())
    }
}
