//! What views with a table and views without one have in common.

use super::ClusterView;
use crate::{InstanceId, SiloAddress, SiloInfo};

/// One member of a cluster, as a view shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer<'a> {
    /// Its address: endpoint and epoch.
    pub address: SiloAddress,
    /// The id of its process.
    pub instance: InstanceId,
    /// Its names, role, zone and metadata.
    pub info: &'a SiloInfo,
}

impl<'a> Peer<'a> {
    /// A member with what it publishes about itself.
    #[must_use]
    pub const fn new(address: SiloAddress, instance: InstanceId, info: &'a SiloInfo) -> Self {
        Self {
            address,
            instance,
            info,
        }
    }
}

/// Members one after the other, by address.
pub type Peers<'a> = Box<dyn Iterator<Item = Peer<'a>> + 'a>;

/// Who is in service, as one process sees it: for applications that are written for clusters with a
/// table and for clusters without one. [`SiloMembers`] has it of a silo, and `GossipView` of the
/// crate `membership-gossip` of a member without a table.
///
/// It gives no fencing token: only a table has one. So it suits what may be wrong for a moment, such
/// as where to send a request, and not what must never be done twice.
///
/// ```
/// use membership_core::Members;
///
/// /// Where to send what belongs to a customer; none: handle it here.
/// fn forward_to(members: &dyn Members, customer: &str) -> Option<std::net::SocketAddr> {
///     let owner = members.owner(customer.as_bytes())?;
///     (owner.address != members.me()).then(|| owner.address.endpoint())
/// }
/// # let _ = forward_to;
/// ```
pub trait Members {
    /// The process whose view this is.
    fn me(&self) -> SiloAddress;

    /// Those in service, by address.
    fn active(&self) -> Peers<'_>;

    /// The one in service that owns `key`, by rendezvous hashing: the same for all views with the
    /// same members in service. Two processes with *different* views may both believe that they own
    /// a key. None: nobody is in service.
    fn owner(&self, key: &[u8]) -> Option<Peer<'_>>;

    /// Those in service with this role.
    fn role<'a>(&'a self, role: &'a str) -> Peers<'a> {
        Box::new(self.active().filter(move |peer| peer.info.role == role))
    }

    /// Those in service in this zone.
    fn zone<'a>(&'a self, zone: &'a str) -> Peers<'a> {
        Box::new(self.active().filter(move |peer| peer.info.zone == zone))
    }

    /// Those in service whose metadata has this value under this key.
    fn with<'a>(&'a self, key: &'a str, value: &'a str) -> Peers<'a> {
        let has = move |peer: &Peer<'a>| peer.info.metadata.get(key).is_some_and(|v| v == value);
        Box::new(self.active().filter(has))
    }
}

/// A [`ClusterView`] as [`Members`] see it: with the silo whose view it is.
///
/// ```
/// # fn example(me: membership_core::SiloAddress, view: membership_core::ClusterView) {
/// use membership_core::Members;
/// let members = view.seen_by(me);
/// assert_eq!(members.me(), me);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiloMembers {
    me: SiloAddress,
    view: ClusterView,
}

impl ClusterView {
    /// This view as that of a silo.
    #[must_use]
    pub const fn seen_by(self, me: SiloAddress) -> SiloMembers {
        SiloMembers { me, view: self }
    }
}

impl SiloMembers {
    /// The view itself.
    #[must_use]
    pub const fn view(&self) -> &ClusterView {
        &self.view
    }
}

impl Members for SiloMembers {
    fn me(&self) -> SiloAddress {
        self.me
    }

    fn active(&self) -> Peers<'_> {
        let silos = self.view.active();
        Box::new(silos.map(|silo| Peer::new(silo.address, silo.instance_id, &silo.info)))
    }

    fn owner(&self, key: &[u8]) -> Option<Peer<'_>> {
        let silo = self.view.owner(key)?;
        Some(Peer::new(silo.address, silo.instance_id, &silo.info))
    }
}
