//! An ensemble of ZooKeeper: several servers that elect a leader; one of them goes, and the others go on.

use std::io;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::process::LOOK;
use super::software::{last_lines, wire};
use super::{Kind, LaunchError, Options, Server, free_port, on_thread};

/// How long an election may take.
const ELECTED: Duration = Duration::from_secs(120);

/// Servers that are processes of this machine, and keep what they acknowledge. Gone when it is dropped.
#[derive(Clone, Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
}

impl Ensemble {
    /// Starts so many servers, which find a leader among themselves. Clients that show the password are the user `membership`.
    ///
    /// # Errors
    /// As [`Server::start`]; also when the environment names a server.
    pub async fn start(servers: usize, password: Option<&str>) -> Result<Self, LaunchError> {
        let free = || free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"));
        let mut lines = Vec::new();
        for number in 1..=servers {
            lines.push(format!("server.{number}=127.0.0.1:{}:{}", free()?, free()?));
        }
        // None of them serves before most of them are there.
        let mut starting = JoinSet::new();
        for number in 1..=servers {
            let mut args = lines.clone();
            args.push(format!("myid={number}"));
            // Processes also where containers are asked for: they reach each other at 127.0.0.1.
            let options = Options {
                durable: true,
                local: true,
                args,
                password: password.map(str::to_owned),
                ..Options::default()
            };
            starting.spawn(async move {
                Server::start(Kind::ZooKeeper, options)
                    .await
                    .map(|server| (number, server))
            });
        }
        let mut started = Vec::new();
        while let Some(server) = starting.join_next().await {
            started.push(server.map_err(|error| {
                LaunchError::Install(format!("the launcher itself failed: {error}"))
            })??);
        }
        started.sort_by_key(|(number, _)| *number);
        Ok(Self {
            servers: started.into_iter().map(|(_, server)| server).collect(),
        })
    }

    /// All of them, also those that do not run.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Its address as the provider takes it.
    #[must_use]
    pub fn url(&self) -> String {
        let first = self
            .servers
            .iter()
            .take(1)
            .map(|server| server.url().to_owned());
        let others = self
            .servers
            .iter()
            .skip(1)
            .map(|server| server.address().to_string());
        first.chain(others).collect::<Vec<_>>().join(",")
    }

    /// Waits until somebody else than this server leads; gives who.
    ///
    /// # Errors
    /// When nobody does for two minutes.
    pub async fn leader_but(&self, not: Option<usize>) -> Result<usize, LaunchError> {
        let ensemble = self.clone();
        on_thread(move || {
            let deadline = Instant::now() + ELECTED;
            loop {
                let leads =
                    |server: &Server| says(server).is_ok_and(|said| said.contains("Mode: leader"));
                if let Some(leader) = ensemble
                    .servers
                    .iter()
                    .position(leads)
                    .filter(|leader| Some(*leader) != not)
                {
                    return Ok(leader);
                }
                if Instant::now() > deadline {
                    let log = ensemble
                        .servers
                        .first()
                        .and_then(|server| server.log().ok())
                        .unwrap_or_default();
                    let why = format!("waited {} s for a leader", ELECTED.as_secs());
                    return Err(LaunchError::Start {
                        kind: Kind::ZooKeeper,
                        why,
                        log: last_lines(&log),
                    });
                }
                std::thread::sleep(LOOK);
            }
        })
        .await
    }

    /// Kills whoever leads (SIGKILL); gives who it was.
    ///
    /// # Errors
    /// When nobody leads for two minutes.
    pub async fn kill_leader(&self) -> Result<usize, LaunchError> {
        let leader = self.leader_but(None).await?;
        if let Some(server) = self.servers.get(leader) {
            server.kill().await?;
        }
        Ok(leader)
    }

    /// Starts a server again on its data, and returns when it takes part.
    ///
    /// # Errors
    /// When it does not come up, or finds no others.
    pub async fn start_again(&self, server: usize) -> Result<(), LaunchError> {
        match self.servers.get(server) {
            Some(server) => server.start_again().await,
            None => Ok(()),
        }
    }
}

/// What a server says of itself. One that stands still, or does not run, says nothing.
fn says(server: &Server) -> io::Result<String> {
    match server.process_id() {
        Ok(Some(_)) => wire::srvr(wire::tcp(server.address())?),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}
