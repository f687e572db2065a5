//! One session with ZooKeeper, and requests that end in time. Clauses T5, T13, T14.
//!
//! The session lives as long as the table. The client keeps it over broken connections by itself; what it cannot do is live on when the session
//! has expired, and so it is replaced then, and only then: while an old session lives, what was sent over it may still arrive. A request is
//! given to the client only while that is connected, because it would keep the request and send it later. The client has no time limit of its
//! own and sends what was given up: a write that was not answered in time may happen.
//!
//! The client's work is done by a task of the runtime in which the session was opened. Where that task ended without a word, the session
//! looks connected for ever; requests then end with an error that a session that lives hardly gives, and the session is replaced.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error, MultiReadResult, MultiReader, MultiWriteError,
    SessionState, TlsOptions,
};

use crate::config::{Servers, ZkConfig, wrong};
use crate::diagnose;
use crate::error::{error, failed};

/// How often each server is tried before nobody gives a session, and the pause in between.
const ATTEMPTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(150);

/// A session, and whether it has seen what was acknowledged before it began.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) client: Client,
    /// A session never goes back in time; the first read of a new one might, compared with the session before it.
    caught_up: Arc<AtomicBool>,
}

impl Session {
    fn new(client: Client) -> Self {
        Self {
            client,
            caught_up: Arc::default(),
        }
    }

    pub(crate) fn is_caught_up(&self) -> bool {
        self.caught_up.load(Ordering::Relaxed)
    }

    /// It has written through the ensemble: it sees whatever was acknowledged before that.
    pub(crate) fn caught_up(&self) {
        self.caught_up.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Link {
    pub(crate) config: ZkConfig,
    /// The servers as people know them.
    pub(crate) at: String,
    current: Mutex<Option<Session>>,
    /// Held by whoever opens a session.
    opening: tokio::sync::Mutex<()>,
}

impl Link {
    pub(crate) fn new(config: ZkConfig) -> Self {
        let current = match config.servers() {
            Servers::Client(client) => Some(Session::new(Client::clone(client))),
            Servers::Named(_) => None,
        };
        Self {
            at: config.at(),
            config,
            current: Mutex::new(current),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// When an operation that begins now must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.timeout()
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Session>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that is connected.
    ///
    /// # Errors
    /// That there is none by then, and why. Nothing was sent.
    pub(crate) async fn session(&self, deadline: Instant) -> Result<Session, TableError> {
        loop {
            let held = self.current().clone();
            if let Some(session) = held {
                let mut watcher = session.client.state_watcher();
                match watcher.state() {
                    SessionState::SyncConnected => return Ok(session),
                    state if !state.is_terminated() => {
                        // It comes back by itself, to this server or another one.
                        if timeout_at(deadline, watcher.changed()).await.is_err() {
                            let message = format!(
                                "the connection broke, and none came back within {:?}",
                                self.config.timeout()
                            );
                            return Err(error(TableErrorKind::Unavailable, message));
                        }
                        continue;
                    }
                    _ => {}
                }
            }
            self.open(deadline).await?;
        }
    }

    /// Opens a session unless somebody has.
    async fn open(&self, deadline: Instant) -> Result<(), TableError> {
        let late = |_| {
            error(
                TableErrorKind::Unavailable,
                format!("no session within {:?}", self.config.timeout()),
            )
        };
        // The rest is for finding out why.
        let connecting = deadline
            .checked_sub(self.config.timeout() / 10)
            .unwrap_or(deadline);
        let _turn = timeout_at(deadline, self.opening.lock())
            .await
            .map_err(late)?;
        if self
            .current()
            .as_ref()
            .is_some_and(|session| !session.client.state().is_terminated())
        {
            return Ok(());
        }
        let Servers::Named(servers) = self.config.servers() else {
            return Err(error(
                TableErrorKind::Unavailable,
                "the session of the client that the table was given has ended",
            ));
        };
        let addresses = servers
            .iter()
            .map(crate::config::shown)
            .collect::<Vec<_>>()
            .join(",");
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
                Ok(Ok(client)) => {
                    *self.current() = Some(Session::new(client));
                    return Ok(());
                }
                Ok(Err(e @ (Error::AuthFailed | Error::BadArguments(_)))) => return Err(failed(e)),
                // Each server was tried once: one that is starting, or has too much to do, may take the next connection.
                Ok(Err(_)) if attempts < ATTEMPTS && Instant::now() + PAUSE < connecting => {
                    attempts += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(Err(e)) => {
                    return Err(diagnose::why(servers, &self.config, deadline)
                        .await
                        .with_source(e));
                }
                Err(_) => return Err(diagnose::why(servers, &self.config, deadline).await),
            }
        }
    }

    fn connector(&self) -> Result<zookeeper_client::Connector, TableError> {
        // Idempotent: whoever came first has chosen.
        let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut connector = Client::connector()
            .with_session_timeout(self.config.session())
            .with_fail_eagerly();
        if let Some((user, password)) = self.config.login() {
            connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
        }
        if self.config.uses_tls() {
            connector = connector.with_tls(tls(&self.config)?);
        }
        Ok(connector)
    }

    /// What znodes are made with.
    pub(crate) fn persistent(&self) -> CreateOptions<'static> {
        CreateMode::Persistent.with_acls(if self.config.is_open() {
            Acls::anyone_all()
        } else {
            Acls::creator_all()
        })
    }

    /// Nobody uses this session any more. One of the application's client is not ours to replace.
    fn give_up(&self, session: &Session) {
        let mut current = self.current();
        let ours = matches!(self.config.servers(), Servers::Named(_));
        if ours
            && current
                .as_ref()
                .is_some_and(|now| Arc::ptr_eq(&now.caught_up, &session.caught_up))
        {
            *current = None;
        }
    }

    /// The answer to what was sent over this session, for as long as it may take.
    ///
    /// # Errors
    /// That there was none: the outcome is unknown.
    pub(crate) async fn answer<T: Answer>(
        &self,
        session: &Session,
        deadline: Instant,
        sent: impl Future<Output = T>,
    ) -> Result<T, TableError> {
        let unanswered = |_| {
            error(
                TableErrorKind::OutcomeUnknown,
                format!("no answer within {:?}", self.config.timeout()),
            )
        };
        let answer = timeout_at(deadline, sent).await.map_err(unanswered)?;
        if let Some(Error::UnexpectedError(_)) = answer.error() {
            self.give_up(session);
        }
        Ok(answer)
    }

    /// Several reads as one, of one moment.
    ///
    /// # Errors
    /// What the server says to all of them together.
    pub(crate) async fn read(
        &self,
        session: &Session,
        deadline: Instant,
        mut reader: MultiReader<'_>,
    ) -> Result<Vec<MultiReadResult>, TableError> {
        let sent = reader.commit();
        self.answer(session, deadline, sent)
            .await?
            .map_err(failed)
            .map_err(TableError::of_a_read)
    }

    /// Goes through the ensemble and changes nothing: whatever is read over this session afterwards is as recent as everything acknowledged
    /// before this was called. (`sync` does not do: the server that answers it may no longer be the leader, and not know yet.)
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn barrier(
        &self,
        session: &Session,
        path: &str,
        deadline: Instant,
    ) -> Result<(), TableError> {
        let mut writer = session.client.new_multi_writer();
        writer.add_check_version(path, -1).map_err(failed)?;
        let sent = writer.commit();
        match self
            .answer(session, deadline, sent)
            .await
            .map_err(TableError::of_a_read)?
        {
            // That there is no such znode was agreed upon by the ensemble, too.
            Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => {
                session.caught_up();
                Ok(())
            }
            Err(MultiWriteError::RequestFailed { source }) => Err(failed(source).of_a_read()),
        }
    }
}

/// What is waited for: the client's answer, or its error.
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

fn tls(config: &ZkConfig) -> Result<TlsOptions, TableError> {
    let [ca, certificate, key] = config.tls_files();
    let file = |path: &std::path::Path| {
        std::fs::read_to_string(path)
            .map_err(|e| wrong(format!("the file {} cannot be read ({e})", path.display())))
    };
    let bad = |what: &str, path: &std::path::Path| {
        wrong(format!("{} is no PEM file with {what}", path.display()))
    };
    let mut options = TlsOptions::new();
    if let Some(ca) = ca {
        options = options
            .with_pem_ca(&file(ca)?)
            .map_err(|_| bad("certificates that can be trusted", ca))?;
    }
    if let (Some(certificate), Some(key)) = (certificate, key) {
        let pair = options.with_pem_identity(&file(certificate)?, &file(key)?);
        options = pair.map_err(|_| {
            bad(
                "a private key, or the one beside it with a certificate",
                key,
            )
        })?;
    }
    Ok(options)
}
