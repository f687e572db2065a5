//! One request to Consul, bounded in time. Clauses T5, T13, T14.
//!
//! There may be several servers: where one cannot be reached, or knows nobody to write with, the next one is asked. A request that may have
//! been carried out is never sent again from here; a question whose connection broke is, once for each server. So is, for half of the time,
//! whatever was refused because nobody knows its token: that is looked at before anything else, and may change while a leader is new.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use reqwest::header::HeaderValue;
use reqwest::{Client, Method};
use tokio::time::{Instant, timeout_at};

use crate::config::ConsulConfig;
use crate::error::{
    Trouble, error, has_no_leader, knows_no_token, refused, trouble, unanswered, wrong,
};
use crate::keys::path;

/// Between two times that a token is shown to servers that do not know it, and may be about to.
const PAUSE: Duration = Duration::from_millis(50);

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) body: Option<String>,
    /// Whether a lost answer leaves it open what happened.
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

    /// Reads all keys that begin so: one moment of the leader, which makes sure that it still leads.
    pub(crate) fn tree(folder: &str) -> Self {
        Self {
            path: format!("/v1/kv/{}?consistent=&recurse=", path(folder)),
            ..Self::get(folder)
        }
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The raft index that the answer is as of; only Consul says such a thing.
    pub(crate) index: Option<u64>,
    /// Who said so.
    server: usize,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) struct Link {
    client: Client,
    scheme: &'static str,
    /// `host:port`.
    servers: Vec<String>,
    token: Option<HeaderValue>,
    /// Datacenter, namespace and partition, as the end of a query.
    parameters: String,
    /// Who is asked first: who answered last.
    turn: AtomicUsize,
    pub(crate) timeout: Duration,
}

impl Link {
    /// Makes the client, and asks nobody.
    ///
    /// # Errors
    /// `Configuration`.
    pub(crate) fn open(config: &ConsulConfig) -> Result<Self, TableError> {
        let parameters = config
            .parameters()
            .into_iter()
            .map(|(name, value)| format!("&{name}={}", path(value)))
            .collect();
        Ok(Self {
            client: config.open()?,
            scheme: config.scheme(),
            servers: config.servers(),
            token: config.header()?,
            parameters,
            turn: AtomicUsize::new(0),
            timeout: config.timeout(),
        })
    }

    /// The servers as people know them.
    pub(crate) fn at(&self) -> String {
        self.servers.join(",")
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a request, and gives any answer that is one of those expected (a status of `fine`).
    ///
    /// # Errors
    /// What the server says, or that it says nothing: then the outcome is unknown if the request writes.
    pub(crate) async fn ask(
        &self,
        request: &Request,
        fine: &[u16],
        by: Instant,
    ) -> Result<Answer, TableError> {
        let answer = self.any(request, by).await?;
        if fine.contains(&answer.status) {
            return Ok(answer);
        }
        Err(refused(answer.status, &answer.text(), request.writes).at(self.name(answer.server)))
    }

    fn name(&self, server: usize) -> String {
        self.servers.get(server).cloned().unwrap_or_default()
    }

    /// The first answer of anybody who can give one.
    async fn any(&self, request: &Request, by: Instant) -> Result<Answer, TableError> {
        let servers = self.servers.len().max(1);
        let first = self.turn.load(Ordering::Relaxed) % servers;
        // A connection that was kept may be found broken: who only asks, asks once more.
        let tries = if request.writes {
            servers
        } else {
            servers.max(2)
        };
        let mut last = error(TableErrorKind::Unavailable, "no server is named");
        // Whoever has just come to lead knows no token until it has read its own log.
        let mut in_doubt = None;
        let (mut n, mut failed) = (0, 0);
        while failed < tries {
            let server = (first + n) % servers;
            let name = self.name(server);
            let next = |link: &Self| link.turn.store((server + 1) % servers, Ordering::Relaxed);
            n += 1;
            failed += 1;
            match timeout_at(by, self.send(server, request)).await {
                Ok(Ok(answer))
                    if answer.status == 403
                        && knows_no_token(&answer.text())
                        && Instant::now()
                            < *in_doubt
                                .get_or_insert_with(|| Instant::now() + self.timeout / 2) =>
                {
                    next(self);
                    failed -= 1;
                    if Instant::now() + PAUSE >= by {
                        let message = "the server does not know the token, which it may do in a moment: its leader is new";
                        return Err(error(TableErrorKind::Unavailable, message).at(name));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(Ok(answer)) if answer.status == 500 && has_no_leader(500, &answer.text()) => {
                    next(self);
                    last = refused(answer.status, &answer.text(), request.writes).at(name);
                    // Alone, it has waited for a leader already.
                    if servers == 1 {
                        return Err(last);
                    }
                }
                Ok(Ok(answer)) => {
                    self.turn.store(server, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(Trouble::NotSent(e))) => {
                    next(self);
                    last = e.at(name);
                    if servers == 1 {
                        return Err(last);
                    }
                }
                Ok(Err(Trouble::Lost(why))) => {
                    next(self);
                    last = unanswered(request.writes, &why).at(name);
                    if request.writes {
                        return Err(last);
                    }
                }
                Err(_) => {
                    next(self);
                    return Err(unanswered(
                        request.writes,
                        &format!("no answer within {:?}", self.timeout),
                    )
                    .at(name));
                }
            }
        }
        Err(last)
    }

    async fn send(&self, server: usize, request: &Request) -> Result<Answer, Trouble> {
        let mark = if request.path.contains('?') { "" } else { "?" };
        let url = format!(
            "{}://{}{}{mark}{}",
            self.scheme,
            self.name(server),
            request.path,
            self.parameters
        );
        let mut sent = self.client.request(request.method.clone(), url);
        if let Some(token) = &self.token {
            sent = sent.header("X-Consul-Token", token.clone());
        }
        if let Some(body) = &request.body {
            sent = sent.body(body.clone());
        }
        let answer = sent.send().await.map_err(|e| trouble(&e))?;
        let status = answer.status().as_u16();
        let index = answer
            .headers()
            .get("X-Consul-Index")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let body = answer.bytes().await.map_err(|e| trouble(&e))?.to_vec();
        Ok(Answer {
            status,
            body,
            index,
            server,
        })
    }

    /// A question about keys: the answer's body, none where there are no such keys, and the index that it is as of.
    ///
    /// # Errors
    /// As [`ask`](Self::ask); and `Configuration` where the answer is none of Consul's: what is nowhere is not taken for an empty table.
    pub(crate) async fn keys(
        &self,
        request: &Request,
        by: Instant,
    ) -> Result<(Option<Vec<u8>>, u64), TableError> {
        let answer = self.ask(request, &[200, 404], by).await?;
        let Some(index) = answer.index else {
            let message = format!(
                "what answers there with the HTTP status {} is not Consul: check the address",
                answer.status
            );
            return Err(wrong(message).at(self.name(answer.server)));
        };
        Ok(((answer.status == 200).then_some(answer.body), index))
    }
}
