//! Ports for servers that are stopped and started again.
//!
//! The system's own choice (port 0) comes from the range of outgoing connections: while the server is down, a client that keeps connecting to
//! its port could be given that very port as its own and be connected with itself, and the server could not come back. So ports are taken
//! below that range.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// The first port taken: below are services.
const FIRST: u16 = 12_000;
/// Where outgoing ports begin on Linux unless somebody changed it.
const OUTGOING: u16 = 32_768;
/// Ports that are looked at before giving up.
const TRIES: usize = 1_000;

/// What this process has given away.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 on which nobody listens, given once per process, and never one that the system gives to outgoing connections.
///
/// # Errors
/// When none was found.
pub fn free_port() -> io::Result<u16> {
    let end = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .filter(|&first: &u16| first > FIRST + 1_000)
        .unwrap_or(OUTGOING);
    let random = RandomState::new();
    for attempt in 0..TRIES {
        let step = random.hash_one(attempt) % u64::from(end - FIRST);
        let port = FIRST + u16::try_from(step).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
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
