//! The open file, on the table's thread, and what was last read from it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use membership_core::{ClusterName, Row, TableError, TableErrorKind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::codec::{first, text};
use super::error::{error, from_commit, from_io, from_sqlite};
use super::path::{self, Identity};
use super::schema::Tables;
use crate::shared::DecodeCache;

/// Says whether the caller still waits for the answer. After a yes the outcome may be unknown.
pub(super) trait Gate {
    /// Called once, directly before COMMIT.
    fn may_commit(&self) -> bool;
}

/// One cluster in one file.
pub(super) struct Session {
    pub(super) path: PathBuf,
    pub(super) creates: bool,
    /// The cluster's key in every table.
    pub(super) cluster: String,
    /// The cluster's name, for logs.
    pub(super) name: String,
    cache: Cache,
    lock_deadline: LockDeadline,
    file: Option<File>,
}

/// What was last read.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) decoded: DecodeCache,
    /// The rows in the order of their keys, as the store has them.
    pub(super) list: Vec<Row>,
}

/// Until when an operation waits for locks.
type LockDeadline = Arc<Mutex<Instant>>;

/// A connection, and the file that it is connected to.
pub(super) struct File {
    pub(super) conn: Connection,
    pub(super) tables: Tables,
    path: PathBuf,
    identity: Identity,
}

impl Session {
    pub(super) fn new(path: PathBuf, creates: bool, cluster: &ClusterName) -> Self {
        Self {
            path,
            creates,
            cluster: cluster.store_key(),
            name: cluster.to_string(),
            cache: Cache::default(),
            lock_deadline: Arc::new(Mutex::new(Instant::now())),
            file: None,
        }
    }

    /// Follows the path to its file. A file system that hangs holds up this thread only.
    ///
    /// # Errors
    /// As [`path::check`].
    pub(super) fn check_path(&mut self, network: bool) -> Result<(), TableError> {
        self.path = path::check(&self.path, network)?;
        Ok(())
    }

    /// Warns of a file that others may read.
    pub(super) fn warn_of_mode(&self) {
        path::warn_of_mode(&self.path);
    }

    /// Sets until when the next operation waits for locks.
    pub(super) fn wait_until(&self, deadline: Instant) {
        *self
            .lock_deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// Until when this operation waits for locks.
    pub(super) fn deadline(&self) -> Instant {
        *self
            .lock_deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The file and the cache, if there is a file. An open file that was moved is an error, not a
    /// missing file.
    ///
    /// # Errors
    /// `TableReplaced`, or why it cannot be opened.
    pub(super) fn file(&mut self) -> Result<Option<(&mut File, &mut Cache)>, TableError> {
        if let Some(file) = &self.file {
            file.check_identity()?;
        } else if path::identity(&self.path).map_err(from_io)?.is_some() {
            self.file = Some(File::open(&self.path, false, &self.lock_deadline)?);
        }
        Ok(self.file.as_mut().map(|file| (file, &mut self.cache)))
    }

    /// The same for `initialize`: forgets a file that is gone, and creates a new one.
    ///
    /// # Errors
    /// Why it cannot be opened or created.
    pub(super) fn file_or_new(&mut self) -> Result<(&mut File, &mut Cache), TableError> {
        let there = path::identity(&self.path).map_err(from_io)?;
        if self
            .file
            .as_ref()
            .is_some_and(|f| Some(f.identity) != there)
        {
            self.file = None;
            self.cache = Cache::default();
        }
        if there.is_none() && !self.creates {
            return Err(error(
                TableErrorKind::Configuration,
                "the file does not exist, and `create` is off",
            ));
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path, true, &self.lock_deadline)?,
        };
        Ok((self.file.insert(file), &mut self.cache))
    }

    /// Closes the file: the next operation opens what the path leads to then.
    ///
    /// # Errors
    /// The error of SQLite.
    pub(super) fn close(&mut self) -> Result<(), TableError> {
        if let Some(file) = self.file.take() {
            // Closing must not write the log into a file that may have been overwritten.
            let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            file.conn.set_db_config(keep, true).map_err(from_sqlite)?;
            self.cache = Cache::default();
        }
        Ok(())
    }
}

impl File {
    fn open(
        path: &PathBuf,
        create: bool,
        lock_deadline: &LockDeadline,
    ) -> Result<Self, TableError> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        // If the path leads to the same file before and after, that file was opened.
        for _ in 0..100 {
            if create {
                path::make_hidden(path).map_err(from_io)?;
            }
            let before = path::identity(path).map_err(from_io)?;
            let mut conn = Connection::open_with_flags(path, flags).map_err(|e| match e.sqlite_error_code() {
                Some(ErrorCode::CannotOpen) => error(
                    TableErrorKind::PermissionDenied,
                    "the file cannot be opened: check its permissions, those of its directory, and how many open files are allowed",
                )
                .with_source(e),
                _ => from_sqlite(e),
            })?;
            let after = path::identity(path).map_err(from_io)?;
            if let Some(identity) = after.filter(|_| before.is_none() || before == after) {
                conn.set_prepared_statement_cache_capacity(32);
                conn.busy_handler(Some(waiting(Arc::clone(lock_deadline))))
                    .map_err(from_sqlite)?;
                // Every acknowledged commit is on the disk, also where a plain flush is not enough.
                conn.execute_batch(
                    "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA trusted_schema = OFF;",
                )
                .map_err(from_sqlite)?;
                return Ok(Self {
                    conn,
                    tables: Tables::default(),
                    path: path.clone(),
                    identity,
                });
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the file is replaced all the time",
        ))
    }

    /// Whether the path still leads to the file that is open.
    ///
    /// # Errors
    /// `TableReplaced` when it does not.
    pub(super) fn check_identity(&self) -> Result<(), TableError> {
        match path::identity(&self.path).map_err(from_io)? {
            Some(now) if now == self.identity => Ok(()),
            Some(_) => Err(error(
                TableErrorKind::TableReplaced,
                "the path leads to another file than the open one",
            )),
            None => Err(error(
                TableErrorKind::TableReplaced,
                "the file was deleted or moved while it was open",
            )),
        }
    }

    /// Commits if the path still leads to the file and the caller still waits. Otherwise writes
    /// nothing.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the disk failed during the commit; with every other kind nothing was
    /// written.
    pub(super) fn commit(&self, tx: Transaction<'_>, gate: &dyn Gate) -> Result<(), TableError> {
        self.check_identity()?;
        if !gate.may_commit() {
            return Err(error(
                TableErrorKind::Busy,
                "the time of the operation is over",
            ));
        }
        tx.commit().map_err(from_commit)
    }

    /// Turns the write-ahead log on, so that readers and the writer do not wait for each other. The
    /// file remembers it.
    ///
    /// # Errors
    /// `Busy`, or `Configuration` where the file system has no shared memory.
    pub(super) fn use_log(&self, deadline: Instant) -> Result<(), TableError> {
        let mode = |sql| first(&self.conn, sql, [], |row| text(row, 0));
        loop {
            if mode("PRAGMA journal_mode")?.as_deref() == Some("wal") {
                return Ok(());
            }
            match mode("PRAGMA journal_mode = WAL") {
                Ok(Some(now)) if now == "wal" => return Ok(()),
                Ok(_) => {
                    return Err(error(
                        TableErrorKind::Configuration,
                        "the file system cannot hold a write-ahead log: use a local disk",
                    ));
                }
                // SQLite does not wait here if several processes change the mode at once.
                Err(e) => {
                    if e.kind() != TableErrorKind::Busy || Instant::now() >= deadline {
                        return Err(e);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }
}

/// A transaction that sees one moment and blocks no other one.
pub(super) fn reading(conn: &Connection) -> Result<Transaction<'_>, TableError> {
    Transaction::new_unchecked(conn, TransactionBehavior::Deferred).map_err(from_sqlite)
}

/// A transaction that writes: it first waits for the lock.
pub(super) fn writing(conn: &Connection) -> Result<Transaction<'_>, TableError> {
    Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(from_sqlite)
}

/// Waits for a lock until the operation's time is over. The pauses are short at first, because a
/// commit holds the lock for about one flush, then longer; they are random, so that processes do
/// not wait in step.
fn waiting(lock_deadline: LockDeadline) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut noise =
        u64::from(std::process::id()) << 20 | Arc::as_ptr(&lock_deadline) as usize as u64 | 1;
    move |tries| {
        let left = lock_deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let most = 200 << tries.clamp(0, 6);
        std::thread::sleep(Duration::from_micros(most / 2 + noise % most).min(left));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test can cut the power: this setting is what keeps an acknowledged commit then.
    #[test]
    fn every_commit_is_flushed() {
        let place = tempfile::tempdir().unwrap();
        let deadline = Arc::new(Mutex::new(Instant::now()));
        let file = File::open(&place.path().join("members.db"), true, &deadline).unwrap();
        for (pragma, value) in [("synchronous", 2), ("fullfsync", 1)] {
            let sql = format!("PRAGMA {pragma}");
            let set = first(&file.conn, &sql, [], |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(set, Some(value), "{pragma}");
        }
    }

    /// The caller of an operation has been told that its time is over, so nothing may be written.
    struct Closed;

    impl Gate for Closed {
        fn may_commit(&self) -> bool {
            false
        }
    }

    #[test]
    fn nothing_is_committed_after_the_caller_was_told_otherwise() {
        let place = tempfile::tempdir().unwrap();
        let deadline = Arc::new(Mutex::new(Instant::now()));
        let file = File::open(&place.path().join("members.db"), true, &deadline).unwrap();
        let tx = writing(&file.conn).unwrap();
        tx.execute("CREATE TABLE late (body BLOB)", []).unwrap();
        let kind = file.commit(tx, &Closed).unwrap_err().kind();
        assert_eq!(kind, TableErrorKind::Busy);
        let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'late'";
        let found = first(&file.conn, sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(found, Some(0));
    }
}
