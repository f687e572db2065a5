//! A client whose table has one bug.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use conformance_tests::backends::Memory;
use conformance_tests::{Backend, Checkpoint};
use membership_core::{
    Attempt, ClusterName, CommitOutcome, CommitRequest, Conflict, Durability, Guarantees,
    Heartbeat, HeartbeatWrite, Heartbeats, InitializeRequest, MembershipEntry, MembershipTable,
    Operation, ReadAnswer, ReadRequest, Recency, Row, RowChange, RowRead, Rows, SharedSettings,
    SiloAddress, Snapshot, TableError, TableErrorKind, TableId, TableLimits, VersionRow,
    VersionToken,
};

use super::bug::Bug;

pub const SECRET: &str = "correct-horse-battery-staple";

/// The last acknowledged commit of each cluster, and the table before it.
pub type Journal = Arc<tokio::sync::Mutex<BTreeMap<ClusterName, (Checkpoint, CommitRequest)>>>;

/// How many records each cluster has that nothing shows.
pub type Orphans = Arc<Mutex<BTreeMap<ClusterName, usize>>>;

pub struct Broken {
    pub bug: Bug,
    pub inner: Arc<dyn MembershipTable>,
    pub raw: Memory,
    pub away: Arc<AtomicBool>,
    pub journal: Journal,
    pub orphans: Orphans,
    pub cluster: ClusterName,
    pub count: AtomicU64,
    pub last: Mutex<Option<Snapshot>>,
    pub locked: AtomicBool,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.bug == Bug::ShowsTheSecret {
            write!(f, "Broken({SECRET})")
        } else {
            f.write_str("Broken")
        }
    }
}

impl Broken {
    /// Returns true once in `n` calls.
    fn once_in(&self, n: u64) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) % n == n - 1
    }

    async fn reachable(&self, operation: Operation) -> Result<(), TableError> {
        if self.locked.load(Ordering::SeqCst) {
            return Err(TableError::new(
                TableErrorKind::Unavailable,
                operation,
                "broken",
                "locked",
            ));
        }
        if !self.away.load(Ordering::SeqCst) {
            return Ok(());
        }
        if self.bug == Bug::HangsWhenAway {
            std::future::pending::<()>().await;
        }
        Err(TableError::new(
            TableErrorKind::Unavailable,
            operation,
            "broken",
            "the store is unreachable",
        ))
    }

    fn leave_behind(&self, records: usize) {
        let mut orphans = self.orphans.lock().unwrap();
        *orphans.entry(self.cluster.clone()).or_default() += records;
    }

    async fn now(&self) -> Result<Snapshot, TableError> {
        match self.inner.read(&ReadRequest::default()).await? {
            ReadAnswer::Snapshot { snapshot, .. } => Ok(snapshot),
            other => unreachable!("{other:?}"),
        }
    }

    /// Whether this is the version that the client read last.
    fn remembers(&self, token: &VersionToken) -> bool {
        let last = self.last.lock().unwrap();
        last.as_ref().is_some_and(|last| last.token == *token)
    }

    fn damage(&self, request: &mut CommitRequest) {
        let rewrite = |request: &mut CommitRequest, change: fn(&mut MembershipEntry)| {
            for row in &mut request.changes {
                if let RowChange::Insert(row) | RowChange::Update(row) = row {
                    let mut entry = row.entry().unwrap().clone();
                    change(&mut entry);
                    *row = Row::encode(entry);
                }
            }
        };
        match self.bug {
            Bug::DropsAChange if request.changes.len() > 1 => {
                request.changes.pop();
            }
            Bug::DropsUnknownFields => rewrite(request, |e| e.extra = Default::default()),
            Bug::CutsTimesToSeconds => rewrite(request, |e| {
                e.start_time =
                    membership_core::WallTime::from_millis(e.start_time.as_millis() / 1000 * 1000);
            }),
            _ => {}
        }
    }

    /// The request, based on the present table.
    pub fn rebased(request: &CommitRequest, now: &Snapshot) -> CommitRequest {
        let mut rebased = request.clone();
        rebased.expected = now.token.clone();
        for change in &mut rebased.changes {
            if let RowChange::Insert(row) | RowChange::Update(row) = change {
                let mut entry = row.entry().unwrap().clone();
                entry.written_at = now.version() + 1;
                *row = Row::encode(entry);
            }
        }
        rebased
    }

    /// Commits, and records the commit for the next crash.
    async fn noted(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let mut journal = self.journal.lock().await;
        let before = self.raw.save(&self.cluster).await.unwrap();
        let answer = self.inner.commit(request).await;
        if let Ok(CommitOutcome::Committed(_)) = answer {
            journal.insert(self.cluster.clone(), (before, request.clone()));
        }
        answer
    }

    async fn after_commit(
        &self,
        request: &CommitRequest,
        answer: Result<CommitOutcome, TableError>,
    ) -> Result<CommitOutcome, TableError> {
        let conflict = matches!(answer, Ok(CommitOutcome::Conflict(_)));
        match self.bug {
            Bug::HalfAConflict if conflict && request.changes.len() > 1 => {
                if let Some(RowChange::Insert(row) | RowChange::Update(row)) =
                    request.changes.first()
                {
                    let _ = self.raw.put_row(&self.cluster, row.key(), row.body()).await;
                }
                answer
            }
            Bug::IgnoresTheToken if conflict => {
                self.inner
                    .commit(&Self::rebased(request, &self.now().await?))
                    .await
            }
            Bug::TrustsAnyTable
                if answer
                    .as_ref()
                    .is_err_and(|e| e.kind() == TableErrorKind::TableReplaced) =>
            {
                self.inner
                    .commit(&Self::rebased(request, &self.now().await?))
                    .await
            }
            Bug::UpsertsInserts if conflict => {
                let now = self.now().await?;
                let mut upsert = request.clone();
                for change in &mut upsert.changes {
                    if let RowChange::Insert(row) = change
                        && now.rows.by_key(row.key()).is_some()
                    {
                        *change = RowChange::Update(row.clone());
                    }
                }
                self.inner.commit(&upsert).await
            }
            Bug::ConflictsAreErrors if conflict => Err(TableError::new(
                TableErrorKind::Configuration,
                Operation::Commit,
                "broken",
                "condition failed",
            )),
            Bug::UnknownIsAConflict
                if answer
                    .as_ref()
                    .is_err_and(|e| e.kind() == TableErrorKind::OutcomeUnknown) =>
            {
                Ok(CommitOutcome::Conflict(Conflict::default()))
            }
            Bug::KeepsHeartbeatsOfRemovedRows
                if matches!(answer, Ok(CommitOutcome::Committed(_))) =>
            {
                let removed = |change: &&RowChange| matches!(change, RowChange::Remove(_));
                self.leave_behind(request.changes.iter().filter(removed).count());
                answer
            }
            Bug::MovesHeartbeatsBack if matches!(answer, Ok(CommitOutcome::Committed(_))) => {
                for change in &request.changes {
                    if let RowChange::Update(row) = change {
                        let heartbeat = Heartbeat {
                            counter: 1,
                            at: Default::default(),
                        };
                        let write = HeartbeatWrite::Silo {
                            silo: row.entry().unwrap().address,
                            heartbeat,
                        };
                        let _ = self.inner.update_i_am_alive(&write).await;
                    }
                }
                answer
            }
            _ => answer,
        }
    }

    fn sort(&self, mut heartbeats: Heartbeats) -> Heartbeats {
        match self.bug {
            Bug::HidesOrphans => heartbeats.orphans.clear(),
            Bug::ShowsOrphans => {
                let shown = heartbeats.orphans.iter();
                let shown = shown.map(|silo| (*silo, Heartbeat::default()));
                heartbeats.silos.extend(shown);
            }
            _ => {}
        }
        heartbeats
    }

    fn show(&self, mut snapshot: Snapshot) -> Snapshot {
        match self.bug {
            Bug::TearsReads => {
                let mut last = self.last.lock().unwrap();
                let rows = last.replace(snapshot.clone()).map(|s| s.rows);
                snapshot.rows = rows.unwrap_or(snapshot.rows);
            }
            Bug::ReadsOldVersions => {
                let mut last = self.last.lock().unwrap();
                // The first read shows the present, so that a test can begin.
                let old = last.replace(snapshot.clone());
                snapshot = old
                    .filter(|old| old.table_id() == snapshot.table_id())
                    .unwrap_or(snapshot);
            }
            Bug::DoesNotPage => snapshot.rows = snapshot.rows.iter().take(1000).cloned().collect(),
            Bug::SkipsUndecodableRows => {
                snapshot.rows = snapshot
                    .rows
                    .iter()
                    .filter(|r| r.entry().is_some())
                    .cloned()
                    .collect()
            }
            _ => {}
        }
        snapshot
    }
}

fn empty() -> ReadAnswer {
    let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
    let snapshot = Snapshot::new(row.token(&[]), row, Rows::new());
    ReadAnswer::Snapshot {
        snapshot,
        heartbeats: Some(Default::default()),
    }
}

/// Locks its client unless it is disarmed.
struct Lock<'a>(&'a AtomicBool, bool);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::SeqCst);
    }
}

impl Broken {
    /// The first writer's commit waits until another one has made its version, if one does.
    async fn let_others_win(&self, request: &CommitRequest) -> Result<(), TableError> {
        let is_of_the_first = request.changes.iter().any(|change| match change {
            RowChange::Update(row) => row.entry().is_some_and(|e| e.info.role.starts_with("0 ")),
            _ => false,
        });
        for _ in 0..if is_of_the_first { 400 } else { 0 } {
            if self.now().await?.version() > request.expected.version() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

#[async_trait]
impl MembershipTable for Broken {
    fn store(&self) -> &'static str {
        "broken"
    }

    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.reachable(Operation::Initialize).await?;
        let answer = self.inner.initialize(request).await;
        match &answer {
            Ok(()) if self.bug == Bug::LogsTheClusterKey => {
                tracing::debug!(row = request.version_row().core.stored(), "initialized");
                answer
            }
            Ok(()) if self.bug == Bug::KeepsNoClusterKey => {
                let mut row = request.version_row();
                row.core = Default::default();
                let text = membership_core::encoding::encode_version_row(&row);
                if self.now().await?.version() == 0 {
                    let _ = self.raw.put_version_row(&self.cluster, &text).await;
                }
                answer
            }
            Ok(()) if self.bug == Bug::ShowsTheCellOfADeletedTable => {
                if self.now().await?.version() == 0 {
                    let text = "of a deleted table".to_owned();
                    let cell = HeartbeatWrite::Cluster { text };
                    self.inner.update_i_am_alive(&cell).await?;
                }
                answer
            }
            Ok(()) if self.bug == Bug::InitializesAnew => {
                self.inner.delete().await?;
                self.inner.initialize(request).await
            }
            Err(e)
                if self.bug == Bug::RepairsByInitialize && e.kind() == TableErrorKind::Damaged =>
            {
                let row = request.version_row();
                let _ = self
                    .raw
                    .put_version_row(
                        &self.cluster,
                        &membership_core::encoding::encode_version_row(&row),
                    )
                    .await;
                Ok(())
            }
            _ => answer,
        }
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if self.bug == Bug::EmptyWhenAway && self.away.load(Ordering::SeqCst) {
            return Ok(empty());
        }
        self.reachable(Operation::Read).await?;
        if matches!(
            self.bug,
            Bug::CommitsOnTheNumber | Bug::RemembersByTheNumber
        ) {
            let now = self.now().await.ok();
            let mut last = self.last.lock().unwrap();
            if let (Bug::RemembersByTheNumber, Some(last), Some(now)) = (self.bug, &*last, &now)
                && last.version() == now.version()
                && request.known.as_ref() == Some(&last.token)
            {
                return Ok(ReadAnswer::Unchanged {
                    heartbeats: Some(Default::default()),
                });
            }
            *last = now;
        }
        let request = match self.bug {
            Bug::IgnoresTheKnownVersion | Bug::TrustsAnyTable => request.clone().with_known(None),
            _ => request.clone(),
        };
        match self.inner.read(&request).await {
            Ok(ReadAnswer::Snapshot { heartbeats, .. })
                if self.bug == Bug::AlwaysUnchanged && request.known.is_some() =>
            {
                Ok(ReadAnswer::Unchanged { heartbeats })
            }
            Ok(ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            }) => Ok(ReadAnswer::Snapshot {
                snapshot: self.show(snapshot),
                heartbeats: heartbeats.map(|heartbeats| self.sort(heartbeats)),
            }),
            Err(e)
                if self.bug == Bug::EmptyWhenAbsent
                    && e.kind() == TableErrorKind::NotInitialized =>
            {
                Ok(empty())
            }
            other => other,
        }
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.reachable(Operation::ReadRow).await?;
        self.inner.read_row(silo, known).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        self.reachable(Operation::Commit)
            .await
            .map_err(|e| match request.attempt {
                Attempt::Again if self.bug != Bug::ForgetsTheFirstSending => TableError::new(
                    TableErrorKind::OutcomeUnknown,
                    Operation::Commit,
                    "broken",
                    e.message(),
                ),
                _ => e,
            })?;
        if self.bug != Bug::DoesNotLookAtLimits {
            request.validate(&self.limits(), "broken")?;
        }
        let mut lock = Lock(&self.locked, self.bug == Bug::PoisonedByADrop);
        tokio::task::yield_now().await;
        lock.1 = false;
        drop(lock);
        if self.bug == Bug::StarvesAWriter {
            self.let_others_win(request).await?;
        }
        let mut request = request.clone();
        self.damage(&mut request);
        if self.bug == Bug::LosesAnAcknowledgedCommit
            && self.once_in(23)
            && self.now().await?.token.same_commit(&request.expected)
        {
            return Ok(CommitOutcome::Committed(request.next_token(&[])));
        }
        if self.bug == Bug::ConflictsWithoutReason && self.once_in(23) {
            return Ok(CommitOutcome::Conflict(Conflict::default()));
        }
        if self.bug == Bug::ForgetsItsOwnSuccess && request.attempt == Attempt::Again {
            let now = self.now().await?;
            if now.version_row.recent.iter().any(|r| r.id == request.id) {
                return Ok(CommitOutcome::Conflict(Conflict::new(
                    now.version_row.recent.last().cloned(),
                    None,
                )));
            }
        }
        if self.bug == Bug::CommitsOnTheNumber
            && let Ok(now) = self.now().await
            && self.remembers(&request.expected)
            && now.version() == request.expected.version()
        {
            request = Self::rebased(&request, &now);
        }
        let answer = match self.bug {
            Bug::LosesACommitInACrash
            | Bug::LosesACommitInTheThirdCrash
            | Bug::RepeatsACommitAfterACrash => self.noted(&request).await,
            _ => self.inner.commit(&request).await,
        };
        self.after_commit(&request, answer).await
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.reachable(Operation::UpdateIAmAlive).await?;
        let answer = self.inner.update_i_am_alive(write).await;
        let HeartbeatWrite::Silo { silo, .. } = write else {
            return answer;
        };
        match &answer {
            Ok(()) if self.bug == Bug::HeartbeatsMoveTheVersion => {
                let token = self.now().await?.token;
                let mut request =
                    CommitRequest::new(token, membership_core::CommitId::new(9), None, [], [], []);
                request.core = Some(String::new().into());
                self.inner.commit(&request).await.map(|_| ())
            }
            Err(e)
                if self.bug == Bug::HeartbeatsMakeRows && e.kind() == TableErrorKind::NoSuchRow =>
            {
                let entry = MembershipEntry::new(*silo, Default::default(), Default::default());
                let row = Row::encode(entry);
                let _ = self.raw.put_row(&self.cluster, row.key(), row.body()).await;
                Ok(())
            }
            _ => answer,
        }
    }

    async fn delete(&self) -> Result<(), TableError> {
        if self.bug == Bug::LeavesHeartbeatsBehind {
            self.leave_behind(1);
        }
        self.reachable(Operation::Delete).await?;
        self.inner.delete().await
    }

    fn limits(&self) -> TableLimits {
        TableLimits::new(100, 32_000, 1_000_000, 20_000)
    }

    fn guarantees(&self) -> Guarantees {
        let mut stated = self.inner.guarantees();
        match self.bug {
            Bug::PromisesLess => stated.reads = Recency::MonotonicPerClient,
            Bug::KeepsLess => stated.durability = Durability::MayBeLost,
            _ => {}
        }
        stated
    }
}
