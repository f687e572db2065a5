//! A backend over the in-memory table that breaks one clause on purpose.

mod bug;
mod reader;
mod table;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use conformance_tests::backends::Memory;
use conformance_tests::{Backend, Capability, Checkpoint, Reason, Stop};
use membership_core::{
    ClusterName, MembershipTable, ReadAnswer, ReadRequest, RowChange, TableError,
};

pub use bug::{Bug, Least};
use table::{Broken, Journal, Orphans, SECRET};

/// The backend: many clients of broken tables.
pub struct Planted {
    bug: Bug,
    memory: Memory,
    away: Arc<AtomicBool>,
    journal: Journal,
    crashes: AtomicU64,
    orphans: Orphans,
}
impl Planted {
    pub fn new(bug: Bug) -> Self {
        Self {
            bug,
            memory: Memory::default(),
            away: Arc::default(),
            journal: Arc::default(),
            crashes: AtomicU64::new(0),
            orphans: Arc::default(),
        }
    }

    /// What a crash does to the data.
    async fn crash(&self) -> Result<(), Stop> {
        let crash = self.crashes.fetch_add(1, Ordering::SeqCst) + 1;
        for (cluster, (before, request)) in &*self.journal.lock().await {
            match self.bug {
                Bug::LosesACommitInACrash => self.memory.restore(cluster, before).await?,
                Bug::LosesACommitInTheThirdCrash if crash == 3 => {
                    self.memory.restore(cluster, before).await?
                }
                Bug::RepeatsACommitAfterACrash => {
                    let table = self.memory.client(cluster).await?;
                    let ReadAnswer::Snapshot { snapshot, .. } =
                        table.read(&ReadRequest::default()).await?
                    else {
                        unreachable!()
                    };
                    let mut again = Broken::rebased(request, &snapshot);
                    // Existing rows are overwritten, and the version rises in any case.
                    again.changes.retain_mut(|change| {
                        let there = snapshot.rows.by_key(change.key()).is_some();
                        if let (RowChange::Insert(row), true) = (&*change, there) {
                            *change = RowChange::Update(row.clone());
                        }
                        there
                    });
                    again.core = Some(String::new().into());
                    table.commit(&again).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn stored_as(&self, cluster: &ClusterName) -> ClusterName {
        if self.bug != Bug::MixesSimilarNames {
            return cluster.clone();
        }
        let plain = |part: &str| {
            format!(
                "_{}",
                part.chars()
                    .filter(char::is_ascii_alphanumeric)
                    .take(149)
                    .collect::<String>()
            )
        };
        ClusterName::new(plain(cluster.service()), plain(cluster.cluster())).unwrap()
    }
}

#[async_trait]
impl Backend for Planted {
    fn name(&self) -> String {
        format!("{:?}", self.bug)
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let inner = self.memory.client(&self.stored_as(cluster)).await?;
        let (away, journal) = (self.away.clone(), self.journal.clone());
        let orphans = self.orphans.clone();
        if self.bug == Bug::LogsTheSecret {
            tokio::spawn(async {
                tracing::trace!(
                    url = format!("broken://root:{SECRET}@127.0.0.1"),
                    "connected"
                )
            });
        }
        Ok(Arc::new(Broken {
            bug: self.bug,
            inner,
            away,
            journal,
            orphans,
            raw: self.memory.clone(),
            cluster: cluster.clone(),
            count: AtomicU64::new(0),
            last: Mutex::default(),
            locked: AtomicBool::new(false),
        }))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.bug == Bug::ListsNothing {
            return &[];
        }
        &[
            (Capability::Child, Reason::InMemory),
            (Capability::Depose, Reason::OneServer),
            (Capability::Recreate, Reason::InMemory),
            (Capability::Proxy, Reason::InMemory),
            (Capability::Hints, Reason::NoHints),
        ]
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        self.memory.put_row(cluster, key, body).await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.memory.put_version_row(cluster, text).await
    }

    async fn drop_row(&self, cluster: &ClusterName, key: &str) -> Result<(), Stop> {
        self.memory.drop_row(cluster, key).await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.memory.drop_version_row(cluster).await
    }

    async fn count(&self, cluster: &ClusterName) -> Result<usize, Stop> {
        let more = self.orphans.lock().unwrap().get(cluster).copied();
        Ok(self.memory.count(cluster).await? + more.unwrap_or(0))
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.memory.wipe(cluster).await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        self.memory.save(cluster).await
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        self.memory.restore(cluster, saved).await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.away.store(true, Ordering::SeqCst);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        self.crash().await?;
        self.away.store(false, Ordering::SeqCst);
        Ok(())
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        self.away.store(!available, Ordering::SeqCst);
        Ok(())
    }

    async fn reader(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, Stop> {
        let inner = self.client(cluster).await?;
        Ok(Arc::new(reader::Reader {
            bug: self.bug,
            inner,
        }))
    }

    fn secret(&self) -> Result<String, Stop> {
        Ok(SECRET.to_owned())
    }
}
