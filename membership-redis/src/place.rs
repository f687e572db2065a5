//! Where the master is: at an address, where the sentinels say, or at the cluster node that owns the hash slot.
//!
//! The routing is our own. A client library that follows a cluster sends a request again by itself when a connection drops, up to sixteen
//! times, and then nobody can tell a commit that was never sent from one that was. Here a request is sent again only when the server has
//! said that it did not carry it out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use membership_core::{NextStep, TableError, TableErrorKind};
use redis::Value;

use crate::config::{Address, RedisConfig, Servers};
use crate::dial::{Conn, Dialer};
use crate::error::{Refusal, error};

/// How often one search follows from node to node.
const HOPS: usize = 5;
/// After how long all nodes of a cluster are asked once more.
const SECOND_LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Place {
    kind: Kind,
    /// Cluster nodes that owned the table lately, the last one first.
    last: Mutex<Vec<Address>>,
    /// Which sentinel is asked first.
    turn: AtomicUsize,
}

enum Kind {
    Single(Address),
    Sentinel { sentinels: Vec<Address>, master: String },
    Cluster { seeds: Vec<Address>, key: String },
}

impl Place {
    /// `key` is a key of the table, by which a cluster knows the slot.
    pub(crate) fn new(config: &RedisConfig, key: &str) -> Self {
        let kind = match config.servers() {
            Servers::Single(address) => Kind::Single(address.clone()),
            Servers::Client(info) => Kind::Single(match info.addr() {
                redis::ConnectionAddr::Tcp(host, port) | redis::ConnectionAddr::TcpTls { host, port, .. } => {
                    Address { host: host.clone(), port: *port }
                }
                other => Address { host: other.to_string(), port: 0 },
            }),
            Servers::Sentinel { sentinels, master, .. } => Kind::Sentinel { sentinels: sentinels.clone(), master: master.clone() },
            Servers::Cluster(seeds) => Kind::Cluster { seeds: seeds.clone(), key: key.to_owned() },
        };
        Self { kind, last: Mutex::default(), turn: AtomicUsize::new(0) }
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

    /// Look there first next time.
    pub(crate) fn prefer(&self, address: Address) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|known| *known != address);
        last.insert(0, address);
        // As many as a cluster usually has; the seeds are always asked as well.
        last.truncate(8);
    }

    fn preferred(&self) -> Vec<Address> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
                if first.as_ref().is_err_and(|e| e.next_step() == NextStep::Retry) {
                    // Nodes come and go while a cluster sorts itself out.
                    tokio::time::sleep(SECOND_LOOK).await;
                    return self.any_owner(dialer, seeds, key).await;
                }
                first
            }
        }
    }

    /// The owner, by whichever node knows it.
    async fn any_owner(&self, dialer: &Dialer, seeds: &[Address], key: &str) -> Result<Conn, TableError> {
        let mut worst = None;
        for candidate in self.nodes(seeds) {
            match self.owner_by(dialer, candidate, key).await {
                Ok(conn) => {
                    self.prefer(conn.at.clone());
                    return Ok(conn);
                }
                // What is wrong for good is wrong at every node.
                Err(e) if e.next_step() == NextStep::GiveUp => return Err(e),
                Err(e) => worst = Some(e),
            }
        }
        Err(worst.unwrap_or_else(|| error(TableErrorKind::Configuration, "no node of the cluster is named")))
    }

    /// Every node that is known, the last owner first.
    fn nodes(&self, seeds: &[Address]) -> Vec<Address> {
        let mut all = self.preferred();
        let more: Vec<Address> = seeds.iter().filter(|seed| !all.contains(seed)).cloned().collect();
        all.extend(more);
        all
    }

    /// Some server of the deployment, for listening to channels: in a cluster every node hears every message.
    ///
    /// # Errors
    /// Nothing was sent that changes anything.
    pub(crate) async fn address(&self, dialer: &Dialer) -> Result<Vec<Address>, TableError> {
        Ok(match &self.kind {
            Kind::Single(address) => vec![address.clone()],
            Kind::Sentinel { sentinels, master } => vec![self.ask_sentinels(dialer, sentinels, master).await?],
            Kind::Cluster { seeds, .. } => self.nodes(seeds),
        })
    }

    async fn ask_sentinels(&self, dialer: &Dialer, sentinels: &[Address], master: &str) -> Result<Address, TableError> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let first = self.turn.load(Ordering::Relaxed) % sentinels.len().max(1);
        let (mut unknown, mut worst) = (0, None);
        for sentinel in sentinels[first..].iter().chain(&sentinels[..first]) {
            match dialer.ask_sentinel(sentinel, &question).await {
                Ok(Value::ServerError(e)) => worst = Some(Refusal::new(&e).into_error(&dialer.secrets)),
                Ok(Value::Nil) => unknown += 1,
                Ok(answer) => match redis::from_redis_value::<(String, u16)>(answer) {
                    Ok((host, port)) => return Ok(Address { host, port }),
                    Err(_) => worst = Some(error(TableErrorKind::Configuration, format!("{sentinel} is no sentinel"))),
                },
                Err(e) => worst = Some(e),
            }
        }
        match worst {
            Some(e) => Err(e),
            None if unknown > 0 => Err(error(
                TableErrorKind::Configuration,
                format!("no sentinel knows a master called `{master}`: look into their configuration"),
            )),
            None => Err(error(TableErrorKind::Configuration, "no sentinel is named")),
        }
    }

    /// Follows from one node to the owner of the key.
    async fn owner_by(&self, dialer: &Dialer, start: Address, key: &str) -> Result<Conn, TableError> {
        let mut at = start;
        for _ in 0..HOPS {
            let conn = dialer.open(&at, |_| {}).await?;
            let mut question = redis::cmd("HLEN");
            question.arg(key);
            let answer = conn.command(&question).await.map_err(|e| crate::error::not_connected(&at.to_string(), &e, &dialer.secrets))?;
            let Value::ServerError(e) = answer else { return prepared(dialer, conn).await };
            let refusal = Refusal::new(&e);
            match (refusal.code.as_str(), refusal.target()) {
                ("MOVED", Some((host, port))) => at = Address { host: if host.is_empty() { at.host } else { host }, port },
                // The slot is on its way elsewhere, and this node is still its owner; or something that the operation itself will meet.
                ("ASK" | "TRYAGAIN" | "WRONGTYPE", _) => return prepared(dialer, conn).await,
                _ => return Err(refusal.into_error(&dialer.secrets)),
            }
        }
        Err(error(TableErrorKind::Unavailable, "the nodes of the cluster send each other round in a circle"))
    }
}

async fn prepared(dialer: &Dialer, conn: Conn) -> Result<Conn, TableError> {
    dialer.prepare(&conn).await?;
    Ok(conn)
}
