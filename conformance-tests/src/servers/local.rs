//! A server that the tests start: a process on a free port, with a data folder that is removed with
//! it.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::store::Servers;
use crate::helpers::unique;
use crate::stop::Stop;

/// Starts a server: in the foreground, with its data in this folder, at this address, with this
/// password, and with the settings that make it keep acknowledged writes. None if there is nothing
/// to start.
pub type StartCommand = fn(data: &Path, listen: SocketAddr, secret: &str) -> Option<Command>;

/// How long a server may take to listen. One that ends before is not waited for.
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

    /// Clients connect to a server of the tests' own by the URL that this function makes of its
    /// address: for a store whose URLs name a user, a database or options. The secret stays a part
    /// of the URL, and `command` sets up the rest. The URL of an external server is kept.
    #[must_use]
    pub fn at(mut self, url: impl FnOnce(SocketAddr) -> String) -> Self {
        if !self.is_external {
            self.url = url(self.address);
        }
        self
    }

    async fn start_again(&self) -> Result<(), Stop> {
        let Some(mut command) = (self.command)(&self.data, self.address, self.secret) else {
            return Ok(());
        };
        let program = command.get_program().display().to_string();
        let process = command
            .stdin(Stdio::piped())
            .stdout(File::create(self.output())?)
            .spawn()
            .map_err(|error| {
                Stop::failed(format!(
                    "the server's program `{program}` does not start: {error}"
                ))
            })?;
        *self.process() = Some(process);
        let deadline = Instant::now() + LISTENS;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.process().as_mut().map(Child::try_wait).transpose()?;
            let why = match ended.flatten() {
                Some(status) => format!("ended ({status}) before it listened on {}", self.address),
                None if Instant::now() > deadline => {
                    let seconds = LISTENS.as_secs();
                    format!("does not listen on {} after {seconds} s", self.address)
                }
                None => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let wrote = last_lines(&fs::read(self.output()).unwrap_or_default());
            return Err(Stop::failed(format!(
                "the server's program `{program}` {why}; its stderr is above, its stdout: {wrote}"
            )));
        }
        Ok(())
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file beside the data that the server's output goes to.
    fn output(&self) -> PathBuf {
        self.data.with_extension("output")
    }

    /// Kills the process by SIGKILL; returns when it is gone.
    fn kill(&self) -> io::Result<()> {
        match self.process().take() {
            Some(mut process) => process.kill().and_then(|()| process.wait()).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.data);
        let _ = fs::remove_file(self.output());
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

/// The end of what a server wrote, or that it wrote nothing.
fn last_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    match &lines[lines.len().saturating_sub(10)..] {
        [] => "nothing".to_owned(),
        last => last.join("\n"),
    }
}

/// `host:port` in a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::{LocalServer, Stop, given};

    /// How a server that is started by this command fails, and after how long.
    async fn failure(command: super::StartCommand) -> (String, Duration) {
        let began = Instant::now();
        let started = LocalServer::start("MEMBERSHIP_TEST_NO_SUCH_URL", "toy", "s", command).await;
        match started.map(drop) {
            Err(Stop::Failed(why)) => (why.to_string(), began.elapsed()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_says_why() {
        fn command(_: &Path, _: SocketAddr, _: &str) -> Option<Command> {
            let mut command = Command::new("sh");
            command.args(["-c", "echo no such option: --durable; exit 3"]);
            Some(command)
        }
        let (why, after) = failure(command).await;
        assert!(
            why.contains("exit status: 3") && why.contains("no such option: --durable"),
            "{why}"
        );
        assert!(after < Duration::from_secs(10), "{after:?}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        fn command(_: &Path, _: SocketAddr, _: &str) -> Option<Command> {
            Some(Command::new("no-such-server"))
        }
        let (why, _) = failure(command).await;
        assert!(why.contains("`no-such-server` does not start"), "{why}");
    }

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
