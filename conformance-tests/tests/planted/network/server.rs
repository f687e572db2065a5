//! The server over the in-memory table.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use conformance_tests::Backend;
use conformance_tests::backends::Memory;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, HeartbeatWrite, InitializeRequest, MembershipTable,
    ReadAnswer, ReadRequest, RowChange, RowRead, SiloAddress, TableError, TableId, VersionToken,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{broadcast, oneshot};
use tokio::task::{JoinHandle, JoinSet};

#[derive(Clone)]
pub enum Call {
    Nothing,
    Initialize(InitializeRequest),
    /// Makes the table anew, whatever there is.
    InitializeOver(InitializeRequest),
    Read(ReadRequest),
    Row(SiloAddress, Option<VersionToken>),
    Rows(Vec<RowChange>),
    Commit(CommitRequest),
    Beat(HeartbeatWrite),
    Delete,
    /// Deletes only the rows of the table with this id, and the version row of any table.
    DeleteRowsOf(Option<TableId>),
}

#[derive(Debug)]
pub enum Reply {
    Done(Result<(), TableError>),
    Read(Result<ReadAnswer, TableError>),
    Row(Result<RowRead, TableError>),
    Commit(Result<CommitOutcome, TableError>),
}

/// How many bytes of a line are the name of the request. In an answer the body follows.
pub const NAME: usize = 40;
const BODY: &str = " done";

/// The server, and the memory with the requests and answers.
pub struct Server {
    pub memory: Memory,
    pub calls: Mutex<BTreeMap<u64, (ClusterName, Call)>>,
    pub replies: Mutex<BTreeMap<u64, Reply>>,
    pub names: AtomicU64,
    commits: broadcast::Sender<ClusterName>,
    pub address: SocketAddr,
    running: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(1024).unwrap()
}

impl Server {
    pub fn start() -> Arc<Self> {
        let listener = listen("127.0.0.1:0".parse().unwrap());
        let server = Arc::new(Self {
            memory: Memory::default(),
            calls: Mutex::default(),
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
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let client = tokio::select! {
                    _ = &mut stopped => break,
                    accepted = listener.accept() => accepted,
                };
                let (Ok((client, _)), Some(server)) = (client, server.upgrade()) else {
                    break;
                };
                clients.spawn(async move { server.serve(client).await });
            }
            // A client whose task is only told to end may still get an answer from another thread.
            clients.shutdown().await;
        });
        *self.running.lock().unwrap() = Some((stop, task));
    }

    pub async fn stop(&self) {
        let running = self.running.lock().unwrap().take();
        if let Some((stop, task)) = running {
            drop(stop);
            let _ = task.await;
        }
    }

    pub fn start_again(self: &Arc<Self>) {
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
            let call = self.calls.lock().unwrap().get(&name).cloned();
            let Some((cluster, call)) = call else {
                return;
            };
            let reply = self.answer(&cluster, call).await;
            self.replies.lock().unwrap().insert(name, reply);
            let answer = format!("{}{BODY}\n", line.trim_end_matches('\n'));
            if write.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            line.clear();
        }
    }

    async fn answer(&self, cluster: &ClusterName, call: Call) -> Reply {
        let table = self.memory.client(cluster).await.unwrap();
        match call {
            Call::Nothing => Reply::Done(Ok(())),
            Call::Initialize(request) => Reply::Done(table.initialize(&request).await),
            Call::InitializeOver(request) => {
                self.memory.wipe(cluster).await.unwrap();
                Reply::Done(table.initialize(&request).await)
            }
            Call::Read(request) => Reply::Read(table.read(&request).await),
            Call::Row(silo, known) => Reply::Row(table.read_row(&silo, known.as_ref()).await),
            Call::Rows(changes) => {
                for change in changes {
                    if let RowChange::Insert(row) | RowChange::Update(row) = change {
                        let _ = self.memory.put_row(cluster, row.key(), row.body()).await;
                    }
                }
                Reply::Done(Ok(()))
            }
            Call::Commit(request) => {
                let answer = table.commit(&request).await;
                if let Ok(CommitOutcome::Committed(_)) = answer {
                    let _ = self.commits.send(cluster.clone());
                }
                Reply::Commit(answer)
            }
            Call::Beat(write) => Reply::Done(table.update_i_am_alive(&write).await),
            Call::Delete => Reply::Done(table.delete().await),
            Call::DeleteRowsOf(listed) => {
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
        if let Some((_, task)) = self.running.get_mut().unwrap().take() {
            task.abort();
        }
    }
}
