//! The simulated transport of chitchat: it carries packets between members, with delays and losses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use chitchat::ChitchatEnvelope;
use chitchat::transport::{ChannelTransport, RecvOutcome, SendOutcome, Socket, Transport};
use membership_testing::{Network, Rng};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::arena::{Member, Record, Traffic};
/// Of each member, one message in this many is encoded; its size counts for the messages until the
/// next one.
pub(super) const MEASURED: u64 = 7;
/// The largest datagram.
pub(super) const LARGEST: usize = 65_507;

pub(super) struct Delivery {
    pub(super) at: Instant,
    pub(super) number: u64,
    pub(super) to: Member,
    /// The packet; none: the hold of the receiver ends.
    pub(super) packet: Option<Packet>,
}

pub(super) struct Packet {
    pub(super) from: SocketAddr,
    pub(super) envelope: ChitchatEnvelope,
    pub(super) bytes: usize,
}

impl PartialEq for Delivery {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Delivery {}
impl PartialOrd for Delivery {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Delivery {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(super) struct Host {
    /// Where it receives packets; none when it does not run.
    pub(super) packet_tx: Option<mpsc::UnboundedSender<Packet>>,
    pub(super) held_until: Option<Instant>,
    pub(super) outbox: Vec<(Member, Packet)>,
    pub(super) inbox: Vec<Packet>,
    pub(super) traffic: Traffic,
}

pub(super) struct State {
    pub(super) began: Instant,
    pub(super) network: Network,
    pub(super) rng: Rng,
    pub(super) heap: BinaryHeap<Reverse<Delivery>>,
    pub(super) number: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) record: Record,
}

impl State {
    pub(super) fn schedule(&mut self, at: Instant, to: Member, packet: Option<Packet>) {
        self.number += 1;
        self.heap.push(Reverse(Delivery {
            at,
            number: self.number,
            to,
            packet,
        }));
    }

    pub(super) fn held(&self, member: Member, now: Instant) -> bool {
        self.hosts
            .get(member)
            .and_then(|host| host.held_until)
            .is_some_and(|until| until > now)
    }

    pub(super) fn send(&mut self, from: Member, to: Member, packet: Packet, now: Instant) {
        if self.held(from, now) {
            if let Some(host) = self.hosts.get_mut(from) {
                host.outbox.push((to, packet));
            }
            return;
        }
        if let Some(host) = self.hosts.get_mut(from) {
            host.traffic = host.traffic.plus(Traffic {
                messages: 1,
                bytes: packet.bytes as u64,
            });
        }
        if let Some(after) = self.network.delay(from, to, &mut self.rng) {
            self.schedule(now + after, to, Some(packet));
        }
    }

    pub(super) fn arrive(&mut self, delivery: Delivery, now: Instant) {
        let held = self.held(delivery.to, now);
        let Some(host) = self.hosts.get_mut(delivery.to) else {
            return;
        };
        match delivery.packet {
            Some(packet) if held => host.inbox.push(packet),
            Some(packet) => host.take(packet),
            None if held => {}
            None => {
                for packet in std::mem::take(&mut host.inbox) {
                    host.take(packet);
                }
                for (to, packet) in std::mem::take(&mut host.outbox) {
                    self.send(delivery.to, to, packet, now);
                }
            }
        }
    }
}

impl Host {
    pub(super) fn take(&self, packet: Packet) {
        if let Some(packet_tx) = &self.packet_tx {
            // A member that has just stopped receives nothing.
            let _ = packet_tx.send(packet);
        }
    }
}

#[derive(Clone)]
pub(super) struct SharedState {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) more: Arc<Notify>,
}

impl SharedState {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers packets when they are due, without end.
    pub(super) async fn deliver(self) {
        loop {
            let next = {
                let mut state = self.state();
                let now = Instant::now();
                while state
                    .heap
                    .peek()
                    .is_some_and(|Reverse(delivery)| delivery.at <= now)
                {
                    if let Some(Reverse(delivery)) = state.heap.pop() {
                        state.arrive(delivery, now);
                    }
                }
                state.heap.peek().map(|Reverse(delivery)| delivery.at)
            };
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.more.notified() => {}
                },
                None => self.more.notified().await,
            }
        }
    }
}

pub(super) struct SimTransport {
    pub(super) shared: SharedState,
    pub(super) member: Member,
    pub(super) encoder: ChannelTransport,
}

pub(super) struct SimSocket {
    pub(super) shared: SharedState,
    pub(super) member: Member,
    pub(super) packets: mpsc::UnboundedReceiver<Packet>,
    /// The encoding is not public, but the crate's own channel transport uses it: a message to
    /// oneself returns with its length.
    pub(super) encoder: Box<dyn Socket>,
    pub(super) sent: u64,
    /// The size of the last measured message.
    pub(super) bytes: usize,
}

#[async_trait]
impl Transport for SimTransport {
    async fn open(&self, _: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let (packet_tx, packets) = mpsc::unbounded_channel();
        if let Some(host) = self.shared.state().hosts.get_mut(self.member) {
            host.packet_tx = Some(packet_tx);
        }
        // Any free port, because an earlier incarnation of this member may not have released its
        // port yet.
        let encoder = self
            .encoder
            .open((address(self.member).ip(), 0).into())
            .await?;
        Ok(Box::new(SimSocket {
            shared: self.shared.clone(),
            member: self.member,
            packets,
            encoder,
            sent: 0,
            bytes: 0,
        }))
    }
}

#[async_trait]
impl Socket for SimSocket {
    fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(address(self.member))
    }

    async fn send(
        &mut self,
        to: SocketAddr,
        envelope: ChitchatEnvelope,
    ) -> anyhow::Result<SendOutcome> {
        let mut packet = Packet {
            from: address(self.member),
            envelope,
            bytes: self.bytes,
        };
        if self.sent.is_multiple_of(MEASURED) {
            let myself = self.encoder.local_addr()?;
            packet.bytes = self
                .encoder
                .send(myself, packet.envelope)
                .await?
                .num_bytes_sent;
            packet.envelope = self.encoder.recv().await?.envelope;
            self.bytes = packet.bytes;
        }
        self.sent += 1;
        let bytes = packet.bytes;
        self.shared
            .state()
            .send(self.member, member(to), packet, Instant::now());
        self.shared.more.notify_one();
        Ok(SendOutcome {
            num_bytes_sent: bytes,
        })
    }

    async fn recv(&mut self) -> anyhow::Result<RecvOutcome> {
        match self.packets.recv().await {
            Some(packet) => Ok(RecvOutcome {
                from_addr: packet.from,
                envelope: packet.envelope,
                num_bytes_received: packet.bytes,
            }),
            None => std::future::pending().await,
        }
    }
}

pub(super) fn address(member: Member) -> SocketAddr {
    let number = u32::try_from(member).unwrap_or(u32::MAX >> 8) | 10 << 24;
    SocketAddr::from((std::net::Ipv4Addr::from(number), 7100))
}

pub(super) fn member(address: SocketAddr) -> Member {
    match address {
        SocketAddr::V4(v4) => {
            usize::try_from(u32::from(*v4.ip()) & (u32::MAX >> 8)).unwrap_or(usize::MAX)
        }
        SocketAddr::V6(_) => usize::MAX,
    }
}
