//! The session with the servers: one request with a deadline, and the limits. Clauses T5, T13, T14.
//!
//! A session that lost its servers looks for them with growing pauses. Here the next request opens
//! a new session instead, so that it is answered as soon as a server is back. A read whose
//! connection broke is sent twice more, and a read that collided with commits again until the
//! deadline. A write that was sent is never sent again, except a heartbeat (`heartbeat.rs`).

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{
    ClusterName, Durability, Operation, Snapshot, TableError, TableErrorKind, TableLimits,
    VersionToken,
};
use membership_provider::SnapshotCache;
use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::CassandraConfig;
use crate::dial::profile;
use crate::error::{Doubt, Failed, error, failed};
use crate::statements::Statements;

/// A partition is read in one page, and a batch is proposed as one value to each replica. These
/// limits keep both far below the servers' defaults (16 MiB for a request and for a mutation).
pub(crate) const LIMITS: TableLimits = TableLimits::new(500, 64 << 10, 2 << 20, 5_000);

/// The longest pause in milliseconds before a read is sent again. It is random, so that requests
/// that collided do not collide again.
const MAX_PAUSE: u64 = 100;

/// How often a request is sent, each time over a connection that breaks, before its caller is told:
/// to a node that breaks it, to another one of the same session, and in a session of its own.
const MAX_BROKEN: u32 = 3;

/// The connection to one cluster's partition.
pub(crate) struct Client {
    pub(crate) config: CassandraConfig,
    /// The cluster, as the partition's key.
    pub(crate) cluster: String,
    /// The servers, as errors name them.
    pub(crate) endpoint: String,
    pub(crate) profile: ExecutionProfileHandle,
    pub(crate) current: Mutex<Option<Arc<Connection>>>,
    /// The nodes that the last session knew.
    pub(crate) known: Mutex<Vec<String>>,
    /// Held while a session is opened. It is apart from `current`, so that giving up a session
    /// never waits for a connection.
    connecting: tokio::sync::Mutex<()>,
}

/// A session, and the statements that were prepared in it.
pub(crate) struct Connection {
    pub(crate) session: Arc<Session>,
    statements: OnceCell<Statements>,
    /// The time of the first request since the last answer, also to callers that stopped waiting.
    unanswered_since: Mutex<Option<Instant>>,
}

impl Client {
    fn new(config: CassandraConfig, cluster: String) -> Self {
        Self {
            endpoint: config.endpoint(),
            profile: profile(&config).into_handle(),
            config,
            cluster,
            current: Mutex::default(),
            known: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// When a request that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        self.config.timeouts.deadline()
    }

    /// The deadline of a request whose outcome may be unknown, and the deadline of looking it up. A
    /// fifth of the timeout is reserved for the latter.
    pub(crate) fn deadlines(&self) -> (Instant, Instant) {
        let (now, timeout) = (Instant::now(), self.config.timeouts.operation());
        (now + (timeout - timeout / 5), now + timeout)
    }

    fn timeout_text(&self) -> String {
        format!(
            "operation_timeout is {:?}",
            self.config.timeouts.operation()
        )
    }

    /// The session; a new one if the last was given up.
    pub(crate) async fn connection(
        &self,
        deadline: Instant,
    ) -> Result<Arc<Connection>, TableError> {
        match self.usable() {
            Some(connection) => Ok(connection),
            None => self.open(deadline, false).await,
        }
    }

    /// Opens a session; unless it must be `new`, only if no other caller did. The one before ends
    /// with the last request that uses it.
    pub(crate) async fn open(
        &self,
        deadline: Instant,
        new: bool,
    ) -> Result<Arc<Connection>, TableError> {
        let connecting = async {
            let _one = self.connecting.lock().await;
            if let Some(connection) = self.usable().filter(|_| !new) {
                return Ok(connection);
            }
            let connection = Arc::new(Connection {
                session: self.dial(new).await?,
                statements: OnceCell::new(),
                unanswered_since: Mutex::default(),
            });
            *self.current() = Some(Arc::clone(&connection));
            Ok(connection)
        };
        match timeout_at(deadline, connecting).await {
            Ok(connected) => connected,
            Err(_) => {
                let why = format!("no connection in time ({})", self.timeout_text());
                Err(error(TableErrorKind::Unavailable, why).at(&self.endpoint))
            }
        }
    }

    pub(crate) fn current(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open session, unless it is ours and no answer came for a whole operation timeout.
    fn usable(&self) -> Option<Arc<Connection>> {
        let since = Instant::now().checked_sub(self.config.timeouts.operation());
        let silent = |connection: &Arc<Connection>| {
            self.config.session.is_none()
                && since.is_some_and(|since| connection.is_silent_since(since))
        };
        let current = self.current();
        current
            .as_ref()
            .filter(|connection| !silent(connection))
            .cloned()
    }

    /// Closes this session for all callers, unless the application owns it.
    fn give_up(&self, connection: &Arc<Connection>) {
        self.keep_nodes(connection);
        let mut current = self.current();
        let is_current = current
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, connection));
        if self.config.session.is_none() && is_current {
            *current = None;
        }
    }

    /// Sends a request and waits for its answer until the deadline.
    ///
    /// # Errors
    /// The error that the servers return. Without an answer, the outcome is unknown if the request
    /// `writes`.
    pub(crate) async fn send<T, F>(
        &self,
        deadline: Instant,
        writes: bool,
        mut request: impl FnMut(Arc<Connection>) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, ExecutionError>>,
    {
        let mut broken = 0;
        loop {
            let connection = self.connection(deadline).await.map_err(Failed::certain)?;
            let begun = Instant::now();
            connection.requested(begun);
            let e = match timeout_at(deadline, request(Arc::clone(&connection))).await {
                Ok(Ok(answer)) => {
                    connection.answered();
                    return Ok(answer);
                }
                Ok(Err(e)) => e,
                Err(_) => {
                    // A session with other answers meanwhile is not the cause.
                    if connection.is_silent_since(begun) {
                        self.give_up(&connection);
                    }
                    let why = format!("no answer in time ({})", self.timeout_text());
                    return Err(Failed::unanswered(writes, &why, &self.endpoint));
                }
            };
            let failed = failed(&e, writes, &self.endpoint);
            if !failed.ends_session {
                connection.answered();
                // A serial read takes part in the same protocol as commits, and gives way to them.
                let pause = Duration::from_millis(RandomState::new().hash_one(begun) % MAX_PAUSE);
                if !writes && failed.passes && Instant::now() + pause < deadline {
                    sleep(pause).await;
                    continue;
                }
            } else {
                broken += 1;
                // Nodes count as connected for a moment after their connections broke. The second
                // one that fails says that the session lost them all.
                if broken > 1 || !self.has_others(&connection) {
                    self.give_up(&connection);
                }
                if broken < MAX_BROKEN && (failed.doubt == Doubt::None || !writes) {
                    continue;
                }
            }
            return Err(failed);
        }
    }

    /// Executes a statement. An answer that keyspace or tables are missing is that of one node;
    /// others may have them.
    pub(crate) async fn execute_unconfirmed(
        &self,
        deadline: Instant,
        writes: bool,
        which: impl Fn(&Statements) -> &PreparedStatement,
        values: impl SerializeRow + Clone,
    ) -> Result<QueryResult, Failed> {
        self.send(deadline, writes, |connection| {
            let (which, values) = (&which, values.clone());
            async move {
                let mut statement = which(connection.statements(&self.config).await?).clone();
                statement.set_execution_profile_handle(Some(self.profile.clone()));
                connection.session.execute_unpaged(&statement, values).await
            }
        })
        .await
    }

    /// Sends a statement that is sent once in a table's life.
    pub(crate) async fn query(
        &self,
        deadline: Instant,
        writes: bool,
        text: &str,
        values: impl SerializeRow + Clone,
    ) -> Result<QueryResult, Failed> {
        self.send(deadline, writes, |connection| {
            let (mut statement, values) = (Statement::new(text), values.clone());
            statement.set_execution_profile_handle(Some(self.profile.clone()));
            async move { connection.session.query_unpaged(statement, values).await }
        })
        .await
    }
}

impl Connection {
    pub(crate) async fn statements(
        &self,
        config: &CassandraConfig,
    ) -> Result<&Statements, ExecutionError> {
        let prepare = || Statements::prepare(&self.session, config);
        self.statements.get_or_try_init(prepare).await
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unanswered_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn requested(&self, now: Instant) {
        self.lock().get_or_insert(now);
    }

    fn answered(&self) {
        *self.lock() = None;
    }

    fn is_silent_since(&self, moment: Instant) -> bool {
        self.lock().is_some_and(|since| since <= moment)
    }
}

/// What all clones of a table share.
pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) cluster: ClusterName,
    /// Who decides transactions, as the version row must say.
    pub(crate) decided_by: String,
    pub(crate) durability: Durability,
    pub(crate) cache: SnapshotCache,
    /// Heartbeats that had no row in the last read.
    orphans: Mutex<Vec<String>>,
}

impl Inner {
    /// Runs an operation; its error names it.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        operation.await.map_err(|e| e.during(during))
    }

    /// Connects.
    pub(crate) async fn connect(
        config: CassandraConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        config.warn_if_exposed();
        let inner = Self {
            decided_by: config.decided_by(),
            client: Arc::new(Client::new(config, cluster.to_string())),
            cluster,
            durability: Durability::MayBeLost,
            cache: SnapshotCache::default(),
            orphans: Mutex::default(),
        };
        inner.client.connection(inner.client.deadline()).await?;
        Ok(inner)
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<String>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the result of a read, and the heartbeats that had no row.
    pub(crate) fn remember(&self, snapshot: &Snapshot, orphans: Vec<String>) {
        *self.orphans() = orphans;
        self.cache.store(snapshot.clone());
    }

    /// Heartbeats that had no row, and have none after the commit that made this version.
    pub(crate) fn known_orphans(&self, token: &VersionToken) -> Vec<String> {
        let Some(now) = self.cache.of(token) else {
            return Vec::new();
        };
        let mut orphans = std::mem::take(&mut *self.orphans());
        orphans.retain(|key| now.rows.by_key(key).is_none());
        orphans
    }
}
