//! What a silo reports about itself in a handshake.

use std::net::SocketAddr;

use membership_core::{ClusterName, InstanceId, SiloAddress, TableId};

/// Who this silo is: the first thing that it sends on each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hello {
    /// Which cluster; connections of other clusters are refused.
    pub cluster: ClusterName,
    /// Where others dial this silo.
    pub advertise: SocketAddr,
    /// This process.
    pub instance: InstanceId,
    /// This silo, once its epoch is decided.
    pub silo: Option<SiloAddress>,
    /// The table of its view, once there is one.
    pub table_id: Option<TableId>,
    /// The version of its view.
    pub version: u64,
    /// Reserved for authentication; nothing reads it yet. At most 1 KiB.
    pub authentication: Vec<u8>,
}

impl Hello {
    /// What a silo sends before it knows its epoch or has a view.
    #[must_use]
    pub const fn new(cluster: ClusterName, advertise: SocketAddr, instance: InstanceId) -> Self {
        Self {
            cluster,
            advertise,
            instance,
            silo: None,
            table_id: None,
            version: 0,
            authentication: Vec::new(),
        }
    }
}
