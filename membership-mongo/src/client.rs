//! The client that all clones of a table share: one command at a time to the primary, and every way
//! in which that can fail.
//!
//! No command is sent twice, and the driver is configured not to: what was sent once has one
//! outcome (clause T5). A command whose caller is gone still runs to its end (clause T14); if it takes
//! far too long, its connection is closed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use membership_core::{
    ClusterName, Operation, Recency, TableError, TableErrorKind as Kind, TableLimits,
};
use membership_provider::{Replaceable, Secrets, SnapshotCache, install_crypto_provider};
use mongodb::bson::{Bson, Document, Timestamp, doc};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::commands::{Commands, Concern, config_version, hello, sole_primary};
use crate::config::{CONNECTIONS, MongoConfig};
use crate::error::{Refusal, SET_IS_MISSING, error, from_client, unconfirmed};
use crate::keys::Keys;

/// A document takes 16 MB. This number of rows fits if each has up to 1.5 KB; with larger rows it
/// is less, and MongoDB refuses what would be larger, without writing anything.
pub(crate) const LIMITS: TableLimits = TableLimits::new(1000, 256 << 10, 8 << 20, 10_000);

/// How often an operation starts again after a concurrent change. Each time another client made
/// progress.
pub(crate) const ATTEMPTS: u32 = 32;

/// After what time beyond that of an operation its connection is closed. The driver asks every five
/// seconds whether the server lives, and ends all requests when it does not answer.
const GIVEN_UP: Duration = Duration::from_secs(20);

/// The first version whose projections can compute a field: 4.4.
const WIRE_VERSION: i32 = 9;

tokio::task_local! {
    /// The deadline of the operation under way, which all its commands share.
    static DEADLINE: Instant;
}

/// What the servers are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Set,
    Sharded,
    Standalone,
}

/// What all clones of a table share.
pub(crate) struct Inner {
    client: Replaceable<mongodb::Client>,
    /// Requests under way: not more than there are connections, so that few ever wait in the driver.
    turns: Arc<Semaphore>,
    pub(crate) config: MongoConfig,
    pub(crate) cluster: ClusterName,
    pub(crate) commands: Commands,
    /// The servers, as errors name them.
    address: String,
    secrets: Secrets,
    pub(crate) deployment: Deployment,
    /// The configuration of a set in which only one member can be the primary.
    sole: Mutex<Option<i64>>,
    /// The newest time that an answer carried: later reads must not be older.
    newest: Mutex<Option<Timestamp>>,
    pub(crate) cache: SnapshotCache,
    /// The keys of heartbeats without a row that the last read found. A silo has a row before it has
    /// a heartbeat, so a row that a later version lacks is gone for good.
    pub(crate) orphans: Mutex<Vec<String>>,
}

impl Inner {
    /// Finds the primary and asks it what it is. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, `Unavailable`.
    pub(crate) async fn connect(
        config: MongoConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        install_crypto_provider();
        let (address, secrets) = (config.address(), config.secrets());
        let client = config.client().await;
        let client = client.map_err(|e| from_client(&e, &address, &secrets).of_a_read())?;
        let mut inner = Self {
            client: Replaceable::new(client),
            turns: Arc::new(Semaphore::new(CONNECTIONS)),
            commands: Commands {
                collection: config.collection_name(),
                keys: Keys::new(&cluster),
                server_timeout: config.server_timeout(),
            },
            config,
            cluster,
            address,
            secrets,
            deployment: Deployment::Set,
            sole: Mutex::default(),
            newest: Mutex::default(),
            cache: SnapshotCache::default(),
            orphans: Mutex::default(),
        };
        inner.deployment = inner.ask().await?;
        if inner.deployment == Deployment::Standalone && !inner.config.may_be_standalone() {
            let message = format!(
                "{} is a standalone server: a crash may take back commits that others have read. Make it a \
                 replica set (one member is enough), or accept that with allow_standalone=true",
                inner.address
            );
            return Err(error(Kind::Configuration, message));
        }
        Ok(inner)
    }

    /// Asks the primary what it is.
    async fn ask(&self) -> Result<Deployment, TableError> {
        let answer = self.send("admin", hello()).await;
        let answer = answer.map_err(TableError::of_a_read)?;
        *self.sole.lock().unwrap_or_else(PoisonError::into_inner) = sole_primary(&answer);
        self.deployment_of(&answer)
    }

    fn deployment_of(&self, hello: &Document) -> Result<Deployment, TableError> {
        let at = &self.address;
        if hello.get_i32("maxWireVersion").unwrap_or(0) < WIRE_VERSION {
            let message = format!("{at} is too old: MongoDB 4.4 or newer is needed");
            return Err(error(Kind::Configuration, message));
        }
        let flag = |name| hello.get_bool(name).unwrap_or(false);
        let unavailable = |message| Err(error(Kind::Unavailable, message));
        match (hello.get_str("msg"), hello.get_str("setName")) {
            (Ok("isdbgrid"), _) => Ok(Deployment::Sharded),
            (_, Ok(_)) if flag("isWritablePrimary") => Ok(Deployment::Set),
            (_, Ok(set)) => unavailable(format!(
                "{at} is not the primary of {set}; without directConnection=true the primary is found"
            )),
            _ if flag("isreplicaset") => unavailable(format!("{at} {SET_IS_MISSING}")),
            _ => Ok(Deployment::Standalone),
        }
    }

    /// The read concern. A standalone server has none.
    pub(crate) fn concern(&self, barrier: bool) -> Concern {
        match (self.deployment, self.config.recency()) {
            (Deployment::Standalone, _) => Concern::Local,
            (_, Recency::MonotonicPerClient) if !barrier => {
                Concern::Majority(*self.newest.lock().unwrap_or_else(PoisonError::into_inner))
            }
            _ => self
                .sole
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .map_or(Concern::Linearizable, Concern::Sole),
        }
    }

    /// Runs an operation with all its commands within its time.
    ///
    /// # Errors
    /// The errors of the operation, with its name.
    pub(crate) async fn run<T>(
        self: &Arc<Self>,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let deadline = self.config.timeouts.deadline();
        let answer = DEADLINE.scope(deadline, operation).await;
        answer.map_err(|e| e.during(during))
    }

    /// From now on commands use a new client: it looks for the primary again, over connections of
    /// its own. The application's client stays.
    ///
    /// # Errors
    /// Never `OutcomeUnknown`.
    pub(crate) async fn reconnect(&self) -> Result<(), TableError> {
        let at = &self.address;
        let late = |_| error(Kind::Unavailable, format!("{at} was not found in time"));
        let client = timeout(self.time_left(), self.config.client()).await;
        let client = client.map_err(late)?;
        let failed = |e| from_client(&e, at, &self.secrets).of_a_read();
        self.client.replace(client.map_err(failed)?);
        Ok(())
    }

    /// The time that is left for the operation under way.
    fn time_left(&self) -> Duration {
        DEADLINE
            .try_with(|deadline| deadline.saturating_duration_since(Instant::now()))
            .unwrap_or(self.config.timeouts.operation())
    }

    /// Sends a command that only reads.
    ///
    /// # Errors
    /// Never `OutcomeUnknown`.
    pub(crate) async fn query(&self, command: Document) -> Result<Document, TableError> {
        let answer = self.send(self.config.database_name(), command).await;
        answer.map_err(TableError::of_a_read)
    }

    /// Sends a command that reads the table as recently as asked for.
    ///
    /// # Errors
    /// Never `OutcomeUnknown`.
    pub(crate) async fn find_with(
        &self,
        barrier: bool,
        command: impl Fn(Concern) -> Document,
    ) -> Result<Document, TableError> {
        let concern = self.concern(barrier);
        let answer = self.query(command(concern)).await;
        let Concern::Sole(config) = concern else {
            return answer;
        };
        match answer {
            Ok(answer) if config_version(&answer) == Some(config) => Ok(answer),
            Err(e) if e.kind() != Kind::Configuration => Err(e),
            // The set was changed, so another member may be the primary now.
            _ => {
                self.ask().await?;
                self.query(command(Concern::Linearizable)).await
            }
        }
    }

    /// Sends a command that writes.
    ///
    /// # Errors
    /// By its outcome. A statement that failed is not an error here.
    pub(crate) async fn write(&self, command: Document) -> Result<Written<'_>, TableError> {
        let answer = self.send(self.config.database_name(), command).await?;
        let matched = match answer.get("n") {
            Some(Bson::Int32(n)) => i64::from(*n),
            Some(Bson::Int64(n)) => *n,
            _ => {
                let at = &self.address;
                let message = format!("{at} does not answer a write like MongoDB does");
                return Err(error(Kind::OutcomeUnknown, message));
            }
        };
        // A write that matched nothing wrote nothing: its confirmation does not matter.
        if let Some(refusal) = Refusal::of_concern(&answer).filter(|_| matched > 0) {
            return Err(unconfirmed(&refusal, &self.secrets));
        }
        let (failed, secrets) = (Refusal::of_statement(&answer), &self.secrets);
        Ok(Written {
            matched,
            failed,
            secrets,
        })
    }

    async fn send(&self, database: &str, command: Document) -> Result<Document, TableError> {
        let (database, at) = (self.client.current().database(database), &self.address);
        let turn = timeout(self.time_left(), Arc::clone(&self.turns).acquire_owned()).await;
        let limit = self.time_left();
        if turn.is_err() || limit.is_zero() {
            let all = self.config.timeouts.operation();
            let message = format!("the time of {all:?} was over before {at} was asked");
            return Err(error(Kind::Unavailable, message));
        }
        // A task of its own, which lasts longer than the caller waits: the driver's pool keeps a request
        // whose caller is gone, and hands out one connection per event, so that each of them would
        // delay another one by seconds. Soon the server answers, or the driver gives it up.
        let asked = async move {
            let _turn = turn;
            timeout(limit + GIVEN_UP, database.run_command(command)).await
        };
        let asked = tokio::spawn(asked);
        match timeout(limit, asked).await {
            Ok(Ok(Ok(Ok(answer)))) => {
                if let Ok(time) = answer.get_timestamp("operationTime") {
                    let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
                    *newest = (*newest).max(Some(time));
                }
                Ok(answer)
            }
            Ok(Ok(Ok(Err(e)))) => Err(from_client(&e, at, &self.secrets)),
            Err(_) | Ok(Ok(Err(_))) => {
                let message = format!(
                    "{at} does not answer within {:?}",
                    self.config.timeouts.operation()
                );
                Err(error(Kind::OutcomeUnknown, message))
            }
            Ok(Err(_)) => {
                let message = format!("the runtime ended before {at} answered");
                Err(error(Kind::OutcomeUnknown, message))
            }
        }
    }
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    /// How many documents it matched.
    pub(crate) matched: i64,
    /// The index of the statement that failed, and why.
    failed: Option<(i32, Refusal)>,
    secrets: &'a Secrets,
}

impl Written<'_> {
    /// The index of the statement that failed because its document exists.
    pub(crate) fn duplicate(&self) -> Option<i32> {
        let duplicate = self.failed.as_ref().filter(|(_, why)| why.is_duplicate());
        duplicate.map(|(index, _)| *index)
    }

    /// How many documents it matched.
    ///
    /// # Errors
    /// What a failed statement means for the caller.
    pub(crate) fn checked(self) -> Result<i64, TableError> {
        match self.failed {
            Some((_, refusal)) => Err(refusal.into_error(self.secrets)),
            None => Ok(self.matched),
        }
    }
}
