//! Connections: making them, replacing them, and requests that end when the connection does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::connection::State;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{Error as ApiError, publish::PublishAck};
use async_nats::{Client as NatsClient, ConnectOptions, Event, HeaderMap, ServerError};
use bytes::Bytes;
use membership_core::{TableError, TableErrorKind};
use membership_provider::{Endpoint, Replaceable, first_of, install_crypto_provider, unanswered};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout_at};

use crate::STORE;
use crate::config::{Login, NatsConfig};
use crate::error::{error, of_answer, of_connect, of_request};
use crate::keys::{self, Connection};

/// The first version that compares the sequence of another key than the one that is written.
const OLDEST: (i64, i64, i64) = (2, 12, 0);
/// The pause between two attempts of a lost connection.
const PAUSE: Duration = Duration::from_millis(100);
/// After so many attempts a lost connection is given up; the next operation makes another.
const ATTEMPTS: usize = 100;

/// How often a request that nobody answers is sent, at most: for half a minute.
const SENT: usize = 60;

/// What happens to a connection while requests are under way.
#[derive(Clone, Debug)]
enum Trouble {
    Lost,
    /// The server refuses this subject.
    Refused(String),
}

/// The client of one table.
#[derive(Debug)]
pub(crate) struct Client {
    config: NatsConfig,
    link: Replaceable<Link>,
    /// One task connects, and the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

impl Client {
    /// Connects. Nothing is written.
    pub(crate) async fn open(config: NatsConfig) -> Result<Self, TableError> {
        let link = Link::make(&config).await?;
        Ok(Self {
            config,
            link: Replaceable::new(link),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn config(&self) -> &NatsConfig {
        &self.config
    }

    /// Later requests take a new connection; those under way keep theirs.
    pub(crate) async fn reconnect(&self) -> Result<(), TableError> {
        self.link.replace(Link::make(&self.config).await?);
        Ok(())
    }

    /// A connection for one operation that ends at `deadline`. The errors say that nothing was
    /// sent: they come before any request.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<Link, TableError> {
        let up = |link: &Link| link.is_up();
        if let Some(link) = Some(self.link.current()).filter(up) {
            return Ok(link);
        }
        let made = timeout_at(deadline, async {
            let _turn = self.connecting.lock().await;
            if let Some(link) = Some(self.link.current()).filter(up) {
                return Ok(link);
            }
            self.reconnect().await?;
            Ok(self.link.current())
        });
        made.await.unwrap_or_else(|_| {
            let why = format!(
                "no connection within {:?}",
                self.config.timeouts.operation()
            );
            Err(error(TableErrorKind::Unavailable, why))
        })
    }

    /// What the requests of an operation over `link` come to, or, at the deadline, the error of one
    /// that was not answered. A connection that was silent for so long is not used again.
    pub(crate) async fn in_time<T>(
        &self,
        deadline: Instant,
        link: &Link,
        writes: bool,
        requests: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        timeout_at(deadline, requests).await.unwrap_or_else(|_| {
            link.silent.store(true, Ordering::Relaxed);
            let why = format!("no answer within {:?}", self.config.timeouts.operation());
            Err(unanswered(STORE, writes, &why))
        })
    }
}

/// One connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    client: NatsClient,
    trouble: broadcast::Sender<Trouble>,
    silent: Arc<AtomicBool>,
}

/// What JetStream did not do, and why.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// No stream takes messages of this subject: it does not exist, or has no leader.
    NoStream,
    Api(ApiError),
}

impl From<Refusal> for TableError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Api(answer) => of_answer(&answer),
            Refusal::NoStream => error(
                TableErrorKind::Unavailable,
                "the bucket does not exist, or its stream has no leader",
            ),
        }
    }
}

impl Link {
    /// Over the first server that answers.
    async fn make(config: &NatsConfig) -> Result<Self, TableError> {
        install_crypto_provider();
        let mut connections = Vec::new();
        for server in &config.servers {
            connections.push(Self::to(config, server));
        }
        let ends = |e: &TableError| e.kind() != TableErrorKind::Unavailable;
        match first_of(connections, ends).await {
            Some(made) => made,
            None => Err(error(TableErrorKind::Configuration, "name a host")),
        }
    }

    async fn to(config: &NatsConfig, server: &Endpoint) -> Result<Self, TableError> {
        let (trouble, _) = broadcast::channel(16);
        let options = options(config, trouble.clone())?;
        let limit = config.timeouts.connect();
        let client = tokio::time::timeout(limit, options.connect(address(server)))
            .await
            .map_err(|_| {
                let why = format!("{server} does not answer within {limit:?}");
                error(TableErrorKind::Unavailable, why)
            })?
            .map_err(of_connect)?;
        let (major, minor, patch) = OLDEST;
        if !client.is_server_compatible(major, minor, patch) {
            let version = membership_provider::one_line(&client.server_info().version);
            let why =
                format!("{server} has version {version}: upgrade it to {major}.{minor} or later");
            return Err(error(TableErrorKind::Configuration, why));
        }
        // After a loss of the connection any of them will do.
        let all: Vec<String> = config.servers.iter().map(address).collect();
        let _kept = client.set_server_pool(&all[..]).await;
        Ok(Self {
            client,
            trouble,
            silent: Arc::default(),
        })
    }

    fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected && !self.silent.load(Ordering::Relaxed)
    }

    /// Which connection it is now: another one after it was lost and made again.
    pub(crate) fn connection(&self) -> Connection {
        let server = self.client.server_info();
        Connection::new(&server.server_id, server.client_id)
    }

    /// The largest message, headers included, that the server takes.
    pub(crate) fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    /// Asks JetStream: for what it has, or for what may be done twice. With several servers the
    /// leader answers: of the stream that `path` names, or of all servers. Without a leader nobody
    /// does, so the request is sent again after a while.
    pub(crate) async fn api<V: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<Result<V, ApiError>, TableError> {
        let subject = format!("$JS.API.{path}");
        let body: Bytes = serde_json::to_vec(body)
            .map_err(|e| {
                error(TableErrorKind::InvalidRequest, "a request is no JSON").with_source(e)
            })?
            .into();
        let mut attempts = Vec::new();
        for _ in 0..SENT {
            attempts.push(self.ask(&subject, body.clone()));
        }
        match first_of(attempts, |_| true).await {
            Some(answer) => parsed(&answer?),
            None => Err(unanswered(STORE, false, "nothing was sent")),
        }
    }

    async fn ask(&self, subject: &str, body: Bytes) -> Result<Bytes, TableError> {
        let request = Request::new().payload(body);
        let request = self.client.send_request(subject.to_owned(), request);
        let answer = self.unless_lost(subject, request).await?;
        Ok(answer.map_err(of_request)?.payload)
    }

    /// Publishes a message and waits until the stream has stored it.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Result<PublishAck, Refusal>, TableError> {
        let request = Request::new().payload(payload).headers(headers);
        let request = self.client.send_request(subject.to_owned(), request);
        let answer = match self.unless_lost(subject, request).await? {
            Err(e) if e.kind() == RequestErrorKind::NoResponders => {
                return Ok(Err(Refusal::NoStream));
            }
            answer => answer.map_err(of_request)?,
        };
        Ok(parsed(&answer.payload)?.map_err(Refusal::Api))
    }

    /// Removes every message of these subjects.
    pub(crate) async fn purge(&self, stream: &str, subjects: &str) -> Result<(), TableError> {
        #[derive(Serialize)]
        struct Purge<'a> {
            filter: &'a str,
        }
        let path = format!("STREAM.PURGE.{stream}");
        let purge = Purge { filter: subjects };
        match self.api::<serde::de::IgnoredAny>(&path, &purge).await? {
            Ok(_) => Ok(()),
            // Nothing is there.
            Err(e) if is_missing(&e) => Ok(()),
            Err(e) => Err(of_answer(&e)),
        }
    }

    /// The answer, unless the connection is lost before: the client would wait for an answer that
    /// nobody sends.
    async fn unless_lost<T>(
        &self,
        subject: &str,
        request: impl Future<Output = T>,
    ) -> Result<T, TableError> {
        let mut trouble = self.trouble.subscribe();
        let lost = async {
            loop {
                match trouble.recv().await {
                    Ok(Trouble::Refused(which)) if !concerns(&which, subject) => {}
                    Ok(Trouble::Refused(which)) => {
                        let why = format!("the user has no right to use `{which}`");
                        return error(TableErrorKind::PermissionDenied, why);
                    }
                    Ok(Trouble::Lost) | Err(broadcast::error::RecvError::Lagged(_)) => {
                        return unanswered(STORE, true, "the connection was lost");
                    }
                    // The connection is given up.
                    Err(broadcast::error::RecvError::Closed) => {
                        return unanswered(STORE, true, "the connection was closed");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            answer = request => Ok(answer),
            why = lost => Err(why),
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// What JetStream answers.
fn parsed<V: DeserializeOwned>(answer: &[u8]) -> Result<Result<V, ApiError>, TableError> {
    match serde_json::from_slice(answer) {
        Ok(Response::Ok(value)) => Ok(Ok(value)),
        Ok(Response::Err { error }) => Ok(Err(error)),
        Err(e) => {
            let why = "an answer that is not of JetStream";
            Err(error(TableErrorKind::OutcomeUnknown, why).with_source(e))
        }
    }
}

/// Whether there is no such stream.
pub(crate) fn is_missing(answer: &ApiError) -> bool {
    answer.error_code() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND
}

/// Whether a refusal of `which` ends a request to `subject`: it is the request's own, or that of the
/// subject at which all answers arrive.
fn concerns(which: &str, subject: &str) -> bool {
    which == subject || which.starts_with("_INBOX.")
}

fn address(server: &Endpoint) -> String {
    format!("nats://{server}")
}

fn options(
    config: &NatsConfig,
    trouble: broadcast::Sender<Trouble>,
) -> Result<ConnectOptions, TableError> {
    let mut options = ConnectOptions::new()
        .name("membership")
        // Servers announce addresses that this machine may not reach, or reaches another way.
        .ignore_discovered_servers()
        .connection_timeout(config.timeouts.connect())
        // Each operation has its own deadline.
        .request_timeout(None)
        .max_reconnects(ATTEMPTS)
        .reconnect_delay_callback(|attempts| if attempts <= 1 { Duration::ZERO } else { PAUSE })
        .event_callback(move |event| {
            let trouble = trouble.clone();
            async move {
                let what = match event {
                    Event::Disconnected | Event::Closed => Some(Trouble::Lost),
                    Event::ServerError(ServerError::Other(text)) => refused(&text),
                    _ => None,
                };
                // Nobody listens while no request is under way.
                let _heard = what.map(|what| trouble.send(what));
            }
        });
    options = match &config.login {
        Login::Nobody => options,
        Login::Token(token) => options.token(token.clone().into_text()),
        Login::User(who) => options.user_and_password(who.user.clone(), who.password.clone()),
    };
    if let Some(files) = &config.tls {
        options = options
            .require_tls(true)
            .tls_client_config(files.client_config(STORE)?);
    }
    Ok(options)
}

/// The subject that the server refuses: `Permissions Violation for Publish to "subject"`.
fn refused(text: &str) -> Option<Trouble> {
    let lower = text.to_ascii_lowercase();
    let subject = text.split('"').nth(1)?;
    lower
        .contains("permissions violation")
        .then(|| Trouble::Refused(subject.to_owned()))
}

/// The path of a request to the stream of a bucket.
pub(crate) fn path(request: &str, bucket: &str) -> String {
    format!("STREAM.{request}.{}", keys::stream(bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_subject() {
        let text = r#"Permissions Violation for Publish to "$JS.API.STREAM.INFO.KV_m""#;
        let Some(Trouble::Refused(which)) = refused(text) else {
            unreachable!("{text}")
        };
        assert!(concerns(&which, "$JS.API.STREAM.INFO.KV_m"));
        assert!(!concerns(&which, "$KV.m.d.a"));
        assert!(concerns("_INBOX.abc.*", "$KV.m.d.a"));
        assert!(refused("Stale Connection").is_none());
    }
}
