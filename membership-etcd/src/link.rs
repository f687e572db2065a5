//! One request to a member, and everything that can go wrong with it. Clauses T4, T5, T13, T14.
//!
//! A member's gateway asks that member alone, and nobody tells where the others are: the members that were named are tried in turn,
//! beginning with the one that answered last. What a member has certainly not carried out is sent to the next one; and so is a read that was
//! lost. A write that was lost is never sent again here.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use membership_core::{TableError, TableErrorKind};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::config::EtcdConfig;
use crate::error::{Failure, NOT_ENABLED, error, refused, stranger, unanswered, unfinished};
use crate::login::{Login, Token};
use crate::wire::{AUTHENTICATE, Authenticated, Refused, WATCH, Watch};

/// A member that has lost its majority says so at once, instead of waiting for it.
const HAS_LEADER: &str = "grpc-metadata-hasleader";
/// How often one request asks for another token: members that were restarted know none of the others' either.
const RENEWALS: usize = 3;
/// No attempt is given less than this, however many members there are.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

pub(crate) struct Link {
    client: Client,
    members: Vec<Place>,
    /// The one that answered last.
    preferred: AtomicUsize,
    login: Option<Login>,
    timeout: Duration,
}

/// A member, as a URL and as people know it.
struct Place {
    url: String,
    at: String,
}

/// What is done with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It only asks: lost, it is sent again.
    Read,
    /// It may change something: lost, its outcome is unknown.
    Write,
}

impl Link {
    /// # Errors
    /// `Configuration`
    pub(crate) fn new(config: &EtcdConfig) -> Result<Self, TableError> {
        let place = |member: &crate::config::Member| Place {
            url: format!("{}://{member}", config.scheme()),
            at: member.to_string(),
        };
        Ok(Self {
            client: config.open()?,
            members: config.members().iter().map(place).collect(),
            preferred: AtomicUsize::new(0),
            login: config
                .user()
                .map(|(user, password)| Login::new(user, password)),
            timeout: config.timeout(),
        })
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a request and waits for its answer, until then.
    ///
    /// # Errors
    /// What the members say, or that they say nothing: then the outcome is unknown if it is a write.
    pub(crate) async fn call<A: DeserializeOwned + 'static>(
        &self,
        path: &'static str,
        request: &impl Serialize,
        purpose: Purpose,
        by: Instant,
    ) -> Result<A, TableError> {
        self.in_turn(purpose, path, &json(request)?, by, whole)
            .await
    }

    /// Begins a watch. What comes of it is read from the response, which ends when it ends.
    ///
    /// # Errors
    /// No member takes it.
    pub(crate) async fn watch(&self, request: &Watch) -> Result<Response, TableError> {
        self.in_turn(
            Purpose::Read,
            WATCH,
            &json(request)?,
            self.deadline(),
            |response| Box::pin(std::future::ready(Ok(response))),
        )
        .await
    }

    /// The member that is asked first, for errors.
    pub(crate) fn place(&self) -> String {
        self.members[self.preferred.load(Ordering::Relaxed) % self.members.len()]
            .at
            .clone()
    }

    /// What members are told of after they gave a token and did not want it for something that does not end by itself.
    pub(crate) fn forget_token(&self) {
        if let Some(login) = &self.login {
            login.forget(login.token().as_ref());
        }
    }

    /// The next request begins with another member.
    pub(crate) fn distrust(&self) {
        self.preferred.store(
            (self.preferred.load(Ordering::Relaxed) + 1) % self.members.len(),
            Ordering::Relaxed,
        );
    }

    async fn in_turn<T>(
        &self,
        purpose: Purpose,
        path: &'static str,
        body: &[u8],
        deadline: Instant,
        finish: fn(Response) -> BoxFuture<'static, Result<T, Failure>>,
    ) -> Result<T, TableError> {
        let many = self.members.len();
        let mut which = self.preferred.load(Ordering::Relaxed) % many;
        let (mut refusals, mut losses, mut renewals) = (0, 0, 0);
        loop {
            let place = &self.members[which];
            // Whoever may ask another member does not wait for this one to the end.
            let shorter = Instant::now()
                + (self.timeout / u32::try_from(many).unwrap_or(u32::MAX)).max(LEAST_PATIENCE);
            let patience = |purpose| {
                if purpose == Purpose::Read {
                    shorter.min(deadline)
                } else {
                    deadline
                }
            };
            let token = self.token(place, patience(Purpose::Read), deadline).await;
            let (purpose, done) = match &token {
                // Nothing but the question who we are was sent.
                Err(_) => (Purpose::Read, None),
                Ok(token) => {
                    let asked = async {
                        finish(self.send(place, path, body.to_vec(), token.clone()).await?).await
                    };
                    (
                        purpose,
                        Some(in_time(patience(purpose), self.timeout, asked).await),
                    )
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
                        _ => return Err(e.at(&place.at)),
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
                        return Err(e.at(&place.at));
                    }
                }
                // A connection that ended while nobody used it, at a restart for instance, is worth one more try at least.
                Failure::Lost(why) => {
                    losses += 1;
                    self.preferred.store(which, Ordering::Relaxed);
                    if purpose == Purpose::Write
                        || refusals + losses > many
                        || Instant::now() >= deadline
                    {
                        return Err(unanswered(purpose == Purpose::Write, &why).at(&place.at));
                    }
                }
                Failure::Refused(e) | Failure::Token(e) => return Err(e.at(&place.at)),
            }
        }
    }

    /// The user's token, had from this member if there is none.
    async fn token(
        &self,
        place: &Place,
        patience: Instant,
        deadline: Instant,
    ) -> Result<Option<Token>, Failure> {
        let Some(login) = &self.login else {
            return Ok(None);
        };
        if let Some(token) = login.token() {
            return Ok(Some(token));
        }
        let nothing = |why: String| Failure::Elsewhere(error(TableErrorKind::Unavailable, why));
        let _alone = timeout_at(deadline, login.alone.lock())
            .await
            .map_err(|_| nothing(format!("no token within {:?}", self.timeout)))?;
        if let Some(token) = login.token() {
            return Ok(Some(token));
        }
        let body = json(&login.credentials()).map_err(Failure::Refused)?;
        let asked = async {
            whole::<Authenticated>(self.send(place, AUTHENTICATE, body, None).await?).await
        };
        let token = match in_time(patience, self.timeout, asked).await {
            Ok(given) => Token::Known(given.token.into()),
            Err(Failure::Refused(e)) if e.message().contains(NOT_ENABLED) => {
                tracing::warn!(
                    server = place.at,
                    user = login.user(),
                    "etcd asks nobody who they are: authentication is not enabled"
                );
                Token::NotAsked
            }
            // Nothing was written by whoever only said who they are.
            Err(Failure::Lost(why)) => return Err(nothing(why)),
            Err(Failure::Refused(e)) if e.kind() == TableErrorKind::PermissionDenied => {
                let message = format!("{} for the user `{}`", e.message(), login.user());
                return Err(Failure::Refused(error(
                    TableErrorKind::PermissionDenied,
                    message,
                )));
            }
            Err(other) => return Err(other),
        };
        login.remember(token.clone());
        Ok(Some(token))
    }

    /// Sends one request to one member, once; the response if it is none of refusal.
    async fn send(
        &self,
        place: &Place,
        path: &str,
        body: Vec<u8>,
        token: Option<Token>,
    ) -> Result<Response, Failure> {
        let mut request = self
            .client
            .post(format!("{}{path}", place.url))
            .header(CONTENT_TYPE, "application/json")
            .header(HAS_LEADER, "true");
        if let Some(Token::Known(token)) = token {
            let mut header = HeaderValue::from_str(&token)
                .map_err(|_| Failure::Lost("it gives a token that is none".to_owned()))?;
            header.set_sensitive(true);
            request = request.header(AUTHORIZATION, header);
        }
        let response = request
            .body(body)
            .send()
            .await
            .map_err(|e| unfinished(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.bytes().await.map_err(|e| unfinished(&e))?;
        Err(match serde_json::from_slice::<Refused>(&text) {
            Ok(said) if !said.message().is_empty() => refused(&said),
            _ => stranger(status.as_u16(), &String::from_utf8_lossy(&text)),
        })
    }
}

/// The answer, when all of it is there.
fn whole<A: DeserializeOwned + 'static>(
    response: Response,
) -> BoxFuture<'static, Result<A, Failure>> {
    Box::pin(async {
        let text = response.bytes().await.map_err(|e| unfinished(&e))?;
        serde_json::from_slice(&text)
            .map_err(|_| Failure::Lost("it answers with what is no answer of etcd".to_owned()))
    })
}

/// What is not there in time is lost.
async fn in_time<T>(
    until: Instant,
    limit: Duration,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let began = Instant::now();
    match timeout_at(until, asked).await {
        Ok(done) => done,
        Err(_) => Err(Failure::Lost(format!(
            "no answer within {:?}",
            began.elapsed().min(limit)
        ))),
    }
}

/// # Errors
/// Plain data; cannot fail.
fn json(request: &impl Serialize) -> Result<Vec<u8>, TableError> {
    serde_json::to_vec(request).map_err(|e| {
        error(
            TableErrorKind::InvalidRequest,
            format!("this cannot be written as JSON ({e})"),
        )
    })
}
