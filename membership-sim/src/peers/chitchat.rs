//! chitchat: scuttlebutt reconciliation and a phi accrual failure detector on each member. The
//! crate itself runs over a simulated transport, on a runtime of its own whose clock stops while
//! any task has work.
//!
//! First detection is the first time at which a member disappears from the live nodes that another
//! one publishes to its watchers; a false death is that of a member that was running. A member
//! returns when others receive its messages again. The settings are chitchat's defaults: gossip
//! every second with three members, phi 8, first interval 5 s, longest 10 s. chitchat draws its
//! gossip partners from a generator of the thread: the faults and the network repeat with a seed,
//! its choices do not, so its figures have a spread. Timers of the runtime have a resolution of 1
//! ms, so messages take up to 1 ms longer than in the other systems.

mod transport;

use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chitchat::transport::ChannelTransport;
use chitchat::{
    ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, ProtocolVersion,
    spawn_chitchat,
};
use membership_testing::{Latency, Network, Rng};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::arena::{Arena, Failure, Member, Record, Traffic};

use transport::{Host, LARGEST, SharedState, SimTransport, State, address, member};

/// A simulation of chitchat.
pub struct World {
    runtime: tokio::runtime::Runtime,
    shared: SharedState,
    nodes: Vec<(ChitchatHandle, u64)>,
    encoder: ChannelTransport,
    /// Why a member could not be started; the next [`run_for`](Arena::run_for) returns it.
    failure: Option<Failure>,
}

impl World {
    /// A simulation without members.
    ///
    /// # Errors
    /// When the runtime cannot be created.
    pub fn new(seed: u64) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let began = {
            let _inside = runtime.enter();
            Instant::now()
        };
        let network = Network::new(Latency::default());
        let (rng, hosts) = (Rng::new(seed), Vec::new());
        let state = State {
            began,
            network,
            rng,
            heap: BinaryHeap::new(),
            number: 0,
            hosts,
            record: Record::default(),
        };
        let shared = SharedState {
            state: Arc::new(Mutex::new(state)),
            more: Arc::new(Notify::new()),
        };
        runtime.spawn(shared.clone().deliver());
        Ok(Self {
            runtime,
            shared,
            nodes: Vec::new(),
            encoder: ChannelTransport::with_mtu(LARGEST),
            failure: None,
        })
    }

    /// Advances virtual time.
    fn pass(&self, time: Duration) {
        self.runtime
            .block_on(async { tokio::time::sleep(time).await });
    }

    fn clock(&self) -> Instant {
        let _inside = self.runtime.enter();
        Instant::now()
    }

    fn spawn(&self, member: Member, generation: u64) -> Result<ChitchatHandle, Failure> {
        let me = address(member);
        let config = ChitchatConfig {
            chitchat_id: ChitchatId::new(format!("node-{member}"), generation, me),
            cluster_id: "default-cluster".to_owned(),
            gossip_interval: Duration::from_secs(1),
            listen_addr: me,
            seed_nodes: if member == 0 {
                Vec::new()
            } else {
                vec![address(0).to_string()]
            },
            failure_detector_config: FailureDetectorConfig::default(),
            marked_for_deletion_grace_period: Duration::from_secs(15 * 60),
            catchup_callback: None,
            extra_liveness_predicate: None,
            protocol_version: ProtocolVersion::V0,
        };
        let transport = SimTransport {
            shared: self.shared.clone(),
            member,
            encoder: self.encoder.clone(),
        };
        let handle = self
            .runtime
            .block_on(spawn_chitchat(config, Vec::new(), &transport))
            .map_err(|e| Failure::new(e.to_string()))?;
        let (shared, node) = (self.shared.clone(), handle.chitchat());
        self.runtime.spawn(async move {
            let mut watcher = node.lock().await.live_nodes_watcher();
            drop(node);
            let mut known: BTreeSet<ChitchatId> = BTreeSet::new();
            while watcher.changed().await.is_ok() {
                let live: BTreeSet<ChitchatId> =
                    watcher.borrow_and_update().keys().cloned().collect();
                let mut state = shared.state();
                let now = state.began.elapsed();
                for gone in known.difference(&live) {
                    state
                        .record
                        .died(now, member, self::member(gone.gossip_advertise_addr));
                }
                if live != known {
                    state.record.counts(now, member, live.len());
                }
                drop(state);
                known = live;
            }
        });
        Ok(handle)
    }
}

impl Arena for World {
    fn now(&self) -> Duration {
        let began = self.shared.state().began;
        self.clock() - began
    }

    fn start(&mut self, members: usize, within: Duration) -> Range<Member> {
        let first = self.nodes.len();
        let step = within / u32::try_from(members).unwrap_or(u32::MAX).max(1);
        for member in first..first + members {
            let host = Host {
                packet_tx: None,
                held_until: None,
                outbox: Vec::new(),
                inbox: Vec::new(),
                traffic: Traffic::default(),
            };
            self.shared.state().hosts.push(host);
            match self.spawn(member, 1) {
                Ok(node) => self.nodes.push((node, 1)),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
            self.pass(step);
        }
        first..self.nodes.len()
    }

    fn kill(&mut self, member: Member) {
        if let Some((node, _)) = self.nodes.get(member) {
            node.abort();
        }
        if let Some(host) = self.shared.state().hosts.get_mut(member) {
            host.packet_tx = None;
        }
    }

    fn restart(&mut self, member: Member) {
        self.kill(member);
        let Some(generation) = self.nodes.get(member).map(|(_, generation)| generation + 1) else {
            return;
        };
        match (self.spawn(member, generation), self.nodes.get_mut(member)) {
            (Ok(node), Some(slot)) => *slot = (node, generation),
            (Ok(_), None) => {}
            (Err(failure), _) => self.failure = Some(failure),
        }
    }

    fn hold(&mut self, member: Member, time: Duration) {
        let until = self.clock() + time;
        let mut state = self.shared.state();
        if let Some(host) = state.hosts.get_mut(member) {
            host.held_until = Some(until);
        }
        state.schedule(until, member, None);
        drop(state);
        self.shared.more.notify_one();
    }

    fn pause(&mut self, member: Member, time: Duration) {
        // The member's loop locks its state for everything, so a lock on the state pauses the
        // member.
        let Some(state) = self.nodes.get(member).map(|(node, _)| node.chitchat()) else {
            return;
        };
        self.runtime.spawn(async move {
            let _state = state.lock().await;
            tokio::time::sleep(time).await;
        });
    }

    fn loss(&mut self, member: Member, egress: f64, ingress: f64) {
        let mut state = self.shared.state();
        state.network.set_egress_loss(member, egress);
        state.network.set_ingress_loss(member, ingress);
    }

    fn partition(&mut self, groups: &[Vec<Member>]) {
        let mut state = self.shared.state();
        crate::peers::world::split(&mut state.network, self.nodes.len(), groups);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.pass(time);
        Ok(())
    }

    fn record(&self) -> Record {
        self.shared.state().record.clone()
    }

    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration> {
        self.record().all_count(members, size)
    }

    fn forget(&mut self) {
        self.shared.state().record.forget();
    }

    fn sent(&self, member: Member) -> Traffic {
        self.shared
            .state()
            .hosts
            .get(member)
            .map_or_else(Traffic::default, |host| host.traffic)
    }
}
