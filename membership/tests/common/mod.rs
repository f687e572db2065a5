//! Shared by the scenarios: processes that can be killed, tables that can fail, networks that can
//! be cut.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part; tests may unwrap"
)]

pub mod network;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use membership::protocol::Destination;
use membership::transport::{
    EncodedMessage, Hello, Inbox, TcpTransport, Transport, TransportError,
};
use membership::{
    CauseOfDeath, ClusterName, ClusterView, CommitOutcome, CommitRequest, Config, Guarantees,
    HeartbeatWrite, InitializeRequest, InstanceId, MembershipTable, MemoryStore, MemoryTable,
    Operation, Preset, ReadAnswer, ReadRequest, RowRead, Silo, SiloAddress, SiloBuilder,
    SiloStatus, StartError, TableError, TableErrorKind, TableLimits, VersionToken,
};
use tokio::runtime::Runtime;

/// Long enough for a slow machine; a test that works takes a fraction of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn cluster() -> ClusterName {
    "scenario".parse().unwrap()
}

pub fn table() -> MemoryTable {
    MemoryStore::new().table(cluster())
}

pub fn local() -> Config {
    Config::preset(Preset::Local)
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn builder(table: impl MembershipTable) -> SiloBuilder {
    Silo::builder(table)
        .listen(loopback())
        .preset(Preset::Local)
}

pub async fn silos<const N: usize>(table: &MemoryTable) -> [Silo; N] {
    let mut silos = Vec::new();
    for i in 0..N {
        silos.push(
            builder(table.clone())
                .name(format!("silo-{i}"))
                .start()
                .await
                .unwrap(),
        );
    }
    for silo in &silos {
        silo.wait_for(|view| view.active().count() == N, PATIENCE)
            .await
            .unwrap();
    }
    silos.try_into().unwrap()
}

pub fn cause(view: &ClusterView, silo: &SiloAddress) -> Option<CauseOfDeath> {
    view.get(silo)?
        .death
        .as_ref()
        .map(|death| death.cause.clone())
}

pub fn is_dead(view: &ClusterView, silo: &SiloAddress) -> bool {
    view.status(silo) == Some(SiloStatus::Dead)
}

/// A silo on a tokio runtime of its own, so that it can end like a crashed process: at once,
/// without a change of its row.
pub struct Process {
    runtime: Option<Runtime>,
    pub silo: Silo,
}

impl Process {
    pub async fn start(builder: SiloBuilder) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let silo = runtime.spawn(builder.start()).await.unwrap();
        match silo {
            Ok(silo) => Ok(Self {
                runtime: Some(runtime),
                silo,
            }),
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    pub fn kill(mut self) -> Silo {
        self.shut();
        self.silo.clone()
    }

    fn shut(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shut();
    }
}

/// TCP, but connections of this silo to some addresses send nothing.
#[derive(Debug)]
pub struct CutTransport {
    inner: TcpTransport,
    pub cut: Arc<Mutex<HashSet<SocketAddr>>>,
    /// The next message makes it panic.
    pub defective: Arc<AtomicBool>,
}

impl CutTransport {
    pub async fn bind() -> Self {
        Self {
            inner: TcpTransport::bind(loopback()).await.unwrap(),
            cut: Arc::default(),
            defective: Arc::default(),
        }
    }
}

#[async_trait]
impl Transport for CutTransport {
    fn local_endpoint(&self) -> SocketAddr {
        self.inner.local_endpoint()
    }

    async fn start(&self, hello: Hello, inbox: Arc<dyn Inbox>) -> Result<(), TransportError> {
        self.inner.start(hello, inbox).await
    }

    fn send(&self, to: Destination, message: EncodedMessage) {
        assert!(!self.defective.load(Ordering::SeqCst), "a staged defect");
        let cut = matches!(&to, Destination::Endpoint(at) | Destination::Fresh(at) if self.cut.lock().unwrap().contains(at));
        if !cut {
            self.inner.send(to, message);
        }
    }

    fn instance(&self) -> Option<InstanceId> {
        self.inner.instance()
    }

    fn update(&self, silo: Option<SiloAddress>, view: &ClusterView) {
        self.inner.update(silo, view);
    }

    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
}

/// A table that can be unavailable, slow, or never answer.
#[derive(Clone, Debug)]
pub struct FaultyTable {
    inner: MemoryTable,
    pub down: Arc<AtomicBool>,
    pub hangs: Arc<AtomicBool>,
    /// The next commit lands, nobody hears of it, and the table is down from then on.
    pub cuts: Arc<AtomicBool>,
    /// How many milliseconds a call takes.
    pub delay: Arc<AtomicU64>,
}

impl FaultyTable {
    pub fn new(inner: MemoryTable) -> Self {
        Self {
            inner,
            down: Arc::default(),
            hangs: Arc::default(),
            cuts: Arc::default(),
            delay: Arc::default(),
        }
    }

    async fn may(&self, operation: Operation) -> Result<(), TableError> {
        let delay = self.delay.load(Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.down.load(Ordering::SeqCst) {
            return Err(TableError::new(
                TableErrorKind::Unavailable,
                operation,
                "faulty",
                "staged",
            ));
        }
        Ok(())
    }
}

#[async_trait]
impl MembershipTable for FaultyTable {
    fn store(&self) -> &'static str {
        "faulty"
    }

    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.may(Operation::Initialize).await?;
        self.inner.initialize(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.may(Operation::Read).await?;
        self.inner.read(request).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.may(Operation::ReadRow).await?;
        self.inner.read_row(silo, known).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        self.may(Operation::Commit).await?;
        let done = self.inner.commit(request).await;
        if self.cuts.swap(false, Ordering::SeqCst) {
            self.down.store(true, Ordering::SeqCst);
            return Err(TableError::new(
                TableErrorKind::OutcomeUnknown,
                Operation::Commit,
                "faulty",
                "the answer was cut",
            ));
        }
        done
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.may(Operation::UpdateIAmAlive).await?;
        self.inner.update_i_am_alive(write).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.may(Operation::Delete).await?;
        self.inner.delete().await
    }

    fn limits(&self) -> TableLimits {
        self.inner.limits()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
}
