//! Several members of one etcd cluster: one of them goes, and the others go on.

use std::io;
use std::time::{Duration, Instant};

use super::process::LOOK;
use super::software::etcd::leads;
use super::software::last_lines;
use super::{Kind, LaunchError, Options, Server, free_port, on_thread};

/// How long anything may take that the members have to agree on.
const AGREED: Duration = Duration::from_secs(120);
/// Who has kept silent for so many milliseconds leads no more. Longer than etcd's own second: a machine that is busy with other things is no
/// reason for an election.
const ELECTION: [&str; 3] = [
    "--pre-vote",
    "--heartbeat-interval=200",
    "--election-timeout=2000",
];

/// Members that are processes of this machine, and keep what they acknowledge. Gone when it is dropped.
#[derive(Clone, Debug)]
pub struct EtcdCluster {
    members: Vec<Server>,
}

impl EtcdCluster {
    /// Starts so many members at once, and waits until each of them answers. With a password their user is `root`.
    ///
    /// # Errors
    /// As [`Server::start`]; also when the environment names a server.
    pub async fn start(members: usize, password: Option<&str>) -> Result<Self, LaunchError> {
        let peers: Vec<String> = (0..members)
            .map(|_| free_port().map(|port| format!("http://127.0.0.1:{port}")))
            .collect::<io::Result<_>>()
            .map_err(|error| LaunchError::Start {
                kind: Kind::Etcd,
                why: error.to_string(),
                log: String::new(),
            })?;
        let all: Vec<String> = peers
            .iter()
            .enumerate()
            .map(|(n, peer)| format!("m{n}={peer}"))
            .collect();
        // None of them answers before a majority is there.
        let starting: Vec<_> = peers
            .iter()
            .enumerate()
            .map(|(n, peer)| {
                let mut args = vec![
                    format!("--name=m{n}"),
                    format!("--initial-cluster={}", all.join(",")),
                ];
                args.extend([
                    format!("--listen-peer-urls={peer}"),
                    format!("--initial-advertise-peer-urls={peer}"),
                ]);
                args.extend(ELECTION.map(str::to_owned));
                let password = password.map(str::to_owned);
                // Processes also where containers are asked for: they reach each other at 127.0.0.1.
                let options = Options {
                    durable: true,
                    local: true,
                    args,
                    password,
                    ..Options::default()
                };
                tokio::spawn(Server::start(Kind::Etcd, options))
            })
            .collect();
        let mut cluster = Self {
            members: Vec::new(),
        };
        for server in starting {
            cluster.members.push(joined(server).await?);
        }
        Ok(cluster)
    }

    /// All of them, also those that do not run.
    #[must_use]
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// Their addresses as the provider takes them.
    #[must_use]
    pub fn url(&self) -> String {
        self.members
            .iter()
            .map(Server::url)
            .fold(String::new(), |all, url| {
                match url.rsplit(['@', '/']).next() {
                    Some(at) if !all.is_empty() => format!("{all},{at}"),
                    _ => url.to_owned(),
                }
            })
    }

    /// Waits until somebody else than this member leads, and says so; gives who.
    ///
    /// # Errors
    /// When nobody does for two minutes.
    pub async fn leader_but(&self, not: Option<usize>) -> Result<usize, LaunchError> {
        let cluster = self.clone();
        on_thread(move || {
            let deadline = Instant::now() + AGREED;
            loop {
                if let Some(leader) = cluster.leader().filter(|leader| Some(*leader) != not) {
                    return Ok(leader);
                }
                if Instant::now() > deadline {
                    let why = format!("waited {} s until somebody leads", AGREED.as_secs());
                    let log = cluster
                        .members
                        .first()
                        .and_then(|member| member.log().ok())
                        .unwrap_or_default();
                    return Err(LaunchError::Start {
                        kind: Kind::Etcd,
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
        if let Some(member) = self.members.get(leader) {
            member.kill().await?;
        }
        Ok(leader)
    }

    /// Starts a member again on its data, and returns when it answers, which it does once it follows a leader.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&self, member: usize) -> Result<(), LaunchError> {
        match self.members.get(member) {
            Some(server) => server.start_again().await,
            None => Err(LaunchError::Start {
                kind: Kind::Etcd,
                why: format!("there is no member {member}"),
                log: String::new(),
            }),
        }
    }

    /// Kills all of them, or starts all of them again: none answers before a majority is there.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn set_running(&self, running: bool) -> Result<(), LaunchError> {
        let acting: Vec<_> = self
            .members
            .iter()
            .cloned()
            .map(|server| {
                tokio::spawn(async move {
                    if running {
                        server.start_again().await
                    } else {
                        server.kill().await
                    }
                })
            })
            .collect();
        for server in acting {
            joined(server).await?;
        }
        Ok(())
    }

    /// Who says to lead. Who stands still, or does not run, says nothing.
    fn leader(&self) -> Option<usize> {
        let runs = |member: &Server| matches!(member.process_id(), Ok(Some(_)));
        self.members
            .iter()
            .position(|member| runs(member) && leads(member.address()).unwrap_or(false))
    }
}

async fn joined<T>(
    task: tokio::task::JoinHandle<Result<T, LaunchError>>,
) -> Result<T, LaunchError> {
    match task.await {
        Ok(done) => done,
        Err(error) => Err(LaunchError::Install(format!(
            "the launcher itself failed: {error}"
        ))),
    }
}
