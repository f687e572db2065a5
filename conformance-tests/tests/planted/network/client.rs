//! The client, which breaks one clause on purpose.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, Conflict, Guarantees, HeartbeatWrite,
    HintStream, InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, RowRead,
    Rows, SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind, TableId, TableLimits,
    VersionRow, VersionToken,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::flaw::Flaw;
use super::server::{Call, NAME, Reply, Server};

pub struct Connection {
    read: BufReader<tokio::net::tcp::OwnedReadHalf>,
    write: tokio::net::tcp::OwnedWriteHalf,
}

/// The client: one connection, one request at a time.
pub struct Client {
    pub flaw: Flaw,
    pub timeout: Duration,
    pub server: Arc<Server>,
    pub address: SocketAddr,
    pub cluster: ClusterName,
    pub connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
    pub permits: Semaphore,
    pub broken: std::sync::atomic::AtomicBool,
    pub listening: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.listening
            .get_mut()
            .unwrap()
            .iter()
            .for_each(JoinHandle::abort);
    }
}

/// How far a request came before its connection broke.
enum Broke {
    BeforeItWasSent,
    AfterItWasSent,
}

/// What a client makes of an answer that says that it succeeded, and nothing else.
fn without_its_body(reply: Reply) -> Reply {
    match reply {
        Reply::Commit(_) => Reply::Commit(Ok(CommitOutcome::Conflict(Conflict::new(None, None)))),
        Reply::Read(_) => Reply::Read(Err(TableError::new(
            TableErrorKind::NotInitialized,
            Operation::Read,
            "wired",
            "there is nothing",
        ))),
        other => other,
    }
}

/// The timeout of a client behind a proxy: several cases wait for it.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(500);
/// The timeout of a client beside it, which no fault hits; it allows for a busy machine.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(4);

impl Client {
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

    async fn exchange(&self, call: Call) -> Result<Reply, Broke> {
        let name = self.server.names.fetch_add(1, Ordering::SeqCst);
        self.server
            .calls
            .lock()
            .unwrap()
            .insert(name, (self.cluster.clone(), call));
        let mut place = self.connection.lock().await;
        let mixes = self.flaw == Flaw::MixesAnswers;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let mut answer = String::new();
        if mixes {
            // The connection stays in its place during the wait.
            let connection = place.insert(connection);
            let received = async {
                connection
                    .write
                    .write_all(format!("{name:>NAME$}\n").as_bytes())
                    .await
                    .ok()?;
                connection.read.read_line(&mut answer).await.ok()
            };
            if received.await.is_none() || !answer.ends_with('\n') {
                *place = None;
                return Err(Broke::AfterItWasSent);
            }
        } else {
            let sent = connection
                .write
                .write_all(format!("{name:>NAME$}\n").as_bytes())
                .await;
            let received = connection.read.read_line(&mut answer).await;
            if self.flaw == Flaw::TakesPartsOfAnswers
                && answer.len() > NAME
                && !answer.ends_with('\n')
            {
                return self.reply(&answer, name).map(without_its_body);
            }
            if sent.is_err() || received.is_err() || !answer.ends_with('\n') {
                self.broken.store(true, Ordering::SeqCst);
                return Err(Broke::AfterItWasSent);
            }
            *place = Some(connection);
        }
        self.reply(&answer, name)
    }

    fn reply(&self, answer: &str, name: u64) -> Result<Reply, Broke> {
        let (received, _) = answer.split_at_checked(NAME).unwrap_or((answer, ""));
        let received = received.trim().parse().unwrap_or(name);
        let mut replies = self.server.replies.lock().unwrap();
        replies.remove(&received).ok_or(Broke::AfterItWasSent)
    }

    async fn try_once(&self, operation: Operation, call: Call) -> Result<Reply, TableError> {
        let permit = self.permits.acquire().await.unwrap();
        if self.flaw == Flaw::LosesPermits {
            permit.forget();
        }
        let exchange = self.exchange(call);
        let outcome = match self.flaw {
            Flaw::WaitsForever => exchange.await,
            _ => tokio::time::timeout(self.timeout, exchange)
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

    async fn ask(&self, operation: Operation, call: Call) -> Result<Reply, TableError> {
        if self.flaw == Flaw::MakesMoreRoundTrips {
            for _ in 0..3 {
                self.try_once(operation, Call::Nothing).await?;
            }
        }
        let answer = self.try_once(operation, call).await;
        if self.flaw == Flaw::LeavesARequestOpen
            && let Ok(mut waiting) = TcpStream::connect(self.address).await
        {
            let _ = waiting.write_all(b"listen to nobody\n").await;
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(waiting);
            });
        }
        answer
    }

    async fn done(&self, operation: Operation, call: Call) -> Result<(), TableError> {
        match self.ask(operation, call).await? {
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
impl MembershipTable for Client {
    fn store(&self) -> &'static str {
        "wired"
    }

    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        if self.flaw == Flaw::InitializesOver {
            let read = Call::Read(ReadRequest::all());
            return match self.ask(Operation::Initialize, read).await? {
                Reply::Read(Err(e)) if e.kind() == TableErrorKind::NotInitialized => {
                    let over = Call::InitializeOver(request.clone());
                    self.done(Operation::Initialize, over).await
                }
                Reply::Read(answer) => answer.map(drop),
                _ => unreachable!(),
            };
        }
        self.done(Operation::Initialize, Call::Nothing).await?;
        self.done(Operation::Initialize, Call::Initialize(request.clone()))
            .await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection && self.flaw != Flaw::ReadsOverTheOldConnection {
            let old = self.connection.lock().await.take();
            if self.flaw == Flaw::LeavesConnectionsOpen {
                std::mem::forget(old);
            }
        }
        if self.flaw == Flaw::ReadsRowsLater {
            let before = self
                .ask(Operation::Read, Call::Read(request.clone()))
                .await?;
            let created = self
                .ask(Operation::Read, Call::Read(request.clone()))
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
        match self.ask(Operation::Read, Call::Read(request.clone())).await {
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
            .ask(Operation::ReadRow, Call::Row(*silo, known.cloned()))
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
            self.done(Operation::Commit, Call::Rows(request.changes.clone()))
                .await?;
        }
        let answer = match self
            .ask(Operation::Commit, Call::Commit(request.clone()))
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
                self.ask(Operation::Commit, Call::Commit(renamed)).await?
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
        self.done(Operation::UpdateIAmAlive, Call::Beat(write.clone()))
            .await
    }

    async fn delete(&self) -> Result<(), TableError> {
        if self.flaw == Flaw::DeletesWhatItListed {
            let listed = match self
                .ask(Operation::Delete, Call::Read(ReadRequest::all()))
                .await?
            {
                Reply::Read(Ok(ReadAnswer::Snapshot { snapshot, .. })) => {
                    Some(snapshot.version_row.table_id)
                }
                _ => None,
            };
            return self
                .done(Operation::Delete, Call::DeleteRowsOf(listed))
                .await;
        }
        self.done(Operation::Delete, Call::Nothing).await?;
        self.done(Operation::Delete, Call::Delete).await
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
