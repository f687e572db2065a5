//! What all clones of a table share, and how it sends one request to a member. Clauses T4, T5, T13
//! and T14.
//!
//! A member's gateway asks only that member, and no member lists the others. So the configured
//! members are tried in turn, beginning with the one that answered last. A request that a member
//! has certainly not carried out is sent to the next one, and so is a read that was lost. A write
//! that was lost is never sent again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use membership_core::{ClusterName, Operation, Snapshot, TableError, TableErrorKind, TableLimits};
use membership_provider::{
    Endpoint, Hints, LastWritten, Replaceable, SnapshotCache, json, unanswered,
};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client as HttpClient, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::STORE;
use crate::codec::Found;
use crate::config::EtcdConfig;
use crate::error::{BROKE, Failure, error, foreign_answer, refused, unfinished};
use crate::hints::Watcher;
use crate::keys::Keys;
use crate::login::{Login, Token};
use crate::wire::{Done, RANGE, Range, Refused, TXN, Txn, TxnAnswer, WATCH, Watch};

/// A commit has at most four operations of its own, and two for each row that it removes. So many
/// rows are some megabytes, which etcd returns in one answer.
pub(crate) const LIMITS: TableLimits = TableLimits::new(62, 1 << 20, 1_400_000, 10_000);
/// With this header, a member without a majority says so at once instead of waiting for it.
const HAS_LEADER: &str = "grpc-metadata-hasleader";
/// How often one request gets another token: a member that was restarted does not know the tokens
/// of the others.
const RENEWALS: usize = 3;
/// Each attempt gets at least this long, however many members there are.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) cluster: ClusterName,
    pub(crate) config: EtcdConfig,
    pub(crate) hints: Hints,
    pub(crate) heartbeats: LastWritten<i64>,
    pub(crate) cache: SnapshotCache<Cached>,
}

/// A snapshot, and the text of its `table/version`.
#[derive(Clone)]
pub(crate) struct Cached {
    pub(crate) snapshot: Snapshot,
    pub(crate) raw: String,
}

impl std::borrow::Borrow<Snapshot> for Cached {
    fn borrow(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Inner {
    /// See [`EtcdTable::connect`](crate::EtcdTable::connect).
    pub(crate) async fn connect(
        config: EtcdConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        let inner = Self::unconnected(config, cluster)?;
        let range = Range {
            serializable: true,
            keys_only: true,
            ..Range::one(inner.keys.version())
        };
        inner
            .client
            .call::<Done>(RANGE, &range, Purpose::Read, inner.client.deadline())
            .await
            .map_err(|e| inner.advised(e))?;
        Ok(inner)
    }

    /// A handle that has sent nothing yet.
    ///
    /// # Errors
    /// `Configuration`
    pub(crate) fn unconnected(
        config: EtcdConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        let client = Arc::new(Client::new(&config)?);
        let keys = Keys::new(&config.prefix, &cluster);
        let watcher = Watcher::new(&client, keys.version());
        Ok(Self {
            client,
            keys,
            hints: Hints::new(&cluster, watcher),
            cluster,
            config,
            heartbeats: LastWritten::new(LIMITS.rows),
            cache: SnapshotCache::default(),
        })
    }

    /// The error of the first request, with its most likely cause: a server that only speaks TLS
    /// closes a plain connection. (A server that is stopping closes it too.)
    fn advised(&self, e: TableError) -> TableError {
        if self.config.scheme() == "https"
            || e.kind() != TableErrorKind::Unavailable
            || !e.message().contains(BROKE)
        {
            return e;
        }
        let message = e.message();
        let advised = error(
            e.kind(),
            format!("{message}: does it only accept TLS? then use etcd+https://"),
        );
        advised.at(e.place().map_or_else(|| self.client.at(), str::to_owned))
    }

    /// Runs an operation; its error names it, and a member.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let answer = operation.await;
        answer.map_err(|e| e.during(during).at(self.client.at()))
    }

    /// Sends a transaction; returns whether its comparisons held, and what it found.
    ///
    /// # Errors
    /// The error that the members return, or a timeout.
    pub(crate) async fn transact(
        &self,
        txn: &Txn,
        purpose: Purpose,
        by: Instant,
    ) -> Result<(bool, Found), TableError> {
        let call = || self.client.call(TXN, txn, purpose, by);
        let answer: TxnAnswer = match call().await {
            // Nothing was carried out. If a certificate was refused, its file may have a newer one.
            Err(e)
                if e.kind() == TableErrorKind::Configuration && self.config.scheme() == "https" =>
            {
                let http = self.config.http_client().map_err(|_| e)?;
                self.client.http.replace(http);
                call().await?
            }
            answer => answer?,
        };
        let (held, revision) = (answer.succeeded, answer.header.revision);
        let operations = if held { &txn.success } else { &txn.failure };
        // Without a comparison, none can fail.
        if !answer.is_of(operations) || (txn.compare.is_empty() && !held) {
            let writes = purpose == Purpose::Write;
            return Err(unanswered(STORE, writes, "its answer is not one of etcd's"));
        }
        let mut found = Found::new(&self.keys, answer.ranges());
        found.revision = revision;
        Ok((held, found))
    }
}

/// Requests to the members.
pub(crate) struct Client {
    pub(crate) http: Replaceable<HttpClient>,
    members: Vec<Member>,
    /// The member that answered last.
    preferred: AtomicUsize,
    pub(crate) login: Option<Login>,
    pub(crate) timeout: Duration,
}

/// One member.
pub(crate) struct Member {
    url: String,
    pub(crate) at: String,
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It only reads: when it is lost, it is sent again.
    Read,
    /// It may change something: when it is lost, its outcome is unknown.
    Write,
}

impl Client {
    /// # Errors
    /// `Configuration`
    pub(crate) fn new(config: &EtcdConfig) -> Result<Self, TableError> {
        let member = |member: &Endpoint| Member {
            url: format!("{}://{member}", config.scheme()),
            at: member.to_string(),
        };
        Ok(Self {
            http: Replaceable::new(config.http_client()?),
            members: config.members.iter().map(member).collect(),
            preferred: AtomicUsize::new(0),
            login: config.credentials.clone().map(Login::new),
            timeout: config.timeouts.operation(),
        })
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a request and waits for its answer until the deadline.
    ///
    /// # Errors
    /// The error that the members return. Without an answer the outcome of a write is unknown.
    pub(crate) async fn call<A: DeserializeOwned + 'static>(
        &self,
        path: &'static str,
        request: &impl Serialize,
        purpose: Purpose,
        by: Instant,
    ) -> Result<A, TableError> {
        self.in_turn(purpose, path, &json(request), by, whole).await
    }

    /// Begins a watch. Its events are read from the response, which ends with the watch.
    ///
    /// # Errors
    /// No member accepts it.
    pub(crate) async fn watch(&self, request: &Watch) -> Result<Response, TableError> {
        let deadline = self.deadline();
        self.in_turn(Purpose::Read, WATCH, &json(request), deadline, |response| {
            Box::pin(std::future::ready(Ok(response)))
        })
        .await
    }

    /// The member that is asked first, for errors.
    pub(crate) fn at(&self) -> String {
        let first = self.preferred.load(Ordering::Relaxed) % self.members.len();
        self.members[first].at.clone()
    }

    /// The next request begins with another member.
    pub(crate) fn ask_another(&self) {
        let next = (self.preferred.load(Ordering::Relaxed) + 1) % self.members.len();
        self.preferred.store(next, Ordering::Relaxed);
    }

    async fn in_turn<T>(
        &self,
        purpose: Purpose,
        path: &'static str,
        body: &str,
        deadline: Instant,
        finish: fn(Response) -> BoxFuture<'static, Result<T, Failure>>,
    ) -> Result<T, TableError> {
        let many = self.members.len();
        let mut which = self.preferred.load(Ordering::Relaxed) % many;
        let (mut refusals, mut losses, mut renewals) = (0, 0, 0);
        loop {
            let member = &self.members[which];
            // A request that another member may answer does not wait for this one to the end.
            let share = self.timeout / u32::try_from(many).unwrap_or(u32::MAX);
            let shorter = Instant::now() + share.max(LEAST_PATIENCE);
            let patience = |purpose| match purpose {
                Purpose::Read => shorter.min(deadline),
                Purpose::Write => deadline,
            };
            let token = self.token(member, patience(Purpose::Read), deadline).await;
            let (purpose, done) = match &token {
                // Only the request for a token was sent.
                Err(_) => (Purpose::Read, None),
                Ok(token) => {
                    let asked = async {
                        let sent = self.send(member, path, body.to_owned(), token.clone());
                        finish(sent.await?).await
                    };
                    let patience = patience(purpose);
                    let done = in_time(patience, self.timeout, asked).await;
                    if let (Err(Failure::Lost(_)), Some(login)) = (&done, &self.login)
                        && Instant::now() >= patience
                    {
                        login.forget(token.as_ref());
                    }
                    (purpose, Some(done))
                }
            };
            let failure = match (done, token) {
                (Some(Ok(answer)), _) => {
                    self.preferred.store(which, Ordering::Relaxed);
                    return Ok(answer);
                }
                (Some(Err(Failure::Token(e))), Ok(token)) => {
                    renewals += 1;
                    match &self.login {
                        Some(login) if renewals <= RENEWALS => login.forget(token.as_ref()),
                        _ => return Err(e.at(&member.at)),
                    }
                    continue;
                }
                (Some(Err(failure)), _) | (None, Err(failure)) => failure,
                (None, Ok(_)) => continue,
            };
            which = (which + 1) % many;
            match failure {
                Failure::Elsewhere(e) => {
                    refusals += 1;
                    if refusals + losses >= many || Instant::now() >= deadline {
                        return Err(e.at(&member.at));
                    }
                }
                // An idle connection may have ended, for example with a restart: try once more.
                Failure::Lost(why) => {
                    losses += 1;
                    self.preferred.store(which, Ordering::Relaxed);
                    let writes = purpose == Purpose::Write;
                    if writes || refusals + losses > many || Instant::now() >= deadline {
                        return Err(unanswered(STORE, writes, &why).at(&member.at));
                    }
                }
                Failure::Refused(e) | Failure::Token(e) => return Err(e.at(&member.at)),
            }
        }
    }

    /// Sends one request to one member, once. Returns the response unless it is a refusal.
    pub(crate) async fn send(
        &self,
        member: &Member,
        path: &str,
        body: String,
        token: Option<Token>,
    ) -> Result<Response, Failure> {
        let mut request = self
            .http
            .current()
            .post(format!("{}{path}", member.url))
            .header(CONTENT_TYPE, "application/json")
            .header(HAS_LEADER, "true");
        if let Some(Token::Known(token)) = token {
            let mut header = HeaderValue::from_str(&token)
                .map_err(|_| Failure::Lost("the member gave an invalid token".to_owned()))?;
            header.set_sensitive(true);
            request = request.header(AUTHORIZATION, header);
        }
        let sent = request.body(body).send().await;
        let response = sent.map_err(|e| unfinished(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.bytes().await.map_err(|e| unfinished(&e))?;
        Err(match serde_json::from_slice::<Refused>(&text) {
            Ok(refusal) if !refusal.message().is_empty() => refused(&refusal),
            _ => foreign_answer(status.as_u16(), &String::from_utf8_lossy(&text)),
        })
    }
}

/// The answer, when all of it is there.
pub(crate) fn whole<A: DeserializeOwned + 'static>(
    response: Response,
) -> BoxFuture<'static, Result<A, Failure>> {
    Box::pin(async {
        let text = response.bytes().await.map_err(|e| unfinished(&e))?;
        serde_json::from_slice(&text)
            .map_err(|_| Failure::Lost("its answer is not one of etcd's".to_owned()))
    })
}

/// An answer that is not there in time is lost.
pub(crate) async fn in_time<T>(
    until: Instant,
    limit: Duration,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let began = Instant::now();
    timeout_at(until, asked).await.unwrap_or_else(|_| {
        let waited = began.elapsed().min(limit);
        Err(Failure::Lost(format!("no answer within {waited:?}")))
    })
}
