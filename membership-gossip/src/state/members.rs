//! The members, one per endpoint.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::SiloAddress;

use super::Member;

/// The members by endpoint: ip address (IPv4 before IPv6), then port. All members order themselves
/// in this way (specification: who leads is the first in order).
#[derive(Clone, Debug, Default)]
pub struct Members {
    by_endpoint: BTreeMap<SocketAddr, Arc<Member>>,
    /// The sum of the hashes of all.
    sum: u128,
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.sum == other.sum && self.by_endpoint == other.by_endpoint
    }
}

impl Eq for Members {}

impl Members {
    /// All members, by address.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Member>> + Clone {
        self.by_endpoint.values()
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_endpoint.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_endpoint.is_empty()
    }

    /// The member at an endpoint, of whatever epoch.
    #[must_use]
    pub fn at(&self, endpoint: &SocketAddr) -> Option<&Arc<Member>> {
        self.by_endpoint.get(endpoint)
    }

    /// The member with this whole address.
    #[must_use]
    pub fn get(&self, address: &SiloAddress) -> Option<&Member> {
        let member = self.at(&address.endpoint())?;
        (member.address() == *address).then_some(&**member)
    }

    /// Whether this incarnation is a member.
    #[must_use]
    pub fn contains(&self, address: &SiloAddress) -> bool {
        self.get(address).is_some()
    }

    /// The oldest members first.
    #[must_use]
    pub fn by_age(&self) -> Vec<&Arc<Member>> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by(|a, b| a.age_order(b));
        all
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&SocketAddr, &Arc<Member>)> {
        self.by_endpoint.iter()
    }

    pub(super) fn put(&mut self, member: Arc<Member>) {
        let endpoint = member.address().endpoint();
        self.sum = self.sum.wrapping_add(member.hash());
        if let Some(old) = self.by_endpoint.insert(endpoint, member) {
            self.sum = self.sum.wrapping_sub(old.hash());
        }
    }

    pub(super) fn take(&mut self, endpoint: &SocketAddr) -> Option<Arc<Member>> {
        let old = self.by_endpoint.remove(endpoint)?;
        self.sum = self.sum.wrapping_sub(old.hash());
        Some(old)
    }

    pub(super) const fn sum(&self) -> u128 {
        self.sum
    }
}
