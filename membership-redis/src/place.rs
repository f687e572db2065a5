//! Where the master is: at an address, where the sentinels say, or at the cluster node that owns the hash slot.
//!
//! The routing is our own. A client library that follows a cluster sends a request again by itself when a connection drops, up to sixteen
//! times, and then nobody can tell a commit that was never sent from one that was. Here a request is sent again only when the server has
//! said that it did not carry it out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{NextStep, TableError, TableErrorKind};
use redis::Value;

use crate::codec::text;
use crate::config::{Address, RedisConfig, Servers};
use crate::dial::{Conn, Dialer};
use crate::error::{Refusal, error};

/// How often one search follows from node to node.
const HOPS: usize = 5;
/// How many nodes are kept where the user may not ask for them, and only redirections tell of new ones.
const MOST: usize = 64;
/// After how long all nodes of a cluster are asked once more.
const SECOND_LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Place {
    kind: Kind,
    /// The nodes of a cluster: those that were named and those it has told of, the last owner first, and last those that were asked and have
    /// not answered.
    nodes: Mutex<Vec<Address>>,
    /// Which sentinel is asked first.
    turn: AtomicUsize,
}

enum Kind {
    Single(Address),
    Sentinel {
        sentinels: Vec<Address>,
        master: String,
    },
    Cluster {
        seeds: Vec<Address>,
        key: String,
    },
}

impl Place {
    /// `key` is a key of the table, by which a cluster knows the slot.
    pub(crate) fn new(config: &RedisConfig, key: &str) -> Self {
        let kind = match config.servers() {
            Servers::Single(address) => Kind::Single(address.clone()),
            Servers::Client(info) => Kind::Single(match info.addr() {
                redis::ConnectionAddr::Tcp(host, port)
                | redis::ConnectionAddr::TcpTls { host, port, .. } => Address {
                    host: host.clone(),
                    port: *port,
                },
                other => Address {
                    host: other.to_string(),
                    port: 0,
                },
            }),
            Servers::Sentinel {
                sentinels, master, ..
            } => Kind::Sentinel {
                sentinels: sentinels.clone(),
                master: master.clone(),
            },
            Servers::Cluster(seeds) => Kind::Cluster {
                seeds: seeds.clone(),
                key: key.to_owned(),
            },
        };
        let nodes = match &kind {
            Kind::Cluster { seeds, .. } => seeds.clone(),
            _ => Vec::new(),
        };
        Self {
            kind,
            nodes: Mutex::new(nodes),
            turn: AtomicUsize::new(0),
        }
    }

    /// Whether a server that turned into a replica has a successor that can be found.
    pub(crate) const fn has_successor(&self) -> bool {
        matches!(self.kind, Kind::Sentinel { .. })
    }

    /// Whether MOVED and ASK are followed.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster { .. })
    }

    /// What was found is no master, or does not answer: another sentinel may know better.
    pub(crate) fn distrust(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Address>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Look there first next time.
    pub(crate) fn prefer(&self, address: Address) {
        let mut nodes = self.nodes();
        nodes.retain(|known| *known != address);
        nodes.insert(0, address);
        if nodes.len() > MOST
            && let Kind::Cluster { seeds, .. } = &self.kind
            && let Some(at) = nodes.iter().rposition(|known| !seeds.contains(known))
        {
            nodes.remove(at);
        }
    }

    /// Look there last, until it has answered: a search that ends early shall not begin with the same dead nodes again.
    fn doubt(&self, address: &Address) {
        let mut nodes = self.nodes();
        if let Some(at) = nodes.iter().position(|known| known == address) {
            nodes[at..].rotate_left(1);
        }
    }

    /// What the cluster consists of now; the nodes that were named stay.
    fn learn(&self, told: &[Address], seeds: &[Address]) {
        let mut nodes = self.nodes();
        nodes.retain(|known| told.contains(known) || seeds.contains(known));
        for address in told.iter().chain(seeds) {
            if !nodes.contains(address) {
                nodes.push(address.clone());
            }
        }
    }

    /// A connection to the master of the table.
    ///
    /// # Errors
    /// Nothing was sent that changes anything.
    pub(crate) async fn connect(&self, dialer: &Dialer) -> Result<Conn, TableError> {
        match &self.kind {
            Kind::Single(address) => dialer.connect(address).await,
            Kind::Sentinel { sentinels, master } => {
                let address = self.ask_sentinels(dialer, sentinels, master).await?;
                dialer.connect(&address).await
            }
            Kind::Cluster { seeds, key } => {
                let first = self.any_owner(dialer, seeds, key).await;
                if first
                    .as_ref()
                    .is_err_and(|e| e.next_step() == NextStep::Retry)
                {
                    // Nodes come and go while a cluster sorts itself out.
                    tokio::time::sleep(SECOND_LOOK).await;
                    return self.any_owner(dialer, seeds, key).await;
                }
                first
            }
        }
    }

    /// The owner, by whichever node knows it.
    async fn any_owner(
        &self,
        dialer: &Dialer,
        seeds: &[Address],
        key: &str,
    ) -> Result<Conn, TableError> {
        let mut worst = None;
        let candidates = self.nodes().clone();
        for candidate in candidates {
            self.doubt(&candidate);
            match self.owner_by(dialer, candidate, key).await {
                Ok(conn) => {
                    // A user who may not ask knows the nodes that were named.
                    if let Some(told) = members(&conn).await {
                        self.learn(&told, seeds);
                    }
                    self.prefer(conn.at.clone());
                    return Ok(conn);
                }
                // What is wrong for good is wrong at every node.
                Err(e) if e.next_step() == NextStep::GiveUp => return Err(e),
                Err(e) => worst = Some(e),
            }
        }
        Err(worst.unwrap_or_else(|| {
            error(
                TableErrorKind::Configuration,
                "no node of the cluster is named",
            )
        }))
    }

    /// Some server of the deployment, for listening to channels: in a cluster every node hears every message.
    ///
    /// # Errors
    /// Nothing was sent that changes anything.
    pub(crate) async fn address(&self, dialer: &Dialer) -> Result<Vec<Address>, TableError> {
        Ok(match &self.kind {
            Kind::Single(address) => vec![address.clone()],
            Kind::Sentinel { sentinels, master } => {
                vec![self.ask_sentinels(dialer, sentinels, master).await?]
            }
            Kind::Cluster { .. } => self.nodes().clone(),
        })
    }

    async fn ask_sentinels(
        &self,
        dialer: &Dialer,
        sentinels: &[Address],
        master: &str,
    ) -> Result<Address, TableError> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let first = self.turn.load(Ordering::Relaxed) % sentinels.len().max(1);
        let (mut unknown, mut worst) = (0, None);
        for sentinel in sentinels[first..].iter().chain(&sentinels[..first]) {
            match dialer.ask_sentinel(sentinel, &question).await {
                Ok(Value::ServerError(e)) => {
                    worst = Some(
                        Refusal::new(&e)
                            .into_error(&dialer.secrets)
                            .at(sentinel.to_string()),
                    )
                }
                Ok(Value::Nil) => unknown += 1,
                Ok(answer) => match redis::from_redis_value::<(String, u16)>(answer) {
                    Ok((host, port)) => return Ok(Address { host, port }),
                    Err(_) => {
                        worst = Some(
                            error(TableErrorKind::Configuration, "this is no sentinel")
                                .at(sentinel.to_string()),
                        )
                    }
                },
                Err(e) => worst = Some(e),
            }
        }
        match worst {
            Some(e) => Err(e),
            None if unknown > 0 => Err(error(
                TableErrorKind::Configuration,
                format!(
                    "no sentinel knows a master called `{master}`: look into their configuration"
                ),
            )),
            None => Err(error(TableErrorKind::Configuration, "no sentinel is named")),
        }
    }

    /// Follows from one node to the owner of the key.
    async fn owner_by(
        &self,
        dialer: &Dialer,
        start: Address,
        key: &str,
    ) -> Result<Conn, TableError> {
        let mut at = start;
        for _ in 0..HOPS {
            let conn = dialer.open(&at, |_| {}).await?;
            let mut question = redis::cmd("HLEN");
            question.arg(key);
            let answer = conn
                .command(&question)
                .await
                .map_err(|e| dialer.not_connected(&at, &e))?;
            let Value::ServerError(e) = answer else {
                return prepared(dialer, conn).await;
            };
            let refusal = Refusal::new(&e);
            match (refusal.code.as_str(), refusal.target()) {
                ("MOVED", Some((host, port))) => {
                    at = Address {
                        host: if host.is_empty() { at.host } else { host },
                        port,
                    }
                }
                // The slot is on its way elsewhere, and this node is still its owner; or something that the operation itself will meet.
                ("ASK" | "TRYAGAIN" | "WRONGTYPE", _) => return prepared(dialer, conn).await,
                _ => return Err(refusal.into_error(&dialer.secrets).at(at.to_string())),
            }
        }
        Err(error(
            TableErrorKind::Unavailable,
            "the nodes of the cluster send each other round in a circle",
        ))
    }
}

/// Every node that the cluster has slots on, or copies of them; none where the user may not ask.
async fn members(conn: &Conn) -> Option<Vec<Address>> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let Ok(Value::Array(ranges)) = conn.command(&question).await else {
        return None;
    };
    let mut told = Vec::new();
    for range in ranges {
        // The first slot, the last one, and then a list for each node: where it is, and more.
        let Value::Array(range) = range else { continue };
        for node in range.into_iter().skip(2) {
            let Value::Array(node) = node else { continue };
            let mut node = node.into_iter();
            let (host, port) = (node.next().and_then(text), node.next());
            let Some(Value::Int(port)) = port else {
                continue;
            };
            // No host is that of whoever answers; `?` is one that it does not know.
            let host = match host {
                Some(host) if host == "?" => continue,
                Some(host) if !host.is_empty() => host,
                _ => conn.at.host.clone(),
            };
            let Ok(port) = u16::try_from(port) else {
                continue;
            };
            let address = Address { host, port };
            if !told.contains(&address) {
                told.push(address);
            }
        }
    }
    Some(told)
}

async fn prepared(dialer: &Dialer, conn: Conn) -> Result<Conn, TableError> {
    dialer.prepare(&conn).await?;
    Ok(conn)
}
