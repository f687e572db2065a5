//! What a case is, and its tools: fresh clusters, clients, unique names, and assertions.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, Conflict, Durability,
    Heartbeats, InitializeRequest, InstanceId, MembershipEntry, MembershipTable, ReadAnswer,
    ReadRequest, Recency, SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind,
    TableId, VersionToken, WallTime,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::effort::Effort;
use crate::{Backend, Capability, Clause, RoundTrips, Stop};

/// Receives the progress of long cases.
pub(crate) type Progress = Arc<dyn Fn(&str) + Send + Sync>;
/// One client of a table.
pub(crate) type Table = Arc<dyn MembershipTable>;
/// How a case ends.
pub(crate) type Verdict = Result<(), Stop>;

/// One case.
pub(crate) struct Case {
    pub name: &'static str,
    pub clauses: &'static [Clause],
    pub run: fn(Cx) -> BoxFuture<'static, Verdict>,
}

/// Makes a case of an `async fn(Cx) -> Verdict`.
macro_rules! case {
    ($function:ident: $($clause:ident)*) => {
        $crate::case::Case {
            name: stringify!($function),
            clauses: &[$($crate::Clause::$clause),*],
            run: |cx| Box::pin($function(cx)),
        }
    };
}
pub(crate) use case;

/// Fails the case unless a condition holds.
macro_rules! must {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Stop::failed(format!($($message)+)));
        }
    };
}
pub(crate) use must;

/// The context of a case. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cx(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    case: &'static str,
    seed: u64,
    effort: Effort,
    names: AtomicU64,
    clusters: Mutex<Vec<ClusterName>>,
    counted: Mutex<Option<RoundTrips>>,
    measured: Mutex<Option<String>>,
    progress: Progress,
}

impl Cx {
    pub fn new(
        backend: Arc<dyn Backend>,
        case: &'static str,
        seed: u64,
        effort: Effort,
        progress: Progress,
    ) -> Self {
        Self(Arc::new(Inner {
            backend,
            case,
            seed,
            effort,
            names: AtomicU64::new(1),
            clusters: Mutex::default(),
            counted: Mutex::default(),
            measured: Mutex::default(),
            progress,
        }))
    }

    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// Ends the case if the backend says that this capability does not apply to it.
    pub fn needs(&self, capability: Capability) -> Verdict {
        let listed = self
            .backend()
            .not_applicable()
            .iter()
            .any(|(c, _)| *c == capability);
        if listed {
            Err(Stop::NotStaged(capability))
        } else {
            Ok(())
        }
    }

    /// Whether reads of this client must be linearizable: the store must guarantee it, or says so.
    pub fn must_be_linearizable(&self, table: &dyn MembershipTable) -> bool {
        [self.backend().required_guarantees(), table.guarantees()]
            .iter()
            .any(|guarantees| guarantees.reads == Recency::Linearizable)
    }

    /// Whether acknowledged commits must survive: the store must guarantee it, or says so.
    pub fn must_keep_commits(&self, table: &dyn MembershipTable) -> bool {
        [self.backend().required_guarantees(), table.guarantees()]
            .iter()
            .any(|guarantees| guarantees.durability == Durability::Kept)
    }

    /// Adds round trips to the case's line.
    pub fn counted(&self, counted: RoundTrips) {
        *self
            .0
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }

    /// Other figures on the case's line.
    pub fn figures(&self) -> Option<String> {
        self.0
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds figures to the case's line.
    pub fn measured(&self, figures: impl ToString) {
        *self
            .0
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(figures.to_string());
    }

    /// Reports the progress of a long case.
    pub fn progress(&self, line: impl fmt::Display) {
        (self.0.progress)(&format!(
            "{}: {}: {line}",
            self.backend().name(),
            self.0.case
        ));
    }

    /// The round trips on the case's line.
    pub fn count(&self) -> Option<RoundTrips> {
        *self
            .0
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn effort(&self) -> Effort {
        self.0.effort
    }

    /// A number that is unique within this case.
    pub fn number(&self) -> u64 {
        self.0.names.fetch_add(1, Ordering::Relaxed)
    }

    /// 128 bits that are unique: the seed of the run, and a count of the case.
    pub fn unique(&self) -> u128 {
        (u128::from(self.0.seed) << 64) | u128::from(self.number())
    }

    pub fn commit_id(&self) -> CommitId {
        CommitId::new(self.unique())
    }

    /// Random numbers that the run's seed repeats; each `stream` has its own.
    pub fn random(&self, stream: u64) -> Random {
        Random::new(self.seed(stream))
    }

    /// The seed of one stream.
    pub fn seed(&self, stream: u64) -> u64 {
        // An odd multiplier keeps the streams different.
        self.0.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The name of a cluster that does not exist yet. It is removed after the case.
    pub fn cluster(&self) -> Result<ClusterName, Stop> {
        self.cluster_named(&format!("{}-{}", self.0.case, self.number()))
    }

    /// The same with a given name. The run's seed separates runs that share a store.
    pub fn cluster_named(&self, name: &str) -> Result<ClusterName, Stop> {
        let name = ClusterName::new(format!("conformance-{:x}", self.0.seed), name)?;
        self.own(&name);
        Ok(name)
    }

    /// Removes a cluster after the case.
    pub fn own(&self, name: &ClusterName) {
        self.0
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(name.clone());
    }

    /// The store refuses a cluster of this name, so there is nothing to remove.
    pub fn disown(&self, name: &ClusterName) {
        self.0
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|owned| owned != name);
    }

    pub async fn client(&self, cluster: &ClusterName) -> Result<Table, Stop> {
        Ok(self.0.backend.client(cluster).await?)
    }

    /// A key that no other request of the suite has.
    fn cluster_key(&self) -> ClusterKey {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.unique().to_be_bytes());
        bytes[16..].copy_from_slice(&self.unique().to_be_bytes());
        ClusterKey::new(bytes)
    }

    pub fn initialize_request(&self) -> InitializeRequest {
        InitializeRequest::new(
            TableId::new(self.unique()),
            SharedSettings::default(),
            self.cluster_key(),
        )
    }

    /// A client of a new, initialized cluster.
    pub async fn table(&self) -> Result<Table, Stop> {
        let table = self.client(&self.cluster()?).await?;
        table.initialize(&self.initialize_request()).await?;
        Ok(table)
    }

    /// Another client of the same cluster.
    pub async fn another(&self, table: &Table) -> Result<Table, Stop> {
        self.client(table.cluster()).await
    }

    /// A silo that is new in this case.
    pub fn entry(&self) -> MembershipEntry {
        let n = self.number();
        let [.., a, b, c] = n.to_be_bytes();
        let mut entry = MembershipEntry::new(
            SiloAddress::new([10, a, b, c].into(), 7100, 1),
            InstanceId::new(self.unique()),
            WallTime::from_millis(n),
        );
        entry.info.silo_name = format!("silo-{n}");
        entry
    }

    pub fn insert(
        &self,
        token: &VersionToken,
        entries: impl IntoIterator<Item = MembershipEntry>,
    ) -> CommitRequest {
        CommitRequest::new(token.clone(), self.commit_id(), None, entries, [], [])
    }

    pub fn update(
        &self,
        token: &VersionToken,
        entries: impl IntoIterator<Item = MembershipEntry>,
    ) -> CommitRequest {
        CommitRequest::new(token.clone(), self.commit_id(), None, [], entries, [])
    }

    pub fn remove(
        &self,
        token: &VersionToken,
        keys: impl IntoIterator<Item = String>,
    ) -> CommitRequest {
        CommitRequest::new(token.clone(), self.commit_id(), None, [], [], keys)
    }

    /// Fails if the operation takes longer than the limit.
    pub async fn in_time<T>(
        &self,
        what: &str,
        operation: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let limit = self.0.effort.operation_timeout;
        tokio::time::timeout(limit, operation)
            .await
            .map_err(|_| Stop::failed(format!("{what} did not end within {limit:?}")))
    }

    /// Removes every cluster of the case. Wipes a cluster that cannot be deleted because the case
    /// damaged it.
    pub async fn remove_clusters(&self) -> Verdict {
        let clusters = std::mem::take(
            &mut *self
                .0
                .clusters
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for cluster in clusters {
            let delete = async { self.0.backend.client(&cluster).await?.delete().await };
            let deleted = tokio::time::timeout(self.0.effort.operation_timeout, delete).await;
            if matches!(deleted, Ok(Ok(()))) {
                continue;
            }
            if let Err(wipe) = self.0.backend.wipe(&cluster).await {
                return Err(Stop::failed(format!(
                    "{cluster} could not be removed: delete {deleted:?}, wipe {wipe:?}"
                )));
            }
        }
        Ok(())
    }
}

/// Seeded random numbers.
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number of `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % n).unwrap_or(0)
    }

    pub fn percent(&mut self, p: u64) -> bool {
        self.next() % 100 < p
    }
}

/// An answer that is newer than this suite.
pub(crate) fn unknown_answer(answer: &impl std::fmt::Debug) -> Stop {
    Stop::failed(format!("the suite does not know the answer {answer:?}"))
}

/// The whole table and its heartbeats, or a failure.
pub(crate) async fn read(table: &Table) -> Result<(Snapshot, Heartbeats), Stop> {
    match table.read(&ReadRequest::all().with_barrier(true)).await? {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats: Some(heartbeats),
        } => Ok((snapshot, heartbeats)),
        ReadAnswer::Snapshot {
            heartbeats: None, ..
        } => Err(Stop::failed(
            "the read requested heartbeats, and its answer has none",
        )),
        ReadAnswer::Unchanged { .. } => Err(Stop::failed(
            "a read without a known version was answered with unchanged",
        )),
        other => Err(unknown_answer(&other)),
    }
}

/// Whether the store is busy. For a commit that is sent again that error is only the cause of
/// another one.
fn is_busy(e: &TableError) -> bool {
    let reason =
        std::error::Error::source(e).and_then(|reason| reason.downcast_ref::<TableError>());
    [Some(e), reason]
        .into_iter()
        .flatten()
        .any(|e| e.kind() == TableErrorKind::Busy)
}

/// Sends a commit, and repeats it while the store is busy.
pub(crate) async fn send(
    table: &Table,
    request: &CommitRequest,
) -> Result<CommitOutcome, TableError> {
    let mut wait = Duration::from_millis(1);
    for _ in 0..12 {
        match table.commit(request).await {
            Err(e) if is_busy(&e) => {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            other => return other,
        }
    }
    table.commit(request).await
}

/// Sends a commit that must succeed, and checks the token of its answer.
pub(crate) async fn commit(table: &Table, request: &CommitRequest) -> Result<VersionToken, Stop> {
    match send(table, request).await? {
        CommitOutcome::Committed(token) => {
            must!(
                token.version() == request.next_version()
                    && token.commit() == request.id
                    && token.table_id() == request.expected.table_id(),
                "commit {} of version {} gave the token {token:?}",
                request.id,
                request.next_version()
            );
            must!(
                token.to_bytes().len() <= 128,
                "the token {token:?} has {} bytes",
                token.to_bytes().len()
            );
            Ok(token)
        }
        CommitOutcome::Conflict(c) => Err(Stop::failed(format!(
            "a commit of version {} on {:?} conflicts with {:?}",
            request.next_version(),
            request.expected,
            c.newest
        ))),
        other => Err(unknown_answer(&other)),
    }
}

/// Sends a commit that must conflict.
pub(crate) async fn conflict(
    table: &Table,
    request: &CommitRequest,
    why: &str,
) -> Result<Conflict, Stop> {
    match send(table, request).await {
        Ok(CommitOutcome::Conflict(conflict)) => Ok(conflict),
        Ok(CommitOutcome::Committed(token)) => Err(Stop::failed(format!(
            "{why}: committed as {token:?} instead of a conflict"
        ))),
        Ok(other) => Err(unknown_answer(&other)),
        Err(e) => Err(Stop::failed(format!(
            "{why}: an error instead of a conflict: {e}"
        ))),
    }
}

/// Fails unless the answer is an error of one of these kinds.
pub(crate) fn refused<T: std::fmt::Debug>(
    what: &str,
    answer: Result<T, TableError>,
    kinds: &[TableErrorKind],
) -> Result<TableError, Stop> {
    match answer {
        Err(e) if kinds.contains(&e.kind()) => Ok(e),
        Err(e) => Err(Stop::failed(format!(
            "{what}: expected an error of kind {kinds:?}, got {:?}: {e}",
            e.kind()
        ))),
        Ok(answer) => Err(Stop::failed(format!(
            "{what}: expected an error of kind {kinds:?}, got {answer:?}"
        ))),
    }
}

/// What a read shows of silos and cluster. Orphans come and go: a store may remove them at any time.
pub(crate) fn shown(heartbeats: &Heartbeats) -> Heartbeats {
    Heartbeats::new(heartbeats.silos.clone(), heartbeats.cluster.clone())
}

/// Fails unless two reads agree in version row, token, rows and heartbeats.
pub(crate) fn same(
    what: &str,
    before: &(Snapshot, Heartbeats),
    after: &(Snapshot, Heartbeats),
) -> Verdict {
    must!(
        before.0.version_row == after.0.version_row,
        "{what}: the version row changed from {:?} to {:?}",
        before.0.version_row,
        after.0.version_row
    );
    must!(
        before.0.token.same_commit(&after.0.token),
        "{what}: the token changed from {:?} to {:?}",
        before.0.token,
        after.0.token
    );
    must!(
        before.0.rows == after.0.rows,
        "{what}: the rows changed from {:?} to {:?}",
        before.0.rows,
        after.0.rows
    );
    must!(
        shown(&before.1) == shown(&after.1),
        "{what}: the heartbeats changed from {:?} to {:?}",
        before.1,
        after.1
    );
    Ok(())
}
