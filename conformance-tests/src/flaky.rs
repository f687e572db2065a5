//! A table that loses answers, as a network does between a client and its store; a seed decides
//! which.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress,
    TableError, TableErrorKind, TableLimits, VersionToken,
};
use tokio::task::JoinSet;

use crate::case::Random;

/// Wraps a table. A part of its commits and heartbeats is answered with `OutcomeUnknown`: the write
/// was lost on the way, or it happened and only its answer was lost, or it arrives later.
pub struct Flaky {
    inner: Arc<dyn MembershipTable>,
    percent: u64,
    random: Mutex<Random>,
    late: Mutex<JoinSet<()>>,
    lost: AtomicU64,
}

impl std::fmt::Debug for Flaky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flaky")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

enum Fate {
    Answered,
    Lost,
    AppliedUnanswered,
    Late(Duration),
}

impl Flaky {
    /// Loses the answers of this percentage of the commits and heartbeats; the seed decides which.
    #[must_use]
    pub fn new(inner: Arc<dyn MembershipTable>, percent: u64, seed: u64) -> Self {
        Self {
            inner,
            percent,
            random: Mutex::new(Random::new(seed)),
            late: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// The number of lost answers so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until every delayed write has arrived.
    pub async fn settle(&self) {
        let mut late =
            std::mem::take(&mut *self.late.lock().unwrap_or_else(PoisonError::into_inner));
        while late.join_next().await.is_some() {}
    }

    fn fate(&self) -> Fate {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if !random.percent(self.percent) {
            return Fate::Answered;
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        match random.below(3) {
            0 => Fate::Lost,
            1 => Fate::AppliedUnanswered,
            _ => Fate::Late(Duration::from_micros(random.next() % 3_000)),
        }
    }

    fn unknown(&self, operation: Operation) -> TableError {
        TableError::new(
            TableErrorKind::OutcomeUnknown,
            operation,
            self.inner.store(),
            "the answer was lost on purpose",
        )
    }
}

#[async_trait]
impl MembershipTable for Flaky {
    fn store(&self) -> &'static str {
        self.inner.store()
    }

    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.inner.initialize(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.inner.read(request).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.inner.read_row(silo, known).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        match self.fate() {
            Fate::Answered => return self.inner.commit(request).await,
            Fate::Lost => {}
            Fate::AppliedUnanswered => {
                let _ = self.inner.commit(request).await;
            }
            Fate::Late(by) => {
                let (inner, request) = (self.inner.clone(), request.clone());
                self.late
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .spawn(async move {
                        tokio::time::sleep(by).await;
                        let _ = inner.commit(&request).await;
                    });
            }
        }
        Err(self.unknown(Operation::Commit))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match self.fate() {
            Fate::Answered => return self.inner.update_i_am_alive(write).await,
            Fate::AppliedUnanswered => {
                let _ = self.inner.update_i_am_alive(write).await;
            }
            // A heartbeat is never delayed: a late one overwrites a newer one, because the write is
            // unconditional, and the contract allows that.
            Fate::Lost | Fate::Late(_) => {}
        }
        Err(self.unknown(Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.inner.delete().await
    }

    fn limits(&self) -> TableLimits {
        self.inner.limits()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn hints(&self) -> Option<HintStream> {
        self.inner.hints()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        self.inner.baseline()
    }
}
