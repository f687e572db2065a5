//! Several hosts in a client's URL, of which some swallow packets: in front of one that serves,
//! behind it, on both sides, or the one in use from some moment on. T13.
//!
//! The address leads to a listener whose queue is full, so the kernel drops each packet that would
//! open a connection, as a route to nowhere does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests, which prints what it measures"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::{ClusterName, MembershipTable, NextStep, ReadRequest, TableError};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::helpers::{fill, heartbeat, unique};
use crate::proxy::Proxy;
use crate::servers::{ServerBackend, Store, have_one_port};

/// The longest time until the first operation of a client ends.
pub const FIRST: Duration = Duration::from_secs(5);
/// The longest time of the median of later operations, as a multiple of that of a client all of
/// whose hosts serve.
pub const LATER: f64 = 1.5;
/// What the median of later operations may take in any case: on a busy machine two medians of so
/// few operations differ by that much.
const NOISE: Duration = Duration::from_millis(3);
/// How many are compared.
const ROUNDS: usize = 25;
/// How often they are compared before the later operations count as slow. What else the machine does
/// slows one of the two clients for moments; what a silent host costs shows each time.
const COMPARISONS: usize = 4;

/// A host that swallows packets.
#[derive(Debug)]
pub struct SilentHost {
    address: SocketAddr,
    _full: (TcpListener, Vec<TcpStream>),
}

impl SilentHost {
    /// Begins to swallow.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let full = socket.listen(1).unwrap();
        let (address, mut waiting) = (full.local_addr().unwrap(), Vec::new());
        let short = Duration::from_millis(200);
        while let Ok(connected) = timeout(short, TcpStream::connect(address)).await {
            waiting.push(connected.unwrap());
        }
        Self {
            address,
            _full: (full, waiting),
        }
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A client over other hosts than those of this URL.
async fn over<S: Store>(
    backend: &ServerBackend<S>,
    url: &str,
    hosts: String,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    let url = url.replacen(hosts_of(url), &hosts, 1);
    backend.store().connect(&url, cluster).await
}

/// Requires of the clients of these servers: whichever hosts of the URL swallow packets, the first
/// operation ends within [`FIRST`], one over another connection within `limit`, and later ones take
/// at most [`LATER`] times as long as those of a client all of whose hosts serve. The default
/// timeouts apply.
///
/// # Panics
/// If a client is slower, or an operation fails.
pub async fn silent_hosts_cost_little<S: Store>(backend: &ServerBackend<S>, limit: Duration) {
    let cluster = format!("silent/hosts-{}", unique());
    let cluster = cluster.parse().unwrap();
    let url = backend.url();
    let hosts = hosts_of(&url);
    let connect = async |hosts: String| over(backend, &url, hosts, &cluster).await;
    let healthy = connect(hosts.to_owned()).await.unwrap();
    fill(&*healthy, 3).await;
    let silent = [SilentHost::start().await, SilentHost::start().await];
    let [one, other] = silent.each_ref().map(SilentHost::address);
    for list in [
        format!("{one},{hosts}"),
        format!("{hosts},{one}"),
        format!("{one},{hosts},{other}"),
        format!("{one},{other},{hosts}"),
    ] {
        let began = Instant::now();
        let table = connect(list.clone()).await;
        let table = table.unwrap_or_else(|e| panic!("{list}: {e}"));
        let read = table.read(&ReadRequest::all()).await;
        read.unwrap_or_else(|e| panic!("{list}: {e}"));
        let first = began.elapsed();
        let began = Instant::now();
        let again = ReadRequest::all().with_new_connection(true);
        table.read(&again).await.unwrap();
        let anew = began.elapsed();
        let later = compare(&list, &*healthy, &*table).await;
        println!("{list}: first {first:?}, anew {anew:?}, later {later:.2} times");
        assert!(first < FIRST, "{list}: the first operation takes {first:?}");
        assert!(anew < limit, "{list}: a new connection takes {anew:?}");
    }
    healthy.delete().await.unwrap();
}

/// Requires the same of clients that use a host when it falls silent: [`FIRST`] is the longest time
/// until a read succeeds again. The hosts of the URL, and the one that falls silent, lead to the same
/// servers. Of servers that tell clients the addresses of all, each in turn falls silent.
///
/// # Panics
/// If a client is slower, or an operation fails.
pub async fn a_host_that_falls_silent_costs_little<S: Store>(backend: &ServerBackend<S>) {
    let cluster = format!("silent/later-{}", unique());
    let cluster = cluster.parse().unwrap();
    let url = backend.url();
    let hosts = hosts_of(&url);
    let connect = async |hosts: String| over(backend, &url, hosts, &cluster).await;
    let healthy = connect(hosts.to_owned()).await.unwrap();
    fill(&*healthy, 3).await;
    let servers = backend.servers().addresses();
    if have_one_port(&servers) {
        for silent in 0..servers.len() {
            let proxies = in_front_of(&servers);
            let list: Vec<_> = proxies.iter().map(|it| it.address().to_string()).collect();
            let table = connect(list.join(",")).await.unwrap();
            falls_silent(
                &format!("server {silent}"),
                &proxies[silent],
                &*healthy,
                &*table,
            )
            .await;
        }
    } else {
        let first = hosts.split(',').next().unwrap_or_default();
        let Ok(target) = first.parse() else {
            panic!("no address of a server in front of {hosts}");
        };
        for place in ["in front", "behind"] {
            let proxy = Proxy::to(target).unwrap();
            let list = match place {
                "in front" => format!("{},{hosts}", proxy.address()),
                _ => format!("{hosts},{}", proxy.address()),
            };
            let table = connect(list).await.unwrap();
            falls_silent(place, &proxy, &*healthy, &*table).await;
        }
    }
    healthy.delete().await.unwrap();
}

/// A proxy in front of each of these servers, all with one port.
///
/// # Panics
/// If a port is taken at one of the addresses.
#[must_use]
pub fn in_front_of(servers: &[SocketAddr]) -> Vec<Proxy> {
    let mut port = 0;
    let each = servers.iter().map(|server| {
        let proxy = Proxy::on((server.ip(), port).into(), *server).unwrap();
        port = proxy.address().port();
        proxy
    });
    each.collect()
}

/// The host behind this proxy falls silent while a client uses it.
async fn falls_silent(
    place: &str,
    proxy: &Proxy,
    healthy: &dyn MembershipTable,
    table: &dyn MembershipTable,
) {
    table.read(&ReadRequest::all()).await.unwrap();
    let used = proxy.round_trips() > 0;
    proxy.freeze();
    let list = format!("silent later, {place}, used: {used}");
    let began = Instant::now();
    while let Err(e) = table.read(&ReadRequest::all()).await {
        assert_ne!(e.next_step(), NextStep::GiveUp, "{list}: {e}");
        assert!(began.elapsed() < 4 * FIRST, "{list}: {e}");
    }
    let first = began.elapsed();
    let later = compare(&list, healthy, table).await;
    println!("{list}: first {first:?}, later {later:.2} times");
    assert!(first < FIRST, "{list}: the next operation takes {first:?}");
}

/// Compares a read and a heartbeat of two clients; returns the ratio of their medians.
async fn compare(list: &str, healthy: &dyn MembershipTable, table: &dyn MembershipTable) -> f64 {
    let mut seen = Vec::new();
    for _ in 0..COMPARISONS {
        let [usual, this] = medians([healthy, table]).await;
        if this.as_secs_f64() <= LATER * usual.as_secs_f64() || this <= usual + NOISE {
            return this.as_secs_f64() / usual.as_secs_f64();
        }
        seen.push(format!("{this:?} instead of {usual:?}"));
    }
    panic!("{list}: later operations take {}", seen.join(", then "));
}

/// The median time of a read with a heartbeat of two clients that take turns.
async fn medians(clients: [&dyn MembershipTable; 2]) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for turn in [round % 2, 1 - round % 2] {
            let (began, beat) = (Instant::now(), heartbeat(1, round as u64));
            clients[turn].read(&ReadRequest::all()).await.unwrap();
            clients[turn].update_i_am_alive(&beat).await.unwrap();
            times[turn].push(began.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2]
    })
}

/// The hosts of a URL, as they stand in it.
fn hosts_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['/', '?']).next().unwrap_or(rest);
    rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts)
}
