//! A server of the tests' own: started on a free port with a data directory that goes with it, killed and started again.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How the server is started: as this test program again, in which only `serve_toy_store` does something. Its log is durable always.
fn command(dir: &Path, listen: SocketAddr, secret: &str) -> Option<Command> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["support::server::serve_toy_store", "--exact", "--nocapture"]);
    command
        .env(DIR, dir)
        .env(LISTEN, listen.to_string())
        .env(PASSWORD, secret);
    Some(command)
}

const DIR: &str = "MEMBERSHIP_TOY_TEST_DIR";
const LISTEN: &str = "MEMBERSHIP_TOY_TEST_LISTEN";
const PASSWORD: &str = "MEMBERSHIP_TOY_TEST_PASSWORD";

/// Does nothing unless it is the process that `command` starts.
#[test]
fn serve_toy_store() {
    let of = |name| std::env::var(name).ok();
    if let (Some(dir), Some(listen), Some(secret)) = (of(DIR), of(LISTEN), of(PASSWORD)) {
        toy_store::Server::open(Path::new(&dir), Some(secret))
            .unwrap()
            .spawn(listen.parse().unwrap())
            .unwrap();
        // Until it is killed, or the tests are gone.
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

pub struct Server {
    dir: tempfile::TempDir,
    address: SocketAddr,
    secret: &'static str,
    yours: Option<String>,
    process: Mutex<Option<Child>>,
}

impl Server {
    /// The one that `MEMBERSHIP_TEST_TOY_URL` names, or a new one.
    pub async fn start(secret: &'static str) -> Self {
        let yours = std::env::var("MEMBERSHIP_TEST_TOY_URL").ok();
        let address = match &yours {
            Some(url) => std::net::ToSocketAddrs::to_socket_addrs(place(url))
                .unwrap()
                .next()
                .unwrap(),
            // Free now, and nobody else is handed it soon.
            None => TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap(),
        };
        let server = Self {
            dir: tempfile::tempdir().unwrap(),
            address,
            secret,
            yours,
            process: Mutex::default(),
        };
        if server.yours.is_none() {
            server.up().await;
        }
        server
    }

    pub fn is_yours(&self) -> bool {
        self.yours.is_some()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        self.yours
            .clone()
            .unwrap_or_else(|| self.url_at(self.address))
    }

    /// The same server by another way.
    pub fn url_at(&self, address: SocketAddr) -> String {
        match &self.yours {
            Some(url) => url.replacen(place(url), &address.to_string(), 1),
            None => format!("toy://:{}@{address}", self.secret),
        }
    }

    /// Starts it at the same address, over the same data, and returns when it answers.
    pub async fn up(&self) {
        let Some(mut command) = command(self.dir.path(), self.address, self.secret) else {
            return;
        };
        // Closed when the tests end, however they end: a server that reads it can end then, too.
        let process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the server's program starts");
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(self.address).is_err() {
            assert!(
                Instant::now() < deadline,
                "the server does not listen on {} after 30 s",
                self.address
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// SIGKILL, by process id; returns when it is gone.
    pub fn kill(&self) {
        if let Some(mut process) = self
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            process.kill().expect("the server can be killed");
            process.wait().expect("the server ends");
        }
    }
}

/// `host:port` in a connection string.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
