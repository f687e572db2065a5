//! States and deltas as messages carry them: each address once, then by its place in a list.
//!
//! What arrives is checked here, so that a state that was decoded keeps the rules of all states:
//! one member per endpoint, none below its tombstone, and places that exist.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::encoding::bounded_by;
use membership_core::{InstanceId, SiloAddress, SiloInfo};
use serde::{Deserialize, Serialize};

use super::member::MemberParts;
use super::{Flag, Member, MemberStatus, ObserverRows, Profile, Stamp, State, Tombstone};

/// The most members, tombstones, observers or flags of one observer in a message.
pub(crate) const MAX_LIST: usize = 1 << 16;
/// The largest number that is taken of others, for all that only counts up. Epochs are milliseconds.
const MAX_NUMBER: u64 = 1 << 53;
/// The most addresses in a message: members, tombstones, and those that wrote them.
const MAX_ADDRESSES: usize = 1 << 18;
/// The most text that one member publishes, in bytes.
pub(crate) const MAX_PROFILE_BYTES: usize = 64 << 10;

/// A state in the form of messages.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireState {
    #[serde(deserialize_with = "addresses")]
    addresses: Vec<SiloAddress>,
    #[serde(deserialize_with = "list")]
    members: Vec<WireMember>,
    /// Address, origin and counter of its stamp.
    #[serde(deserialize_with = "list")]
    tombstones: Vec<(u32, u32, u64)>,
    #[serde(deserialize_with = "list")]
    observers: Vec<WireRows>,
    floor: u64,
    #[serde(deserialize_with = "addresses")]
    clock: Vec<(u32, u64)>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WireMember {
    address: u32,
    instance: InstanceId,
    status: MemberStatus,
    end_confirmed: bool,
    up_number: Option<u64>,
    origin: u32,
    counter: u64,
    profile: WireProfile,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WireRows {
    observer: u32,
    version: u64,
    #[serde(deserialize_with = "list")]
    rows: Vec<(u32, Flag)>,
}

fn list<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    bounded_by::<MAX_LIST, T, D>(d)
}

fn addresses<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    bounded_by::<MAX_ADDRESSES, T, D>(d)
}

/// What is wrong with the content of a message.
pub(crate) type Fault = &'static str;

#[derive(Default)]
struct Places {
    places: BTreeMap<SiloAddress, u32>,
    list: Vec<SiloAddress>,
}

impl Places {
    fn of(&mut self, address: SiloAddress) -> u32 {
        *self.places.entry(address).or_insert_with(|| {
            self.list.push(address);
            u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

impl WireState {
    pub(crate) fn of(state: &State) -> Self {
        let mut places = Places::default();
        let members = state.members().iter().map(|m| WireMember {
            address: places.of(m.address()),
            instance: m.instance(),
            status: m.status(),
            end_confirmed: m.end_confirmed(),
            up_number: m.up_number(),
            origin: places.of(m.stamp().origin),
            counter: m.stamp().counter,
            profile: WireProfile::of(m.profile()),
        });
        let members = members.collect();
        let stones = state.tombstones().iter().map(|(address, stone)| {
            let place = places.of(address);
            (place, places.of(stone.stamp.origin), stone.stamp.counter)
        });
        let tombstones = stones.collect();
        let observers = state.reachability().observers().map(|(o, rows)| WireRows {
            observer: places.of(*o),
            version: rows.version(),
            rows: rows
                .rows()
                .iter()
                .map(|(s, f)| (places.of(*s), *f))
                .collect(),
        });
        let observers = observers.collect();
        let clock = state.clock().iter().map(|(o, n)| (places.of(*o), n));
        let clock = clock.collect();
        Self {
            members,
            tombstones,
            observers,
            floor: state.tombstones().floor(),
            clock,
            addresses: places.list,
        }
    }

    /// No number is one that a member cannot reach: it could not go on from there.
    fn check_numbers(&self) -> Result<(), Fault> {
        let clock = self.clock.iter().map(|(_, n)| *n);
        let members = self.members.iter();
        let numbers = members.flat_map(|m| [m.counter, m.up_number.unwrap_or(0)]);
        let stones = self.tombstones.iter().map(|(.., n)| *n);
        let versions = self.observers.iter().map(|o| o.version);
        let mut all = clock.chain(numbers).chain(stones).chain(versions);
        if self.floor > MAX_NUMBER || all.any(|n| n > MAX_NUMBER) {
            return Err("a number that no member reaches");
        }
        Ok(())
    }

    pub(crate) fn into_state(self) -> Result<State, Fault> {
        let known = &self.addresses;
        let at = |place: u32| {
            let address = usize::try_from(place).ok().and_then(|p| known.get(p));
            address.copied().ok_or("an address that it does not list")
        };
        self.check_numbers()?;
        let mut state = State::default();
        state.tombstones.raise_floor(self.floor);
        for (address, origin, counter) in self.tombstones {
            let (address, origin) = (at(address)?, at(origin)?);
            let stamp = Stamp { origin, counter };
            let epoch = address.epoch();
            let stone = Tombstone { epoch, stamp };
            state.tombstones.add(address.endpoint(), stone);
        }
        for member in self.members {
            let (address, origin) = (at(member.address)?, at(member.origin)?);
            let endpoint: SocketAddr = address.endpoint();
            if state.members.at(&endpoint).is_some() {
                return Err("two members at one endpoint");
            }
            let stone = state.tombstones.get(&endpoint);
            if stone.is_some_and(|stone| stone.epoch >= address.epoch()) {
                return Err("a member that it says was removed");
            }
            if member.status == MemberStatus::Removed {
                return Err("a member that is removed");
            }
            let profile = member.profile.into_profile()?;
            let counter = member.counter;
            let parts = MemberParts {
                address,
                instance: member.instance,
                status: member.status,
                end_confirmed: member.end_confirmed,
                up_number: member.up_number,
                stamp: Stamp { origin, counter },
                profile: Arc::new(profile),
            };
            state.members.put(Arc::new(Member::from_parts(parts)));
        }
        for observer in self.observers {
            let mut rows = ObserverRows {
                version: observer.version,
                ..ObserverRows::default()
            };
            for (subject, flag) in observer.rows {
                rows.rows.insert(at(subject)?, flag);
            }
            state.reachability.set(at(observer.observer)?, rows);
        }
        for (origin, counter) in self.clock {
            state.clock.raise(at(origin)?, counter);
        }
        state.normalize();
        Ok(state)
    }
}

/// A profile in the form of messages: every field, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireProfile {
    data_centre: String,
    gateway_port: u16,
    host_name: String,
    silo_name: String,
    role: String,
    zone: String,
    metadata: BTreeMap<String, String>,
}

impl WireProfile {
    pub(crate) fn of(profile: &Profile) -> Self {
        let Profile { info, data_centre } = profile.clone();
        Self {
            data_centre,
            gateway_port: info.gateway_port,
            host_name: info.host_name,
            silo_name: info.silo_name,
            role: info.role,
            zone: info.zone,
            metadata: info.metadata,
        }
    }

    pub(crate) fn into_profile(self) -> Result<Profile, Fault> {
        let mut info = SiloInfo::named(self.silo_name);
        info.gateway_port = self.gateway_port;
        info.host_name = self.host_name;
        info.role = self.role;
        info.zone = self.zone;
        info.metadata = self.metadata;
        let profile = Profile::in_data_centre(info, self.data_centre);
        if profile.text_bytes() > MAX_PROFILE_BYTES {
            return Err("a member that publishes more than 64 KiB");
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever took such a number could not count on, so that nobody would hear of its changes.
    #[test]
    fn a_number_that_nobody_reaches_is_refused() {
        let me: SiloAddress = "10.0.0.1:7100@5".parse().expect("an address");
        let changes: [fn(&mut WireState, u64); 3] = [
            |state, n| state.floor = n,
            |state, n| state.clock.push((0, n)),
            |state, n| state.tombstones.push((0, 0, n)),
        ];
        for change in changes {
            for (n, is_good) in [
                (MAX_NUMBER, true),
                (MAX_NUMBER + 1, false),
                (u64::MAX, false),
            ] {
                let mut state = WireState::of(&State::default());
                state.addresses.push(me);
                change(&mut state, n);
                assert_eq!(state.into_state().is_ok(), is_good, "{n}");
            }
        }
    }
}
