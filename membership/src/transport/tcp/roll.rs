//! What the confirmed view says of the processes at the other ends of connections.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use membership_core::{ClusterView, InstanceId, SiloAddress, SiloStatus};

/// What a process is to this silo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Standing {
    /// The view has no row of it: it joins, or it joined and this silo has not read that yet.
    #[default]
    Newcomer = 0,
    /// Its row is Dead. It gets its farewell.
    Dead = 1,
    /// It is alive in the view.
    Member = 2,
}

impl Standing {
    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            2 => Self::Member,
            1 => Self::Dead,
            _ => Self::Newcomer,
        }
    }
}

/// The rows of one confirmed view, by process.
#[derive(Debug, Default)]
pub(super) struct Roll {
    rows: HashMap<InstanceId, (SocketAddr, Standing)>,
    /// Where silos are that are alive.
    hosts: HashSet<IpAddr>,
    /// What those are that have no row.
    others: Standing,
}

impl Roll {
    pub(super) fn new(view: &ClusterView) -> Self {
        let mut roll = Self::default();
        for entry in view.members() {
            let endpoint = entry.address.endpoint();
            let endpoint = SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port());
            let standing = if entry.status == SiloStatus::Dead {
                Standing::Dead
            } else {
                roll.hosts.insert(endpoint.ip());
                Standing::Member
            };
            roll.rows.insert(entry.instance_id, (endpoint, standing));
        }
        roll
    }

    /// The members of a cluster without a table. Whoever is believed there may say as much as they:
    /// a member takes the whole state of others before it knows them.
    pub(super) fn without_table(members: &[(SiloAddress, InstanceId)]) -> Self {
        let others = Standing::Member;
        let mut roll = Self {
            others,
            ..Self::default()
        };
        for (address, instance) in members {
            let endpoint = address.endpoint();
            let endpoint = SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port());
            roll.hosts.insert(endpoint.ip());
            roll.rows.insert(*instance, (endpoint, Standing::Member));
        }
        roll
    }

    /// Whether a silo that is alive is at this address.
    pub(super) fn has_host(&self, host: IpAddr) -> bool {
        self.hosts.contains(&host.to_canonical())
    }

    pub(super) fn standing(&self, instance: InstanceId) -> Standing {
        self.rows
            .get(&instance)
            .map_or(self.others, |(_, standing)| *standing)
    }

    /// The address in the row of a process, if there is a row.
    pub(super) fn endpoint(&self, instance: InstanceId) -> Option<SocketAddr> {
        self.rows.get(&instance).map(|(endpoint, _)| *endpoint)
    }

    /// The processes that are alive, with the addresses in their rows.
    pub(super) fn members(&self) -> impl Iterator<Item = (SocketAddr, InstanceId)> {
        let rows = self.rows.iter();
        let alive = rows.filter(|(_, (_, standing))| *standing == Standing::Member);
        alive.map(|(instance, (endpoint, _))| (*endpoint, *instance))
    }

    /// The process that is alive at this address, if there is one.
    pub(super) fn member_at(&self, endpoint: SocketAddr) -> Option<InstanceId> {
        let mut members = self.members();
        let member = members.find(|(at, _)| *at == endpoint);
        member.map(|(_, instance)| instance)
    }
}
