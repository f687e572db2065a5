//! What happens in a network, in its order of time.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, LinkId, PeerIdentity};
use membership_core::{MonoTime, Now, WallTime};
use membership_gossip::convergence::Scope;
use membership_gossip::downing::{Claim, Decision, Lease, Situation, Strategy, decide};
use membership_gossip::protocol::{
    Command, Effect, Header, Input, Message, Notice, decode, encode,
};
use membership_gossip::state::{DEFAULT_DATA_CENTRE, Gossip, Member, MemberStatus};

use super::net::{Net, Node, NodeId};

/// How long a member waits for the arbiter.
const ARBITER: Duration = Duration::from_secs(5);

/// What happens at a time.
#[derive(Debug)]
pub(super) enum What {
    Wake(NodeId),
    /// From whom, and with the time at which it reached the machine.
    Message(NodeId, NodeId, Header, Arc<Message>, MonoTime),
    Command(NodeId, Command),
    /// A claim reaches the arbiter.
    Claim(NodeId, u64, Box<Claim>),
    Lease(NodeId, u64, Lease),
    Resume(NodeId, Duration),
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) at: MonoTime,
    pub(super) order: u64,
    pub(super) what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl Net {
    pub(super) fn push(&mut self, at: MonoTime, what: What) {
        self.order += 1;
        let order = self.order;
        self.queue.push(Reverse(Event { at, order, what }));
    }

    pub(super) fn take(&mut self, event: Event) {
        if let What::Claim(node, call, claim) = event.what {
            let answered = self.now + self.arbiter.1;
            let lease = self.arbitrate(node, &claim);
            return self.push(answered, What::Lease(node, call, lease));
        }
        let (What::Wake(node)
        | What::Claim(node, ..)
        | What::Message(node, ..)
        | What::Command(node, ..)
        | What::Lease(node, ..)
        | What::Resume(node, ..)) = event.what;
        let due = event.at;
        if !self.nodes[node].lives() {
            return;
        }
        if self.now < self.nodes[node].paused_until {
            // It waits.
            let until = self.nodes[node].paused_until;
            if let What::Wake(_) = event.what {
                self.nodes[node].wake_at = Some(until);
            }
            return self.push(until, event.what);
        }
        let held = self.nodes[node].held_until;
        if self.now < held
            && let What::Message(..) = event.what
        {
            return self.push(held, event.what);
        }
        let waited = self.now.since(due);
        match event.what {
            What::Wake(_) => {
                if self.nodes[node].wake_at == Some(event.at) {
                    self.nodes[node].wake_at = None;
                    self.handle(node, Input::Wake);
                }
            }
            What::Message(_, from, header, body, arrived) => {
                let kept = self.now.since(arrived);
                self.watch(|w, at| w.delivered(at, node, &header, &body, kept));
                // What waited for a process that did not run waited outside of it.
                let input = Input::Message {
                    link: LinkId(from as u64),
                    peer: PeerIdentity::Proven(header.instance),
                    header,
                    body,
                    waited,
                };
                self.handle(node, input);
            }
            What::Command(_, command) => self.handle(node, Input::Command(command)),
            What::Lease(_, call, lease) => self.handle(node, Input::LeaseAnswer { call, lease }),
            What::Claim(..) => {}
            What::Resume(_, paused) => self.watch(|w, at| w.resumed(at, node, paused)),
        }
    }

    pub(super) fn handle(&mut self, node: NodeId, input: Input) {
        let now = Now {
            mono: self.now,
            wall: WallTime::from_millis(1_763_000_000_000 + self.now.as_nanos() / 1_000_000),
        };
        let watched = self.watcher.is_some();
        let before = watched.then(|| self.nodes[node].protocol.gossip().clone());
        let mut effects = Vec::new();
        self.nodes[node].protocol.handle(now, input, &mut effects);
        if let Some(before) = before {
            self.show(node, &before, &effects);
        }
        for effect in effects {
            self.carry_out(node, effect);
        }
        let next = self.nodes[node].protocol.next_wakeup();
        if let Some(at) = next
            && self.nodes[node].wake_at != Some(at)
        {
            self.nodes[node].wake_at = Some(at);
            self.push(at, What::Wake(node));
        }
    }

    fn watch(&mut self, look: impl FnOnce(&mut dyn super::Watcher, MonoTime)) {
        if let Some(watcher) = &mut self.watcher {
            look(&mut **watcher, self.now);
        }
    }

    /// Shows the watcher what a member did.
    fn show(&mut self, node: NodeId, before: &Gossip, effects: &[Effect]) {
        let Some(mut watcher) = self.watcher.take() else {
            return;
        };
        if self.nodes[node].protocol.gossip().version() != before.version() {
            watcher.changed(self.now, node, &self.view(node));
        }
        for effect in effects {
            match effect {
                Effect::Publish(view) => watcher.published(self.now, node, view),
                Effect::Send { header, body, .. } => watcher.sent(self.now, header, body),
                Effect::Tell(Notice::Decided(told)) => {
                    let same = self.same_facts(node, before);
                    let who = (node, self.me(node));
                    watcher.decided(self.now, who, told, &same);
                }
                _ => {}
            }
        }
        let (protocol, me) = (&self.nodes[node].protocol, self.me(node));
        let was_member = before.state().members().contains(&me);
        let is_gone = protocol.status().is_some_and(|s| s >= MemberStatus::Down);
        if was_member && is_gone && !protocol.has_ended() {
            watcher.goes_on(self.now, node);
        }
        self.watcher = Some(watcher);
    }

    /// What follows from a state for a member that had it, first, and for all others that have it and
    /// know of the same members that have seen it.
    fn same_facts(&self, node: NodeId, before: &Gossip) -> Vec<Decision> {
        let decision = |node: &Node, gossip: &Gossip| {
            let me = node.protocol.me();
            let place = gossip.state().member(&me).map(Member::data_centre);
            let scope = Scope {
                me,
                data_centre: place.unwrap_or(DEFAULT_DATA_CENTRE).to_owned(),
                leaving_observers_count: node.config.leaving_observers_count,
            };
            decide(&node.config.downing, &Situation::of(gossip, &scope))
        };
        let is_lease = |s: &Strategy| matches!(s, Strategy::LeaseMajority { .. });
        if is_lease(&self.nodes[node].config.downing.strategy) {
            return Vec::new();
        }
        let others = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(other, n)| *other != node && n.lives() && n.protocol.gossip() == before);
        std::iter::once(decision(&self.nodes[node], before))
            .chain(others.map(|(_, n)| decision(n, n.protocol.gossip())))
            .collect()
    }

    /// Whether a side gets the lease.
    fn arbitrate(&mut self, node: NodeId, claim: &Claim) -> Lease {
        if let Some(grants) = &mut self.grants {
            return grants.entry(claim.founding).or_default().answer(claim);
        }
        if *self.lease.get_or_insert(node) == node {
            let also_down = BTreeSet::new();
            Lease::Granted { also_down }
        } else {
            Lease::refused()
        }
    }

    fn carry_out(&mut self, node: NodeId, effect: Effect) {
        match effect {
            Effect::Send { to, header, body } => {
                let to = match to {
                    Destination::Endpoint(to) | Destination::Fresh(to) => (to, None),
                    // An answer goes to the process that asked.
                    Destination::Link(LinkId(asker)) => {
                        let asker = usize::try_from(asker).unwrap_or(usize::MAX);
                        let Some(process) = self.nodes.get(asker) else {
                            return;
                        };
                        (process.listens, Some(asker))
                    }
                    _ => return,
                };
                *self.nodes[node].sent.entry(body.name()).or_default() += 1;
                self.deliver(node, to, header, body);
            }
            Effect::Publish(_) => {}
            Effect::Tell(notice) => {
                let exiting = notice == Notice::Exiting;
                self.nodes[node].notices.push((self.now, notice));
                if exiting && !self.hold_exit {
                    self.command(node, Command::ExitDone);
                }
            }
            Effect::AcquireLease { call, claim } => {
                self.push(
                    self.now + ARBITER,
                    What::Lease(node, call, Lease::refused()),
                );
                self.push(self.now + self.arbiter.0, What::Claim(node, call, claim));
            }
            Effect::ReleaseLease if self.lease == Some(node) => self.lease = None,
            Effect::Stop(end) => self.nodes[node].ended = Some(end),
            _ => {}
        }
    }

    /// Carries a message to whoever listens at an endpoint, or to one process only.
    fn deliver(
        &mut self,
        from: NodeId,
        (to, only): (SocketAddr, Option<NodeId>),
        header: Header,
        body: Arc<Message>,
    ) {
        if let Some(log) = &mut self.log {
            log.push((self.now, header.from, to, Arc::clone(&body)));
        }
        let (header, body) = if self.encode {
            let Some((header, body)) = self.encoded(&header, &body) else {
                self.unreadable += 1;
                return;
            };
            (header, Arc::new(body))
        } else {
            (header, body)
        };
        let way = (self.nodes[from].listens, to);
        let lost = self.cut.contains(&way)
            || (only.is_none() && self.unroutable.contains(&way))
            || self.loses.is_some_and(|loses| loses(to, &body))
            || self.chance(self.loss);
        // The newest process at an endpoint has it.
        let node = (0..self.nodes.len())
            .rev()
            .find(|n| self.nodes[*n].lives() && self.nodes[*n].listens == to)
            .filter(|node| only.is_none_or(|only| only == *node));
        let (false, Some(node)) = (lost, node) else {
            return;
        };
        let leaves = self.now.max(self.nodes[from].held_until);
        if self.chance(self.duplicates) {
            let at = leaves + self.delay();
            self.push(
                at,
                What::Message(node, from, header.clone(), Arc::clone(&body), at),
            );
        }
        let at = leaves + self.delay();
        self.push(at, What::Message(node, from, header, body, at));
    }

    /// A message written and read, where messages are.
    fn encoded(&mut self, header: &Header, body: &Message) -> Option<(Header, Message)> {
        let bytes = encode(header, body).ok()?;
        self.bytes += bytes.len() as u64;
        decode(&bytes).ok()
    }

    fn delay(&mut self) -> Duration {
        let (least, most) = self.latency;
        let delay = self.between(least, most);
        let (share, longer) = self.delayed;
        if self.chance(share) {
            return delay + self.between(Duration::ZERO, longer);
        }
        delay
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX);
        least + Duration::from_nanos(self.random() % span.max(1))
    }
}
