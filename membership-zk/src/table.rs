//! The contract, and what a handle remembers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation, ReadAnswer, ReadRequest,
    Recency, RowRead, SiloAddress, Snapshot, TableError, TableErrorKind, TableLimits, VersionToken,
    Yardstick, usable_version_row,
};
use tokio::time::Instant;
use zookeeper_client::Error;

use crate::STORE;
use crate::commit::LIMITS;
use crate::config::ZkConfig;
use crate::error::{error, failed};
use crate::gather::{Ask, look};
use crate::hints::Hints;
use crate::link::{Link, Session};
use crate::place::Place;
use crate::yardstick::ZkYardstick;

/// How long only what changes is read. What somebody changes by hand, past the version row, shows no later than this.
const EVERYTHING_AGAIN: Duration = Duration::from_secs(300);

/// The membership table of one cluster in ZooKeeper. Clones share one session and what they have seen.
///
/// Needs a tokio runtime with its time and network turned on. The one in which the table was connected serves its session: where that runtime
/// is shut down, operations in another one fail until the session is replaced, which the first failure sees to.
#[derive(Clone)]
pub struct ZkTable(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) place: Place,
    pub(crate) cluster: ClusterName,
    hints: Hints,
    /// The last version this handle saw or made, and when all of it was read.
    seen: Mutex<Option<(Seen, Instant)>>,
}

/// A version of the table.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) snapshot: Snapshot,
    /// How often the data of the version row's znode had been changed.
    pub(crate) data_version: i32,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Option<(Seen, Instant)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seen(&self) -> Option<Seen> {
        self.lock().as_ref().map(|(seen, _)| seen.clone())
    }

    /// What may be brought up to date instead of reading everything.
    pub(crate) fn base(&self) -> Option<Seen> {
        self.lock()
            .as_ref()
            .filter(|(_, read)| read.elapsed() < EVERYTHING_AGAIN)
            .map(|(seen, _)| seen.clone())
    }

    /// What was seen; whether all of it was read, or only what was new.
    pub(crate) fn remember(&self, seen: Seen, all: bool) {
        let mut now = self.lock();
        let read = now
            .as_ref()
            .filter(|_| !all)
            .map_or_else(Instant::now, |(_, read)| *read);
        *now = Some((seen, read));
    }

    async fn beat(&self, silo: &SiloAddress, text: &str) -> Result<(), TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let key = silo.row_key();
        let path = self.place.alive(&key);
        let sent = session.client.set_data(&path, text.as_bytes(), None);
        match self.link.answer(&session, deadline, sent).await? {
            Ok(_) => return Ok(()),
            Err(Error::NoNode) => {}
            Err(e) => return Err(failed(e).with_key(key)),
        }
        // No row; or one that somebody made by hand, without a child.
        let sent = session
            .client
            .create(&path, text.as_bytes(), &self.link.persistent());
        match self.link.answer(&session, deadline, sent).await?.map(drop) {
            Ok(()) => Ok(()),
            Err(Error::NoNode) => {
                Err(error(TableErrorKind::NoSuchRow, "the silo has no row").with_key(key))
            }
            Err(Error::NodeExists) => {
                Err(error(TableErrorKind::Busy, "the row was made meanwhile").with_key(key))
            }
            Err(e) => Err(failed(e).with_key(key)),
        }
    }

    async fn set_cell(&self, text: &str) -> Result<(), TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let path = self.place.cell();
        let sent = session.client.set_data(&path, text.as_bytes(), None);
        match self.link.answer(&session, deadline, sent).await? {
            Ok(_) => return Ok(()),
            Err(Error::NoNode) => {}
            Err(e) => return Err(failed(e)),
        }
        self.usable(&session, deadline).await?;
        let sent = session
            .client
            .create(&path, text.as_bytes(), &self.link.persistent());
        match self.link.answer(&session, deadline, sent).await?.map(drop) {
            Ok(()) => Ok(()),
            Err(Error::NodeExists) => Err(error(
                TableErrorKind::Busy,
                "somebody else wrote the cell for the first time meanwhile",
            )),
            Err(e) => Err(failed(e)),
        }
    }

    /// That there is a table to write into.
    async fn usable(&self, session: &Session, deadline: Instant) -> Result<(), TableError> {
        self.link
            .barrier(session, self.place.cluster(), deadline)
            .await?;
        let look = look(
            &self.link,
            session,
            &self.place,
            Ask {
                children: true,
                ..Ask::default()
            },
            deadline,
        )
        .await?;
        usable_version_row(
            look.text(),
            look.stray(),
            None,
            Operation::UpdateIAmAlive,
            STORE,
        )
        .map(drop)
    }

    /// The error as the caller is to see it.
    fn told(&self, during: Operation) -> impl FnOnce(TableError) -> TableError + '_ {
        move |e| e.during(during).at(self.link.at.clone())
    }
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for ZkTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner {
            link,
            place,
            cluster,
            ..
        } = &*self.0;
        f.debug_struct("ZkTable")
            .field("at", &link.at)
            .field("znode", &place.cluster())
            .field("cluster", cluster)
            .finish_non_exhaustive()
    }
}

impl ZkTable {
    /// Opens a session. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no server gives a session; each server is named with what is the matter.
    /// Cancel safe.
    pub async fn connect(config: ZkConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let place = Place::new(config.root_path(), &cluster);
        let link = Arc::new(Link::new(config));
        link.session(link.deadline())
            .await
            .map_err(|e| e.during(Operation::Connect))?;
        let hints = Hints::new(
            Arc::clone(&link),
            place.cluster().to_owned(),
            cluster.to_string(),
        );
        Ok(Self(Arc::new(Inner {
            link,
            place,
            cluster,
            hints,
            seen: Mutex::default(),
        })))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &ZkConfig {
        &self.0.link.config
    }
}

#[async_trait]
impl MembershipTable for ZkTable {
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
            .map_err(self.0.told(Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.0
            .read(request)
            .await
            .map_err(|e| self.0.told(Operation::Read)(e.of_a_read()))
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.0
            .read_row(silo, known)
            .await
            .map_err(|e| self.0.told(Operation::ReadRow)(e.of_a_read()))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.0
            .commit(request)
            .await
            .map_err(self.0.told(Operation::Commit))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let written = match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                self.0.beat(silo, &heartbeat.to_string()).await
            }
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => Err(error(
                TableErrorKind::LimitExceeded,
                format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
            )),
            HeartbeatWrite::Cluster { text } => self.0.set_cell(text).await,
        };
        written.map_err(self.0.told(Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0
            .delete()
            .await
            .map_err(self.0.told(Operation::Delete))
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        // A server that follows may be behind the ensemble; a session sees what it has seen.
        Guarantees {
            reads: Recency::MonotonicPerClient,
            durability: Durability::Kept,
        }
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(ZkYardstick::new(
            Arc::clone(&self.0.link),
            self.0.place.clone(),
        )))
    }
}
