//! What happens in a network, in its order of time.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, LinkId, PeerIdentity};
use membership_core::{MonoTime, Now, WallTime};
use membership_gossip::protocol::{
    Command, Effect, Header, Input, Message, Notice, decode, encode,
};

use super::{Net, NodeId};

/// What happens at a time.
#[derive(Debug)]
pub(super) enum What {
    Wake(NodeId),
    Message(NodeId, Header, Arc<Message>),
    Command(NodeId, Command),
    Lease(NodeId, u64, bool),
}

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
        let (What::Wake(node)
        | What::Message(node, ..)
        | What::Command(node, ..)
        | What::Lease(node, ..)) = event.what;
        let due = event.at;
        if !self.nodes[node].lives() {
            return;
        }
        if self.now < self.nodes[node].paused_until {
            // It waits, with its time of arrival.
            let until = self.nodes[node].paused_until;
            if let What::Wake(_) = event.what {
                self.nodes[node].wake_at = Some(until);
            }
            return self.push(until, event.what);
        }
        let waited = self.now.since(due);
        match event.what {
            What::Wake(_) => {
                if self.nodes[node].wake_at == Some(event.at) {
                    self.nodes[node].wake_at = None;
                    self.handle(node, Input::Wake);
                }
            }
            What::Message(_, header, body) => self.handle(
                node,
                Input::Message {
                    link: LinkId(u64::from(header.from.port())),
                    peer: PeerIdentity::Proven(header.instance),
                    header,
                    body,
                    waited,
                },
            ),
            What::Command(_, command) => self.handle(node, Input::Command(command)),
            What::Lease(_, call, held) => self.handle(node, Input::LeaseAnswer { call, held }),
        }
    }

    pub(super) fn handle(&mut self, node: NodeId, input: Input) {
        let now = Now {
            mono: self.now,
            wall: WallTime::from_millis(1_763_000_000_000 + self.now.as_nanos() / 1_000_000),
        };
        // An answer goes to whoever asked.
        let asker = match &input {
            Input::Message { header, .. } => Some(header.from.endpoint()),
            _ => None,
        };
        let version = self.nodes[node].protocol.gossip().version();
        let mut effects = Vec::new();
        self.nodes[node].protocol.handle(now, input, &mut effects);
        if let Some(mut watcher) = self.watcher.take() {
            if self.nodes[node].protocol.gossip().version() != version {
                watcher.changed(self.now, node, &self.view(node));
            }
            for effect in &effects {
                match effect {
                    Effect::Publish(view) => watcher.published(self.now, node, view),
                    Effect::Send { header, body, .. } => watcher.sent(header.from, body),
                    _ => {}
                }
            }
            self.watcher = Some(watcher);
        }
        for effect in effects {
            self.carry_out(node, asker, effect);
        }
        let next = self.nodes[node].protocol.next_wakeup();
        if let Some(at) = next
            && self.nodes[node].wake_at != Some(at)
        {
            self.nodes[node].wake_at = Some(at);
            self.push(at, What::Wake(node));
        }
    }

    fn carry_out(&mut self, node: NodeId, asker: Option<SocketAddr>, effect: Effect) {
        match effect {
            Effect::Send { to, header, body } => {
                let to = match to {
                    Destination::Endpoint(to) | Destination::Fresh(to) => to,
                    _ => asker.expect("an answer without a question"),
                };
                *self.nodes[node].sent.entry(body.name()).or_default() += 1;
                self.deliver(to, header, body);
            }
            Effect::Publish(_) => {}
            Effect::Tell(notice) => {
                let exiting = notice == Notice::Exiting;
                self.nodes[node].notices.push((self.now, notice));
                if exiting && !self.hold_exit {
                    self.command(node, Command::ExitDone);
                }
            }
            Effect::AcquireLease { call, .. } => {
                let held = *self.lease.get_or_insert(node) == node;
                let at = self.now + Duration::from_millis(5);
                self.push(at, What::Lease(node, call, held));
            }
            Effect::ReleaseLease => {
                if self.lease == Some(node) {
                    self.lease = None;
                }
            }
            Effect::Stop(end) => self.nodes[node].ended = Some(end),
            _ => panic!("an effect that this network does not know"),
        }
    }

    fn deliver(&mut self, to: SocketAddr, header: Header, body: Arc<Message>) {
        if let Some(log) = &mut self.log {
            log.push((self.now, header.from, to, Arc::clone(&body)));
        }
        let (header, body) = if self.encode {
            let bytes = encode(&header, &body).unwrap();
            self.bytes += bytes.len() as u64;
            let (header, body) = decode(&bytes).unwrap();
            (header, Arc::new(body))
        } else {
            (header, body)
        };
        let lost = self.cut.contains(&(header.from.endpoint(), to)) || self.chance(self.loss);
        // The newest process at an endpoint has it.
        let node = (0..self.nodes.len())
            .rev()
            .find(|n| self.nodes[*n].lives() && self.me(*n).endpoint() == to);
        if let (false, Some(node)) = (lost, node) {
            let (least, most) = self.latency;
            let span = u64::try_from((most - least).as_nanos()).unwrap().max(1);
            let at = self.now + least + Duration::from_nanos(self.random() % span);
            self.push(at, What::Message(node, header, body));
        }
    }
}
