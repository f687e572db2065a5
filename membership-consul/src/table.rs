//! The contract, and what a handle remembers.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, Snapshot, TableError, TableLimits, VersionToken, Yardstick,
};

use crate::STORE;
use crate::beat::Beats;
use crate::commit::LIMITS;
use crate::config::ConsulConfig;
use crate::hints::Hints;
use crate::keys::Keys;
use crate::link::Link;
use crate::yardstick::ConsulYardstick;

/// The membership table of one cluster in Consul. Clones share a client and what they have seen.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct ConsulTable(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) keys: Keys,
    pub(crate) cluster: ClusterName,
    config: ConsulConfig,
    hints: Hints,
    pub(crate) beats: Beats,
    /// The last snapshot this handle saw or made: its rows need not be decoded again.
    seen: Mutex<Option<Snapshot>>,
}

impl Inner {
    pub(crate) fn seen(&self) -> Option<Snapshot> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn remember(&self, snapshot: &Snapshot) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
    }
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for ConsulTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.0.link.at();
        f.debug_struct("ConsulTable")
            .field("at", &at)
            .field("folder", &self.0.keys.root())
            .finish_non_exhaustive()
    }
}

impl ConsulTable {
    /// Takes from the environment what the configuration leaves out, and looks at the cluster's folder, in which there need be nothing yet.
    /// Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when nobody answers, or nobody leads. Cancel safe.
    pub async fn connect(config: ConsulConfig, cluster: ClusterName) -> Result<Self, TableError> {
        let config = config.completed(|name| std::env::var(name).ok())?;
        let link = Arc::new(Link::open(&config)?);
        let keys = Keys::new(config.folder(), &cluster.store_key());
        let hints = Hints::new(Arc::clone(&link), keys.marks(), cluster.to_string());
        let inner = Inner {
            link,
            keys,
            cluster,
            config,
            hints,
            beats: Beats::default(),
            seen: Mutex::default(),
        };
        inner.may_see(inner.link.deadline()).await?;
        Ok(Self(Arc::new(inner)))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &ConsulConfig {
        &self.0.config
    }
}

#[async_trait]
impl MembershipTable for ConsulTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.0
            .initialize(request)
            .await
            .map_err(|e| e.during(Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.0
            .read(request)
            .await
            .map_err(|e| e.during(Operation::Read))
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.0
            .read_row(silo, known)
            .await
            .map_err(|e| e.during(Operation::ReadRow))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.0
            .commit(request)
            .await
            .map_err(|e| e.during(Operation::Commit))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.0
            .beat(write)
            .await
            .map_err(|e| e.during(Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0
            .delete()
            .await
            .map_err(|e| e.during(Operation::Delete))
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            reads: Recency::Linearizable,
            durability: Durability::Kept,
        }
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(ConsulYardstick::new(
            Arc::clone(&self.0.link),
            self.0.config.folder(),
        )))
    }
}
