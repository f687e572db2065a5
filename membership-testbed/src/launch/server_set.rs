//! Several servers that form one cluster: one of them fails, and the others go on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::control::{joined, on_thread};
use super::error::LaunchError;
use super::options::Options;
use super::port::free_port_of;
use super::process::LOOK;
use super::server::Server;
use super::software;
use super::software::clustered::{Clustered, Peers};
use super::software::ground::last_lines;
use crate::kind::Kind;

/// How long the servers may take to agree, for example on a leader.
const AGREED: Duration = Duration::from_secs(120);

/// Servers of Consul, etcd, MongoDB, NATS or ZooKeeper that elect a leader, or nodes of Cassandra,
/// which serve alike. They are processes of this machine, keep what they acknowledge, and end when
/// the set is dropped.
///
/// Where no server leads, the leader of these functions is a server that serves: the one after the
/// server that was frozen last.
#[derive(Clone, Debug)]
pub struct ServerSet {
    kind: Kind,
    servers: Vec<Server>,
    /// The addresses at which clients and servers find each of them, in the same order.
    names: Vec<SocketAddr>,
    peers: Peers,
    password: Option<String>,
    /// The server that is frozen, if one is.
    frozen: Arc<Mutex<Option<usize>>>,
    /// The server that is asked first whether it leads.
    first: Arc<AtomicUsize>,
}

impl ServerSet {
    /// Starts this many servers and waits until one of them leads. If there is a password, clients
    /// need it; the user is the same as for a [`Server`] of this kind.
    ///
    /// # Errors
    /// As [`Server::start`]; also if the environment names a server, or if servers of this kind
    /// form no cluster.
    pub async fn start(
        kind: Kind,
        servers: usize,
        password: Option<&str>,
    ) -> Result<Self, LaunchError> {
        Self::start_known_as(kind, servers, password, |_, address| address).await
    }

    /// The same, with `known_as` for the address at which clients and the other servers find a
    /// server: its own, or that of a proxy in front of it. Only MongoDB's servers announce such
    /// addresses to clients; for the others it changes only the [`url`](Self::url).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_known_as(
        kind: Kind,
        servers: usize,
        password: Option<&str>,
        mut known_as: impl FnMut(usize, SocketAddr) -> SocketAddr,
    ) -> Result<Self, LaunchError> {
        let clustered = clustered(kind)?;
        let hosts: Vec<_> = (0..servers).map(|server| clustered.host(server)).collect();
        let (peers, port) = ports(clustered, &hosts)
            .map_err(LaunchError::io("cannot listen on", "the loopback network"))?;
        // All at the same time: a server serves only after it has met most of the others.
        let starting: Vec<_> = (0..servers)
            .map(|server| {
                // Processes, even if containers are required: the servers reach each other over
                // the loopback network.
                let options = Options {
                    durable: true,
                    local: true,
                    args: clustered.arguments(server, &peers),
                    port,
                    host: port.is_some().then(|| clustered.host(server)),
                    password: password.map(str::to_owned),
                    ..Options::default()
                };
                tokio::spawn(Server::start(kind, options))
            })
            .collect();
        let mut set = Self {
            kind,
            servers: Vec::new(),
            names: Vec::new(),
            peers,
            password: password.map(str::to_owned),
            frozen: Arc::default(),
            first: Arc::default(),
        };
        for (number, server) in starting.into_iter().enumerate() {
            let server = joined(server).await?;
            set.names.push(known_as(number, server.address()));
            set.servers.push(server);
        }
        set.until("the servers form a cluster", move |set| {
            let addresses: Vec<_> = set.servers.iter().map(Server::address).collect();
            clustered.unite(&addresses, &set.names).map(Some)
        })
        .await?;
        set.leader_but(None).await?;
        if !clustered.has_leader() {
            set.is_whole().await?;
        }
        if let Some(password) = set.password.clone() {
            let secure = move |set: &Self| {
                let leader = set.leader().and_then(|leader| set.servers.get(leader));
                leader
                    .map(|leader| clustered.secure(leader.address(), &password))
                    .transpose()
            };
            set.until("the cluster has a user", secure).await?;
        }
        Ok(set)
    }

    /// The kind of all servers.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// All servers, including those that do not run.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The URL of all servers for their provider.
    #[must_use]
    pub fn url(&self) -> String {
        let Some(first) = self.names.first() else {
            return String::new();
        };
        let options = Options {
            password: self.password.clone(),
            ..Options::default()
        };
        let all: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        let url = software::of(self.kind)
            .url(*first, &options)
            .replace(&first.to_string(), &all.join(","));
        match clustered(self.kind) {
            Ok(clustered) => clustered.url(url),
            Err(_) => url,
        }
    }

    /// Waits until a server other than this one leads, and returns its index.
    ///
    /// # Errors
    /// No server leads within two minutes.
    pub async fn leader_but(&self, not: Option<usize>) -> Result<usize, LaunchError> {
        self.until("another server leads", move |set| {
            Ok(set.leader().filter(|leader| Some(*leader) != not))
        })
        .await
    }

    /// Kills the leader (SIGKILL), and returns its index.
    ///
    /// # Errors
    /// No server leads within two minutes.
    pub async fn kill_leader(&self) -> Result<usize, LaunchError> {
        let leader = self.leader_but(None).await?;
        self.server(leader)?.kill().await?;
        Ok(leader)
    }

    /// Starts a server again on its data, and returns when it takes part in the cluster.
    ///
    /// # Errors
    /// It does not start, or does not take part within two minutes.
    pub async fn start_again(&self, server: usize) -> Result<(), LaunchError> {
        let server = self.server(server)?;
        server.start_again().await?;
        let (address, clustered) = (server.address(), clustered(self.kind)?);
        self.until("the server takes part again", move |_| {
            Ok(clustered.takes_part(address)?.then_some(()))
        })
        .await
    }

    /// Kills the leader, waits until another server leads, and starts the killed one again.
    ///
    /// # Errors
    /// The others elect no leader, or the killed server does not come back.
    pub async fn fail_over(&self) -> Result<(), LaunchError> {
        let killed = self.kill_leader().await?;
        self.leader_but(Some(killed)).await?;
        self.start_again(killed).await
    }

    /// Freezes the leader (SIGSTOP), and returns its index when another server leads.
    ///
    /// # Errors
    /// The others elect no leader.
    pub async fn depose(&self) -> Result<usize, LaunchError> {
        let leader = self.leader_but(None).await?;
        self.server(leader)?.pause().await?;
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = Some(leader);
        let next = self.leader_but(Some(leader)).await?;
        self.first.store(next, Ordering::Relaxed);
        Ok(leader)
    }

    /// Continues the frozen server, and returns its index at once; None if none is frozen.
    ///
    /// # Errors
    /// The error of [`Server::resume`].
    pub async fn thaw(&self) -> Result<Option<usize>, LaunchError> {
        let frozen = self
            .frozen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(frozen) = frozen {
            self.server(frozen)?.resume().await?;
        }
        Ok(frozen)
    }

    /// Returns when every server takes part in the cluster, and exactly one says that it leads, if
    /// one must.
    ///
    /// # Errors
    /// Not within two minutes.
    pub async fn is_whole(&self) -> Result<(), LaunchError> {
        let clustered = clustered(self.kind)?;
        self.until("every server takes part", move |set| {
            let mut leaders = 0;
            for (number, server) in set.servers.iter().enumerate() {
                if !clustered.takes_part(server.address())? {
                    return Ok(None);
                }
                leaders += usize::from(clustered.leads(number, server.address(), &set.peers)?);
            }
            let whole = leaders == 1 || !clustered.has_leader();
            Ok(whole.then_some(()))
        })
        .await
    }

    /// Kills all servers, or starts all of them again and waits until one leads.
    ///
    /// # Errors
    /// A server does not start, or none leads.
    pub async fn set_running(&self, running: bool) -> Result<(), LaunchError> {
        // All at the same time: a server answers only when most of them run.
        let acting: Vec<_> = self
            .servers
            .iter()
            .cloned()
            .map(|server| {
                tokio::spawn(async move {
                    match running {
                        true => server.start_again().await,
                        false => server.kill().await,
                    }
                })
            })
            .collect();
        for server in acting {
            joined(server).await?;
        }
        match running {
            true => self.leader_but(None).await.map(drop),
            false => Ok(()),
        }
    }

    fn server(&self, server: usize) -> Result<&Server, LaunchError> {
        self.servers
            .get(server)
            .ok_or_else(|| self.failed(format!("there is no server {server}")))
    }

    /// The server that reports itself as the leader. A paused or killed server does not answer.
    fn leader(&self) -> Option<usize> {
        let clustered = clustered(self.kind).ok()?;
        let leads = |(number, server): (usize, &Server)| {
            matches!(server.process_id(), Ok(Some(_)))
                && clustered
                    .leads(number, server.address(), &self.peers)
                    .unwrap_or(false)
        };
        let first = self.first.load(Ordering::Relaxed);
        let servers = self.servers.iter().enumerate().cycle().skip(first);
        let mut turn = servers.take(self.servers.len());
        turn.find(|one| leads(*one)).map(|(server, _)| server)
    }

    /// Repeats a request until it succeeds.
    async fn until<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl Fn(&Self) -> io::Result<Option<T>> + Send + 'static,
    ) -> Result<T, LaunchError> {
        let set = self.clone();
        on_thread(move || {
            let deadline = Instant::now() + AGREED;
            loop {
                let why = match ask(&set) {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => "not yet".to_owned(),
                    Err(error) => error.to_string(),
                };
                if Instant::now() > deadline {
                    let seconds = AGREED.as_secs();
                    return Err(
                        set.failed(format!("timeout after {seconds} s until {what} ({why})"))
                    );
                }
                std::thread::sleep(LOOK);
            }
        })
        .await
    }

    fn failed(&self, why: String) -> LaunchError {
        let first = self.servers.first();
        let log = first
            .and_then(|server| server.log().ok())
            .unwrap_or_default();
        LaunchError::Start {
            kind: self.kind,
            why,
            log: last_lines(&log),
        }
    }
}

/// The ports of servers at these addresses for each other, and the one for clients if all have the
/// same.
fn ports(clustered: &dyn Clustered, hosts: &[Ipv4Addr]) -> io::Result<(Peers, Option<u16>)> {
    let same = hosts.iter().any(|host| *host != Ipv4Addr::LOCALHOST);
    let each = || -> io::Result<Vec<u16>> {
        (0..clustered.ports())
            .map(|_| free_port_of(hosts))
            .collect()
    };
    let ports = match same {
        true => vec![each()?; hosts.len()],
        false => hosts.iter().map(|_| each()).collect::<Result<_, _>>()?,
    };
    let port = same.then(|| free_port_of(hosts)).transpose()?;
    Ok((Peers { ports }, port))
}

fn clustered(kind: Kind) -> Result<&'static dyn Clustered, LaunchError> {
    software::clustered(kind).ok_or_else(|| LaunchError::Start {
        kind,
        why: "the launcher cannot form a cluster of these servers".to_owned(),
        log: String::new(),
    })
}
