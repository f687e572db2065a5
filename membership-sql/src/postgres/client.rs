//! What all clones of a table share, and the connection that operations use: opened when it is
//! needed, checked, and closed when it is suspect.
//!
//! Operations do not wait for each other's answers: the driver pipelines them, and the server
//! answers in order. While a commit waits, for a lock or a standby, reads and heartbeats therefore
//! take a second connection, and while a heartbeat waits as well, reads take a third one. They are
//! closed with the first operation that no longer needs them. If an
//! operation takes longer than its time, the server is told to cancel it, and the connection is
//! closed for all, because it is unknown what the server still does; the next operation opens a new
//! one.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{
    ClusterName, HintStream, Operation, TableError, TableErrorKind as Kind, TableLimits,
};
use membership_provider::{Endpoint, Hints, Hosts, Replaceable};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;

use super::codec::is_standby;
use super::config::PostgresConfig;
use super::connection::{Connection, simple};
use super::error::{Phase, error, from_pg, lost};
use super::keys::{self, Names};
use super::seen::Seen;
use super::sql::{Statement, Statements};
use super::tls::Tls;
use crate::shared::{DecodeCache, Doubts, Replicas};

/// The tested limit; PostgreSQL itself accepts more.
pub(super) const LIMITS: TableLimits = TableLimits::new(10_000, 1 << 20, 64 << 20, 100_000);

/// The connection of all operations.
pub(super) const MAIN: usize = 0;
/// The one of reads and heartbeats while a commit waits on that.
const BESIDE: usize = 1;
/// The one of reads while a heartbeat waits on that as well.
const READS: usize = 2;
/// Why there is no answer.
const LATE: &str = "the server did not answer in time";
/// A commit that takes longer waits for something: a lock or a standby.
const PROMPT: Duration = Duration::from_millis(100);
/// How long a server may take to accept that a statement is cancelled.
const CANCEL: Duration = Duration::from_secs(2);

/// The open connections.
type Slots = [Option<Arc<Connection>>; 3];

/// A value for a statement.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// A version row as it is stored: one text per column, then the recent commits.
pub(super) type Parts = Vec<Option<String>>;

/// What all clones of a table share.
pub(super) struct Inner {
    pub(super) client: Arc<Client>,
    pub(super) cache: DecodeCache<Parts>,
    doubts: Doubts,
    pub(super) seen: Seen,
    pub(super) cluster: ClusterName,
    /// The cluster's key in every table.
    pub(super) key: String,
    /// The channel in which its commits are announced.
    pub(super) channel: String,
    hints: Hints,
    runtime: Handle,
}

/// What hints listen to; see `hints.rs`.
pub(super) struct Listener {
    pub(super) client: Arc<Client>,
    pub(super) channel: String,
}

/// An operation under way.
pub(super) struct Call {
    inner: Arc<Inner>,
    deadline: Instant,
}

impl Deref for Call {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    /// Connects to the server and checks it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) async fn connect(
        config: PostgresConfig,
        cluster: ClusterName,
    ) -> Result<Arc<Self>, TableError> {
        config.validate()?;
        let no_runtime = |e| error(Kind::Configuration, "there is no tokio runtime").with_source(e);
        let runtime = Handle::try_current().map_err(no_runtime)?;
        let client = Arc::new(Client::new(config)?);
        let channel = keys::channel(cluster.fingerprint());
        let listener = Listener {
            client: Arc::clone(&client),
            channel: channel.clone(),
        };
        let inner = Arc::new(Self {
            client,
            cache: DecodeCache::default(),
            doubts: Doubts::default(),
            seen: Seen::default(),
            key: cluster.store_key(),
            channel,
            hints: Hints::new(&cluster, listener),
            cluster,
            runtime,
        });
        let connect = async |call: Call| call.connection().await.map(drop);
        inner.run(Operation::Connect, connect).await?;
        Ok(inner)
    }

    /// Runs an operation as a task of its own: it runs to its end if its caller is dropped, and a
    /// caller that is not polled does not block the connection.
    ///
    /// # Errors
    /// The errors of the operation, with its name and the servers.
    pub(super) async fn run<T: Send + 'static, F>(
        self: &Arc<Self>,
        during: Operation,
        operation: impl FnOnce(Call) -> F,
    ) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>> + Send + 'static,
    {
        let call = Call {
            inner: Arc::clone(self),
            deadline: Instant::now() + self.client.config.operation_timeout,
        };
        match self.runtime.spawn(operation(call)).await {
            Ok(answer) => answer.map_err(|e| {
                e.during(during)
                    .at(Endpoint::join(&self.client.config.endpoints()))
            }),
            Err(e) => {
                let message = "the runtime in which the table was connected is shutting down";
                let e = error(Kind::OutcomeUnknown, message).with_source(e);
                Err(e.during(during))
            }
        }
    }

    pub(super) fn hints(&self) -> Option<HintStream> {
        if !self.client.config.listens() {
            return None;
        }
        let _runtime = self.runtime.enter();
        self.hints.listen()
    }
}

impl Call {
    /// Runs an operation, and once more on another primary, if there is one, when the answer of the
    /// first is in doubt.
    ///
    /// # Errors
    /// Those of the operation, or why there is no connection.
    pub(super) async fn look_twice<T, F>(
        &self,
        operation: impl Fn() -> F + Send + Sync,
    ) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>> + Send,
    {
        match operation().await {
            Err(e) if self.doubts.look_again(&e) => {
                self.open(MAIN, true).await?;
                operation().await
            }
            answer => answer,
        }
    }

    /// Runs one statement, in one round trip once the connection is open and has prepared it.
    ///
    /// # Errors
    /// `OutcomeUnknown` only for a statement that writes, and only after it was sent.
    pub(super) async fn ask(
        &self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, TableError> {
        let mut answer = self.ask_once(statement, values).await;
        if let Ok(None) = answer {
            // A new connection looks for the primary.
            answer = self.ask_once(statement, values).await;
        }
        let standby = "a standby has answered: the address must lead to the primary";
        match answer {
            Ok(rows) => rows.ok_or_else(|| error(Kind::Unavailable, standby)),
            // A table was not found. A new connection checks all of them.
            Err(e) if e.kind() == Kind::NotInitialized => Err(match self.connection().await {
                Ok(connection) if connection.has_tables() => {
                    error(Kind::Unavailable, "a table was missing, and exists again")
                }
                Ok(_) => e,
                Err(why) => why,
            }),
            Err(e) => Err(e),
        }
    }

    /// None if the server is a standby, whose answers may be old; its connection is closed.
    async fn ask_once(
        &self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> Result<Option<Vec<Row>>, TableError> {
        let (client, phase) = (&self.client, statement.phase());
        let connection = self.connection_for(statement).await?;
        let _waits = match statement.may_wait() {
            true => Some(connection.waits.read().await),
            false => None,
        };
        let prepared = if client.config.pooler {
            None
        } else {
            match timeout_at(
                self.deadline,
                connection.prepare(statement, &client.statements),
            )
            .await
            {
                Err(_) => return Err(client.late(&connection, Phase::Before)),
                Ok(Err(e)) => return Err(client.failed(&connection, e, Phase::Before)),
                Ok(Ok(prepared)) => Some(prepared),
            }
        };
        let warnings = connection.warnings.load(Ordering::Acquire);
        let answer = async {
            match &prepared {
                Some(prepared) => connection.driver.query(prepared, values).await,
                None => {
                    let types = statement.types();
                    let typed: Vec<_> = values.iter().copied().zip(types).collect();
                    let sql = client.statements.text(statement);
                    connection.driver.query_typed(sql, &typed).await
                }
            }
        };
        let rows = client
            .answer(&connection, phase, self.deadline, answer)
            .await?;
        // The wait for a synchronous standby was cancelled: a commit is done here, and maybe only
        // here.
        if statement.may_wait() && connection.warnings.load(Ordering::Acquire) != warnings {
            let message = "the server gave a warning: the standbys may not have it";
            return Err(lost(phase, message));
        }
        if phase == Phase::Reading && rows.iter().any(is_standby) {
            client.forget(&connection);
            return Ok(None);
        }
        Ok(Some(rows))
    }

    /// Runs statements without values as one transaction.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) async fn execute(
        &self,
        sql: &str,
        phase: Phase,
    ) -> Result<Vec<Vec<String>>, TableError> {
        let connection = self.connection().await?;
        let _waits = connection.waits.read().await;
        let answer = simple(&connection.driver, sql);
        self.client
            .answer(&connection, phase, self.deadline, answer)
            .await
    }

    /// The connection, opened if there is none.
    ///
    /// # Errors
    /// Why there is none; nothing was sent then.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, TableError> {
        match self.client.current(MAIN) {
            Some(connection) => Ok(connection),
            None => self.open(MAIN, false).await,
        }
    }

    /// The one for this statement: not behind another one that waits.
    async fn connection_for(&self, statement: Statement) -> Result<Arc<Connection>, TableError> {
        let main = self.connection().await?;
        if matches!(statement, Statement::Commit | Statement::Initialize) {
            return Ok(main);
        }
        let share = self.client.config.operation_timeout / 10;
        if self.is_free(&main, BESIDE, PROMPT.min(share)).await {
            return Ok(main);
        }
        let beside = self.beside(BESIDE).await?;
        // A heartbeat waits for the same standbys as the commit. More patience: it need not.
        if statement.may_wait() || self.is_free(&beside, READS, share).await {
            return Ok(beside);
        }
        self.beside(READS).await
    }

    async fn beside(&self, slot: usize) -> Result<Arc<Connection>, TableError> {
        match self.client.current(slot) {
            Some(connection) => Ok(connection),
            None => self.open(slot, false).await,
        }
    }

    /// Whether nothing waits on this connection, so that the ones from `next` are not needed. It is
    /// given time only before there is a next one.
    async fn is_free(&self, connection: &Connection, next: usize, patience: Duration) -> bool {
        let patience = match self.client.current(next) {
            Some(_) => Duration::ZERO,
            None => patience,
        };
        let free = timeout(patience, connection.waits.write()).await.is_ok();
        if free {
            self.client.slots()[next..].fill(None);
        }
        free
    }

    /// Opens a connection; unless it must be `new`, only if no other operation did. A new one leads to
    /// another host, if one takes writes, and the ones before are closed after the last operation that
    /// uses them.
    ///
    /// # Errors
    /// As [`connection`](Self::connection).
    pub(super) async fn open(&self, slot: usize, new: bool) -> Result<Arc<Connection>, TableError> {
        let client = &self.client;
        let open = async {
            // A new one does not wait for an attempt that may hang with the old ones.
            let _one_at_a_time = match new {
                true => None,
                false => Some(client.connecting.lock().await),
            };
            if let Some(connection) = client.current(slot).filter(|_| !new) {
                return Ok(connection);
            }
            let connection = Arc::new(client.open(new).await?);
            let mut slots = client.slots();
            if new {
                *slots = Default::default();
            }
            slots[slot] = Some(Arc::clone(&connection));
            Ok(connection)
        };
        timeout_at(self.deadline, open).await.unwrap_or_else(|_| {
            let limit = client.config.operation_timeout;
            Err(lost(
                Phase::Before,
                &format!("no connection within {limit:?}"),
            ))
        })
    }

    /// Whether the tables exist and are ours, checked again if they did not.
    ///
    /// # Errors
    /// As [`Client::check_tables`].
    pub(super) async fn has_tables(&self) -> Result<bool, TableError> {
        let connection = self.connection().await?;
        if !connection.has_tables() {
            let check = self.client.check_tables(&connection);
            let late = |_| error(Kind::Unavailable, LATE);
            timeout_at(self.deadline, check).await.map_err(late)??;
        }
        Ok(connection.has_tables())
    }
}

/// Opens connections, and keeps the current one.
pub(super) struct Client {
    pub(super) config: PostgresConfig,
    pub(super) names: Names,
    pub(super) statements: Statements,
    /// As the last connection read it.
    pub(super) tls: Replaceable<Tls>,
    pub(super) hosts: Hosts,
    slots: Mutex<Slots>,
    connecting: tokio::sync::Mutex<()>,
    /// Whether a connection worked once.
    pub(super) worked: AtomicBool,
    /// Whether synchronous standbys confirm commits.
    pub(super) confirmed: AtomicBool,
    pub(super) replicas: Replicas,
}

impl Client {
    /// # Errors
    /// `Configuration`: certificates that cannot be used.
    fn new(config: PostgresConfig) -> Result<Self, TableError> {
        let names = config.names();
        Ok(Self {
            tls: Replaceable::new(Tls::new(&config)?),
            statements: Statements::new(&config, &names, LIMITS.rows),
            names,
            hosts: Hosts::new(config.hosts()),
            slots: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            worked: AtomicBool::new(false),
            confirmed: AtomicBool::new(false),
            replicas: Replicas::default(),
            config,
        })
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self, slot: usize) -> Option<Arc<Connection>> {
        let open = |connection: &&Arc<Connection>| !connection.driver.is_closed();
        self.slots()[slot].as_ref().filter(open).cloned()
    }

    /// No operation after this one uses the connection.
    fn forget(&self, connection: &Arc<Connection>) {
        let same = |current: &mut Arc<Connection>| Arc::ptr_eq(current, connection);
        for slot in self.slots().iter_mut() {
            slot.take_if(same);
        }
    }

    /// There is no answer in time: has the server cancel what it does, which may wait for ever, and
    /// closes the connection.
    fn late(&self, connection: &Arc<Connection>, phase: Phase) -> TableError {
        self.forget(connection);
        // Calls that share the connection are late together.
        if connection.cancelled.swap(true, Ordering::Relaxed) {
            return lost(phase, LATE);
        }
        let (tls, task) = (self.tls.current(), connection.task.clone());
        let token = connection.driver.cancel_token();
        tokio::spawn(async move {
            let _asked = timeout(CANCEL, token.cancel_query(tls)).await;
            task.abort();
        });
        lost(phase, LATE)
    }

    async fn answer<T>(
        &self,
        connection: &Arc<Connection>,
        phase: Phase,
        deadline: Instant,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, TableError> {
        match timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(|e| self.failed(connection, e, phase)),
            Err(_) => Err(self.late(connection, phase)),
        }
    }

    fn failed(
        &self,
        connection: &Arc<Connection>,
        e: tokio_postgres::Error,
        phase: Phase,
    ) -> TableError {
        // A connection stays usable only after an ordinary error. It is also closed if the server
        // is read-only now, or if a plan no longer matches its tables.
        let closes = ["25006", "0A000", "26000", "42P05", "42P01", "3F000"];
        let usable = e.as_db_error().is_some_and(|db| {
            let ordinary = db.parsed_severity() == Some(Severity::Error);
            ordinary && !closes.contains(&db.code().code())
        });
        if !usable {
            self.forget(connection);
            connection.task.abort();
        }
        from_pg(e, phase)
    }
}
