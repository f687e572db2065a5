//! A table whose leader can be frozen until another one leads, and a client that has one slip with
//! the former leader. All of it is in memory.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::backends::Memory;
use conformance_tests::{Backend, Capability, Pinned, Reason, Stop};
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableErrorKind, TableLimits, VersionToken,
};

/// What is wrong with clients of the former leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// Nothing: the former leader refuses everything, and nothing is lost.
    None,
    /// Nothing, of a store that promises little: a failover loses commits, and clients are told.
    LosesAndTells,
    /// The former leader answers reads with its old table.
    StaleReads,
    /// It answers reads with a barrier with its old table.
    StaleBarriers,
    /// A commit on its old table is acknowledged.
    AcknowledgesCommits,
    /// A commit on the newest version is a conflict there.
    Conflicts,
    /// A client that once saw the old table takes every newer one for rolled back.
    LatchesARollback,
    /// A failover loses commits that the store must keep.
    LosesWhatItMustKeep,
    /// A failover may lose commits, and clients are not told.
    LosesSilently,
    /// Clients are told of a loss that did not happen, and again over a new connection.
    TellsOfNothing,
}

impl Slip {
    fn promises_little(self) -> bool {
        matches!(
            self,
            Self::LosesAndTells | Self::LosesSilently | Self::TellsOfNothing
        )
    }

    fn loses(self) -> bool {
        matches!(
            self,
            Self::LosesAndTells | Self::LosesSilently | Self::LosesWhatItMustKeep
        )
    }
}

/// Who leads.
#[derive(Debug, Default)]
struct Leaders {
    /// The number of the one that leads; each has led once.
    now: AtomicU64,
    frozen: AtomicBool,
    /// The former one does not know yet that another one leads.
    believes: AtomicBool,
    clusters: Mutex<BTreeSet<ClusterName>>,
    clients: AtomicU64,
}

/// The backend.
pub struct Replicated {
    slip: Slip,
    memory: Memory,
    /// The table that the former leader has.
    old: Memory,
    leaders: Arc<Leaders>,
}

impl Replicated {
    pub fn new(slip: Slip) -> Self {
        Self {
            slip,
            memory: Memory::default(),
            old: Memory::default(),
            leaders: Arc::default(),
        }
    }

    async fn connect(
        &self,
        cluster: &ClusterName,
        stays: bool,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let leaders = self.leaders.clone();
        leaders.clusters.lock().unwrap().insert(cluster.clone());
        Ok(Arc::new(Client {
            slip: self.slip,
            stays,
            leader: AtomicU64::new(leaders.now.load(Ordering::SeqCst)),
            latched: AtomicBool::new(false),
            table: self.memory.client(cluster).await?,
            old: self.old.client(cluster).await?,
            leaders,
        }))
    }
}

#[async_trait]
impl Backend for Replicated {
    fn name(&self) -> String {
        format!("{:?}", self.slip)
    }

    /// Every second client stays with the former leader as long as that believes to lead.
    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let number = self.leaders.clients.fetch_add(1, Ordering::SeqCst);
        self.connect(cluster, number.is_multiple_of(2)).await
    }

    fn required_guarantees(&self) -> Guarantees {
        guarantees(self.slip)
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[(Capability::Proxy, Reason::InMemory)]
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.memory.wipe(cluster).await
    }

    async fn depose(&self, _: &ClusterName) -> Result<(), Stop> {
        let clusters = self.leaders.clusters.lock().unwrap().clone();
        let mut before = Vec::new();
        for cluster in &clusters {
            before.push(self.memory.save(cluster).await?);
        }
        if self.slip.loses() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.leaders.frozen.store(true, Ordering::SeqCst);
        self.leaders.believes.store(true, Ordering::SeqCst);
        for (cluster, before) in clusters.iter().zip(&before) {
            let at_the_end = self.memory.save(cluster).await?;
            self.old.restore(cluster, &at_the_end).await?;
            if self.slip.loses() {
                self.memory.restore(cluster, before).await?;
            }
        }
        self.leaders.now.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn thaw(&self, _: &ClusterName) -> Result<(), Stop> {
        self.leaders.frozen.store(false, Ordering::SeqCst);
        Ok(())
    }

    async fn rejoined(&self, _: &ClusterName) -> Result<(), Stop> {
        self.leaders.believes.store(false, Ordering::SeqCst);
        Ok(())
    }

    async fn pinned(&self, cluster: &ClusterName) -> Result<Pinned, Stop> {
        let table = self.connect(cluster, true).await?;
        Ok(Pinned { table, way: None })
    }
}

fn guarantees(slip: Slip) -> Guarantees {
    match slip.promises_little() {
        true => Guarantees::new(Recency::MonotonicPerClient, Durability::MayBeLost),
        false => Guarantees::new(Recency::Linearizable, Durability::Kept),
    }
}

#[derive(Debug)]
struct Client {
    slip: Slip,
    /// It does not look for another leader after an error.
    stays: bool,
    /// The leader that this client is connected to.
    leader: AtomicU64,
    latched: AtomicBool,
    table: Arc<dyn MembershipTable>,
    old: Arc<dyn MembershipTable>,
    leaders: Arc<Leaders>,
}

impl Client {
    /// Whether the client's server is the former leader, once that answers at all.
    async fn on_the_former(&self) -> bool {
        loop {
            let now = self.leaders.now.load(Ordering::SeqCst);
            if self.leader.load(Ordering::SeqCst) == now {
                return false;
            }
            if !self.leaders.frozen.load(Ordering::SeqCst) {
                if self.leaders.believes.load(Ordering::SeqCst) {
                    return true;
                }
                self.leader.store(now, Ordering::SeqCst);
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The former leader refuses.
    fn refused(&self, operation: Operation) -> TableError {
        if !self.stays {
            let now = self.leaders.now.load(Ordering::SeqCst);
            self.leader.store(now, Ordering::SeqCst);
        }
        self.error(TableErrorKind::Unavailable, operation)
    }

    fn error(&self, kind: TableErrorKind, operation: Operation) -> TableError {
        TableError::new(kind, operation, self.store(), "the leader is another one")
    }
}

#[async_trait]
impl MembershipTable for Client {
    fn store(&self) -> &'static str {
        "replicated"
    }

    fn cluster(&self) -> &ClusterName {
        self.table.cluster()
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.table.initialize(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            let now = self.leaders.now.load(Ordering::SeqCst);
            self.leader.store(now, Ordering::SeqCst);
        }
        let rolled_back = self.error(TableErrorKind::TableRolledBack, Operation::Read);
        if self.on_the_former().await {
            let old = match self.slip {
                Slip::StaleReads => !request.barrier && request.known.is_none(),
                Slip::StaleBarriers => request.barrier,
                _ => false,
            };
            if old {
                return self.old.read(request).await;
            }
            if self.slip == Slip::LatchesARollback || self.slip == Slip::TellsOfNothing {
                self.latched.store(true, Ordering::SeqCst);
            }
            return Err(self.refused(Operation::Read));
        }
        if self.latched.load(Ordering::SeqCst) && request.known.is_some() {
            if self.slip == Slip::TellsOfNothing && request.new_connection {
                self.latched.store(false, Ordering::SeqCst);
            }
            return Err(rolled_back);
        }
        match self.slip {
            Slip::LosesSilently => self.table.read(&request.clone().with_known(None)).await,
            _ => self.table.read(request).await,
        }
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.table.read_row(silo, known).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        if !self.on_the_former().await {
            return self.table.commit(request).await;
        }
        match self.slip {
            Slip::AcknowledgesCommits => match self.old.commit(request).await {
                Err(_) => Err(self.refused(Operation::Commit)),
                answer => answer,
            },
            Slip::Conflicts => {
                let stale = self.old.commit(&request.again()).await;
                Ok(match stale {
                    Ok(CommitOutcome::Conflict(conflict)) => CommitOutcome::Conflict(conflict),
                    _ => CommitOutcome::Conflict(membership_core::Conflict::new(None, None)),
                })
            }
            _ => Err(self.refused(Operation::Commit)),
        }
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match self.on_the_former().await {
            true => Err(self.refused(Operation::UpdateIAmAlive)),
            false => self.table.update_i_am_alive(write).await,
        }
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.table.delete().await
    }

    fn limits(&self) -> TableLimits {
        self.table.limits()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(self.slip)
    }
}
