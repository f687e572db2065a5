//! Five real silos over one table, the last of which may lie.

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::join_all;
use membership::transport::{TcpConfig, Transport, TransportStats};
use membership::{
    ClusterView, CommitId, CommitOutcome, CommitRequest, Config, MemoryTable, Preset, ReadAnswer,
    ReadRequest, Silo, SiloAddress, SiloBuilder, Snapshot, TableLimits,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Duration, Instant, sleep};

use super::transport::{DEADLINE, TappedTransport};
use crate::common::{FaultyTable, PATIENCE, Process, builder, table};

const SILOS: usize = 5;
const LIAR: usize = SILOS - 1;
/// The limits of a table in SQLite.
const LIMITS: TableLimits = TableLimits::new(10_000, 1 << 20, 64 << 20, 100_000);

static TURN: Mutex<()> = Mutex::const_new(());

pub struct Cluster {
    pub table: MemoryTable,
    /// The same table, as the silos reach it.
    pub reached: FaultyTable,
    pub silos: Vec<Member>,
    /// A view from before the others joined.
    pub young: ClusterView,
    _turn: MutexGuard<'static, ()>,
}

/// A silo on a runtime of its own.
pub struct Member {
    process: Process,
    pub transport: Arc<TappedTransport>,
}

impl Member {
    pub async fn start(table: &FaultyTable, config: TcpConfig) -> Self {
        Self::with(builder(table.clone()), config).await
    }

    async fn with(builder: SiloBuilder, config: TcpConfig) -> Self {
        let transport = Arc::new(TappedTransport::bind(config).await);
        let builder = builder.transport(transport.clone());
        Self {
            process: Process::start(builder).await.unwrap(),
            transport,
        }
    }

    /// Ends it like a crashed process. Its handle must be kept: without one it would leave.
    pub fn kill(self) -> Silo {
        self.process.kill()
    }

    pub fn stats(&self) -> TransportStats {
        self.transport.stats()
    }

    /// Waits until its counters satisfy a condition.
    pub async fn until(&self, what: impl Fn(&TransportStats) -> bool) -> TransportStats {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.stats();
            if what(&stats) {
                return stats;
            }
            assert!(Instant::now() < deadline, "in vain: {stats:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Deref for Member {
    type Target = Silo;

    fn deref(&self) -> &Silo {
        &self.process.silo
    }
}

impl Cluster {
    pub async fn start() -> Self {
        Self::with(|_| TcpConfig::default()).await
    }

    /// Every silo with other bounds, by its number.
    pub async fn with(config: impl Fn(usize) -> TcpConfig) -> Self {
        Self::begin(Config::preset(Preset::Local), config).await
    }

    /// Silos that wait so long for an answer that a busy machine alone makes nobody miss two probes.
    pub async fn patient(config: impl Fn(usize) -> TcpConfig) -> Self {
        let mut patient = Config::preset(Preset::Local);
        patient.failure_window = Duration::from_secs(6);
        patient.max_probe_timeout = Duration::from_secs(4);
        Self::begin(patient, config).await
    }

    async fn begin(first: Config, config: impl Fn(usize) -> TcpConfig) -> Self {
        let turn = TURN.lock().await;
        let table = table().with_limits(LIMITS);
        let reached = FaultyTable::new(table.clone());
        // The others take over what the first one has written into the table.
        let first = builder(reached.clone()).config(first);
        let mut silos = vec![Member::with(first, config(0)).await];
        let young = silos[0].confirmed_view();
        let others = (1..SILOS).map(|i| Member::start(&reached, config(i)));
        silos.extend(join_all(others).await);
        let cluster = Self {
            table,
            reached,
            silos,
            young,
            _turn: turn,
        };
        cluster.settle().await;
        cluster
    }

    /// The silos that do not lie.
    pub fn honest(&self) -> &[Member] {
        &self.silos[..LIAR]
    }

    /// The transport of the silo that lies.
    pub fn liar(&self) -> Arc<TappedTransport> {
        self.silos[LIAR].transport.clone()
    }

    /// Waits until every silo has the table's view, confirmed.
    pub async fn settle(&self) {
        let deadline = Instant::now() + PATIENCE;
        for silo in &self.silos {
            loop {
                let view = silo.refresh(None).await.unwrap();
                if silo.view() == view && view.snapshot().rows == self.read().rows {
                    break;
                }
                assert!(Instant::now() < deadline, "{view:?}");
            }
        }
    }

    /// The table as it is.
    pub fn read(&self) -> Snapshot {
        read(&self.table)
    }

    /// What somebody knows who has read the table.
    pub fn as_read(&self) -> ClusterView {
        ClusterView::confirmed(self.read(), None)
    }

    /// Changes a row in the table, as a person with a program can; gives the version.
    pub fn change(&self, silo: SiloAddress) -> u64 {
        loop {
            let now = self.read();
            let mut entry = now.rows.get(&silo).unwrap().clone();
            let note = (now.version() + 1).to_string();
            entry.info.metadata.insert("note".to_owned(), note);
            let id = CommitId::new(u128::from(now.version()) << 64);
            let commit = CommitRequest::new(now.token, id, None, [], [entry], []);
            if let CommitOutcome::Committed(token) = self.table.commit_sync(&commit).unwrap() {
                return token.version();
            }
        }
    }

    /// Forgets how the probes of the honest silos fared until now.
    pub fn forget_probes(&self) {
        for silo in self.honest() {
            silo.transport.forget_probes();
        }
    }

    /// Waits until each silo has had answers to as many further probes as it takes to suspect all
    /// silos that it probes. Before an attack: until each has all its connections.
    pub async fn probes_go_on(&self) {
        let answered = |silo: &Member| silo.transport.probes().answered;
        let more = |silo: &Member| answered(silo) + 3 * (SILOS - 1);
        let enough: Vec<usize> = self.silos.iter().map(more).collect();
        let deadline = Instant::now() + DEADLINE;
        for (silo, enough) in self.silos.iter().zip(enough) {
            while answered(silo) < enough {
                assert!(Instant::now() < deadline, "{}", silo.me());
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// The longest round trip of their probes since, and the number of probes without an answer.
    pub fn probes(&self) -> (Duration, usize) {
        let all = self.honest().iter().map(|silo| silo.transport.probes());
        all.fold((Duration::ZERO, 0), |(longest, lost), probes| {
            let unanswered = probes.unanswered(Duration::from_secs(1));
            (longest.max(probes.longest), lost + unanswered)
        })
    }
}

pub fn read(table: &MemoryTable) -> Snapshot {
    let Ok(ReadAnswer::Snapshot { snapshot, .. }) = table.read_sync(&ReadRequest::all()) else {
        panic!("a table in memory can be read")
    };
    snapshot
}
