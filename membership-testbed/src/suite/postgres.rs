//! A PostgreSQL primary with a synchronous standby, under the conformance suite. The standby is
//! promoted when the primary is frozen, as a tool for failovers does, and the former primary is
//! made anew as the standby of the other.
//!
//! Commits wait for a standby wherever one follows. A promoted server waits for none until the
//! other one follows it; the former primary goes on waiting, and acknowledges nothing.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::servers::Servers;
use membership_core::ClusterName;

use crate::{Kind, LaunchError, Options, Server};

/// How long a standby may take to follow, or to be promoted.
const SOON: Duration = Duration::from_secs(60);
/// The setting by which commits wait for a standby.
const NAMES: &str = "synchronous_standby_names";

/// A primary with a synchronous standby.
pub struct Pair {
    state: Mutex<State>,
    url: String,
    addresses: [SocketAddr; 2],
}

#[derive(Clone)]
struct State {
    servers: [Server; 2],
    leader: usize,
    frozen: Option<usize>,
    /// The server that was frozen, and does not follow yet.
    former: Option<usize>,
}

impl Pair {
    /// Starts both, with this password.
    ///
    /// # Errors
    /// As [`Server::start`]; also if the standby does not follow within a minute.
    pub async fn start(secret: &str) -> Result<Self, Stop> {
        let primary = Server::start(Kind::Postgres, options(secret)).await?;
        let standby = Server::start(
            Kind::Postgres,
            Options {
                args: vec![follows(&primary)],
                ..options(secret)
            },
        )
        .await?;
        let addresses = [primary.address(), standby.address()];
        let both = format!("{},{}", addresses[0], addresses[1]);
        let url = primary.url().replace(&addresses[0].to_string(), &both);
        let pair = Self {
            state: Mutex::new(State {
                servers: [primary, standby],
                leader: 0,
                frozen: None,
                former: None,
            }),
            url,
            addresses,
        };
        pair.wait_for_standby(0).await?;
        Ok(pair)
    }

    fn state(&self) -> State {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Commits of this server wait for its standby, once that follows.
    async fn wait_for_standby(&self, primary: usize) -> Result<(), Stop> {
        let server = &self.state().servers[primary];
        sql(server, &format!("ALTER SYSTEM SET {NAMES} = '*'")).await?;
        sql(server, "SELECT pg_reload_conf()").await?;
        let follows =
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        until_it_says(server, follows, "1").await
    }
}

fn options(secret: &str) -> Options {
    Options {
        durable: true,
        local: true,
        password: Some(secret.to_owned()),
        ..Options::default()
    }
}

/// The argument of a standby of this server.
fn follows(primary: &Server) -> String {
    format!("standby_of={}", primary.address().port())
}

/// One statement by an administrator, over the socket in the server's folder; the answer as text.
async fn sql(server: &Server, statement: &str) -> Result<String, Stop> {
    let mut psql = server.command("psql")?;
    psql.arg("-h").arg(server.folder()?.join("run")).args([
        "-p",
        &server.address().port().to_string(),
        "-U",
        "postgres",
        "-X",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-c",
        statement,
    ]);
    output(psql).await
}

async fn output(mut command: Command) -> Result<String, Stop> {
    let done = tokio::task::spawn_blocking(move || command.output()).await??;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    Err(Stop::failed(String::from_utf8_lossy(&done.stderr)))
}

/// Waits until a server answers a statement like this.
async fn until_it_says(server: &Server, statement: &str, answer: &str) -> Result<(), Stop> {
    let deadline = Instant::now() + SOON;
    loop {
        let said = sql(server, statement).await;
        if said.as_ref().is_ok_and(|said| said == answer) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Stop::failed(format!(
                "{statement} is answered with {said:?} after {SOON:?}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[async_trait]
impl Servers for Pair {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.to_vec()
    }

    fn is_external(&self) -> bool {
        false
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        for server in &self.state().servers {
            match running {
                true => server.start_again().await?,
                false => server.kill().await?,
            }
        }
        Ok(())
    }

    /// The primary comes back before the standby would be promoted.
    async fn kill_leader(&self, _: &ClusterName) -> Result<(), Stop> {
        let state = self.state();
        let primary = &state.servers[state.leader];
        primary.kill().await?;
        Ok(primary.start_again().await?)
    }

    fn have_successors(&self) -> bool {
        true
    }

    async fn leader(&self, _: &ClusterName) -> Result<SocketAddr, Stop> {
        Ok(self.addresses[self.state().leader])
    }

    async fn depose(&self, _: &ClusterName) -> Result<(), Stop> {
        let state = self.state();
        let (former, next) = (state.leader, 1 - state.leader);
        state.servers[former].pause().await?;
        self.change(|state| (state.frozen, state.former) = (Some(former), Some(former)));
        let successor = &state.servers[next];
        // It has the setting of the primary that it was copied from, and nobody follows it yet.
        sql(successor, &format!("ALTER SYSTEM SET {NAMES} = ''")).await?;
        sql(successor, "SELECT pg_reload_conf()").await?;
        sql(successor, "SELECT pg_promote()").await?;
        self.change(|state| state.leader = next);
        until_it_says(successor, "SELECT pg_is_in_recovery()", "f").await
    }

    async fn thaw(&self) -> Result<(), Stop> {
        let state = self.state();
        if let Some(frozen) = state.frozen {
            self.change(|state| state.frozen = None);
            state.servers[frozen].resume().await?;
        }
        Ok(())
    }

    /// The former primary is killed, and made anew at the same address from the other one.
    async fn rejoined(&self) -> Result<(), Stop> {
        let state = self.state();
        let Some(former) = state.former else {
            return Ok(());
        };
        let old = &state.servers[former];
        old.kill().await?;
        let anew = Options {
            args: vec![follows(&state.servers[state.leader])],
            port: Some(old.address().port()),
            password: self.url.split([':', '@']).nth(2).map(str::to_owned),
            durable: true,
            local: true,
            ..Options::default()
        };
        let anew: Result<Server, LaunchError> = Server::start(Kind::Postgres, anew).await;
        let anew = anew?;
        self.change(|state| {
            state.servers[former] = anew;
            state.former = None;
        });
        self.wait_for_standby(state.leader).await
    }
}
