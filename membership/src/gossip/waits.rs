//! What a process waits for while it joins, and why contact points are silent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{InstanceId, MonoTime};
use membership_gossip::protocol::{Header, Message, PROTOCOL_VERSION, Protocol, Waiting};

/// How often it is told.
const EVERY: Duration = Duration::from_secs(5);

pub(super) struct Waits {
    cluster: u64,
    instance: InstanceId,
    contact_points: BTreeSet<SocketAddr>,
    /// The last failure of each contact point, until something is heard of it.
    failures: BTreeMap<SocketAddr, String>,
    /// When it is told next.
    next: MonoTime,
}

impl Waits {
    pub(super) const fn new(cluster: u64, instance: InstanceId) -> Self {
        Self {
            cluster,
            instance,
            contact_points: BTreeSet::new(),
            failures: BTreeMap::new(),
            next: MonoTime::ZERO,
        }
    }

    /// The process begins to join. Only the first contact points count.
    pub(super) fn begin(&mut self, contact_points: &[SocketAddr], now: MonoTime) {
        if self.contact_points.is_empty() {
            self.contact_points.extend(contact_points);
            self.next = now + EVERY;
        }
    }

    /// Something failed at an address; whether that is a contact point.
    pub(super) fn failed(&mut self, at: SocketAddr, reason: &str) -> bool {
        let is_contact_point = self.contact_points.contains(&at);
        if is_contact_point {
            self.failures.insert(at, reason.to_owned());
        }
        is_contact_point
    }

    /// A message came from an address.
    pub(super) fn heard(&mut self, from: &SocketAddr) {
        self.failures.remove(from);
    }

    /// What is to be told now.
    pub(super) fn due(&mut self, protocol: &Protocol, now: MonoTime) -> Option<Waiting> {
        if protocol.status().is_some() || now < self.next {
            return None;
        }
        self.next = now + EVERY;
        self.waiting(protocol)
    }

    fn waiting(&self, protocol: &Protocol) -> Option<Waiting> {
        let mut waiting = protocol.waiting()?;
        for (at, reason) in &self.failures {
            waiting.failed(*at, reason);
        }
        Some(waiting)
    }

    /// The answer to a tool that asks a process which waits.
    pub(super) fn answer(
        &self,
        protocol: &Protocol,
        asked: &Header,
        nonce: u32,
    ) -> Option<(Header, Arc<Message>)> {
        let is_for_this = asked.cluster == self.cluster && asked.protocol == PROTOCOL_VERSION;
        let waiting = self.waiting(protocol).filter(|_| is_for_this)?;
        let mut header = Header::new(self.cluster, protocol.me(), self.instance);
        header.to = Some(asked.from);
        Some((header, Arc::new(Message::Waiting { nonce, waiting })))
    }
}
