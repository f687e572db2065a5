//! The session with ZooKeeper, and requests that end in time. Clauses T5, T13, T14.
//!
//! A table keeps one session. The driver restores it over broken connections, but not after it has
//! expired; then it is replaced. A live session is replaced only for a read that asks for a new
//! connection, because what was sent over it may still arrive. A request is given to the driver
//! only while it is connected, because it would keep the request and send it later. The driver has
//! no timeout of its own and still sends requests whose caller gave up, so that a write without an
//! answer in time may happen.
//!
//! A task of the runtime in which the session was opened does the driver's work. If that task
//! ended, the session looks connected for ever. Requests then fail with an error that a live
//! session hardly returns, and the session is replaced.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{
    ClusterName, Operation, Snapshot, TableError, TableErrorKind as Kind, TableLimits,
};
use membership_provider::{Endpoint, Hints, SnapshotCache, install_crypto_provider};
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{
    Acl, Acls, Connector, CreateMode, CreateOptions, Error, MultiReadResult, MultiReader,
    MultiWriteError, MultiWriteResult, SessionState, TlsOptions,
};

use crate::STORE;
use crate::batch::Batch;
use crate::config::{Servers, ZkConfig};
use crate::diagnose;
use crate::error::{error, failed};
use crate::keys::Paths;

/// A commit with two operations per inserted or removed row and the version row fits into one
/// request of ZooKeeper, which takes 1 MiB.
pub(crate) const LIMITS: TableLimits = TableLimits::new(200, 256 << 10, 512 << 10, 20_000);

/// How long only changes are read. A change by hand, without a change of the version row, shows
/// after this time at the latest.
const FULL_READ_PERIOD: Duration = Duration::from_secs(300);

/// How often each server is tried before there is no session, and the pause in between.
const ATTEMPTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(150);

/// What all clones of a table share.
pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) paths: Paths,
    pub(crate) cluster: ClusterName,
    pub(crate) hints: Hints,
    pub(crate) cache: SnapshotCache<Seen>,
}

/// The znode that hints watch; see `hints.rs`.
pub(crate) struct Watch {
    pub(crate) client: Arc<Client>,
    pub(crate) path: String,
}

/// A version of the table that this client has seen or made.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) snapshot: Snapshot,
    /// The data version of the version row's znode.
    pub(crate) data_version: i32,
    /// When all of the table was read.
    read_at: Instant,
}

impl Borrow<Snapshot> for Seen {
    fn borrow(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Inner {
    /// Opens a session. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, `Unavailable`.
    pub(crate) async fn connect(
        config: ZkConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        let paths = Paths::new(config.root_path(), &cluster);
        let client = Arc::new(Client::new(config));
        client.session().await?;
        let watch = Watch {
            client: Arc::clone(&client),
            path: paths.cluster().to_owned(),
        };
        Ok(Self {
            hints: Hints::new(&cluster, watch),
            client,
            paths,
            cluster,
            cache: SnapshotCache::default(),
        })
    }

    /// What may be brought up to date instead of reading everything.
    pub(crate) fn base(&self) -> Option<Seen> {
        let seen = self.cache.latest();
        seen.filter(|seen| seen.read_at.elapsed() < FULL_READ_PERIOD)
    }

    /// Remembers a version; `all` says whether all of it was read, or only what changed.
    pub(crate) fn remember(&self, snapshot: Snapshot, data_version: i32, all: bool) {
        let mut cached = self.cache.lock();
        let before = cached.as_ref().filter(|_| !all);
        let read_at = before.map_or_else(Instant::now, |seen| seen.read_at);
        *cached = Some(Seen {
            snapshot,
            data_version,
            read_at,
        });
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// The errors of the operation, with its name and the servers.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let answer = operation.await;
        answer.map_err(|e| e.during(during).at(self.client.config.address()))
    }
}

/// Opens sessions, and keeps the current one.
pub(crate) struct Client {
    pub(crate) config: ZkConfig,
    /// Who may use the created znodes.
    acls: Vec<Acl>,
    current: Mutex<Option<Held>>,
    /// Held while a session is opened.
    opening: tokio::sync::Mutex<()>,
}

/// An open session.
#[derive(Clone)]
struct Held {
    driver: zookeeper_client::Client,
    /// Whether it has seen what was acknowledged before it was opened. A session never goes back in
    /// time, but the first read of a new session might, compared with the session before.
    caught_up: Arc<AtomicBool>,
}

impl Held {
    fn new(driver: zookeeper_client::Client) -> Self {
        Self {
            driver,
            caught_up: Arc::default(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.caught_up, &other.caught_up)
    }
}

/// A connected session for one operation.
pub(crate) struct Session<'c> {
    client: &'c Client,
    held: Held,
    deadline: Instant,
}

impl Client {
    fn new(config: ZkConfig) -> Self {
        let current = match config.servers() {
            Servers::Client(driver) => Some(Held::new((**driver).clone())),
            Servers::Named(_) => None,
        };
        Self {
            acls: config.acls(),
            config,
            current: Mutex::new(current),
            opening: tokio::sync::Mutex::default(),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Held>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connected session for an operation that starts now.
    ///
    /// # Errors
    /// Why there is none in time. Nothing was sent.
    pub(crate) async fn session(&self) -> Result<Session<'_>, TableError> {
        self.connected(Instant::now() + self.config.timeout()).await
    }

    /// The same with a new session, to any of the servers, unless the application made the client.
    /// The session before is closed after the last request that uses it.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub(crate) async fn new_session(&self) -> Result<Session<'_>, TableError> {
        let deadline = Instant::now() + self.config.timeout();
        if let Servers::Named(_) = self.config.servers() {
            self.open(deadline, true).await?;
        }
        self.connected(deadline).await
    }

    async fn connected(&self, deadline: Instant) -> Result<Session<'_>, TableError> {
        loop {
            let held = self.current().clone();
            if let Some(held) = held {
                let mut watcher = held.driver.state_watcher();
                match watcher.state() {
                    SessionState::SyncConnected => {
                        return Ok(Session {
                            client: self,
                            held,
                            deadline,
                        });
                    }
                    state if !state.is_terminated() => {
                        // The driver reconnects by itself, to this server or another one.
                        if timeout_at(deadline, watcher.changed()).await.is_err() {
                            let limit = self.config.timeout();
                            let message = format!(
                                "the connection broke, and none was restored within {limit:?}"
                            );
                            return Err(error(Kind::Unavailable, message));
                        }
                        continue;
                    }
                    _ => {}
                }
            }
            self.open(deadline, false).await?;
        }
    }

    /// Opens a session; unless it must be `new`, only if no other caller did.
    async fn open(&self, deadline: Instant, new: bool) -> Result<(), TableError> {
        let limit = self.config.timeout();
        let late = |_| error(Kind::Unavailable, format!("no session within {limit:?}"));
        // The rest of the time is for finding out why it failed.
        let connecting = deadline.checked_sub(limit / 10).unwrap_or(deadline);
        let _turn = timeout_at(deadline, self.opening.lock())
            .await
            .map_err(late)?;
        let lives = |held: &Held| !held.driver.state().is_terminated();
        if !new && self.current().as_ref().is_some_and(lives) {
            return Ok(());
        }
        let Servers::Named(servers) = self.config.servers() else {
            let message = "the session of the application's client has ended";
            return Err(error(Kind::Unavailable, message));
        };
        let addresses = Endpoint::join(servers);
        let mut attempts = 1;
        loop {
            let connector = self.connector()?;
            let opened = async {
                match self.config.uses_tls() {
                    true => connector.secure_connect(&addresses).await,
                    false => connector.connect(&addresses).await,
                }
            };
            match timeout_at(connecting, opened).await {
                Ok(Ok(driver)) => {
                    *self.current() = Some(Held::new(driver));
                    return Ok(());
                }
                Ok(Err(e @ (Error::AuthFailed | Error::BadArguments(_)))) => return Err(failed(e)),
                // Each server was tried once. One that is starting or busy may accept the next
                // connection.
                Ok(Err(_)) if attempts < ATTEMPTS && Instant::now() + PAUSE < connecting => {
                    attempts += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(Err(e)) => {
                    let why = diagnose::why(servers, self.config.uses_tls(), deadline).await;
                    return Err(why.with_source(e));
                }
                Err(_) => {
                    return Err(diagnose::why(servers, self.config.uses_tls(), deadline).await);
                }
            }
        }
    }

    fn connector(&self) -> Result<Connector, TableError> {
        install_crypto_provider();
        let mut connector = zookeeper_client::Client::connector()
            .with_session_timeout(self.config.session())
            .with_fail_eagerly();
        if let Some(login) = self.config.login() {
            let login = format!("{}:{}", login.user, login.password);
            connector = connector.with_auth("digest", login.as_bytes());
        }
        if self.config.uses_tls() {
            connector = connector.with_tls(self.tls()?);
        }
        Ok(connector)
    }

    fn tls(&self) -> Result<TlsOptions, TableError> {
        let files = self.config.tls_files();
        let text = |pem: Vec<u8>| String::from_utf8_lossy(&pem).into_owned();
        let mut options = TlsOptions::new();
        if let Some(ca) = files.read_ca(STORE)? {
            options = options
                .with_pem_ca(&text(ca))
                .map_err(|_| files.bad_ca(STORE))?;
        }
        if let Some((certificate, key)) = files.read_identity(STORE)? {
            options = options
                .with_pem_identity(&text(certificate), &text(key))
                .map_err(|_| files.bad_identity(STORE))?;
        }
        Ok(options)
    }

    /// The options that znodes are created with.
    pub(crate) fn persistent(&self) -> CreateOptions<'_> {
        CreateMode::Persistent.with_acls(Acls::new(&self.acls))
    }

    /// Forgets this session, unless it is the application's, which is not ours to replace.
    fn forget(&self, session: &Held) {
        let mut current = self.current();
        let ours = matches!(self.config.servers(), Servers::Named(_));
        if ours && current.as_ref().is_some_and(|held| held.is(session)) {
            *current = None;
        }
    }
}

impl Session<'_> {
    pub(crate) const fn driver(&self) -> &zookeeper_client::Client {
        &self.held.driver
    }

    /// Whether it is still the one that new operations use.
    pub(crate) fn is_current(&self) -> bool {
        let current = self.client.current();
        current.as_ref().is_some_and(|held| held.is(&self.held))
    }

    /// The same session with the time of an operation that starts now.
    pub(crate) fn restarted(&self) -> Self {
        Self {
            client: self.client,
            held: self.held.clone(),
            deadline: Instant::now() + self.client.config.timeout(),
        }
    }

    pub(crate) fn is_caught_up(&self) -> bool {
        self.held.caught_up.load(Ordering::Relaxed)
    }

    /// It has written through the ensemble, so it sees what was acknowledged before.
    fn set_caught_up(&self) {
        self.held.caught_up.store(true, Ordering::Relaxed);
    }

    /// The answer to a request, if it comes in time.
    ///
    /// # Errors
    /// `OutcomeUnknown` without an answer.
    pub(crate) async fn answer<T: Answer>(
        &self,
        sent: impl Future<Output = T>,
    ) -> Result<T, TableError> {
        let unanswered = |_| {
            let message = format!("no answer within {:?}", self.client.config.timeout());
            error(Kind::OutcomeUnknown, message)
        };
        let answer = timeout_at(self.deadline, sent).await.map_err(unanswered)?;
        if let Some(Error::UnexpectedError(_)) = answer.error() {
            self.client.forget(&self.held);
        }
        Ok(answer)
    }

    /// Creates a znode.
    ///
    /// # Errors
    /// `OutcomeUnknown` without an answer.
    pub(crate) async fn create(
        &self,
        path: &str,
        data: &[u8],
    ) -> Result<Result<(), Error>, TableError> {
        let options = self.client.persistent();
        let created = self.driver().create(path, data, &options);
        Ok(self.answer(created).await?.map(drop))
    }

    /// Replaces the data of a znode, of this version if one is given.
    ///
    /// # Errors
    /// `OutcomeUnknown` without an answer.
    pub(crate) async fn set(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<Result<(), Error>, TableError> {
        let set = self.driver().set_data(path, data, version);
        Ok(self.answer(set).await?.map(drop))
    }

    /// An empty `multi`.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let writer = self.driver().new_multi_writer();
        Batch::new(writer, self.client.persistent(), &self.client.acls)
    }

    /// Sends a `multi`. Both success and refusal were agreed on by the ensemble.
    ///
    /// # Errors
    /// `LimitExceeded`, and what leaves the outcome open.
    pub(crate) async fn send(
        &self,
        batch: Batch<'_>,
    ) -> Result<Result<Vec<MultiWriteResult>, Refused>, TableError> {
        let mut writer = batch.writer()?;
        match self.answer(writer.commit()).await? {
            Ok(results) => {
                self.set_caught_up();
                Ok(Ok(results))
            }
            Err(MultiWriteError::OperationFailed { index, source }) => {
                self.set_caught_up();
                Ok(Err(Refused { index, source }))
            }
            Err(MultiWriteError::RequestFailed { source }) => Err(failed(source)),
        }
    }

    /// Several reads of one moment.
    ///
    /// # Errors
    /// The error that the server returns for the whole request.
    pub(crate) async fn read(
        &self,
        mut reader: MultiReader<'_>,
    ) -> Result<Vec<MultiReadResult>, TableError> {
        let answer = self.answer(reader.commit()).await;
        let results = answer.and_then(|results| results.map_err(failed));
        results.map_err(TableError::of_a_read)
    }

    /// A write that goes through the ensemble and changes nothing. Later reads of this session are
    /// as recent as everything that was acknowledged before this call. (`sync` is not enough: the
    /// server that answers it may have lost the leadership without knowing it.)
    ///
    /// # Errors
    /// The error that the server returns.
    pub(crate) async fn barrier(&self, path: &str) -> Result<(), TableError> {
        let mut batch = self.batch();
        batch.check(path, -1)?;
        // The ensemble also agreed on it if there is no such znode.
        let sent = self.send(batch).await;
        sent.map(drop).map_err(TableError::of_a_read)
    }
}

/// A `multi` that was not executed: the index of the operation that failed, and why.
pub(crate) struct Refused {
    pub(crate) index: usize,
    pub(crate) source: Error,
}

/// The driver's answer, or its error.
pub(crate) trait Answer {
    fn error(&self) -> Option<&Error>;
}

impl<T> Answer for Result<T, Error> {
    fn error(&self) -> Option<&Error> {
        self.as_ref().err()
    }
}

impl<T> Answer for Result<T, MultiWriteError> {
    fn error(&self) -> Option<&Error> {
        match self {
            Err(
                MultiWriteError::RequestFailed { source }
                | MultiWriteError::OperationFailed { source, .. },
            ) => Some(source),
            Ok(_) => None,
        }
    }
}
