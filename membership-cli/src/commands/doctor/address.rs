//! What is at a silo's address, as seen from this machine, and whether that proves anything.
//!
//! A refused connection proves that nothing listens there only if this machine is on the silos'
//! network: a firewall refuses too, and a container has the same addresses as its host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use membership::transport::instance_at;
use membership_core::{InstanceId, SiloAddress};
use tokio::task::JoinSet;

use super::watch::Watched;
use crate::commands::evict::host;
use crate::inspect::Inspection;

/// How long a connection to a silo may take. A silo far away answers within a second.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// How many addresses are dialled at once.
pub(super) const DIALS: usize = 32;

/// What is at a silo's address, as seen from this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtAddress {
    /// The silo itself: it proves its key.
    Itself,
    /// Another process, which proves another key.
    Another,
    /// Something that proves nothing: perhaps the silo.
    Answers,
    /// Nothing listens there.
    Nothing,
    /// The connection is refused, but this machine may be on another network than the silos.
    Refused,
    /// No answer: the machine may be down, or not reachable from here.
    Unknown,
}

/// `instance` is the one that the row names.
async fn dial(endpoint: SocketAddr, instance: Option<InstanceId>) -> AtAddress {
    match instance_at(endpoint, DIAL_TIMEOUT).await {
        Ok(Some(there)) if Some(there) == instance => AtAddress::Itself,
        Ok(Some(_)) if instance.is_some() => AtAddress::Another,
        Ok(_) => AtAddress::Answers,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => AtAddress::Refused,
        Err(_) => AtAddress::Unknown,
    }
}

async fn dial_all(
    silos: impl IntoIterator<Item = (SiloAddress, Option<InstanceId>)>,
) -> BTreeMap<SiloAddress, AtAddress> {
    let (mut waiting, mut found) = (silos.into_iter(), BTreeMap::new());
    let mut dials = JoinSet::new();
    loop {
        while dials.len() < DIALS
            && let Some((silo, instance)) = waiting.next()
        {
            dials.spawn(async move { (silo, dial(silo.endpoint(), instance).await) });
        }
        match dials.join_next().await {
            Some(Ok((silo, at))) => {
                found.insert(silo, at);
            }
            Some(Err(_)) => {}
            None => return found,
        }
    }
}

/// Dials these silos.
pub(super) async fn look(
    silos: BTreeSet<SiloAddress>,
    inspection: &Inspection,
    seen: &Watched,
) -> BTreeMap<SiloAddress, AtAddress> {
    let rows = &inspection.snapshot.rows;
    let instance = |silo: &SiloAddress| rows.get(silo).map(|e| e.instance_id);
    let mut found = dial_all(silos.into_iter().map(|silo| (silo, instance(&silo)))).await;
    let is_refused = |at: &AtAddress| *at == AtAddress::Refused;
    if !found.values().any(is_refused) {
        return found;
    }
    let proves = |at: &AtAddress| *at == AtAddress::Itself;
    let mut same_network = found.values().any(proves);
    if !same_network {
        let living = seen.moved.keys().take(DIALS);
        let at = dial_all(living.map(|silo| (*silo, instance(silo)))).await;
        same_network = at.values().any(proves);
    }
    let (here, elsewhere) = (host(), ports_of_other_networks());
    for (silo, at) in found.iter_mut().filter(|(_, at)| is_refused(at)) {
        let named = rows.get(silo).map_or("", |e| e.info.host_name.as_str());
        let is_here = is_own(silo.ip())
            && (named.is_empty() || named == here)
            && !elsewhere.contains(&silo.port());
        if same_network || is_here {
            *at = AtAddress::Nothing;
        }
    }
    found
}

/// Whether this machine has the address. Sends nothing: the system says from which address it would.
fn is_own(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0_u16; 8].into(),
    };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 9))?;
        socket.local_addr()
    };
    ip.is_loopback() || from().is_ok_and(|from| from.ip() == ip)
}

/// The ports at which processes of this machine listen within other networks: those of containers.
/// Empty where the system does not say so.
fn ports_of_other_networks() -> BTreeSet<u16> {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let (own, mut known, mut ports) = (network("self"), BTreeSet::new(), BTreeSet::new());
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().filter(|id| id.parse::<u32>().is_ok()) else {
            continue;
        };
        let network = network(id);
        if network.is_some() && (network == own || !known.insert(network)) {
            continue;
        }
        for table in ["tcp", "tcp6"] {
            let text = fs::read_to_string(format!("/proc/{id}/net/{table}"));
            ports.extend(text.unwrap_or_default().lines().filter_map(listening));
        }
    }
    ports
}

/// The port of a line of `/proc/net/tcp`, if it is that of a listening socket.
fn listening(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
    let port = local.rsplit_once(':')?.1;
    (state == "0A").then(|| u16::from_str_radix(port, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_and_a_foreign_address_is_not() {
        assert!(is_own([127, 0, 0, 1].into()) && is_own([127, 0, 0, 9].into()));
        assert!(!is_own([192, 0, 2, 1].into()));
    }

    #[test]
    fn only_listening_sockets_have_a_port() {
        let line = |state: &str| {
            format!("   0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000")
        };
        assert_eq!(listening(&line("0A")), Some(8080));
        assert_eq!(listening(&line("01")), None);
        assert_eq!(listening("  sl  local_address rem_address   st"), None);
    }
}
