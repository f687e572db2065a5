//! What a silo reports about itself in a handshake.

use std::net::SocketAddr;

use membership_core::{ClusterName, InstanceId};

use super::Kind;

/// Who this silo is, when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hello {
    /// Which cluster; connections of other clusters are refused.
    pub cluster: ClusterName,
    /// Where others dial this silo.
    pub advertise: SocketAddr,
    /// This process.
    pub instance: InstanceId,
    /// What it takes part in; connections of the other kind are refused.
    pub kind: Kind,
}

impl Hello {
    /// What a silo knows of itself before it has read the table.
    #[must_use]
    pub const fn new(cluster: ClusterName, advertise: SocketAddr, instance: InstanceId) -> Self {
        Self {
            cluster,
            advertise,
            instance,
            kind: Kind::Table,
        }
    }

    /// The same process as a member of a cluster without a store.
    #[must_use]
    pub const fn without_table(mut self) -> Self {
        self.kind = Kind::Gossip;
        self
    }
}
