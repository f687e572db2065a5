//! One command sent to the primary, with everything that can go wrong.
//!
//! Nothing here sends a command twice, and the client is told not to: what was sent once has one outcome (clause T5). A command whose caller
//! is gone goes on to its end by itself (clause T14). One that takes too long takes its connection along, so that a late answer meets nobody.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use membership_core::{Operation, TableError, TableErrorKind};
use mongodb::Client;
use mongodb::bson::{Bson, Document, Timestamp, doc};
use tokio::time::Instant;

use crate::config::MongoConfig;
use crate::error::{Refusal, SET_IS_MISSING, Secrets, error, from_client, unconfirmed};

/// What the servers are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Set,
    Sharded,
    Standalone,
}

/// The first version that can compute what a read leaves out: 4.4.
const WIRE_VERSION: i32 = 9;
const NEEDED: &str = "MongoDB 4.4 or newer is needed";

tokio::task_local! {
    /// When the operation under way has to end: its commands, however many it takes, share its time.
    static UNTIL: Instant;
}

pub(crate) struct Link {
    client: Client,
    database: String,
    at: String,
    timeout: Duration,
    secrets: Secrets,
    deployment: Deployment,
    /// The newest time that an answer carried: what is read later is not older.
    newest: Mutex<Option<Timestamp>>,
}

/// What became of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// Documents that it met.
    pub(crate) met: i64,
    /// The statement that failed, by its place, and why.
    pub(crate) failed: Option<(i32, Refusal)>,
}

impl Link {
    /// Finds the primary and asks what it is. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, `Unavailable`.
    pub(crate) async fn open(config: &MongoConfig) -> Result<Self, TableError> {
        let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (at, secrets) = (config.shown(), Secrets::new(config.secrets()));
        let client = config
            .client()
            .await
            .map_err(|e| from_client(&e, &at, &secrets).of_a_read())?;
        let link = Self {
            client,
            database: config.database_name().to_owned(),
            at,
            timeout: config.timeout(),
            secrets,
            deployment: Deployment::Set,
            newest: Mutex::default(),
        };
        let hello = link
            .send("admin", doc! { "hello": 1 })
            .await
            .map_err(TableError::of_a_read)?;
        let deployment = link.deployment_of(&hello)?;
        if deployment == Deployment::Standalone && !config.may_be_standalone() {
            return Err(error(
                TableErrorKind::Configuration,
                format!(
                    "{} is a standalone server: a crash may take back what others have read already. Make it a replica set (one member \
                     will do), or take that with allow_standalone=true",
                    link.at
                ),
            ));
        }
        Ok(Self { deployment, ..link })
    }

    fn deployment_of(&self, hello: &Document) -> Result<Deployment, TableError> {
        if hello.get_i32("maxWireVersion").unwrap_or(0) < WIRE_VERSION {
            return Err(error(
                TableErrorKind::Configuration,
                format!("{} is too old: {NEEDED}", self.at),
            ));
        }
        let flag = |name| hello.get_bool(name).unwrap_or(false);
        match (hello.get_str("msg"), hello.get_str("setName")) {
            (Ok("isdbgrid"), _) => Ok(Deployment::Sharded),
            (_, Ok(_)) if flag("isWritablePrimary") => Ok(Deployment::Set),
            (_, Ok(set)) => Err(error(
                TableErrorKind::Unavailable,
                format!(
                    "{} is not the primary of {set}; without directConnection=true the primary is found",
                    self.at
                ),
            )),
            _ if flag("isreplicaset") => Err(error(
                TableErrorKind::Unavailable,
                format!("{} {SET_IS_MISSING}", self.at),
            )),
            _ => Ok(Deployment::Standalone),
        }
    }

    pub(crate) const fn deployment(&self) -> Deployment {
        self.deployment
    }

    /// The time of the newest answer.
    pub(crate) fn newest(&self) -> Option<Timestamp> {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation with all its commands.
    pub(crate) async fn within<T>(&self, operation: impl Future<Output = T>) -> T {
        UNTIL.scope(Instant::now() + self.timeout, operation).await
    }

    /// A command that only reads.
    ///
    /// # Errors
    /// Never of unknown outcome.
    pub(crate) async fn read(
        &self,
        command: Document,
        during: Operation,
    ) -> Result<Document, TableError> {
        self.send(&self.database, command)
            .await
            .map_err(|e| e.during(during).of_a_read())
    }

    /// A command that writes.
    ///
    /// # Errors
    /// As its outcome is. A statement that failed is no error here.
    pub(crate) async fn write(
        &self,
        command: Document,
        during: Operation,
    ) -> Result<Written, TableError> {
        let answer = self
            .send(&self.database, command)
            .await
            .map_err(|e| e.during(during))?;
        let met = match answer.get("n") {
            Some(Bson::Int32(n)) => i64::from(*n),
            Some(Bson::Int64(n)) => *n,
            _ => {
                let what = format!(
                    "{} answers a write with something else: is it MongoDB?",
                    self.at
                );
                return Err(error(TableErrorKind::OutcomeUnknown, what).during(during));
            }
        };
        // What met nothing wrote nothing, whoever confirms that.
        if let Some(refusal) = Refusal::of_concern(&answer).filter(|_| met > 0) {
            return Err(unconfirmed(&refusal, &self.secrets).during(during));
        }
        Ok(Written {
            met,
            failed: Refusal::of_statement(&answer),
        })
    }

    /// What a failed statement means for the caller.
    pub(crate) fn refused(&self, refusal: Refusal, during: Operation) -> TableError {
        refusal.into_error(&self.secrets).during(during)
    }

    async fn send(&self, database: &str, command: Document) -> Result<Document, TableError> {
        let (database, timeout) = (
            self.client.database(database),
            UNTIL.try_with(|until| until.saturating_duration_since(Instant::now())),
        );
        let timeout = timeout.unwrap_or(self.timeout);
        if timeout.is_zero() {
            let what = format!(
                "all of {:?} went by before {} was asked this",
                self.timeout, self.at
            );
            return Err(error(TableErrorKind::Unavailable, what));
        }
        // Not part of the caller's future: the client's pool hands out one connection per thing that happens to it, so that requests whose
        // caller is gone keep those behind them waiting for seconds.
        let asked = tokio::spawn(async move {
            tokio::time::timeout(timeout, async { database.run_command(command).await }).await
        });
        let Ok(answer) = asked.await else {
            return Err(error(
                TableErrorKind::OutcomeUnknown,
                format!(
                    "what was asked of {} was given up half-way by the runtime",
                    self.at
                ),
            ));
        };
        match answer {
            Ok(Ok(answer)) => {
                if let Ok(time) = answer.get_timestamp("operationTime") {
                    let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
                    *newest = (*newest).max(Some(time));
                }
                Ok(answer)
            }
            Ok(Err(e)) => Err(from_client(&e, &self.at, &self.secrets)),
            Err(_) => Err(error(
                TableErrorKind::OutcomeUnknown,
                format!("{} does not answer within {:?}", self.at, self.timeout),
            )),
        }
    }
}
