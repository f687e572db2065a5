//! Starts of processes.

use std::collections::BTreeMap;

use membership_core::{ClusterName, InstanceId, MonoTime, SiloInfo};
use membership_gossip::Config;
use membership_gossip::protocol::{Protocol, Setup};
use membership_gossip::state::Profile;

use super::net::{Net, Node, NodeId, endpoint};

/// The cluster of all members.
#[allow(clippy::expect_used, reason = "the name is a constant")]
fn cluster() -> ClusterName {
    "test".parse().expect("a valid name")
}

impl Net {
    /// Starts a process at the endpoint with this number.
    pub fn start(&mut self, at: usize, config: &Config) -> NodeId {
        let profile = Profile::new(SiloInfo::named(format!("m{at}")));
        self.start_as(at, config, profile)
    }

    /// Starts a process with a profile.
    pub fn start_as(&mut self, at: usize, config: &Config, profile: Profile) -> NodeId {
        let epoch = self.now.as_nanos() / 1_000_000;
        self.start_with_epoch(at, config, profile, epoch)
    }

    /// Starts a process with an epoch.
    pub fn start_with_epoch(
        &mut self,
        at: usize,
        config: &Config,
        profile: Profile,
        epoch: u64,
    ) -> NodeId {
        let (seed, instance) = (self.random(), InstanceId::new(self.random().into()));
        let mut setup = Setup::new(cluster(), endpoint(at), epoch, instance, profile, seed);
        setup.config = config.clone();
        self.nodes.push(Node {
            protocol: Protocol::new(setup),
            config: config.clone(),
            ended: None,
            killed: false,
            notices: Vec::new(),
            sent: BTreeMap::new(),
            paused_until: MonoTime::ZERO,
            held_until: MonoTime::ZERO,
            listens: endpoint(at),
            wake_at: None,
        });
        self.nodes.len() - 1
    }

    /// Starts a process that advertises the endpoint of another one, or one that nobody has.
    pub fn start_elsewhere(
        &mut self,
        listens: usize,
        advertises: usize,
        config: &Config,
    ) -> NodeId {
        let node = self.start(advertises, config);
        self.nodes[node].listens = endpoint(listens);
        node
    }
}
