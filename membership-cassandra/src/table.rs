//! The contract, and what a handle remembers.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation, ReadAnswer, ReadRequest,
    Recency, RowRead, Rows, SiloAddress, Snapshot, TableError, TableErrorKind, TableLimits,
    VersionToken, Yardstick,
};
use tokio::time::Instant;

use crate::codec::{self, Beats, Gathered, text};
use crate::commit::LIMITS;
use crate::config::CassandraConfig;
use crate::error::error;
use crate::link::Link;
use crate::yardstick::CassandraYardstick;
use crate::{STORE, schema};

/// A table with more rows is asked for its version first, when it probably has not changed: two requests if it has.
const LARGE: usize = 200;

/// The membership table of one cluster in Cassandra or ScyllaDB. Clones share a session and what they have seen.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct CassandraTable(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) cluster: ClusterName,
    /// Who decides transactions, as the table must say.
    pub(crate) decided_by: String,
    durability: Durability,
    seen: Mutex<Seen>,
}

/// What this handle saw or made last.
#[derive(Default)]
struct Seen {
    snapshot: Option<Snapshot>,
    /// Heartbeats that had no row then.
    orphans: Vec<String>,
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seen(&self) -> Option<Snapshot> {
        self.lock().snapshot.clone()
    }

    pub(crate) fn remember(&self, snapshot: &Snapshot) {
        self.lock().snapshot = Some(snapshot.clone());
    }

    /// Heartbeats that were seen without a row, and have none after this commit, which was made.
    pub(crate) fn known_orphans(&self, request: &CommitRequest) -> Vec<String> {
        let mut seen = self.lock();
        let Some(rows) = seen
            .snapshot
            .as_ref()
            .filter(|now| now.version() == request.makes())
            .map(|now| now.rows.clone())
        else {
            return Vec::new();
        };
        let mut orphans = std::mem::take(&mut seen.orphans);
        orphans.retain(|key| rows.by_key(key).is_none());
        orphans
    }

    async fn beats(&self, wanted: bool, deadline: Instant) -> Result<Option<Beats>, TableError> {
        if !wanted {
            return Ok(None);
        }
        let values = (text(&self.link.cluster),);
        let answer = self
            .link
            .execute(deadline, false, |all| &all.beats, values)
            .await
            .map_err(|failed| failed.error)?;
        Ok(Some(Beats::new(codec::named(answer)?)))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let (deadline, known) = (self.link.deadline(), request.known.as_ref());
        let seen = self.seen();
        let shown = seen.as_ref().filter(|seen| {
            known.is_some_and(|known| known.same_commit(&seen.token)) && seen.rows.len() > LARGE
        });
        if let Some(shown) = shown {
            let (stored, beats) = try_join(
                self.version(deadline),
                self.beats(request.heartbeats, deadline),
            )
            .await?;
            let row = codec::usable(
                stored.as_ref(),
                None,
                known,
                Operation::Read,
                &self.decided_by,
            )?;
            if codec::token_of(&row).same_commit(&shown.token) {
                return Ok(ReadAnswer::Unchanged {
                    heartbeats: beats.map(|beats| beats.shown(Some(&shown.rows))),
                });
            }
        }
        let (gathered, beats) = try_join(
            self.gather(deadline),
            self.beats(request.heartbeats, deadline),
        )
        .await?;
        let snapshot = gathered.snapshot(
            known,
            &seen.map(|seen| seen.rows).unwrap_or_default(),
            &self.decided_by,
        )?;
        {
            let mut seen = self.lock();
            seen.orphans = beats
                .as_ref()
                .map(|beats| beats.orphans(&snapshot.rows))
                .unwrap_or_default();
            seen.snapshot = Some(snapshot.clone());
        }
        let heartbeats = beats.map(|beats| beats.shown(Some(&snapshot.rows)));
        if known.is_some_and(|known| known.same_commit(&snapshot.token)) {
            return Ok(ReadAnswer::Unchanged { heartbeats });
        }
        Ok(ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        })
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (deadline, key) = (self.link.deadline(), silo.row_key());
        let of_row = (
            text(&self.link.cluster),
            codec::keys([schema::VERSION, &key]),
        );
        let of_beat = (text(&self.link.cluster), text(&key));
        let rows = self.link.execute(deadline, false, |all| &all.some, of_row);
        let beats = self.link.execute(deadline, false, |all| &all.beat, of_beat);
        let (rows, beats) = try_join(rows, beats).await.map_err(|failed| failed.error)?;
        let mut gathered = Gathered::new(codec::named(rows)?);
        if gathered.version.is_none() && gathered.rows.is_empty() {
            // Another row may stand there and make the difference between damaged and not there.
            gathered = self.gather(deadline).await?;
        }
        let version = codec::usable(
            gathered.version.as_ref(),
            gathered.stray(),
            known,
            Operation::ReadRow,
            &self.decided_by,
        )?;
        let before = self.seen().map_or_else(Rows::new, |seen| seen.rows);
        let row = gathered
            .rows
            .into_iter()
            .find(|(of, _)| *of == key)
            .map(|(key, body)| codec::row(key, body, &before));
        let heartbeat = match row {
            Some(_) => Beats::new(codec::named(beats)?).of(&key),
            None => None,
        };
        Ok(RowRead {
            token: codec::token_of(&version),
            row,
            heartbeat,
        })
    }
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for CassandraTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link = &self.0.link;
        f.debug_struct("CassandraTable")
            .field("at", &link.at)
            .field("keyspace", &link.config.keyspace())
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl CassandraTable {
    /// Connects, and finds out whether the servers let us in and whether they flush what they acknowledge. Keyspace and tables need not be there
    /// yet. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no node answers. Cancel safe.
    pub async fn connect(
        config: CassandraConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        let (decided_by, partition) = (config.decided_by(), cluster.to_string());
        let link = Arc::new(Link::new(config, partition));
        let mut inner = Inner {
            link,
            cluster,
            decided_by,
            durability: Durability::MayBeLost,
            seen: Mutex::default(),
        };
        inner.link.open(inner.link.deadline()).await?;
        match inner.version(inner.link.deadline()).await {
            // What stands there, if anything, is for the operations to judge; and not everybody who is busy now stays so.
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    TableErrorKind::NotInitialized
                        | TableErrorKind::Busy
                        | TableErrorKind::Unavailable
                ) =>
            {
                tracing::debug!(error = %e, "the table could not be looked at");
            }
            // Who may make the tables may not read them before they are there.
            Err(e) if e.kind() == TableErrorKind::PermissionDenied => {
                tracing::debug!(error = %e, "the table could not be looked at")
            }
            Err(e) => return Err(inner.link.explained(e).await.during(Operation::Connect)),
        }
        inner.durability = inner.link.durability().await;
        Ok(Self(Arc::new(inner)))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &CassandraConfig {
        &self.0.link.config
    }
}

#[async_trait]
impl MembershipTable for CassandraTable {
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
        self.0
            .commit(request)
            .await
            .map_err(|e| gone_since(e, Some(&request.expected)).during(Operation::Commit))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let key = silo.row_key();
                self.0
                    .link
                    .beat(&key, heartbeat.to_string())
                    .await
                    .map_err(|e| e.during(during).with_key(key))
            }
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => {
                let message = format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes");
                Err(error(TableErrorKind::LimitExceeded, message).during(during))
            }
            HeartbeatWrite::Cluster { text } => self
                .0
                .link
                .write_cell(text.clone())
                .await
                .map_err(|e| e.during(during)),
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
            durability: self.0.durability,
        }
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(CassandraYardstick::new(Arc::clone(&self.0.link))))
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
