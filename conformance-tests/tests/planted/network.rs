//! A table behind a network: a small server over the in-memory table, and a client that breaks one clause on purpose.
//!
//! What travels is a line with a number; the question and the answer of that number lie in the memory that both share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::backends::Memory;
use conformance_tests::proxy::Proxy;
use conformance_tests::{Backend, Capability, Checkpoint, Proxied, Reason, RoundTrips, Stop};
use membership_core::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, RowChange, RowRead,
    Rows, SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind, TableId, TableLimits,
    VersionRow, VersionToken,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::task::{JoinHandle, JoinSet};

/// What is wrong with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// A commit is sent again under another name when its connection breaks: one's own success is a conflict.
    RetriesUnderAnotherName,
    /// Whatever breaks is said to have certainly not happened.
    CertainlyNot,
    /// A connection is used again although an answer is still to come, and answers are not told apart.
    MixesAnswers,
    /// A connection that broke is never replaced.
    NeverReconnects,
    /// No answer is waited for without an end.
    WaitsForever,
    /// A read that fails shows an empty table.
    EmptyWhenCut,
    /// The rows are sent before the version.
    CommitsInTwoRequests,
    /// A read finds no version row, then asks for the rows, and takes a table created meanwhile for a damaged one.
    ReadsRowsLater,
    /// A delete lists the rows, and then removes the version row and those: of a table made anew meanwhile the others are left.
    DeletesWhatItListed,
    /// A permit is lost with every dropped question.
    LosesPermits,
    /// More round trips than are promised.
    TalksTooMuch,
    /// Does not go through the proxy at all.
    GoesPastTheProxy,
    /// Asks every few milliseconds whether something happened, and says so two seconds later.
    HintsLate,
    /// The hints end when their connection does.
    HintsEnd,
    /// After a cut nobody listens any more.
    HintsStop,
}

#[derive(Clone)]
enum Question {
    Nothing,
    Initialize(InitializeRequest),
    Read(ReadRequest),
    Row(SiloAddress, Option<VersionToken>),
    Rows(Vec<RowChange>),
    Commit(CommitRequest),
    Beat(HeartbeatWrite),
    Delete,
    /// Only the rows of the table of this name, and the version row of any.
    DeleteRowsOf(Option<TableId>),
}

#[derive(Debug)]
enum Reply {
    Done(Result<(), TableError>),
    Read(Result<ReadAnswer, TableError>),
    Row(Result<RowRead, TableError>),
    Commit(Result<CommitOutcome, TableError>),
}

/// The server, and the memory in which questions and answers lie.
struct Server {
    memory: Memory,
    questions: Mutex<BTreeMap<u64, (ClusterName, Question)>>,
    replies: Mutex<BTreeMap<u64, Reply>>,
    names: AtomicU64,
    commits: broadcast::Sender<ClusterName>,
    address: SocketAddr,
    running: Mutex<Option<JoinHandle<()>>>,
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(1024).unwrap()
}

impl Server {
    fn start() -> Arc<Self> {
        let listener = listen("127.0.0.1:0".parse().unwrap());
        let server = Arc::new(Self {
            memory: Memory::default(),
            questions: Mutex::default(),
            replies: Mutex::default(),
            names: AtomicU64::new(1),
            commits: broadcast::Sender::new(1024),
            address: listener.local_addr().unwrap(),
            running: Mutex::default(),
        });
        server.run(listener);
        server
    }

    fn run(self: &Arc<Self>, listener: TcpListener) {
        let server = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Some(server) = server.upgrade() else {
                    return;
                };
                clients.spawn(async move { server.serve(client).await });
            }
        });
        *self.running.lock().unwrap() = Some(task);
    }

    async fn stop(&self) {
        let running = self.running.lock().unwrap().take();
        if let Some(task) = running {
            task.abort();
            let _ = task.await;
        }
    }

    fn start_again(self: &Arc<Self>) {
        self.run(listen(self.address));
    }

    async fn serve(&self, client: TcpStream) {
        let (read, mut write) = client.into_split();
        let (mut read, mut line) = (BufReader::new(read), String::new());
        while read.read_line(&mut line).await.is_ok() && line.ends_with('\n') {
            if line.starts_with("listen") {
                let mut commits = self.commits.subscribe();
                while let Ok(cluster) = commits.recv().await {
                    if line.trim_end().ends_with(&cluster.store_key())
                        && write.write_all(b"!\n").await.is_err()
                    {
                        return;
                    }
                }
            }
            let Ok(name) = line.trim().parse() else {
                return;
            };
            let question = self.questions.lock().unwrap().get(&name).cloned();
            let Some((cluster, question)) = question else {
                return;
            };
            let reply = self.answer(&cluster, question).await;
            self.replies.lock().unwrap().insert(name, reply);
            if write.write_all(line.as_bytes()).await.is_err() {
                return;
            }
            line.clear();
        }
    }

    async fn answer(&self, cluster: &ClusterName, question: Question) -> Reply {
        let table = self.memory.client(cluster).await.unwrap();
        match question {
            Question::Nothing => Reply::Done(Ok(())),
            Question::Initialize(request) => Reply::Done(table.initialize(&request).await),
            Question::Read(request) => Reply::Read(table.read(&request).await),
            Question::Row(silo, known) => Reply::Row(table.read_row(&silo, known.as_ref()).await),
            Question::Rows(changes) => {
                for change in changes {
                    if let RowChange::Insert(row) | RowChange::Update(row) = change {
                        let _ = self.memory.put_row(cluster, row.key(), row.body()).await;
                    }
                }
                Reply::Done(Ok(()))
            }
            Question::Commit(request) => {
                let answer = table.commit(&request).await;
                if let Ok(CommitOutcome::Committed(_)) = answer {
                    let _ = self.commits.send(cluster.clone());
                }
                Reply::Commit(answer)
            }
            Question::Beat(write) => Reply::Done(table.update_i_am_alive(&write).await),
            Question::Delete => Reply::Done(table.delete().await),
            Question::DeleteRowsOf(listed) => {
                Reply::Done(match table.read(&ReadRequest::all()).await {
                    Ok(ReadAnswer::Snapshot { snapshot, .. })
                        if Some(snapshot.version_row.table_id) != listed =>
                    {
                        let _ = self.memory.drop_version_row(cluster).await;
                        Ok(())
                    }
                    _ => table.delete().await,
                })
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = self.running.get_mut().unwrap().take() {
            task.abort();
        }
    }
}

/// The backend.
pub struct Networked {
    flaw: Flaw,
    server: Arc<Server>,
}

impl Networked {
    pub fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            server: Server::start(),
        }
    }

    fn connect(
        &self,
        cluster: &ClusterName,
        address: SocketAddr,
        flaw: Flaw,
        patience: Duration,
    ) -> Arc<dyn MembershipTable> {
        Arc::new(Wired {
            flaw,
            patience,
            server: self.server.clone(),
            address,
            cluster: cluster.clone(),
            connection: Arc::default(),
            permits: Semaphore::new(8),
            broken: false.into(),
            listening: Mutex::default(),
        })
    }
}

#[async_trait]
impl Backend for Networked {
    fn name(&self) -> String {
        format!("{:?}", self.flaw)
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let hints = matches!(
            self.flaw,
            Flaw::HintsLate | Flaw::HintsEnd | Flaw::HintsStop
        );
        Ok(self.connect(
            cluster,
            self.server.address,
            if hints { self.flaw } else { Flaw::None },
            PATIENT,
        ))
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let proxy = Proxy::to(self.server.address)?;
        let address = if self.flaw == Flaw::GoesPastTheProxy {
            self.server.address
        } else {
            proxy.address()
        };
        Ok(Proxied {
            table: self.connect(cluster, address, self.flaw, IMPATIENT),
            proxy,
        })
    }

    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
            .read(1)
            .read_row(1)
            .commit(1)
            .conflict(1)
            .commit_again(1)
            .update_i_am_alive(1)
            .initialize(2)
            .delete(2)
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Child, Reason::InMemory),
            (Capability::Secret, Reason::NoSecret),
        ]
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        self.server.memory.put_row(cluster, key, body).await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.server.memory.put_version_row(cluster, text).await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.server.memory.drop_version_row(cluster).await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.server.memory.wipe(cluster).await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        self.server.memory.save(cluster).await
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        self.server.memory.restore(cluster, saved).await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.server.stop().await;
        self.server.start_again();
        Ok(())
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            self.server.start_again()
        } else {
            self.server.stop().await
        }
        Ok(())
    }
}

struct Connection {
    read: BufReader<tokio::net::tcp::OwnedReadHalf>,
    write: tokio::net::tcp::OwnedWriteHalf,
}

/// The client: one connection, one question at a time.
struct Wired {
    flaw: Flaw,
    patience: Duration,
    server: Arc<Server>,
    address: SocketAddr,
    cluster: ClusterName,
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
    permits: Semaphore,
    broken: std::sync::atomic::AtomicBool,
    listening: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Wired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wired")
    }
}

impl Drop for Wired {
    fn drop(&mut self) {
        self.listening
            .get_mut()
            .unwrap()
            .iter()
            .for_each(JoinHandle::abort);
    }
}

/// How far a question came before its connection broke.
enum Broke {
    BeforeItWasSent,
    AfterItWasSent,
}

/// For how long a client behind a proxy waits for an answer: several cases wait as long.
const IMPATIENT: Duration = Duration::from_millis(500);
/// And one beside it, to which nothing happens: it need not hurry on a busy machine.
const PATIENT: Duration = Duration::from_secs(4);

impl Wired {
    async fn open(&self) -> Result<Connection, Broke> {
        if self.flaw == Flaw::NeverReconnects && self.broken.load(Ordering::SeqCst) {
            return Err(Broke::BeforeItWasSent);
        }
        let (read, write) = TcpStream::connect(self.address)
            .await
            .map_err(|_| Broke::BeforeItWasSent)?
            .into_split();
        Ok(Connection {
            read: BufReader::new(read),
            write,
        })
    }

    async fn exchange(&self, question: Question) -> Result<Reply, Broke> {
        let name = self.server.names.fetch_add(1, Ordering::SeqCst);
        self.server
            .questions
            .lock()
            .unwrap()
            .insert(name, (self.cluster.clone(), question));
        let mut place = self.connection.lock().await;
        let mixes = self.flaw == Flaw::MixesAnswers;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let mut answer = String::new();
        if mixes {
            // Left where it is while the answer is waited for.
            let connection = place.insert(connection);
            let heard = async {
                connection
                    .write
                    .write_all(format!("{name:>40}\n").as_bytes())
                    .await
                    .ok()?;
                connection.read.read_line(&mut answer).await.ok()
            };
            if heard.await.is_none() || !answer.ends_with('\n') {
                *place = None;
                return Err(Broke::AfterItWasSent);
            }
        } else {
            let sent = connection
                .write
                .write_all(format!("{name:>40}\n").as_bytes())
                .await;
            let heard = connection.read.read_line(&mut answer).await;
            if sent.is_err() || heard.is_err() || !answer.ends_with('\n') {
                self.broken.store(true, Ordering::SeqCst);
                return Err(Broke::AfterItWasSent);
            }
            *place = Some(connection);
        }
        let heard = answer.trim().parse().unwrap_or(name);
        self.server
            .replies
            .lock()
            .unwrap()
            .remove(&heard)
            .ok_or(Broke::AfterItWasSent)
    }

    async fn try_once(
        &self,
        operation: Operation,
        question: Question,
    ) -> Result<Reply, TableError> {
        let permit = self.permits.acquire().await.unwrap();
        if self.flaw == Flaw::LosesPermits {
            permit.forget();
        }
        let exchange = self.exchange(question);
        let outcome = match self.flaw {
            Flaw::WaitsForever => exchange.await,
            _ => tokio::time::timeout(self.patience, exchange)
                .await
                .unwrap_or(Err(Broke::AfterItWasSent)),
        };
        if self.flaw == Flaw::LosesPermits {
            self.permits.add_permits(1);
        }
        outcome.map_err(|broke| {
            let reads = matches!(operation, Operation::Read | Operation::ReadRow);
            let kind = match broke {
                Broke::AfterItWasSent if !reads && self.flaw != Flaw::CertainlyNot => {
                    TableErrorKind::OutcomeUnknown
                }
                _ => TableErrorKind::Unavailable,
            };
            TableError::new(kind, operation, "wired", "the connection broke")
        })
    }

    async fn ask(&self, operation: Operation, question: Question) -> Result<Reply, TableError> {
        if self.flaw == Flaw::TalksTooMuch {
            for _ in 0..3 {
                self.try_once(operation, Question::Nothing).await?;
            }
        }
        self.try_once(operation, question).await
    }

    async fn done(&self, operation: Operation, question: Question) -> Result<(), TableError> {
        match self.ask(operation, question).await? {
            Reply::Done(answer) => answer,
            _ => Err(TableError::new(
                TableErrorKind::OutcomeUnknown,
                operation,
                "wired",
                "another answer",
            )),
        }
    }
}

struct Hints(mpsc::UnboundedReceiver<()>);

impl futures_core::Stream for Hints {
    type Item = ();
    fn poll_next(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.0.poll_recv(cx)
    }
}

async fn listen_once(
    address: SocketAddr,
    cluster: &str,
    hints: &mpsc::UnboundedSender<()>,
    late: bool,
) -> Option<()> {
    let (read, mut write) = TcpStream::connect(address).await.ok()?.into_split();
    write
        .write_all(format!("listen {cluster}\n").as_bytes())
        .await
        .ok()?;
    let mut lines = BufReader::new(read).lines();
    while lines.next_line().await.ok()?.is_some() {
        if late {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
        }
        hints.send(()).ok()?;
    }
    None
}

#[async_trait]
impl MembershipTable for Wired {
    fn store(&self) -> &'static str {
        "wired"
    }

    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.done(Operation::Initialize, Question::Nothing).await?;
        self.done(Operation::Initialize, Question::Initialize(request.clone()))
            .await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if self.flaw == Flaw::ReadsRowsLater {
            let before = self
                .ask(Operation::Read, Question::Read(request.clone()))
                .await?;
            let created = self
                .ask(Operation::Read, Question::Read(request.clone()))
                .await?;
            return match (before, created) {
                (Reply::Read(Err(e)), Reply::Read(Ok(_)))
                    if e.kind() == TableErrorKind::NotInitialized =>
                {
                    Err(TableError::new(
                        TableErrorKind::Damaged,
                        Operation::Read,
                        "wired",
                        "rows without a version row",
                    ))
                }
                (_, Reply::Read(answer)) => answer,
                _ => Err(TableError::new(
                    TableErrorKind::Unavailable,
                    Operation::Read,
                    "wired",
                    "another answer",
                )),
            };
        }
        match self
            .ask(Operation::Read, Question::Read(request.clone()))
            .await
        {
            Ok(Reply::Read(answer)) => answer,
            Err(_) if self.flaw == Flaw::EmptyWhenCut => {
                let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
                let snapshot = Snapshot::new(row.token(&[]), row, Rows::new());
                Ok(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats: Some(Default::default()),
                })
            }
            Ok(_) => Err(TableError::new(
                TableErrorKind::Unavailable,
                Operation::Read,
                "wired",
                "another answer",
            )),
            Err(e) => Err(e),
        }
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        match self
            .ask(Operation::ReadRow, Question::Row(*silo, known.cloned()))
            .await?
        {
            Reply::Row(answer) => answer,
            _ => Err(TableError::new(
                TableErrorKind::Unavailable,
                Operation::ReadRow,
                "wired",
                "another answer",
            )),
        }
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&self.limits(), "wired")?;
        if self.flaw == Flaw::CommitsInTwoRequests {
            self.done(Operation::Commit, Question::Rows(request.changes.clone()))
                .await?;
        }
        let answer = match self
            .ask(Operation::Commit, Question::Commit(request.clone()))
            .await
        {
            Err(e)
                if self.flaw == Flaw::RetriesUnderAnotherName
                    && e.kind() == TableErrorKind::OutcomeUnknown =>
            {
                let id = CommitId::new(
                    (77 << 64) | u128::from(self.server.names.fetch_add(1, Ordering::SeqCst)),
                );
                let mut renamed = request.clone();
                renamed.id = id;
                self.ask(Operation::Commit, Question::Commit(renamed))
                    .await?
            }
            Err(e) if request.attempt == membership_core::Attempt::Again => {
                return Err(TableError::new(
                    TableErrorKind::OutcomeUnknown,
                    Operation::Commit,
                    "wired",
                    e.message(),
                ));
            }
            other => other?,
        };
        match answer {
            Reply::Commit(answer) => answer,
            _ => Err(TableError::new(
                TableErrorKind::OutcomeUnknown,
                Operation::Commit,
                "wired",
                "another answer",
            )),
        }
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.done(Operation::UpdateIAmAlive, Question::Beat(write.clone()))
            .await
    }

    async fn delete(&self) -> Result<(), TableError> {
        if self.flaw == Flaw::DeletesWhatItListed {
            let listed = match self
                .ask(Operation::Delete, Question::Read(ReadRequest::all()))
                .await?
            {
                Reply::Read(Ok(ReadAnswer::Snapshot { snapshot, .. })) => {
                    Some(snapshot.version_row.table_id)
                }
                _ => None,
            };
            return self
                .done(Operation::Delete, Question::DeleteRowsOf(listed))
                .await;
        }
        self.done(Operation::Delete, Question::Nothing).await?;
        self.done(Operation::Delete, Question::Delete).await
    }

    fn limits(&self) -> TableLimits {
        TableLimits::new(100, 32_000, 1_000_000, 20_000)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(
            membership_core::Recency::Linearizable,
            membership_core::Durability::Kept,
        )
    }

    fn hints(&self) -> Option<HintStream> {
        let (hints, stream) = mpsc::unbounded_channel();
        let (address, cluster, flaw) = (self.address, self.cluster.store_key(), self.flaw);
        let task = tokio::spawn(async move {
            loop {
                listen_once(address, &cluster, &hints, flaw == Flaw::HintsLate).await;
                match flaw {
                    Flaw::HintsEnd => return,
                    Flaw::HintsStop => std::future::pending().await,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        self.listening.lock().unwrap().push(task);
        Some(Box::pin(Hints(stream)))
    }
}
