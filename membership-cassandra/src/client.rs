//! The session with the servers: one request with a deadline, and the limits. Clauses T5, T13, T14.
//!
//! A session that lost its servers looks for them with growing pauses. Here the next request opens
//! a new session instead, so that it is answered as soon as a server is back. A read whose
//! connection broke is sent once more, and a read that collided with commits again until the
//! deadline. A write that was sent is never sent again.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{
    ClusterName, Durability, Operation, Snapshot, TableError, TableErrorKind, TableLimits,
    VersionToken,
};
use membership_provider::{Credentials, SnapshotCache, first_of};
use scylla::client::PoolSize;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::Node;
use scylla::errors::ExecutionError;
use scylla::policies::load_balancing::{
    DefaultPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use crate::STORE;
use crate::config::CassandraConfig;
use crate::error::{Doubt, Failed, error, failed, not_connected};
use crate::statements::Statements;

/// A partition is read in one page, and a batch is proposed as one value to each replica. These
/// limits keep both far below the servers' defaults (16 MiB for a request and for a mutation).
pub(crate) const LIMITS: TableLimits = TableLimits::new(500, 64 << 10, 2 << 20, 5_000);

/// The interval of keep-alive messages, and the longest time until one is answered. A node that falls
/// silent and keeps its connections open loses them after both, and requests go to the others.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const ALIVE: Duration = Duration::from_secs(2);
/// The longest pause in milliseconds before a read is sent again. It is random, so that requests
/// that collided do not collide again.
const MAX_PAUSE: u64 = 100;

/// How many nodes of a lost session are tried, if no named one answers.
const MAX_KNOWN: usize = 16;

/// The connection to one cluster's partition.
pub(crate) struct Client {
    pub(crate) config: CassandraConfig,
    /// The cluster, as the partition's key.
    pub(crate) cluster: String,
    /// The servers, as errors name them.
    pub(crate) endpoint: String,
    pub(crate) profile: ExecutionProfileHandle,
    current: Mutex<Option<Arc<Connection>>>,
    /// The nodes that the last session knew.
    known: Mutex<Vec<String>>,
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

    /// A session with one of the nodes that the configuration names, or else with one of those that
    /// the last session knew. If the last answer is in doubt, only the former count. A node that is
    /// silent leaves the next one its turn.
    async fn dial(&self, in_doubt: bool) -> Result<Arc<Session>, TableError> {
        if let Some(session) = &self.config.session {
            return Ok(Arc::clone(session));
        }
        let mut nodes: Vec<_> = self.config.nodes.iter().map(ToString::to_string).collect();
        if !in_doubt {
            let known = self.known_nodes();
            nodes.extend(
                known
                    .into_iter()
                    .filter(|node| !nodes.contains(node))
                    .collect::<Vec<_>>(),
            );
        }
        let attempts: Vec<_> = nodes
            .into_iter()
            .map(|node| connect(&self.config, node))
            .collect();
        let ends = |e: &TableError| e.kind() != TableErrorKind::Unavailable;
        match first_of(attempts, ends).await {
            Some(session) => session,
            None => Err(error(
                TableErrorKind::Configuration,
                "there is no node to connect to",
            )),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
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

    /// The nodes of the last session, also of one that is silent.
    fn known_nodes(&self) -> Vec<String> {
        if let Some(connection) = &*self.current() {
            self.keep_nodes(connection);
        }
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps the addresses of a session's nodes for the next one.
    fn keep_nodes(&self, connection: &Connection) {
        let nodes = self.nodes(connection).into_iter().take(MAX_KNOWN);
        let nodes: Vec<_> = nodes.map(|node| node.address.to_string()).collect();
        if !nodes.is_empty() {
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        }
    }

    /// Whether the session is connected to a node, so that a connection that broke is no reason to
    /// open another session.
    fn has_nodes(&self, connection: &Connection) -> bool {
        let mut nodes = self.nodes(connection).into_iter();
        nodes.any(|node| node.is_connected())
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
        let mut again = true;
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
                if !self.has_nodes(&connection) {
                    self.give_up(&connection);
                }
                if again && (failed.doubt == Doubt::None || !writes) {
                    again = false;
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

    /// How to send a request to one node only.
    pub(crate) fn profile_of(&self, node: Arc<Node>) -> ExecutionProfile {
        let only = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node), None);
        let profile = profile(&self.config).to_builder();
        profile.load_balancing_policy(only).build()
    }

    /// The nodes that the configuration allows.
    pub(crate) fn nodes(&self, connection: &Connection) -> Vec<Arc<Node>> {
        let datacenter = self.config.datacenter.as_deref();
        let allowed = |node: &&Arc<Node>| {
            datacenter.is_none_or(|name| node.datacenter.as_deref() == Some(name))
        };
        let state = connection.session.get_cluster_state();
        state
            .get_nodes_info()
            .iter()
            .filter(allowed)
            .cloned()
            .collect()
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

/// Opens a session. All features of the driver that send a request twice are off.
///
/// # Errors
/// `Configuration`, `PermissionDenied`, `Unavailable`.
async fn connect(config: &CassandraConfig, node: String) -> Result<Arc<Session>, TableError> {
    let connect_timeout = config.timeouts.connect();
    let mut builder = SessionBuilder::new()
        .known_node(node)
        .connection_timeout(connect_timeout)
        .hostname_resolution_timeout(Some(connect_timeout))
        .metadata_request_clientside_timeout(config.timeouts.operation())
        .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
        .keepalive_interval(KEEP_ALIVE)
        .keepalive_timeout(config.timeouts.operation().min(ALIVE))
        .keyspaces_to_fetch([&config.keyspace])
        .auto_await_schema_agreement(false)
        .driver_config_reporting(false)
        .default_execution_profile_handle(profile(config).into_handle());
    if let Some(Credentials { user, password }) = &config.credentials {
        builder = builder.user(user, password);
    }
    if config.tls {
        builder = builder.tls_context(Some(Arc::new(config.tls_files.client_config(STORE)?)));
    }
    let session = builder.build().await.map(Arc::new);
    session.map_err(|e| not_connected(&e, &config.endpoint(), config.tls))
}

/// How to send the table's own requests, also in a session of the application.
fn profile(config: &CassandraConfig) -> ExecutionProfile {
    let mut routing = DefaultPolicy::builder().token_aware(true);
    if let Some(datacenter) = &config.datacenter {
        routing = routing
            .prefer_datacenter(datacenter.clone())
            .permit_dc_failover(false);
    }
    let (serial, quorum) = config.consistency();
    ExecutionProfile::builder()
        .load_balancing_policy(routing.build())
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        // Each request has a deadline of the table's own.
        .request_timeout(None)
        .consistency(quorum)
        .serial_consistency(Some(serial))
        .build()
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
