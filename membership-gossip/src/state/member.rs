//! One member: its address, how far it is in its life, and what it publishes about itself.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use membership_core::{InstanceId, SiloAddress, SiloInfo};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::MemberStatus;

/// Names one change: the member that made it, and how many changes it had made then. Everything in a
/// state carries the stamp of the change that wrote it, so that a peer can be sent what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The member that made the change.
    pub origin: SiloAddress,
    /// Its counter after the change, from 1.
    pub counter: u64,
}

/// What a member publishes when it joins. It never changes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// Names, role, zone and metadata, the same as those of a silo that uses a table.
    pub info: SiloInfo,
    /// The data centre. Agreement, leader, flags and downing are matters of one data centre.
    pub data_centre: String,
}

/// The data centre of members that name none.
pub const DEFAULT_DATA_CENTRE: &str = "default";

impl Profile {
    /// The profile of a member of the data centre `default`.
    #[must_use]
    pub fn new(info: SiloInfo) -> Self {
        Self::in_data_centre(info, DEFAULT_DATA_CENTRE)
    }

    /// The profile of a member of a data centre.
    #[must_use]
    pub fn in_data_centre(info: SiloInfo, data_centre: impl Into<String>) -> Self {
        let data_centre = data_centre.into();
        Self { info, data_centre }
    }

    /// The length of all its texts, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        let pairs = self.info.metadata.iter();
        let pairs = pairs.map(|(key, value)| key.len() + value.len());
        let texts = [
            &self.data_centre,
            &self.info.host_name,
            &self.info.silo_name,
            &self.info.role,
            &self.info.zone,
        ];
        texts.iter().map(|text| text.len()).sum::<usize>() + pairs.sum::<usize>()
    }
}

/// One member as of the change with its stamp. Immutable: a later change makes a new value.
///
/// Members of one address are totally ordered by how far they are: status, then whether its end is
/// confirmed, then the smaller up number. So a merge always takes one of two, and its stamp stays
/// true.
///
/// ```
/// use membership_core::{InstanceId, SiloInfo};
/// use membership_gossip::state::{Member, MemberStatus, Profile, Stamp};
/// let me = "10.0.0.1:7100@1".parse()?;
/// let stamp = Stamp { origin: me, counter: 1 };
/// let member = Member::joining(me, InstanceId::new(7), Profile::new(SiloInfo::named("a")), stamp);
/// let up = member.changed(MemberStatus::Up, Some(1), Stamp { origin: me, counter: 2 });
/// assert!(up.is_further_than(&member));
/// # Ok::<(), membership_core::ParseSiloError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    address: SiloAddress,
    instance: InstanceId,
    status: MemberStatus,
    end_confirmed: bool,
    up_number: Option<u64>,
    stamp: Stamp,
    profile: Arc<Profile>,
    hash: u128,
}

impl Member {
    /// A member that was just taken in.
    #[must_use]
    pub fn joining(
        address: SiloAddress,
        instance: InstanceId,
        profile: impl Into<Arc<Profile>>,
        stamp: Stamp,
    ) -> Self {
        let member = Self {
            address,
            instance,
            status: MemberStatus::Joining,
            end_confirmed: false,
            up_number: None,
            stamp,
            profile: profile.into(),
            hash: 0,
        };
        member.hashed()
    }

    /// The same member after a change. An up number that it has is kept.
    #[must_use]
    pub fn changed(&self, status: MemberStatus, up_number: Option<u64>, stamp: Stamp) -> Self {
        let mut next = self.clone();
        next.status = status;
        next.up_number = self.up_number.or(up_number);
        next.stamp = stamp;
        next.hashed()
    }

    /// The same member after its end was confirmed.
    #[must_use]
    pub fn with_confirmed_end(&self, stamp: Stamp) -> Self {
        let mut next = self.clone();
        next.end_confirmed = true;
        next.stamp = stamp;
        next.hashed()
    }

    fn hashed(mut self) -> Self {
        let mut bytes = Vec::with_capacity(160);
        address_bytes(&self.address, &mut bytes);
        bytes.extend(self.instance.get().to_le_bytes());
        bytes.extend([self.status as u8, u8::from(self.end_confirmed)]);
        bytes.extend(self.up_number.unwrap_or(u64::MAX).to_le_bytes());
        address_bytes(&self.stamp.origin, &mut bytes);
        bytes.extend(self.stamp.counter.to_le_bytes());
        let Profile { info, data_centre } = &*self.profile;
        bytes.extend(info.gateway_port.to_le_bytes());
        let pairs = info.metadata.iter().flat_map(|(key, value)| [key, value]);
        let texts = [
            data_centre,
            &info.host_name,
            &info.silo_name,
            &info.role,
            &info.zone,
        ];
        for text in texts.into_iter().chain(pairs) {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        self.hash = xxh3_128(&bytes);
        self
    }

    /// Its address: endpoint and epoch. The epoch identifies the start of its process.
    #[must_use]
    pub const fn address(&self) -> SiloAddress {
        self.address
    }

    /// The id of its process.
    #[must_use]
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// How far it is in its life.
    #[must_use]
    pub const fn status(&self) -> MemberStatus {
        self.status
    }

    /// Whether the member itself has said that it has ended, so that nobody waits for it.
    #[must_use]
    pub const fn end_confirmed(&self) -> bool {
        self.end_confirmed
    }

    /// Its place in the order in which members were moved up: the smaller, the older. None before it
    /// is up.
    #[must_use]
    pub const fn up_number(&self) -> Option<u64> {
        self.up_number
    }

    /// Whether it is in service, or leaves it. One that leaves before it was up never was: it begins no
    /// cluster, leads none that has not begun, says nothing for one at the arbiter, and counts for no
    /// side of a split.
    #[must_use]
    pub const fn serves(&self) -> bool {
        self.status.counts_for_convergence() && self.up_number.is_some()
    }

    /// The change that wrote this value.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// What it publishes about itself.
    #[must_use]
    pub const fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// Its names, role, zone and metadata.
    #[must_use]
    pub fn info(&self) -> &SiloInfo {
        &self.profile.info
    }

    /// Its data centre.
    #[must_use]
    pub fn data_centre(&self) -> &str {
        &self.profile.data_centre
    }

    /// A fixed hash of the whole value.
    pub(crate) const fn hash(&self) -> u128 {
        self.hash
    }

    /// Older members first: by up number, then by address. Members without an up number are the
    /// youngest.
    #[must_use]
    pub fn age_order(&self, other: &Self) -> Ordering {
        let age = |m: &Self| (m.up_number.unwrap_or(u64::MAX), m.address);
        age(self).cmp(&age(other))
    }

    /// Whether a merge of two values of one address takes this one. A total order: of two different
    /// values exactly one is further.
    #[must_use]
    pub fn is_further_than(&self, other: &Self) -> bool {
        let progress = |m: &Self| {
            let up = Reverse(m.up_number.unwrap_or(u64::MAX));
            (m.status, m.end_confirmed, up, m.stamp, m.hash)
        };
        progress(self) > progress(other)
    }

    pub(crate) fn from_parts(parts: MemberParts) -> Self {
        Self {
            address: parts.address,
            instance: parts.instance,
            status: parts.status,
            end_confirmed: parts.end_confirmed,
            up_number: parts.up_number,
            stamp: parts.stamp,
            profile: parts.profile,
            hash: 0,
        }
        .hashed()
    }
}

/// The content of a member that comes from a message.
pub(crate) struct MemberParts {
    pub(crate) address: SiloAddress,
    pub(crate) instance: InstanceId,
    pub(crate) status: MemberStatus,
    pub(crate) end_confirmed: bool,
    pub(crate) up_number: Option<u64>,
    pub(crate) stamp: Stamp,
    pub(crate) profile: Arc<Profile>,
}

/// Appends a fixed form of an address.
pub(crate) fn address_bytes(address: &SiloAddress, into: &mut Vec<u8>) {
    match address.ip() {
        std::net::IpAddr::V4(ip) => into.extend(ip.to_ipv6_mapped().octets()),
        std::net::IpAddr::V6(ip) => into.extend(ip.octets()),
    }
    into.extend(address.port().to_le_bytes());
    into.extend(address.epoch().to_le_bytes());
}
