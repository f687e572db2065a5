//! Ports for servers that are stopped and started again.
//!
//! The system's own choice (port 0) comes from the range of outgoing connections. While the server
//! is down, a client that keeps connecting to its port could receive that very port as its own and
//! connect to itself, and the server could not start again. So ports are chosen below that range.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// The first port to try: services use those below.
const FIRST: u16 = 12_000;
/// The beginning of the range of outgoing ports on Linux, by default.
const OUTGOING: u16 = 32_768;
/// How many ports are tried.
const TRIES: usize = 1_000;

/// The ports that this process has given out.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free port of 127.0.0.1. Each port is given out once per process, and is never in the range of
/// outgoing connections.
///
/// # Errors
/// No free port was found.
pub fn free_port() -> io::Result<u16> {
    free_port_of(&[Ipv4Addr::LOCALHOST])
}

/// The same for a port that is free on all of these addresses.
pub(super) fn free_port_of(hosts: &[Ipv4Addr]) -> io::Result<u16> {
    let end = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .filter(|&first: &u16| first > FIRST + 1_000)
        .unwrap_or(OUTGOING);
    let random = RandomState::new();
    for attempt in 0..TRIES {
        let step = random.hash_one(attempt) % u64::from(end - FIRST);
        let port = FIRST + u16::try_from(step).unwrap_or_default();
        let is_free = |host: &Ipv4Addr| TcpListener::bind((*host, port)).is_ok();
        if hosts.iter().all(is_free)
            && TAKEN
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(port)
        {
            return Ok(port);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("no free port between {FIRST} and {end}"),
    ))
}
