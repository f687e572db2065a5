//! A server that echoes each line, and a client of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use membership_fault_proxy::Proxy;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
/// A generous timeout: every step is fast unless something is broken.
pub const SOON: Duration = Duration::from_secs(10);

/// Echoes each line and counts the lines.
pub struct Echo {
    pub address: SocketAddr,
    pub received: Arc<AtomicU64>,
}

impl Echo {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let counter = received.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counter = counter.clone();
                tokio::spawn(async move {
                    let (read, mut write) = client.into_split();
                    let (mut read, mut line) = (BufReader::new(read), String::new());
                    // An incomplete line does not count.
                    while read.read_line(&mut line).await.is_ok() && line.ends_with('\n') {
                        counter.fetch_add(1, Ordering::SeqCst);
                        if write.write_all(line.as_bytes()).await.is_err() {
                            return;
                        }
                        line.clear();
                    }
                });
            }
        });
        Self { address, received }
    }

    /// Waits until it has received so many lines.
    pub async fn has_received(&self, n: u64) {
        let wait = async {
            while self.received.load(Ordering::SeqCst) < n {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap();
        assert_eq!(self.received.load(Ordering::SeqCst), n);
    }
}

pub struct Client {
    pub read: BufReader<OwnedReadHalf>,
    pub write: OwnedWriteHalf,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let (read, write) = TcpStream::connect(address).await?.into_split();
        Ok(Self {
            read: BufReader::new(read),
            write,
        })
    }

    pub async fn send(&mut self, line: &str) -> std::io::Result<()> {
        self.write.write_all(format!("{line}\n").as_bytes()).await
    }

    pub async fn receive(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        tokio::time::timeout(SOON, self.read.read_line(&mut line)).await??;
        // An incomplete line does not count.
        line.strip_suffix('\n')
            .map(str::to_owned)
            .ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    pub async fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.send(line).await?;
        self.receive().await
    }

    /// Checks that nothing arrives for a while.
    pub async fn receives_nothing(&mut self) {
        let mut line = String::new();
        let received =
            tokio::time::timeout(Duration::from_millis(60), self.read.read_line(&mut line)).await;
        assert!(received.is_err(), "received {received:?}");
    }
}

pub async fn start() -> (Echo, Proxy, Client) {
    let echo = Echo::start().await;
    let proxy = Proxy::to(echo.address).unwrap();
    let client = Client::connect(proxy.address()).await.unwrap();
    (echo, proxy, client)
}
