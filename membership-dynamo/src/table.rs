//! The contract, and what a handle remembers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation, ReadAnswer, ReadRequest,
    Recency, RowRead, SiloAddress, Snapshot, TableError, TableErrorKind, TableLimits, VersionToken,
    Yardstick,
};
use tokio::time::Instant;

use crate::STORE;
use crate::codec;
use crate::commit::LIMITS;
use crate::config::DynamoConfig;
use crate::error::error;
use crate::link::Link;
use crate::read::heartbeat_name;
use crate::yardstick::DynamoYardstick;

/// How long only what changes is read. What somebody changes by hand, past the version row, shows no later than this.
const EVERYTHING_AGAIN: Duration = Duration::from_secs(300);

/// The membership table of one cluster in DynamoDB. Clones share a client and what they have seen.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct DynamoTable(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) cluster: ClusterName,
    pub(crate) config: DynamoConfig,
    /// The last snapshot this handle saw or made, and when all of it was read.
    seen: Mutex<Option<(Snapshot, Instant)>>,
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Snapshot, Instant)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seen(&self) -> Option<Snapshot> {
        self.lock().as_ref().map(|(snapshot, _)| snapshot.clone())
    }

    /// What may be brought up to date instead of reading everything.
    pub(crate) fn base(&self) -> Option<Snapshot> {
        self.lock()
            .as_ref()
            .filter(|(_, read)| read.elapsed() < EVERYTHING_AGAIN)
            .map(|(snapshot, _)| snapshot.clone())
    }

    /// All of it was read.
    pub(crate) fn remember_all(&self, snapshot: &Snapshot) {
        *self.lock() = Some((snapshot.clone(), Instant::now()));
    }

    /// It was made from what was known before.
    pub(crate) fn remember_changed(&self, snapshot: &Snapshot) {
        if let Some((seen, _)) = &mut *self.lock() {
            *seen = snapshot.clone();
        }
    }
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for DynamoTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (link, cluster) = (&self.0.link, &self.0.cluster);
        f.debug_struct("DynamoTable")
            .field("at", &link.at)
            .field("table", &link.table)
            .field("cluster", cluster)
            .finish_non_exhaustive()
    }
}

impl DynamoTable {
    /// Finds region and credentials, and looks at the table, which need not be there yet. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, `ForeignTable` where a table of this name has other keys, or `Unavailable` when nobody answers.
    /// Cancel safe.
    pub async fn connect(config: DynamoConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let (client, at) = config.open().await?;
        let link = Link {
            client,
            table: config.table_name().to_owned(),
            cluster: cluster.to_string(),
            at,
            timeout: config.timeout(),
        };
        match link.look().await {
            Ok(_) => {}
            // Not everybody who may use a table may ask what it is, and not everybody at once.
            Err(e) if e.kind() == TableErrorKind::Busy => {
                tracing::debug!(error = %e, "the table could not be looked at")
            }
            Err(e)
                if e.kind() == TableErrorKind::PermissionDenied
                    && e.to_string().contains("AccessDenied") =>
            {
                tracing::debug!(error = %e, "the table could not be looked at");
            }
            Err(e) => return Err(e),
        }
        Ok(Self(Arc::new(Inner {
            link: Arc::new(link),
            cluster,
            config,
            seen: Mutex::default(),
        })))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &DynamoConfig {
        &self.0.config
    }
}

#[async_trait]
impl MembershipTable for DynamoTable {
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
            .map_err(|e| gone_since(e, request.known.as_ref()).during(Operation::Read))
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.0
            .read_row(silo, known)
            .await
            .map_err(|e| gone_since(e, known).during(Operation::ReadRow))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let told = |e| {
            gone_since(e, Some(&request.expected))
                .during(Operation::Commit)
                .of_commit(request.attempt)
        };
        self.0.commit(request).await.map_err(told)
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        let link = &self.0.link;
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let key = silo.row_key();
                let written = link
                    .overwrite(
                        &heartbeat_name(&key),
                        codec::BEAT,
                        &heartbeat.to_string(),
                        true,
                    )
                    .await;
                match written.map_err(|e| e.during(during))? {
                    true => Ok(()),
                    // It came with the row, and went with it, unless somebody removed the item by hand.
                    false
                        if self
                            .0
                            .read_row(silo, None)
                            .await
                            .map_err(|e| e.of_a_read().during(during))?
                            .row
                            .is_some() =>
                    {
                        let anew = link
                            .overwrite(
                                &heartbeat_name(&key),
                                codec::BEAT,
                                &heartbeat.to_string(),
                                false,
                            )
                            .await;
                        anew.map(drop).map_err(|e| e.during(during))
                    }
                    false => Err(error(TableErrorKind::NoSuchRow, "the silo has no row")
                        .during(during)
                        .with_key(key)),
                }
            }
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => {
                let message = format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes");
                Err(error(TableErrorKind::LimitExceeded, message).during(during))
            }
            HeartbeatWrite::Cluster { text } => {
                if link
                    .overwrite(codec::CELL, codec::TEXT, text, true)
                    .await
                    .map_err(|e| e.during(during))?
                {
                    return Ok(());
                }
                // No cell: no cluster, unless somebody removed the item by hand.
                let stored = link
                    .version()
                    .await
                    .map_err(|e| e.of_a_read().during(during))?;
                codec::usable(stored.as_ref(), None, None, during)?;
                link.overwrite(codec::CELL, codec::TEXT, text, false)
                    .await
                    .map(drop)
                    .map_err(|e| e.during(during))
            }
        }
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

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(DynamoYardstick::new(Arc::clone(&self.0.link))))
    }
}

/// A table that is not there is not "not initialized" to somebody who knew it (clause T16).
fn gone_since(e: TableError, known: Option<&VersionToken>) -> TableError {
    match known {
        Some(_) if e.kind() == TableErrorKind::NotInitialized => error(
            TableErrorKind::TableReplaced,
            "the table that was known is gone",
        ),
        _ => e,
    }
}
