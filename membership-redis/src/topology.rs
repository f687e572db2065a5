//! Where the master is: at an endpoint, where the sentinels say, or at the cluster node that owns
//! the hash slot.
//!
//! This crate routes requests itself. A client library that follows a cluster sends a request again
//! when a connection drops, up to sixteen times; then a commit that was never sent looks like one
//! that was. Here a request is sent again only when the server has said that it did not carry it
//! out.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use membership_core::{NextStep, TableError, TableErrorKind};
use membership_provider::{Endpoint, first_of};
use redis::Value;

use crate::codec::{self, text};
use crate::config::{RedisConfig, Servers};
use crate::connection::{Connection, Connector, hello, says};
use crate::error::{Refusal, error, wrong};

/// How many redirections one search follows.
const HOPS: usize = 5;
/// How many nodes are remembered where the user may not list them, and only redirections name new
/// ones.
const MAX_NODES: usize = 64;
/// So many configured nodes are enough to say who the owner is; where there are fewer, those that
/// they have named are asked, too.
const ENOUGH: usize = 3;
/// The pause before all nodes of a cluster are asked a second time.
const SECOND_SEARCH: Duration = Duration::from_millis(100);
/// How long sentinels may take that did not answer the last time, once another has.
const SILENT_BEFORE: Duration = Duration::from_millis(100);

pub(crate) struct Topology {
    kind: Kind,
    /// The nodes of a cluster: the configured ones and those it has named. The last owner comes
    /// first, and nodes that have not answered come last.
    nodes: Mutex<Vec<Endpoint>>,
    /// The nodes before a node has named others: it may belong to another cluster, at an address
    /// that was this one's.
    nodes_before: Mutex<Vec<Endpoint>>,
    /// Whether an owner has been found.
    found: AtomicBool,
    /// Whether so few sentinels answered the last time that the others were waited for in vain.
    few_answered: AtomicBool,
}

/// Which master a sentinel names, and since which failover.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vote {
    master: Endpoint,
    epoch: u64,
}

enum Kind {
    Single(Endpoint),
    Sentinel {
        sentinels: Vec<Endpoint>,
        master: String,
    },
    Cluster {
        seeds: Vec<Endpoint>,
        key: String,
    },
}

impl Topology {
    /// `key` is a key of the table, which determines the slot.
    pub(crate) fn new(config: &RedisConfig, key: &str) -> Self {
        let kind = match &config.servers {
            Servers::Single(endpoint) => Kind::Single(endpoint.clone()),
            Servers::Client(info) => Kind::Single(match info.addr() {
                redis::ConnectionAddr::Tcp(host, port)
                | redis::ConnectionAddr::TcpTls { host, port, .. } => Endpoint::new(host, *port),
                other => Endpoint::new(other.to_string(), 0),
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
            nodes_before: Mutex::default(),
            found: AtomicBool::new(false),
            few_answered: AtomicBool::new(false),
        }
    }

    /// Whether the successor of a master that became a replica can be found.
    pub(crate) const fn has_successor(&self) -> bool {
        matches!(self.kind, Kind::Sentinel { .. })
    }

    /// Whether MOVED and ASK are followed.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster { .. })
    }

    /// Whether another server can take over.
    pub(crate) const fn fails_over(&self) -> bool {
        !matches!(self.kind, Kind::Single(_))
    }

    /// The server is no master, does not answer, or is in doubt: the next search begins with another
    /// node. (All sentinels are asked in any case.)
    pub(crate) fn ask_another(&self) {
        let mut nodes = self.nodes();
        if nodes.len() > 1 {
            nodes.rotate_left(1);
        }
    }

    /// Whether only few sentinels have answered the last time.
    pub(crate) fn heard_few(&self) -> bool {
        self.few_answered.load(Ordering::Relaxed)
    }

    fn nodes_before(&self) -> MutexGuard<'_, Vec<Endpoint>> {
        let nodes = self.nodes_before.lock();
        nodes.unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Endpoint>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next search begins with this node.
    pub(crate) fn prefer(&self, endpoint: Endpoint) {
        let mut nodes = self.nodes();
        nodes.retain(|known| *known != endpoint);
        nodes.insert(0, endpoint);
        if nodes.len() > MAX_NODES
            && let Kind::Cluster { seeds, .. } = &self.kind
            && let Some(at) = nodes.iter().rposition(|known| !seeds.contains(known))
        {
            nodes.remove(at);
        }
    }

    /// The next search asks this node last, until it has answered: a search that ends early must
    /// not begin with the same dead nodes again.
    fn ask_last(&self, endpoint: &Endpoint) {
        let mut nodes = self.nodes();
        if let Some(at) = nodes.iter().position(|known| known == endpoint) {
            nodes[at..].rotate_left(1);
        }
    }

    /// What the cluster consists of now. The configured nodes stay.
    fn learn(&self, listed: &[Endpoint], seeds: &[Endpoint]) {
        let mut nodes = self.nodes();
        let stays = |known: &Endpoint| listed.contains(known) || seeds.contains(known);
        if !nodes.iter().all(stays) {
            self.nodes_before().clone_from(&nodes);
        }
        nodes.retain(stays);
        for endpoint in listed.iter().chain(seeds) {
            if !nodes.contains(endpoint) {
                nodes.push(endpoint.clone());
            }
        }
    }

    /// A connection to the master of the table; `doubted` after an answer that contradicts what is
    /// known.
    ///
    /// # Errors
    /// Nothing that changes the store was sent.
    pub(crate) async fn connect(
        &self,
        connector: &Connector,
        doubted: bool,
    ) -> Result<Connection, TableError> {
        match &self.kind {
            Kind::Single(endpoint) => connector.connect(endpoint).await,
            Kind::Sentinel { sentinels, master } => {
                let (endpoint, _) = self.ask_sentinels(connector, sentinels, master).await?;
                connector.connect(&endpoint).await
            }
            Kind::Cluster { seeds, key } => {
                let new = !self.found.load(Ordering::Relaxed) && seeds.len() > 1;
                if (doubted || new)
                    && let Some(owner) = self.named_by_most(connector, seeds, key).await
                {
                    self.prefer(owner);
                }
                let first = self.any_owner(connector, seeds, key).await;
                if first
                    .as_ref()
                    .is_err_and(|e| e.next_step() == NextStep::Retry)
                {
                    // During a failover a cluster has no owner for a moment.
                    tokio::time::sleep(SECOND_SEARCH).await;
                    return self.any_owner(connector, seeds, key).await;
                }
                first
            }
        }
    }

    /// The owner, found through any node: one that is silent makes the others wait only a moment.
    async fn any_owner(
        &self,
        connector: &Connector,
        seeds: &[Endpoint],
        key: &str,
    ) -> Result<Connection, TableError> {
        let candidates = self.nodes().clone();
        let asked = candidates.into_iter().map(|candidate| async move {
            self.ask_last(&candidate);
            self.owner_by(connector, candidate, key).await
        });
        // Also a permanent error may be one node's: users and passwords are each node's own, and
        // another server may have its address.
        let found = first_of(asked, |_| false).await;
        let connection = found.unwrap_or_else(|| Err(wrong("no node of the cluster is named")))?;
        // A user who may not ask only knows the configured nodes.
        if let Some((listed, alone)) = members(&connection).await {
            self.learn(&listed, seeds);
            let _known = alone.map(|alone| connection.alone.set(alone));
        }
        self.prefer(connection.endpoint.clone());
        self.found.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    /// The owner that most nodes name. One that only names itself may have been deposed, or be of
    /// another cluster. All are asked at once, and the silent ones waited for no longer than
    /// sentinels.
    async fn named_by_most(
        &self,
        connector: &Connector,
        seeds: &[Endpoint],
        key: &str,
    ) -> Option<Endpoint> {
        let mut nodes = seeds.to_vec();
        // A few configured nodes may be down. Those that the node in doubt has named prove nothing.
        if seeds.len() < ENOUGH {
            let mut known = self.nodes_before().clone();
            if known.is_empty() {
                known = self.nodes().clone();
            }
            known.retain(|known| !seeds.contains(known));
            nodes.extend(known.into_iter().take(MAX_NODES));
        }
        let asked = nodes
            .iter()
            .map(async |node| (node, named_by(connector, node, key).await));
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut patience = pin!(tokio::time::sleep(connector.timeout / 2));
        let mut votes: Vec<(Endpoint, usize, usize)> = Vec::new();
        let mut silent: Vec<_> = nodes.iter().collect();
        loop {
            tokio::select! {
                answer = asked.next() => match answer {
                    Some((node, Ok(named))) => {
                        silent.retain(|silent| *silent != node);
                        let by_others = usize::from(named != *node);
                        match votes.iter_mut().find(|(of, ..)| *of == named) {
                            Some(vote) => (vote.1, vote.2) = (vote.1 + by_others, vote.2 + 1),
                            None => votes.push((named, by_others, 1)),
                        }
                    }
                    Some((_, Err(_))) => {}
                    None => break,
                },
                () = &mut patience, if !votes.is_empty() => break,
            }
            if votes.iter().any(|(.., all)| *all > nodes.len() / 2) {
                // Those who have not answered yet may be a little slower.
                silent.clear();
                break;
            }
        }
        // The search that follows must not wait for them again.
        for node in silent {
            self.ask_last(node);
        }
        let most = votes
            .into_iter()
            .max_by_key(|(_, others, all)| (*others, *all));
        most.filter(|(_, others, _)| *others > 0)
            .map(|(owner, ..)| owner)
    }

    /// Whether this server still is the master, by the word of most sentinels or nodes. Nobody can
    /// take over from a server without replicas.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) async fn still_names(
        &self,
        connector: &Connector,
        owner: &Connection,
    ) -> Result<bool, TableError> {
        match &self.kind {
            Kind::Single(_) => Ok(true),
            Kind::Sentinel { sentinels, master } => {
                let (named, majority) = self.ask_sentinels(connector, sentinels, master).await?;
                Ok(majority && named == owner.endpoint)
            }
            Kind::Cluster { .. } if owner.alone.get() == Some(&true) => Ok(true),
            Kind::Cluster { key, .. } => {
                let mut nodes = self.nodes().clone();
                let all = nodes.len();
                nodes.retain(|node| *node != owner.endpoint);
                let asked = nodes.iter().map(|node| named_by(connector, node, key));
                let mut asked: FuturesUnordered<_> = asked.collect();
                // It names itself.
                let mut votes = 1;
                while votes <= all / 2 {
                    match asked.next().await {
                        Some(Ok(named)) if named == owner.endpoint => votes += 1,
                        // Its announced name, or its successor.
                        Some(Ok(named)) => self.prefer(named),
                        Some(Err(_)) => {}
                        None => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }

    /// Servers to subscribe to: in a cluster every node receives every message.
    ///
    /// # Errors
    /// Nothing that changes the store was sent.
    pub(crate) async fn endpoints(
        &self,
        connector: &Connector,
    ) -> Result<Vec<Endpoint>, TableError> {
        Ok(match &self.kind {
            Kind::Single(endpoint) => vec![endpoint.clone()],
            Kind::Sentinel { sentinels, master } => {
                vec![self.ask_sentinels(connector, sentinels, master).await?.0]
            }
            Kind::Cluster { .. } => self.nodes().clone(),
        })
    }

    /// The master that most sentinels name, and where they differ the one of the newest failover: a
    /// sentinel that is cut off together with a deposed master knows no other. All are asked at
    /// once, so that a host which does not answer makes nobody wait for the others. Without a
    /// majority, what the few say counts after a while. Also gives whether it was a majority.
    async fn ask_sentinels(
        &self,
        connector: &Connector,
        sentinels: &[Endpoint],
        master: &str,
    ) -> Result<(Endpoint, bool), TableError> {
        let asked = sentinels.iter().map(|at| vote_of(connector, at, master));
        let mut asked: FuturesUnordered<_> = asked.collect();
        let patience = match self.few_answered.load(Ordering::Relaxed) {
            true => SILENT_BEFORE.min(connector.timeout / 2),
            // Half of it remains to connect to the master.
            false => connector.timeout / 2,
        };
        let mut patience = pin!(tokio::time::sleep(patience));
        let (mut votes, mut unknown, mut worst) = (Vec::new(), 0, None);
        while votes.len() <= sentinels.len() / 2 {
            tokio::select! {
                answer = asked.next() => match answer {
                    Some(Ok(Some(vote))) => votes.push(vote),
                    Some(Ok(None)) => unknown += 1,
                    Some(Err(e)) => worst = Some(e),
                    None => break,
                },
                () = &mut patience, if !votes.is_empty() => break,
            }
        }
        let few = votes.len() <= sentinels.len() / 2;
        self.few_answered.store(few, Ordering::Relaxed);
        if let Some(master) = elected(votes) {
            return Ok((master, !few));
        }
        match worst {
            Some(e) => Err(e),
            None if unknown > 0 => Err(wrong(format!(
                "no sentinel knows a master called `{master}`: check their configuration"
            ))),
            None => Err(wrong("no sentinel is named")),
        }
    }

    /// Follows redirections from one node to the owner of the key.
    async fn owner_by(
        &self,
        connector: &Connector,
        start: Endpoint,
        key: &str,
    ) -> Result<Connection, TableError> {
        let mut endpoint = start;
        for _ in 0..HOPS {
            let connection = connector.open(&endpoint, |_| {}).await?;
            let Value::ServerError(e) = ask_node(connector, &connection, key).await? else {
                return prepared(connector, connection).await;
            };
            let refusal = Refusal::new(&e);
            match (refusal.code.as_str(), refusal.target()) {
                ("MOVED", Some((host, port))) => {
                    // No host means the node that answered.
                    let host = if host.is_empty() { endpoint.host } else { host };
                    endpoint = Endpoint { host, port };
                }
                // The slot is moving and this node still owns it; or the operation itself will meet
                // the error.
                ("ASK" | "TRYAGAIN" | "WRONGTYPE", _) => {
                    return prepared(connector, connection).await;
                }
                _ => {
                    return Err(refusal
                        .into_error(&connector.secrets)
                        .at(endpoint.to_string()));
                }
            }
        }
        Err(error(
            TableErrorKind::Unavailable,
            "the nodes of the cluster redirect in a circle",
        ))
    }
}

/// What one sentinel says; `None` if it does not know the master.
async fn vote_of(
    connector: &Connector,
    sentinel: &Endpoint,
    master: &str,
) -> Result<Option<Vote>, TableError> {
    let mut question = redis::pipe();
    // The first names the successor earlier, the second has the epoch of the failover.
    for about in ["GET-MASTER-ADDR-BY-NAME", "MASTER"] {
        question.cmd("SENTINEL").arg(about).arg(master);
    }
    let answers = connector.ask_sentinel(sentinel, &question).await?;
    let mut answers = answers.into_iter();
    let (address, about) = (answers.next(), answers.next());
    let address = match address.unwrap_or(Value::Nil) {
        Value::Nil => return Ok(None),
        Value::ServerError(e) => {
            let refused = Refusal::new(&e).into_error(&connector.secrets);
            return Err(refused.at(sentinel.to_string()));
        }
        address => address,
    };
    let Ok((host, port)) = redis::from_redis_value::<(String, u16)>(address) else {
        return Err(wrong("this is no sentinel").at(sentinel.to_string()));
    };
    // A user who may not ask for it has no epoch: then the sentinels only count.
    let about = about.map(codec::pairs).unwrap_or_default();
    let epoch = about.iter().find(|(name, _)| name == "config-epoch");
    Ok(Some(Vote {
        master: Endpoint { host, port },
        epoch: epoch.and_then(|(_, n)| n.parse().ok()).unwrap_or(0),
    }))
}

/// The master of the newest epoch, and within one epoch the one that most sentinels name.
fn elected(votes: Vec<Vote>) -> Option<Endpoint> {
    let alike = |vote: &Vote| votes.iter().filter(|other| *other == vote).count();
    let best = votes.iter().max_by_key(|vote| (vote.epoch, alike(vote)));
    best.map(|vote| vote.master.clone())
}

/// A node's answer to a question about the key: an error unless it is the owner.
///
/// # Errors
/// `Configuration` from a server that is no node of a cluster: it has every slot.
async fn ask_node(
    connector: &Connector,
    connection: &Connection,
    key: &str,
) -> Result<Value, TableError> {
    let mut question = redis::pipe();
    question.cmd("HLEN").arg(key).add_command(hello());
    let at = &connection.endpoint;
    let answers = connection.pipeline(&question).await;
    let mut answers = answers.map_err(|e| connector.not_connected(at, &e))?;
    if says(answers.pop(), "mode").is_some_and(|mode| mode != "cluster") {
        let alone = "this server is no node of a cluster: use redis:// for a single one";
        return Err(wrong(alone).at(at.to_string()));
    }
    Ok(answers.pop().unwrap_or(Value::Nil))
}

/// The owner of the key, as this node knows it.
async fn named_by(
    connector: &Connector,
    node: &Endpoint,
    key: &str,
) -> Result<Endpoint, TableError> {
    let connection = connector.open(node, |_| {}).await?;
    let Value::ServerError(e) = ask_node(connector, &connection, key).await? else {
        return Ok(node.clone());
    };
    let refusal = Refusal::new(&e);
    match (refusal.code.as_str(), refusal.target()) {
        ("MOVED", Some((host, port))) => Ok(match host.is_empty() {
            true => Endpoint::new(&node.host, port),
            false => Endpoint { host, port },
        }),
        _ => Err(refusal.into_error(&connector.secrets)),
    }
}

/// Every master and replica of the cluster, and whether this master has no replicas, if it is
/// listed; `None` where the user may not ask.
async fn members(connection: &Connection) -> Option<(Vec<Endpoint>, Option<bool>)> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let Ok(Value::Array(ranges)) = connection.command(&question).await else {
        return None;
    };
    let (mut listed, mut alone) = (Vec::new(), None);
    for range in ranges {
        // The first slot, the last slot, then a list for each node: host, port and more.
        let Value::Array(range) = range else { continue };
        let replicas = range.len().saturating_sub(3);
        for (n, node) in range.into_iter().skip(2).enumerate() {
            let Value::Array(node) = node else { continue };
            let mut node = node.into_iter();
            let (host, port) = (node.next().and_then(text), node.next());
            let Some(Value::Int(port)) = port else {
                continue;
            };
            // No host means the node that answers; `?` means that it does not know the host.
            let host = match host {
                Some(host) if host == "?" => continue,
                Some(host) if !host.is_empty() => host,
                _ => connection.endpoint.host.clone(),
            };
            let Ok(port) = u16::try_from(port) else {
                continue;
            };
            let endpoint = Endpoint { host, port };
            if n == 0 && endpoint == connection.endpoint {
                alone = Some(alone != Some(false) && replicas == 0);
            }
            if !listed.contains(&endpoint) {
                listed.push(endpoint);
            }
        }
    }
    Some((listed, alone))
}

async fn prepared(connector: &Connector, connection: Connection) -> Result<Connection, TableError> {
    connector.prepare(&connection).await?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_failover_counts() {
        let of = |votes: &[(u16, u64)]| {
            let vote = |&(port, epoch): &(u16, u64)| Vote {
                master: Endpoint::new("h", port),
                epoch,
            };
            elected(votes.iter().map(vote).collect()).map(|master| master.port)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, 0)]), Some(1));
        assert_eq!(of(&[(1, 4), (1, 4), (2, 5)]), Some(2));
        assert_eq!(of(&[(1, 0), (2, 0), (2, 0)]), Some(2));
    }
}
