//! A server that the tests start: a process on a free port, with a data folder that is removed with
//! it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::store::Servers;
use crate::helpers::unique;
use crate::stop::Stop;

/// Starts a server: in the foreground, with its data in this folder, at this address, with this
/// password, and with the settings that make it keep acknowledged writes. None if there is nothing
/// to start.
pub type StartCommand = fn(data: &Path, listen: SocketAddr, secret: &str) -> Option<Command>;

/// How long a server may take to listen.
const LISTENS: Duration = Duration::from_secs(30);

/// A server process. It can be killed and started again at the same address over the same data. The
/// tests close its input when they end, however they end, so a server that reads its input can end
/// too.
pub struct LocalServer {
    data: PathBuf,
    address: SocketAddr,
    url: String,
    is_external: bool,
    secret: &'static str,
    command: StartCommand,
    process: Mutex<Option<Child>>,
}

impl LocalServer {
    /// The external server whose URL this environment variable contains, or, if it is unset or
    /// empty, a new one at `scheme://:secret@127.0.0.1:port`, without the secret if it is empty. Returns when the
    /// server listens.
    ///
    /// # Errors
    /// The server does not start, or the external URL has no address.
    pub async fn start(
        variable: &str,
        scheme: &str,
        secret: &'static str,
        command: StartCommand,
    ) -> Result<Self, Stop> {
        let external = given(std::env::var(variable).ok());
        let (address, url) = match &external {
            Some(url) => {
                let address = host(url).to_socket_addrs()?.next();
                let address = address.ok_or_else(|| {
                    Stop::failed(format!(
                        "the URL in {variable} has no address: write scheme://host:port"
                    ))
                })?;
                (address, url.replacen(host(url), &address.to_string(), 1))
            }
            None => {
                // The port is free now, and the system does not reuse it soon.
                let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
                let user = match secret {
                    "" => String::new(),
                    secret => format!(":{secret}@"),
                };
                (address, format!("{scheme}://{user}{address}"))
            }
        };
        let data = std::env::temp_dir().join(format!("membership-{scheme}-{:x}", unique()));
        fs::create_dir(&data)?;
        let server = Self {
            data,
            address,
            url,
            is_external: external.is_some(),
            secret,
            command,
            process: Mutex::default(),
        };
        if !server.is_external {
            server.start_again().await?;
        }
        Ok(server)
    }

    async fn start_again(&self) -> Result<(), Stop> {
        let Some(mut command) = (self.command)(&self.data, self.address, self.secret) else {
            return Ok(());
        };
        let process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Stop::failed(format!("cannot start the server's program: {error}")))?;
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        let deadline = Instant::now() + LISTENS;
        while TcpStream::connect(self.address).is_err() {
            if Instant::now() > deadline {
                return Err(Stop::failed(format!(
                    "the server does not listen on {} after {} s",
                    self.address,
                    LISTENS.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Kills the process by SIGKILL; returns when it is gone.
    fn kill(&self) -> io::Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        match process.take() {
            Some(mut process) => process.kill().and_then(|()| process.wait()).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.data);
    }
}

#[async_trait]
impl Servers for LocalServer {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    fn is_external(&self) -> bool {
        self.is_external
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        match running {
            true => self.start_again().await,
            false => Ok(self.kill()?),
        }
    }

    fn can_be_emptied(&self) -> bool {
        !self.is_external
    }

    async fn empty(&self) -> Result<(), Stop> {
        self.kill()?;
        fs::remove_dir_all(&self.data)?;
        fs::create_dir(&self.data)?;
        self.start_again().await
    }
}

/// The URL in a variable; an empty one names no server.
fn given(url: Option<String>) -> Option<String> {
    url.filter(|url| !url.trim().is_empty())
}

/// `host:port` in a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::given;

    #[test]
    fn an_empty_variable_names_no_server() {
        let of = |url: &str| given(Some(url.to_owned()));
        assert_eq!(
            of("toy://127.0.0.1:1").as_deref(),
            Some("toy://127.0.0.1:1")
        );
        assert_eq!((of(""), of(" "), given(None)), (None, None, None));
    }
}
