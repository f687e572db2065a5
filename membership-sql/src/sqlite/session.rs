//! The open file: lives on the table's thread, and knows what was read from it last.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use membership_core::{TableError, TableErrorKind};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::error::{error, from_commit, from_io, from_sqlite};
use super::place::{self, Identity};
use super::read::Cache;
use super::schema;

/// Asks whether the answer to an operation is still waited for; from a yes on its outcome may be unknown.
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
    /// The cluster's name, for people.
    pub(super) name: String,
    pub(super) cache: Cache,
    patience: Patience,
    file: Option<File>,
}

/// Until when to wait for locks.
type Patience = Arc<Mutex<Instant>>;

/// The connection, and which file it is connected to.
pub(super) struct File {
    pub(super) conn: Connection,
    pub(super) checked: Option<i64>,
    path: PathBuf,
    identity: Identity,
}

impl Session {
    pub(super) fn new(path: PathBuf, creates: bool, cluster: String, name: String) -> Self {
        Self {
            path,
            creates,
            cluster,
            name,
            cache: Cache::default(),
            patience: Arc::new(Mutex::new(Instant::now())),
            file: None,
        }
    }

    /// Wait for locks until then.
    pub(super) fn wait_until(&self, deadline: Instant) {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// Until when this operation waits for locks.
    pub(super) fn deadline(&self) -> Instant {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file and the cache, if there is a file. One that was opened and is no longer where it was is an error, not a missing file.
    ///
    /// # Errors
    /// `TableReplaced`, or why it cannot be opened.
    pub(super) fn file(&mut self) -> Result<Option<(&mut File, &mut Cache)>, TableError> {
        if let Some(file) = &self.file {
            file.check_place()?;
        } else if place::identity(&self.path).map_err(from_io)?.is_some() {
            self.file = Some(File::open(&self.path, false, &self.patience)?);
        }
        Ok(self.file.as_mut().map(|file| (file, &mut self.cache)))
    }

    /// The same for whoever makes a table: forgets a file that is no longer there and makes a new one.
    ///
    /// # Errors
    /// Why it cannot be opened or made.
    pub(super) fn file_or_new(&mut self) -> Result<(&mut File, &mut Cache), TableError> {
        let there = place::identity(&self.path).map_err(from_io)?;
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
            None => File::open(&self.path, true, &self.patience)?,
        };
        Ok((self.file.insert(file), &mut self.cache))
    }
}

impl File {
    fn open(path: &PathBuf, create: bool, patience: &Patience) -> Result<Self, TableError> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        // The same file before and after is the file that was opened.
        for _ in 0..100 {
            let before = place::identity(path).map_err(from_io)?;
            let mut conn = Connection::open_with_flags(path, flags).map_err(|e| match e.sqlite_error_code() {
                Some(ErrorCode::CannotOpen) => error(
                    TableErrorKind::PermissionDenied,
                    "the file cannot be opened: check its permissions, those of its directory, and how many open files are allowed",
                )
                .with_source(e),
                _ => from_sqlite(e),
            })?;
            let after = place::identity(path).map_err(from_io)?;
            if let Some(identity) = after.filter(|_| before.is_none() || before == after) {
                conn.set_prepared_statement_cache_capacity(32);
                conn.busy_handler(Some(waiting(Arc::clone(patience))))
                    .map_err(from_sqlite)?;
                // Every acknowledged commit is on the disk, also where a flush must be asked for twice.
                conn.execute_batch(
                    "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA trusted_schema = OFF;",
                )
                .map_err(from_sqlite)?;
                return Ok(Self {
                    conn,
                    checked: None,
                    path: path.clone(),
                    identity,
                });
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the file is being replaced again and again",
        ))
    }

    /// Whether the path still leads to the file that is open.
    ///
    /// # Errors
    /// `TableReplaced` when it does not.
    pub(super) fn check_place(&self) -> Result<(), TableError> {
        match place::identity(&self.path).map_err(from_io)? {
            Some(now) if now == self.identity => Ok(()),
            Some(_) => Err(error(
                TableErrorKind::TableReplaced,
                "there is another file at the path of the one that is open",
            )),
            None => Err(error(
                TableErrorKind::TableReplaced,
                "the file was deleted or moved while it was open",
            )),
        }
    }

    /// Commits, if the file is still in its place and somebody still waits for the answer. Otherwise nothing is written.
    ///
    /// # Errors
    /// `OutcomeUnknown` when the disk failed in the middle; with every other kind nothing was written.
    pub(super) fn commit(&self, tx: Transaction<'_>, gate: &dyn Gate) -> Result<(), TableError> {
        self.check_place()?;
        if !gate.may_commit() {
            return Err(error(
                TableErrorKind::Busy,
                "the time of the operation is over",
            ));
        }
        tx.commit().map_err(from_commit)
    }

    /// Makes the file use a write-ahead log, so that readers and the writer do not wait for each other. The file remembers it.
    ///
    /// # Errors
    /// `Busy`, or `Configuration` where the file system has no shared memory.
    pub(super) fn use_log(&self, deadline: Instant) -> Result<(), TableError> {
        let mode = |sql: &str| self.conn.query_row(sql, [], |r| Ok(schema::text(r, 0)));
        loop {
            if mode("PRAGMA journal_mode").map_err(from_sqlite)?? == "wal" {
                return Ok(());
            }
            match mode("PRAGMA journal_mode = WAL") {
                Ok(Ok(now)) if now == "wal" => return Ok(()),
                Ok(_) => {
                    return Err(error(
                        TableErrorKind::Configuration,
                        "the file system cannot hold a write-ahead log: use a local disk",
                    ));
                }
                // SQLite does not wait by itself here when several processes change the mode at once.
                Err(e) => {
                    let e = from_sqlite(e);
                    if e.kind() != TableErrorKind::Busy || Instant::now() >= deadline {
                        return Err(e);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }
}

/// A transaction that sees one moment and takes no lock that others wait for.
pub(super) fn reading(conn: &Connection) -> Result<Transaction<'_>, TableError> {
    Transaction::new_unchecked(conn, TransactionBehavior::Deferred).map_err(from_sqlite)
}

/// A transaction that writes: waits for the lock first.
pub(super) fn writing(conn: &Connection) -> Result<Transaction<'_>, TableError> {
    Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(from_sqlite)
}

/// Waits for a lock until the operation's time is over. Short pauses first: a commit holds the lock for about one disk flush; then longer
/// ones, each by chance, so that waiting processes do not move in step.
fn waiting(patience: Patience) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut noise =
        u64::from(std::process::id()) << 20 | Arc::as_ptr(&patience) as usize as u64 | 1;
    move |tries| {
        let left = patience
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
