//! Several servers of Consul that are one cluster: one of them goes, and the others go on.

use std::time::{Duration, Instant};

use super::process::LOOK;
use super::software::consul::leader;
use super::software::{in_url, last_lines};
use super::{Kind, LaunchError, Options, Server, free_port, on_thread};

/// How long anything may take that the servers have to agree on.
const AGREED: Duration = Duration::from_secs(120);

/// A leader that has not heard from the others for 1.5 s gives up, and they one that they have not heard from for 3 s: three times as long as
/// Consul asks of servers that have a machine each.
const PATIENCE: &str = "-hcl=performance { raft_multiplier = 3 }";

/// Servers that are processes of this machine. Gone when it is dropped.
#[derive(Clone, Debug)]
pub struct ConsulServers {
    servers: Vec<Server>,
    /// Where they find each other, in the same order: what Consul calls its leader by.
    peers: Vec<u16>,
    token: Option<String>,
}

impl ConsulServers {
    /// Starts so many servers, which elect a leader. With a token, whoever has it may do everything, and nobody else anything.
    ///
    /// # Errors
    /// As [`Server::start`]; also when the environment names a server.
    pub async fn start(servers: usize, token: Option<&str>) -> Result<Self, LaunchError> {
        let ports = || -> Result<Vec<u16>, LaunchError> {
            let port = || free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"));
            (0..servers).map(|_| port()).collect()
        };
        let (peers, gossip) = (ports()?, ports()?);
        let mut starting = Vec::new();
        for (peer, own) in peers.iter().zip(&gossip) {
            let mut args = vec![
                format!("-bootstrap-expect={servers}"),
                "-retry-interval=1s".to_owned(),
            ];
            args.push(PATIENCE.to_owned());
            args.push(format!("-server-port={peer}"));
            args.push(format!("-serf-lan-port={own}"));
            args.extend(
                gossip
                    .iter()
                    .map(|port| format!("-retry-join=127.0.0.1:{port}")),
            );
            // Processes also where containers are asked for: they reach each other at 127.0.0.1.
            let options = Options {
                durable: true,
                local: true,
                args,
                password: token.map(str::to_owned),
                ..Options::default()
            };
            // All at once: none of them serves before it has met the others.
            starting.push(tokio::spawn(Server::start(Kind::Consul, options)));
        }
        let mut started = Vec::new();
        for one in starting {
            started.push(
                one.await.map_err(|e| {
                    LaunchError::Install(format!("the launcher itself failed: {e}"))
                })??,
            );
        }
        let servers = Self {
            servers: started,
            peers,
            token: token.map(str::to_owned),
        };
        servers.leader_but(None).await?;
        Ok(servers)
    }

    /// All of them, also those that do not run.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Their address as the provider takes it: all of them, so that there is somebody to ask while one is away.
    #[must_use]
    pub fn url(&self) -> String {
        let names: Vec<String> = self
            .servers
            .iter()
            .map(|server| server.address().to_string())
            .collect();
        let who = self
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!(":{}@", in_url(token)));
        format!("consul://{who}{}", names.join(","))
    }

    /// Waits until somebody else than this server leads, and says so; gives who.
    ///
    /// # Errors
    /// When nobody does for two minutes.
    pub async fn leader_but(&self, not: Option<usize>) -> Result<usize, LaunchError> {
        let all = self.clone();
        on_thread(move || {
            let deadline = Instant::now() + AGREED;
            loop {
                match all.leader().filter(|leader| Some(*leader) != not) {
                    Some(leader) => return Ok(leader),
                    None if Instant::now() > deadline => {
                        return Err(all.failed(
                            0,
                            format!("waited {} s for another leader", AGREED.as_secs()),
                        ));
                    }
                    None => std::thread::sleep(LOOK),
                }
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
        let Some(server) = self.servers.get(leader) else {
            return Err(self.failed(leader, "no such server".to_owned()));
        };
        server.kill().await?;
        Ok(leader)
    }

    /// Starts a server again on its data, and returns when it takes writes, which it hands to whoever leads.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&self, server: usize) -> Result<(), LaunchError> {
        let Some(server) = self.servers.get(server) else {
            return Err(self.failed(server, "no such server".to_owned()));
        };
        server.start_again().await
    }

    /// Who says to lead. Who stands still, or does not run, says nothing.
    fn leader(&self) -> Option<usize> {
        let runs = |server: &Server| matches!(server.process_id(), Ok(Some(_)));
        let says = |(server, peer): (&Server, &u16)| {
            runs(server) && leader(server.address()).is_ok_and(|leader| leader == Some(*peer))
        };
        self.servers.iter().zip(&self.peers).position(says)
    }

    fn failed(&self, server: usize, why: String) -> LaunchError {
        let log = self
            .servers
            .get(server)
            .and_then(|server| server.log().ok())
            .unwrap_or_default();
        LaunchError::Start {
            kind: Kind::Consul,
            why,
            log: last_lines(&log),
        }
    }
}
