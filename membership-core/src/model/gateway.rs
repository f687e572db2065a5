//! Where a client may connect, and whom it must meet there.

use std::net::SocketAddr;

use super::address::SiloAddress;
use super::entry::MembershipEntry;
use super::ids::InstanceId;
use super::info::SiloInfo;

/// An Active silo with a gateway port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gateway {
    /// The silo.
    pub silo: SiloAddress,
    /// Where clients reach it: its ip address with its gateway port.
    pub endpoint: SocketAddr,
    /// The process: a hash of the key that it proves to silos, and to clients on ports that use the
    /// same key.
    pub instance: InstanceId,
    /// What it publishes about itself: names, role, zone, metadata.
    pub info: SiloInfo,
}

impl Gateway {
    /// The gateway of a row; none if the silo is not Active or has no gateway port.
    #[must_use]
    pub fn of(entry: &MembershipEntry) -> Option<Self> {
        entry.is_gateway().then(|| Self {
            silo: entry.address,
            endpoint: SocketAddr::new(entry.address.ip(), entry.info.gateway_port),
            instance: entry.instance_id,
            info: entry.info.clone(),
        })
    }
}
