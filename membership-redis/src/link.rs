//! One script sent to the master, and everything that can go wrong with it.
//!
//! A table has one connection, made when it is needed and made anew when it has ended. What the server has certainly not carried out (a
//! forgotten script, another owner of the slot, a replica) is sent again at once, and so is a read whose connection broke, once; nothing else
//! is. Clauses T4, T5, T13, T14.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use membership_core::{Operation, TableError, TableErrorKind};
use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use crate::config::{Address, RedisConfig};
use crate::dial::{Conn, Dialer};
use crate::error::{Refusal, error, unanswered};
use crate::place::Place;
use crate::scripts::Script;

/// How often one operation is sent again because it certainly was not carried out.
const TURNS: usize = 6;

/// What is sent.
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    /// The command, and the script it calls, if it is one.
    pub(crate) command: Cmd,
    pub(crate) script: Option<&'a Script>,
    /// Whether it changes anything: if its answer is lost, the outcome is unknown.
    pub(crate) writes: bool,
    /// Whether replicas are asked to confirm it.
    pub(crate) confirmed: bool,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// How many replicas have it, where they were asked.
    pub(crate) replicas: Option<i64>,
}

pub(crate) struct Link {
    dialer: Dialer,
    place: Place,
    timeout: Duration,
    wait: Option<(u32, u64)>,
    current: Mutex<Option<Arc<Conn>>>,
    /// Whoever needs a connection while one is being made waits for that one.
    connecting: tokio::sync::Mutex<()>,
}

/// Whoever waited so long and went away has met a server that hangs, as much as one who waited to the end.
const HANGS: Duration = Duration::from_secs(1);

/// Held while an answer is awaited, and forgotten when there is one.
struct Waiting<'a> {
    conn: &'a Conn,
    place: &'a Place,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.since.elapsed() >= HANGS {
            self.conn.condemn();
            self.place.distrust();
        }
    }
}

impl Link {
    /// `key` is a key of the table.
    ///
    /// # Errors
    /// `Configuration`
    pub(crate) fn new(config: &RedisConfig, key: &str) -> Result<Self, TableError> {
        Ok(Self {
            dialer: Dialer::new(config)?,
            place: Place::new(config, key),
            timeout: config.timeout(),
            wait: config.wait(),
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        })
    }

    pub(crate) const fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// How many replicas must confirm.
    pub(crate) fn replicas(&self) -> i64 {
        self.wait.map_or(0, |(replicas, _)| i64::from(replicas))
    }

    /// Sends it and waits for the answer, for as long as an operation may take.
    ///
    /// # Errors
    /// What the server says, or that it says nothing: certainly not carried out before it was handed to a connection, and uncertain
    /// afterwards if it writes.
    pub(crate) async fn run(&self, request: &Request<'_>) -> Result<Answer, TableError> {
        self.attempt(request)
            .await
            .map_err(|e| e.during(request.operation))
    }

    async fn attempt(&self, request: &Request<'_>) -> Result<Answer, TableError> {
        let deadline = Instant::now() + self.timeout;
        let (mut load, mut repeated, mut asked) = (false, false, None);
        let mut last = None;
        for _ in 0..TURNS {
            let conn = timeout_at(deadline, async {
                match &asked {
                    None => self.connection().await,
                    Some(node) => self.dialer.connect(node).await.map(Arc::new),
                }
            })
            .await
            .map_err(|_| {
                error(
                    TableErrorKind::Unavailable,
                    format!("no connection within {:?}", self.timeout),
                )
            })??;
            let waiting = Waiting {
                conn: &conn,
                place: &self.place,
                since: Instant::now(),
            };
            let sent = timeout_at(deadline, self.send(&conn, request, load, asked.is_some())).await;
            std::mem::forget(waiting);
            let answer = match sent {
                Ok(Ok(answer)) => answer,
                // A connection that has ended meanwhile, at a restart for instance: who only asks, asks again.
                Ok(Err(_)) if !request.writes && !repeated => {
                    conn.condemn();
                    repeated = true;
                    continue;
                }
                Ok(Err(e)) => {
                    conn.condemn();
                    return Err(unanswered(
                        request.writes,
                        &self
                            .dialer
                            .secrets
                            .hide(&format!("the connection broke off ({e})")),
                    )
                    .at(conn.at.to_string()));
                }
                Err(_) => {
                    // A server that hangs is not worth waiting for a second time on the same connection.
                    conn.condemn();
                    self.place.distrust();
                    return Err(unanswered(
                        request.writes,
                        &format!("no answer within {:?}", self.timeout),
                    )
                    .at(conn.at.to_string()));
                }
            };
            asked = None;
            let Value::ServerError(e) = &answer.value else {
                return Ok(answer);
            };
            let refusal = Refusal::new(e);
            if refusal.ends_connection() {
                conn.condemn();
            }
            match (refusal.code.as_str(), refusal.target()) {
                ("NOSCRIPT", _) if !load => load = true,
                ("MOVED", Some(node)) if self.place.is_cluster() => {
                    self.place.prefer(resolve(node, &conn))
                }
                ("ASK", Some(node)) if self.place.is_cluster() => {
                    asked = Some(resolve(node, &conn))
                }
                ("READONLY", _) if self.place.has_successor() => self.place.distrust(),
                _ => {
                    return Err(refusal
                        .into_error(&self.dialer.secrets)
                        .at(conn.at.to_string()));
                }
            }
            last = Some((refusal, conn.at.to_string()));
        }
        Err(match last {
            Some((refusal, at)) => refusal.into_error(&self.dialer.secrets).at(at),
            None => error(TableErrorKind::Unavailable, "no server takes the request"),
        })
    }

    /// One flight, however many commands it holds.
    async fn send(
        &self,
        conn: &Conn,
        request: &Request<'_>,
        load: bool,
        asking: bool,
    ) -> redis::RedisResult<Answer> {
        let wait = self.wait.filter(|_| request.confirmed);
        let load = request.script.filter(|_| load);
        if wait.is_none() && load.is_none() && !asking {
            return Ok(Answer {
                value: conn.command(&request.command).await?,
                replicas: None,
            });
        }
        let mut flight = Pipeline::new();
        if let Some(script) = load {
            flight.cmd("SCRIPT").arg("LOAD").arg(script.text);
        }
        if asking {
            flight.cmd("ASKING");
        }
        flight.add_command(request.command.clone());
        if let Some((replicas, millis)) = wait {
            flight.cmd("WAIT").arg(replicas).arg(millis);
        }
        let mut answers = conn.flight(&flight).await?;
        let replicas = wait.and_then(|_| answers.pop()).map(|answer| match answer {
            Value::Int(replicas) => replicas,
            _ => 0,
        });
        Ok(Answer {
            value: answers.pop().unwrap_or(Value::Nil),
            replicas,
        })
    }

    fn live(&self) -> Option<Arc<Conn>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|conn| !conn.is_alive()) {
            *current = None;
        }
        current.clone()
    }

    /// The connection, made if there is none.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn connection(&self) -> Result<Arc<Conn>, TableError> {
        if let Some(conn) = self.live() {
            return Ok(conn);
        }
        let _alone = self.connecting.lock().await;
        if let Some(conn) = self.live() {
            return Ok(conn);
        }
        let conn = Arc::new(self.place.connect(&self.dialer).await?);
        tracing::debug!(server = %conn.at, "connected");
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&conn));
        Ok(conn)
    }
}

/// The node that a redirection names; no host means the one that answered.
fn resolve((host, port): (String, u16), conn: &Conn) -> Address {
    Address {
        host: if host.is_empty() {
            conn.at.host.clone()
        } else {
            host
        },
        port,
    }
}
