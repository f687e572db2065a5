//! One request, bounded in time, and sent once. Clauses T5, T13, T14.
//!
//! A session that has lost its servers looks for them with growing pauses; here the next request makes a new one instead, so that it is
//! answered as soon as there is somebody to answer. A read whose connection broke is sent again, once, and one that gave way to commits as long
//! as there is time; a write that was sent never is.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::ExecutionError;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::CassandraConfig;
use crate::dial::{dial, profile};
use crate::error::{Doubt, Failed, error, failed};
use crate::schema::Statements;

/// At most so many milliseconds are waited before a read is asked again; random, so that those who collided do not collide again.
const MOST_PAUSE: u64 = 100;

pub(crate) struct Link {
    pub(crate) config: CassandraConfig,
    /// The cluster, as the partition's key.
    pub(crate) cluster: String,
    /// The servers as people know them.
    pub(crate) at: String,
    profile: ExecutionProfileHandle,
    current: Mutex<Option<Arc<Open>>>,
    /// Held by whoever makes a session. Apart from `current`, so that nobody waits for a connection who only gives one up.
    dialing: tokio::sync::Mutex<()>,
}

/// A session, and what was prepared in it.
pub(crate) struct Open {
    pub(crate) session: Arc<Session>,
    statements: OnceCell<Statements>,
    /// Since when it has been asked and has not answered anybody, also those who did not wait for it.
    asked: Mutex<Option<Instant>>,
}

impl Link {
    pub(crate) fn new(config: CassandraConfig, cluster: String) -> Self {
        let (at, profile) = (config.at(), profile(&config).into_handle());
        Self {
            config,
            cluster,
            at,
            profile,
            current: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
        }
    }

    /// By when a request that begins now must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.timeout()
    }

    /// The same of one that may leave its outcome in doubt, and by when that must have been looked up: a fifth of the time is kept for it.
    pub(crate) fn deadlines(&self) -> (Instant, Instant) {
        let (now, all) = (Instant::now(), self.config.timeout());
        (now + (all - all / 5), now + all)
    }

    fn patience(&self) -> String {
        format!("operation_timeout is {:?}", self.config.timeout())
    }

    /// The session; a new one if the last was given up.
    pub(crate) async fn open(&self, deadline: Instant) -> Result<Arc<Open>, TableError> {
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        let opening = async {
            let _one = self.dialing.lock().await;
            // Somebody else may have made it meanwhile.
            if let Some(open) = self.usable() {
                return Ok(open);
            }
            let session = dial(&self.config).await?;
            let open = Arc::new(Open {
                session,
                statements: OnceCell::new(),
                asked: Mutex::default(),
            });
            *self.current() = Some(Arc::clone(&open));
            Ok(open)
        };
        match timeout_at(deadline, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(error(
                TableErrorKind::Unavailable,
                format!("no connection in time ({})", self.patience()),
            )
            .at(&self.at)),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Open>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that is there. One of ours that was silent for as long as an operation takes is not waited for any longer.
    fn usable(&self) -> Option<Arc<Open>> {
        let patience = Instant::now().checked_sub(self.config.timeout());
        let silent = |open: &Arc<Open>| {
            self.config.session().is_none()
                && patience.is_some_and(|since| open.silent_since(since))
        };
        self.current()
            .as_ref()
            .filter(|open| !silent(open))
            .cloned()
    }

    /// Nobody uses this session any more.
    fn give_up(&self, open: &Arc<Open>) {
        let mut current = self.current();
        if self.config.session().is_none()
            && current.as_ref().is_some_and(|now| Arc::ptr_eq(now, open))
        {
            *current = None;
        }
    }

    /// Sends a request and waits for its answer until the deadline.
    ///
    /// # Errors
    /// What the servers say, or that they say nothing: then the outcome is unknown if it `writes`.
    pub(crate) async fn ask<T, F>(
        &self,
        deadline: Instant,
        writes: bool,
        mut request: impl FnMut(Arc<Open>) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, ExecutionError>>,
    {
        let mut again = true;
        loop {
            let open = self.open(deadline).await.map_err(Failed::certain)?;
            let begun = Instant::now();
            open.asks(begun);
            let e = match timeout_at(deadline, request(Arc::clone(&open))).await {
                Ok(Ok(answer)) => {
                    open.heard();
                    return Ok(answer);
                }
                Ok(Err(e)) => e,
                Err(_) => {
                    // A session over which others are answered is not to blame.
                    if open.silent_since(begun) {
                        self.give_up(&open);
                    }
                    let why = format!("no answer in time ({})", self.patience());
                    return Err(Failed::unanswered(writes, &why, &self.at));
                }
            };
            let failed = failed(&e, writes, &self.at);
            if !failed.ends_session {
                open.heard();
                // A serial read takes part in the same protocol as commits, and gives way to them: asked again while there is time.
                let pause = Duration::from_millis(RandomState::new().hash_one(begun) % MOST_PAUSE);
                if !writes && failed.passes && Instant::now() + pause < deadline {
                    sleep(pause).await;
                    continue;
                }
            } else {
                self.give_up(&open);
                if again && (failed.doubt == Doubt::None || !writes) {
                    again = false;
                    continue;
                }
            }
            return Err(failed);
        }
    }

    /// The same with one statement. That keyspace or tables are missing is said only when it is so.
    pub(crate) async fn execute(
        &self,
        deadline: Instant,
        writes: bool,
        which: impl Fn(&Statements) -> &PreparedStatement,
        values: impl SerializeRow + Clone,
    ) -> Result<QueryResult, Failed> {
        match self.told(deadline, writes, which, values).await {
            Err(failed) => Err(self.confirmed(deadline, failed).await),
            answer => answer,
        }
    }

    /// The same as the node that was asked knows it: others may have the tables that it misses.
    pub(crate) async fn told(
        &self,
        deadline: Instant,
        writes: bool,
        which: impl Fn(&Statements) -> &PreparedStatement,
        values: impl SerializeRow + Clone,
    ) -> Result<QueryResult, Failed> {
        self.ask(deadline, writes, |open| {
            let (which, values) = (&which, values.clone());
            async move {
                let mut statement = which(open.statements(&self.config).await?).clone();
                statement.set_execution_profile_handle(Some(self.profile.clone()));
                open.session.execute_unpaged(&statement, values).await
            }
        })
        .await
    }

    /// A batch of conditional statements. That keyspace or tables are missing is said only when it is so.
    pub(crate) async fn batch<V: SerializeRow + Clone>(
        &self,
        deadline: Instant,
        which: impl Fn(&Statements) -> Vec<PreparedStatement>,
        values: &[V],
    ) -> Result<QueryResult, Failed> {
        let (serial, quorum) = self.config.consistency();
        let answer = self.ask(deadline, true, |open| {
            let which = &which;
            async move {
                let mut batch = Batch::default();
                for statement in which(open.statements(&self.config).await?) {
                    batch.append_statement(statement);
                }
                batch.set_consistency(quorum);
                batch.set_serial_consistency(Some(serial));
                batch.set_execution_profile_handle(Some(self.profile.clone()));
                open.session.batch(&batch, values.to_vec()).await
            }
        });
        match answer.await {
            Err(failed) => Err(self.confirmed(deadline, failed).await),
            answer => answer,
        }
    }

    /// A statement that is sent once in a table's life.
    pub(crate) async fn query(
        &self,
        deadline: Instant,
        writes: bool,
        text: &str,
        values: impl SerializeRow + Clone,
    ) -> Result<QueryResult, Failed> {
        self.ask(deadline, writes, |open| {
            let (mut statement, values) = (Statement::new(text), values.clone());
            statement.set_execution_profile_handle(Some(self.profile.clone()));
            async move { open.session.query_unpaged(statement, values).await }
        })
        .await
    }
}

impl Link {
    /// The same about keyspaces and tables, always to the node with the smallest host id of those that may be asked, connected or not. A node
    /// knows what it has made, and takes `IF NOT EXISTS` at its word; two nodes would make the same table twice, one of which is lost.
    pub(crate) async fn query_schema(
        &self,
        deadline: Instant,
        writes: bool,
        text: &str,
    ) -> Result<QueryResult, Failed> {
        let mut asked = None;
        let answer = self.ask(deadline, writes, |open| {
            let mut statement = Statement::new(text);
            let node = self.node_of_schema(&open);
            asked = node.as_ref().map(|node| node.address.to_string());
            let profile = node.map(|node| {
                let only = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node), None);
                profile(&self.config)
                    .to_builder()
                    .load_balancing_policy(only)
                    .build()
                    .into_handle()
            });
            statement.set_execution_profile_handle(Some(
                profile.unwrap_or_else(|| self.profile.clone()),
            ));
            async move { open.session.query_unpaged(statement, ()).await }
        });
        answer.await.map_err(|failed| match asked {
            Some(node) if failed.ends_session => {
                let message =
                    format!("{}; keyspaces and tables are made by one node alone, {node}, which must be up for it", failed.error.message());
                Failed { error: error(failed.error.kind(), message).at(&self.at), ..failed }
            }
            _ => failed,
        })
    }

    fn node_of_schema(&self, open: &Open) -> Option<Arc<Node>> {
        let state = open.session.get_cluster_state();
        let ours = |node: &&Arc<Node>| {
            self.config
                .named_datacenter()
                .is_none_or(|name| node.datacenter.as_deref() == Some(name))
        };
        state
            .get_nodes_info()
            .iter()
            .filter(ours)
            .min_by_key(|node| node.host_id)
            .cloned()
    }
}

impl Open {
    async fn statements(&self, config: &CassandraConfig) -> Result<&Statements, ExecutionError> {
        self.statements
            .get_or_try_init(|| Statements::prepare(&self.session, config))
            .await
    }

    fn asks(&self, now: Instant) {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(now);
    }

    fn heard(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn silent_since(&self, moment: Instant) -> bool {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|since| since <= moment)
    }
}
