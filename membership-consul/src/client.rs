//! What all clones of a table share, and how it sends one request. Clauses T5, T13, T14.
//!
//! With several servers, a request goes to the next one when a server cannot be reached or knows no
//! leader. A request that may have been carried out is never sent again. A read whose connection
//! broke, or whose server is silent for its share of the timeout, is sent again, once for each
//! server. A request that was refused because its token is unknown is sent again for half of the
//! timeout: servers check the token first, and may not know it yet while a leader is new.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use membership_core::{ClusterName, Operation, TableError, TableErrorKind, TableLimits};
use membership_provider::http::NoAnswer;
use membership_provider::{Endpoint, Hints, LastWritten, Replaceable, SnapshotCache, unanswered};
use reqwest::Method;
use reqwest::header::HeaderValue;
use tokio::time::{Instant, timeout_at};

use crate::STORE;
use crate::config::{ConsulConfig, header_in};
use crate::error::{error, has_no_leader, is_about_permissions, knows_no_token, refused, wrong};
use crate::hints::BlockingQuery;
use crate::keys::{Keys, path};
use crate::txn::MAX_OPERATIONS;

/// A commit's operations for the version row: check and remove the old mark, write the new one, the
/// record, the settings and the core's cell.
pub(crate) const VERSION_OPERATIONS: usize = 6;
/// An update and a removal are two operations each. A transaction has at most 512 KiB; base64 makes
/// rows a third larger, and keys need space too.
pub(crate) const LIMITS: TableLimits = TableLimits::new(
    (MAX_OPERATIONS - VERSION_OPERATIONS) / 2,
    256_000,
    256_000,
    10_000,
);
/// The pause before a token is sent again that the servers do not know, and may know soon.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) cluster: ClusterName,
    pub(crate) config: ConsulConfig,
    pub(crate) hints: Hints,
    pub(crate) heartbeats: LastWritten<u64>,
    pub(crate) cache: SnapshotCache,
}

impl Inner {
    /// See [`ConsulTable::connect`](crate::ConsulTable::connect).
    pub(crate) async fn connect(
        config: ConsulConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        let config = config.completed(|name| std::env::var(name).ok())?;
        let client = Arc::new(Client::new(&config)?);
        let keys = Keys::new(&config.prefix, &cluster.store_key());
        let query = BlockingQuery::new(&client, keys.marks());
        let inner = Self {
            client,
            keys,
            hints: Hints::new(&cluster, query),
            cluster,
            config,
            heartbeats: LastWritten::new(LIMITS.rows),
            cache: SnapshotCache::default(),
        };
        inner.check_permission(inner.client.deadline()).await?;
        Ok(inner)
    }

    /// Runs an operation; its error names it, and the servers.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let answer = operation.await;
        answer.map_err(|e| e.during(during).at(self.client.at()))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) body: Option<String>,
    /// Whether it may change something: then a lost answer leaves its outcome unknown.
    pub(crate) writes: bool,
}

impl Request {
    /// Reads a key.
    pub(crate) fn get(key: &str) -> Self {
        Self {
            method: Method::GET,
            path: format!("/v1/kv/{}?consistent=", path(key)),
            body: None,
            writes: false,
        }
    }

    /// Reads all keys that begin with `folder`: one moment of a leader that checks that it still
    /// leads.
    pub(crate) fn tree(folder: &str) -> Self {
        Self {
            path: format!("/v1/kv/{}?consistent=&recurse=", path(folder)),
            ..Self::get(folder)
        }
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The raft index of the answer. Only Consul sends it.
    pub(crate) index: Option<u64>,
    /// Which server answered.
    server: usize,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Transactions are refused with the status of a conflict.
    fn is_denied(&self) -> bool {
        self.status == 403 || self.status == 409 && is_about_permissions(&self.text())
    }
}

/// Requests to the servers.
pub(crate) struct Client {
    pub(crate) http: Replaceable<reqwest::Client>,
    scheme: &'static str,
    servers: Vec<Endpoint>,
    token: Replaceable<Option<HeaderValue>>,
    /// The files of the token and of certificates.
    config: ConsulConfig,
    /// Datacenter, namespace and partition, as the end of a query.
    parameters: String,
    /// The server that is asked first: the one that answered last.
    turn: AtomicUsize,
    pub(crate) timeout: Duration,
}

impl Client {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// `Configuration`.
    pub(crate) fn new(config: &ConsulConfig) -> Result<Self, TableError> {
        let parameters = config
            .parameters()
            .into_iter()
            .map(|(name, value)| format!("&{name}={}", path(value)))
            .collect();
        Ok(Self {
            http: Replaceable::new(config.http_client()?),
            scheme: config.scheme(),
            servers: config.endpoints(),
            token: Replaceable::new(config.header()?),
            config: config.clone(),
            parameters,
            turn: AtomicUsize::new(0),
            timeout: config.timeouts.operation(),
        })
    }

    /// The servers, for errors.
    pub(crate) fn at(&self) -> String {
        Endpoint::join(&self.servers)
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a request, and returns the answer if its status is one of `expected`.
    ///
    /// # Errors
    /// The error that the server returns. Without an answer the outcome of a write is unknown.
    pub(crate) async fn ask(
        &self,
        request: &Request,
        expected: &[u16],
        by: Instant,
    ) -> Result<Answer, TableError> {
        let answer = self.any(request, by).await?;
        if expected.contains(&answer.status) {
            return Ok(answer);
        }
        Err(refused(answer.status, &answer.text(), request.writes).at(self.name(answer.server)))
    }

    fn name(&self, server: usize) -> String {
        self.servers
            .get(server)
            .map(ToString::to_string)
            .unwrap_or_default()
    }

    /// The first answer of a server that can give one.
    async fn any(&self, request: &Request, by: Instant) -> Result<Answer, TableError> {
        let servers = self.servers.len().max(1);
        let first = self.turn.load(Ordering::Relaxed) % servers;
        // An idle connection may have ended: a read is sent once more.
        let tries = if request.writes {
            servers
        } else {
            servers.max(2)
        };
        let mut last = error(TableErrorKind::Unavailable, "no server is named");
        // A new leader knows no token until it has read its own log.
        let mut in_doubt = None;
        let (mut n, mut failed, mut is_reread) = (0, 0, false);
        while failed < tries {
            let server = (first + n) % servers;
            let name = self.name(server);
            let next = |client: &Self| client.turn.store((server + 1) % servers, Ordering::Relaxed);
            n += 1;
            failed += 1;
            let token = self.token.current();
            let others = if request.writes {
                0
            } else {
                servers.saturating_sub(failed)
            };
            let until = self.patience(others, by);
            let began = Instant::now();
            let sent = timeout_at(until, self.send(server, request, token.as_ref())).await;
            let answer = sent.unwrap_or_else(|_| {
                let waited = began.elapsed().min(self.timeout);
                Err(NoAnswer::Lost(format!("no answer within {waited:?}")))
            });
            match answer {
                // Refused as a whole, so nothing of it was carried out.
                Ok(answer) if answer.is_denied() && self.has_new_token(token) => {
                    n -= 1;
                    failed -= 1;
                }
                Ok(answer)
                    if answer.status == 403
                        && knows_no_token(&answer.text())
                        && Instant::now()
                            < *in_doubt
                                .get_or_insert_with(|| Instant::now() + self.timeout / 2) =>
                {
                    next(self);
                    failed -= 1;
                    if Instant::now() + PAUSE >= by {
                        let message = "the server does not know the token yet: its leader is new";
                        return Err(error(TableErrorKind::Unavailable, message).at(name));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(answer) if answer.status == 500 && has_no_leader(500, &answer.text()) => {
                    next(self);
                    last = refused(answer.status, &answer.text(), request.writes).at(name);
                    // A single server has waited for a leader already.
                    if servers == 1 {
                        return Err(last);
                    }
                }
                Ok(answer) => {
                    self.turn.store(server, Ordering::Relaxed);
                    return Ok(answer);
                }
                // A certificate was refused: its file may have a newer one.
                Err(NoAnswer::NotSent(e))
                    if e.kind() == TableErrorKind::Configuration && !is_reread =>
                {
                    let http = self.config.http_client().map_err(|_| e.at(name))?;
                    self.http.replace(http);
                    is_reread = true;
                    n -= 1;
                    failed -= 1;
                }
                Err(NoAnswer::NotSent(e)) => {
                    next(self);
                    last = e.at(name);
                    if servers == 1 {
                        return Err(last);
                    }
                }
                Err(NoAnswer::Lost(why)) => {
                    next(self);
                    last = unanswered(STORE, request.writes, &why).at(name);
                    if request.writes || Instant::now() >= by {
                        return Err(last);
                    }
                }
            }
        }
        Err(last)
    }

    /// Until when to wait for one server, so that each of the `others` has its share of the time.
    fn patience(&self, others: usize, by: Instant) -> Instant {
        let (now, others) = (Instant::now(), u32::try_from(others).unwrap_or(u32::MAX));
        let all = u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        // Whatever the time, a part of it: an earlier request may have taken most.
        let fair = by.saturating_duration_since(now) / others.saturating_add(1);
        let kept = (self.timeout / all).saturating_mul(others);
        by.checked_sub(kept).unwrap_or(now).max(now + fair)
    }

    /// Whether the token's file has another token than the one that was refused.
    fn has_new_token(&self, refused: Option<HeaderValue>) -> bool {
        let read = self.config.token_file.as_deref().map(header_in);
        let new = read.and_then(Result::ok);
        let is_new = new.is_some() && new != refused;
        if is_new {
            self.token.replace(new);
        }
        is_new
    }

    async fn send(
        &self,
        server: usize,
        request: &Request,
        token: Option<&HeaderValue>,
    ) -> Result<Answer, NoAnswer> {
        let separator = if request.path.contains('?') { "" } else { "?" };
        let url = format!(
            "{}://{}{}{separator}{}",
            self.scheme,
            self.name(server),
            request.path,
            self.parameters
        );
        let http = self.http.current();
        let mut sent = http.request(request.method.clone(), url);
        if let Some(token) = token {
            sent = sent.header("X-Consul-Token", token.clone());
        }
        if let Some(body) = &request.body {
            sent = sent.body(body.clone());
        }
        let no_answer = |e: reqwest::Error| NoAnswer::from_error(STORE, &e, "consul://");
        let answer = sent.send().await.map_err(no_answer)?;
        let status = answer.status().as_u16();
        let index = answer
            .headers()
            .get("X-Consul-Index")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let body = answer.bytes().await.map_err(no_answer)?.to_vec();
        Ok(Answer {
            status,
            body,
            index,
            server,
        })
    }

    /// Reads keys: the answer's body, `None` where there are no such keys, and its index.
    ///
    /// # Errors
    /// As [`ask`](Self::ask); `Configuration` where the answer is not Consul's: another server must
    /// not look like an empty table.
    pub(crate) async fn keys(
        &self,
        request: &Request,
        by: Instant,
    ) -> Result<(Option<Vec<u8>>, u64), TableError> {
        let answer = self.ask(request, &[200, 404], by).await?;
        let Some(index) = answer.index else {
            let message = format!(
                "the server answers with the HTTP status {} and is not Consul: check the address",
                answer.status
            );
            return Err(wrong(message).at(self.name(answer.server)));
        };
        Ok(((answer.status == 200).then_some(answer.body), index))
    }
}
