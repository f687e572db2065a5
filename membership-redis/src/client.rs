//! What all clones of a table share, and how it sends one script to the master.
//!
//! A table has one connection. It is made when an operation needs it, and again after it has ended.
//! A request that the server has certainly not carried out (a forgotten script, another owner of
//! the slot, a replica) is sent again at once. A read whose connection broke is sent again once.
//! Nothing else is sent again. Clauses T4, T5, T13, T14.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use membership_core::{
    ClusterName, Durability, Operation, TableError, TableErrorKind, TableLimits, encoding::LAYOUT,
};
use membership_provider::{Endpoint, Hints, SnapshotCache, one_line, unanswered};
use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use crate::config::RedisConfig;
use crate::connection::{Connection, Connector};
use crate::error::{Refusal, error, wrong};
use crate::hints::Subscription;
use crate::keys::Keys;
use crate::scripts::Script;
use crate::topology::Topology;
use crate::{STORE, codec};

/// The server runs one script at a time. These limits keep the largest commit and the largest read
/// within a few hundred milliseconds of its time; Redis itself would accept more.
pub(crate) const LIMITS: TableLimits = TableLimits::new(10_000, 512 << 10, 16 << 20, 50_000);
/// What makes a read with a barrier possible on a single server.
const PROMISE: &str = "permit +info; set min_replicas to their number, or failover=never if none of them ever takes over";
/// How often one operation is sent again because it was certainly not carried out.
const ATTEMPTS: usize = 6;
/// A caller that waited this long before it cancelled has met a server that hangs.
const HANGS: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) cluster: ClusterName,
    pub(crate) config: RedisConfig,
    pub(crate) hints: Hints,
    pub(crate) cache: SnapshotCache,
}

impl Inner {
    /// See [`RedisTable::connect`](crate::RedisTable::connect).
    pub(crate) async fn connect(
        config: RedisConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        let keys = Keys::new(&config.prefix, &cluster);
        let client = Arc::new(Client::new(&config, &keys.version)?);
        timeout_at(config.timeouts.deadline(), client.connection(false))
            .await
            .map_err(|_| client.no_answer(false).at(config.endpoints()))??;
        if config.durability == Durability::Kept {
            client
                .check_durability()
                .await
                .map_err(|e| e.at(config.endpoints()))?;
        }
        let subscription = Subscription::new(&client, &keys);
        Ok(Self {
            client,
            keys,
            hints: Hints::new(&cluster, subscription),
            cluster,
            config,
            cache: SnapshotCache::default(),
        })
    }

    /// Runs an operation, and once more over a new connection if its answer contradicts what the
    /// caller knows: a master that was deposed while it was frozen or cut off gives such answers
    /// until it hears of its successor. It has written nothing then. Clause T16.
    pub(crate) async fn look_twice<T, F>(
        &self,
        new_connection: bool,
        operation: impl Fn(Look) -> F + Send + Sync,
    ) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>> + Send,
    {
        let mut look = Look {
            deadline: self.config.timeouts.deadline(),
            new_connection,
        };
        let first = operation(look).await;
        let doubted = first.as_ref().is_err_and(|e| {
            use TableErrorKind::{TableReplaced, TableRolledBack};
            matches!(e.kind(), TableReplaced | TableRolledBack)
        });
        if !doubted || !self.client.topology.fails_over() {
            return first;
        }
        if new_connection {
            return self.client.confirm(first);
        }
        look.new_connection = true;
        self.client.confirm(operation(look).await)
    }

    /// Runs an operation; its error names it, and the servers.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let answer = operation.await;
        answer.map_err(|e| e.during(during).at(self.config.endpoints()))
    }
}

/// One try of an operation.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    deadline: Instant,
    /// Whether it takes a new connection.
    new_connection: bool,
}

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    pub(crate) command: Cmd,
    /// The script that the command calls, if it calls one.
    pub(crate) script: Option<&'a Script>,
    /// Whether it changes anything: then a lost answer leaves its outcome unknown.
    pub(crate) writes: bool,
    /// Whether replicas must confirm it.
    pub(crate) confirmed: bool,
    /// Whether it is a read with a barrier.
    pub(crate) barrier: bool,
    /// Which try of its operation it is, where there can be several.
    pub(crate) look: Option<Look>,
}

impl Request<'static> {
    /// A command that only reads.
    pub(crate) const fn read(operation: Operation, command: Cmd) -> Self {
        Self {
            operation,
            command,
            script: None,
            writes: false,
            confirmed: false,
            barrier: false,
            look: None,
        }
    }

    /// A call of a script with these keys. All take this build's layout first.
    pub(crate) fn script(
        operation: Operation,
        script: &'static Script,
        keys: &[&String],
        writes: bool,
    ) -> Self {
        let mut command = Cmd::with_capacity(16, 1024);
        command.arg("EVALSHA").arg(&script.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_str());
        }
        command.arg(LAYOUT);
        Self {
            script: Some(script),
            writes,
            ..Self::read(operation, command)
        }
    }
}

fn info_replication() -> Cmd {
    let mut command = redis::cmd("INFO");
    command.arg("replication");
    command
}

/// Whether a server has no replicas, and has had none lately: it keeps a backlog for those that it
/// has lost.
fn is_alone(replication: &str) -> bool {
    let says = |line: &str| replication.lines().any(|said| said.trim() == line);
    says("role:master") && says("connected_slaves:0") && says("repl_backlog_active:0")
}

fn outdated(why: &str) -> TableError {
    let message = format!("this server may not be the master any more: {why}");
    error(TableErrorKind::Unavailable, message)
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// How many replicas have confirmed it, where they were asked.
    pub(crate) replicas: Option<i64>,
    /// What a single server says of its replicas, where it was asked.
    replication: Option<Value>,
}

/// The connection to the master, and requests over it.
pub(crate) struct Client {
    pub(crate) connector: Connector,
    pub(crate) topology: Topology,
    timeout: Duration,
    wait: Option<(u32, u64)>,
    /// Whether a single server is asked for its replicas.
    asks_for_replicas: bool,
    /// Whether it has had replicas, or has not said that it has none.
    had_replicas: AtomicBool,
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while a connection is made: other operations wait for that one.
    connecting: tokio::sync::Mutex<()>,
}

/// Exists while an answer is awaited, and is forgotten when it is there. So it is dropped only when
/// the caller cancels.
struct Waiting<'a> {
    connection: &'a Connection,
    topology: &'a Topology,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.since.elapsed() >= HANGS {
            self.connection.retire();
            self.topology.ask_another();
        }
    }
}

impl Client {
    /// `key` is a key of the table.
    ///
    /// # Errors
    /// `Configuration`
    pub(crate) fn new(config: &RedisConfig, key: &str) -> Result<Self, TableError> {
        Ok(Self {
            connector: Connector::new(config)?,
            topology: Topology::new(config, key),
            timeout: config.timeouts.operation(),
            wait: config.wait(),
            asks_for_replicas: !config.servers.fail_over() && config.may_have_successor(),
            had_replicas: AtomicBool::new(false),
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        })
    }

    /// How many replicas must confirm.
    pub(crate) fn replicas(&self) -> i64 {
        self.wait.map_or(0, |(replicas, _)| i64::from(replicas))
    }

    /// Turns a contradiction into a temporary error where few sentinels have named the master: the
    /// others may know its successor, which has the table. Clause T16.
    ///
    /// # Errors
    /// `Unavailable`, or that of the answer.
    fn confirm<T>(&self, answer: Result<T, TableError>) -> Result<T, TableError> {
        use TableErrorKind::{TableReplaced, TableRolledBack};
        answer.map_err(|e| match e.kind() {
            TableReplaced | TableRolledBack if self.topology.heard_few() => {
                outdated("few sentinels have answered, and the others may name another one")
            }
            _ => e,
        })
    }

    /// Why too few replicas have confirmed what was just written, if too few have.
    pub(crate) fn unconfirmed(&self, answer: &Answer) -> Option<String> {
        let replicas = answer.replicas.filter(|n| *n < self.replicas())?;
        Some(format!(
            "{replicas} replicas have confirmed it in time, and {} were asked for",
            self.replicas()
        ))
    }

    /// Refuses a write that too few replicas have confirmed; `what` says what the master has done.
    ///
    /// # Errors
    /// `OutcomeUnknown`
    pub(crate) fn check_confirmed(&self, answer: &Answer, what: &str) -> Result<(), TableError> {
        match self.unconfirmed(answer) {
            None => Ok(()),
            Some(why) => Err(error(
                TableErrorKind::OutcomeUnknown,
                format!("{what}, but {why}"),
            )),
        }
    }

    /// Whether all reads show what was committed before: of a single server without replicas.
    pub(crate) fn is_linearizable(&self) -> bool {
        !self.topology.fails_over() && !self.had_replicas.load(Ordering::Relaxed)
    }

    /// Notes what a single server says of its replicas.
    fn saw_replication(&self, said: &Value) -> bool {
        let alone = codec::text(said.clone()).is_some_and(|said| is_alone(&said));
        let first = !alone && !self.had_replicas.swap(true, Ordering::Relaxed);
        if first && self.wait.is_none() {
            tracing::warn!(
                "this Redis has replicas, or does not say that it has none, and reads with a barrier are refused: {PROMISE}"
            );
        }
        alone
    }

    /// Refuses the answer of a server that may have been replaced, as far as that can be found out.
    async fn check_barrier(
        &self,
        answer: &mut Answer,
        owner: &Connection,
    ) -> Result<(), TableError> {
        if self.wait.is_some() {
            return match self.unconfirmed(answer) {
                None => Ok(()),
                Some(why) => Err(outdated(&why)),
            };
        }
        match answer.replication.take() {
            Some(said) if self.saw_replication(&said) => Ok(()),
            Some(_) => Err(outdated(&format!(
                "it has replicas, or does not say: {PROMISE}"
            ))),
            None if self.topology.still_names(&self.connector, owner).await? => Ok(()),
            None => {
                owner.retire();
                Err(outdated("the others do not name it"))
            }
        }
    }

    fn no_answer(&self, writes: bool) -> TableError {
        let why = format!("no answer within {:?}", self.timeout);
        unanswered(STORE, writes, &why)
    }

    /// Sends a request and waits for the answer until the operation's timeout.
    ///
    /// # Errors
    /// The error that the server returns. Without an answer: the request was certainly not carried
    /// out if it was not sent; afterwards the outcome of a write is unknown.
    pub(crate) async fn run(&self, request: &Request<'_>) -> Result<Answer, TableError> {
        self.attempt(request)
            .await
            .map_err(|e| e.during(request.operation))
    }

    async fn attempt(&self, request: &Request<'_>) -> Result<Answer, TableError> {
        let fresh = || Instant::now() + self.timeout;
        let deadline = request.look.map_or_else(fresh, |look| look.deadline);
        let (mut load, mut repeated, mut asked) = (false, false, None);
        let (mut owner, mut refused) = (None, false);
        let mut reconnects = request.look.is_some_and(|look| look.new_connection);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let connection = timeout_at(deadline, async {
                match &asked {
                    None => self.connection(std::mem::take(&mut reconnects)).await,
                    Some(node) => self.connector.connect(node).await.map(Arc::new),
                }
            })
            .await
            .map_err(|_| {
                let why = format!("no connection within {:?}", self.timeout);
                error(TableErrorKind::Unavailable, why)
            })??;
            if asked.is_none() {
                owner = Some(Arc::clone(&connection));
            }
            let endpoint = &connection.endpoint;
            if connection.is_replica() {
                connection.retire();
                let refusal = Refusal::of_replica();
                // It may have become the master since.
                if std::mem::replace(&mut refused, true) && !self.topology.has_successor() {
                    let e = refusal.into_error(&self.connector.secrets);
                    return Err(e.at(endpoint.to_string()));
                }
                self.topology.ask_another();
                (asked, last) = (None, Some((refusal, endpoint.to_string())));
                continue;
            }
            let waiting = Waiting {
                connection: &connection,
                topology: &self.topology,
                since: Instant::now(),
            };
            // A read of a cluster has time for a second node, if the first one is silent.
            let again = !request.writes && !repeated && self.topology.is_cluster();
            let left = deadline.saturating_duration_since(Instant::now());
            let until = if again {
                Instant::now() + left / 2
            } else {
                deadline
            };
            let sent = timeout_at(
                until,
                self.send(&connection, request, load, asked.is_some()),
            )
            .await;
            std::mem::forget(waiting);
            let mut answer = match sent {
                Ok(Ok(answer)) => answer,
                // The connection has ended, for example with a restart. A read can be sent again.
                Ok(Err(_)) if !request.writes && !repeated => {
                    connection.retire();
                    repeated = true;
                    continue;
                }
                Ok(Err(e)) => {
                    connection.retire();
                    let why = format!("the connection broke ({e})");
                    let why = self.connector.secrets.hide(&why);
                    return Err(unanswered(STORE, request.writes, &why).at(endpoint.to_string()));
                }
                Err(_) => {
                    // The next operation does not wait for the same server.
                    connection.retire();
                    self.topology.ask_another();
                    if again {
                        (repeated, asked) = (true, None);
                        continue;
                    }
                    return Err(self.no_answer(request.writes).at(endpoint.to_string()));
                }
            };
            asked = None;
            let Value::ServerError(e) = &answer.value else {
                if let Some(owner) = owner.filter(|_| request.barrier) {
                    timeout_at(deadline, self.check_barrier(&mut answer, &owner))
                        .await
                        .map_err(|_| self.no_answer(false))?
                        .map_err(|e| e.at(owner.endpoint.to_string()))?;
                }
                return Ok(answer);
            };
            let refusal = Refusal::new(e);
            if refusal.ends_connection() {
                connection.retire();
            }
            // No host in a redirection means the node that answered.
            let node = |(host, port): (String, u16)| match host.is_empty() {
                true => Endpoint::new(&endpoint.host, port),
                false => Endpoint { host, port },
            };
            match (refusal.code.as_str(), refusal.target()) {
                ("NOSCRIPT", _) if !load => load = true,
                ("MOVED", Some(to)) if self.topology.is_cluster() => self.topology.prefer(node(to)),
                ("ASK", Some(to)) if self.topology.is_cluster() => asked = Some(node(to)),
                ("READONLY", _) if self.topology.has_successor() => self.topology.ask_another(),
                _ if request.writes && refusal.is_foreign() => {
                    let said = format!("{} {}", refusal.code, refusal.text);
                    let said = self.connector.secrets.hide(&said);
                    let why = format!("the answer is not of Redis ({})", one_line(&said));
                    return Err(unanswered(STORE, true, &why).at(endpoint.to_string()));
                }
                _ => {
                    let e = refusal.into_error(&self.connector.secrets);
                    return Err(e.at(endpoint.to_string()));
                }
            }
            last = Some((refusal, endpoint.to_string()));
        }
        Err(match last {
            Some((refusal, at)) => refusal.into_error(&self.connector.secrets).at(at),
            None => error(TableErrorKind::Unavailable, "no server accepts the request"),
        })
    }

    /// Sends the request, and what it needs beside it, in one round trip.
    async fn send(
        &self,
        connection: &Connection,
        request: &Request<'_>,
        load: bool,
        asking: bool,
    ) -> redis::RedisResult<Answer> {
        let wait = self.wait.filter(|_| request.confirmed);
        let load = request.script.filter(|_| load);
        let asks_for_replicas = request.barrier && self.wait.is_none() && self.asks_for_replicas;
        if wait.is_none() && load.is_none() && !asking && !asks_for_replicas {
            return Ok(Answer {
                value: connection.command(&request.command).await?,
                replicas: None,
                replication: None,
            });
        }
        let mut pipeline = Pipeline::new();
        if let Some(script) = load {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text);
        }
        if asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(request.command.clone());
        if let Some((replicas, millis)) = wait {
            pipeline.cmd("WAIT").arg(replicas).arg(millis);
        }
        if asks_for_replicas {
            pipeline.add_command(info_replication());
        }
        let mut answers = connection.pipeline(&pipeline).await?;
        let replication = asks_for_replicas.then(|| answers.pop().unwrap_or(Value::Nil));
        let replicas = wait.and_then(|_| answers.pop()).map(|answer| match answer {
            Value::Int(replicas) => replicas,
            _ => 0,
        });
        Ok(Answer {
            value: answers.pop().unwrap_or(Value::Nil),
            replicas,
            replication,
        })
    }

    fn live(&self) -> Option<Arc<Connection>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|connection| !connection.is_alive());
        current.clone()
    }

    /// The connection; makes one if there is none, or if it must be `new`. The one before ends with
    /// the last request that uses it.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn connection(&self, new: bool) -> Result<Arc<Connection>, TableError> {
        let existing = || self.live().filter(|_| !new);
        if let Some(connection) = existing() {
            return Ok(connection);
        }
        let _turn = self.connecting.lock().await;
        if let Some(connection) = existing() {
            return Ok(connection);
        }
        if new {
            self.topology.ask_another();
        }
        let connection = Arc::new(self.topology.connect(&self.connector, new).await?);
        tracing::debug!(server = %connection.endpoint, "connected");
        if self.asks_for_replicas {
            let said = connection.command(&info_replication()).await;
            self.saw_replication(&said.unwrap_or(Value::Nil));
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Checks that the server has the settings with which it keeps every acknowledged write.
    async fn check_durability(&self) -> Result<(), TableError> {
        for (setting, needed) in [("appendonly", "yes"), ("appendfsync", "always")] {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(setting);
            match self.run(&Request::read(Operation::Connect, command)).await {
                Ok(answer) => match codec::pairs(answer.value).first() {
                    Some((_, value)) if value != needed => {
                        return Err(wrong(format!(
                            "durability=kept needs `{setting} {needed}` on the server, which has `{value}`"
                        )));
                    }
                    _ => {}
                },
                Err(e) if e.kind() == TableErrorKind::PermissionDenied => {
                    tracing::debug!(
                        "the user may not read {setting}: durability=kept is not checked"
                    );
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
