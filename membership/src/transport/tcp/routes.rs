//! Which connection a message takes.
//!
//! Messages to an endpoint take a connection that this side dialled, never one that only claims to
//! come from there, so that a wrong or forged claim gets no messages. Incoming connections carry
//! answers only. Two silos that probe each other have two connections.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::Destination;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::carry::{self, End};
use super::connect::{self, Connection};
use super::counters::add;
use super::link::{Ends, Link};
use super::queue::Queue;
use super::roll::Standing;
use super::shared::{Permit, Phase, Shared, State};
use crate::transport::{EncodedMessage, Inbox, SendFailure};

/// The least time between two dials of a dead endpoint; messages wait for the next dial. Short, so
/// that the first probe to a restarted silo arrives, and that each probe to a dead one is refused
/// long before its timeout. Without messages nothing is dialled.
const DIAL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a connection for one message, or a replaced connection, stays open for answers.
const LINGER: Duration = Duration::from_secs(10);
/// How many fresh dials may be under way.
const MAX_FRESH_DIALS: usize = 256;
/// How many connections for one message may be open, and for how long, whatever the other side
/// sends.
const MAX_FRESH: usize = 16_384;
const FRESH_LIFE: Duration = Duration::from_secs(60);
/// Both sides close idle connections. The side that dialled does it first, because only that side
/// sends there without being asked.
const INCOMING_IDLE_EXTRA: Duration = Duration::from_secs(30);

impl Shared {
    /// Passes a message to a connection, or begins to make one.
    pub(super) fn send(self: &Arc<Self>, to: Destination, item: EncodedMessage) {
        let mut state = self.state();
        let State {
            running: Some(running),
            links,
            peers,
            ..
        } = &mut *state
        else {
            return add(&self.counters.dropped_no_connection, 1);
        };
        match to {
            Destination::Link(id) => match links.get(&id) {
                Some(link) => {
                    link.queue.push(item);
                }
                None => add(&self.counters.dropped_no_connection, 1),
            },
            Destination::Endpoint(to) => {
                let to = canonical(to);
                let peer = peers.entry(to).or_default();
                let begin = |queue: Arc<Queue>| {
                    let (inbox, phase) = (running.inbox.clone(), running.phase.clone());
                    let task = self.clone().connect(to, queue, inbox, phase);
                    running.runtime.spawn(task);
                };
                let dropped = match (&peer.link, &peer.dial) {
                    (Some(link), dial) if !link.is_doubtful() => {
                        if link.is_old() && dial.is_none() {
                            let queue = self.new_queue();
                            peer.dial = Some(queue.clone());
                            begin(queue);
                        }
                        link.send(item)
                    }
                    (_, Some(waiting)) => waiting.push(item),
                    (_, None) => {
                        let queue = self.new_queue();
                        let dropped = queue.push(item);
                        peer.dial = Some(queue.clone());
                        begin(queue);
                        dropped
                    }
                };
                if dropped > 0 {
                    running.inbox.send_failed(to, SendFailure::new(format!("{to} reads more slowly than this silo sends; the oldest messages were dropped")));
                }
            }
            Destination::Fresh(to) => {
                let to = canonical(to);
                let Some(dial) = Permit::take(&self.fresh_dials, MAX_FRESH_DIALS) else {
                    add(&self.counters.dropped_no_connection, 1);
                    return running.inbox.send_failed(
                        to,
                        SendFailure::new(format!(
                            "did not dial {to}: {MAX_FRESH_DIALS} dials are under way"
                        )),
                    );
                };
                let Some(life) = Permit::take(&self.fresh, MAX_FRESH) else {
                    add(&self.counters.dropped_no_connection, 1);
                    return running
                        .inbox
                        .send_failed(to, SendFailure::new(format!("did not dial {to}: {MAX_FRESH} connections for one message each are open")));
                };
                let queue = self.new_queue();
                queue.push(item);
                let permits = (dial, life);
                let task = self.clone().connect_fresh(
                    to,
                    queue,
                    permits,
                    running.inbox.clone(),
                    running.phase.clone(),
                );
                running.runtime.spawn(task);
            }
            // A destination that this transport does not know cannot be reached.
            _ => add(&self.counters.dropped_no_connection, 1),
        }
    }

    /// Reports that a message is too large to be sent at all.
    pub(super) fn refuse_too_large(&self, to: Destination, bytes: usize) {
        add(&self.counters.dropped_too_large, 1);
        tracing::warn!(
            bytes,
            limit = self.config.max_message_bytes,
            "message dropped: larger than the bound"
        );
        if let (Destination::Endpoint(to) | Destination::Fresh(to), Some(running)) =
            (to, &self.state().running)
        {
            running.inbox.send_failed(
                to,
                SendFailure::new(format!(
                    "a message of {bytes} bytes is larger than the bound of {} bytes",
                    self.config.max_message_bytes
                )),
            );
        }
    }

    /// Dials until there is a connection or nothing to send; then carries messages.
    async fn connect(
        self: Arc<Self>,
        to: SocketAddr,
        queue: Arc<Queue>,
        inbox: Arc<dyn Inbox>,
        phase: watch::Receiver<Phase>,
    ) {
        let mut dialled = false;
        loop {
            let begun = Instant::now();
            let again = std::mem::replace(&mut dialled, true);
            // Boxed, so that its memory is free after the dial: connections are many and live long.
            match Box::pin(self.dial(to, &phase)).await {
                Ok(connection) => {
                    let link = self.add_outgoing(to, &queue, &connection);
                    let end = carry::run(&self, &link, connection, &inbox, &phase).await;
                    return self.ended(&link, end, to, &inbox);
                }
                Err(mut failure) => {
                    let old = self.state().peers.get(&to).and_then(|p| p.link.clone());
                    let refused = failure.as_ref().is_none_or(|f| f.refused);
                    let quick = begun.elapsed() < DIAL_INTERVAL;
                    if !again && quick && !queue.is_empty() && (old.is_some() || !refused) {
                        // A process that dies takes connections until its system has closed its
                        // listener, and its connections end one after the other: what waits would be
                        // lost, and why would not be known. The next dial tells.
                        failure = None;
                    } else if let Some(old) = old {
                        // The old connection is still open: it gets the messages that wait, so none
                        // of them was refused.
                        // Nothing waits for one that is only made anew.
                        failure = failure.filter(|_| !queue.is_empty());
                        old.trust();
                        queue.move_to(&old.queue);
                        if let Some(failure) = &mut failure {
                            failure.refused = false;
                        }
                    } else {
                        queue.clear();
                    }
                    if let Some(failure) = failure {
                        inbox.send_failed(to, failure);
                    }
                    let (mut end, rest) =
                        (phase.clone(), DIAL_INTERVAL.saturating_sub(begun.elapsed()));
                    tokio::select! {
                        () = sleep(rest) => {}
                        _ = end.wait_for(|p| *p == Phase::Closed) => {}
                    }
                    let mut state = self.state();
                    if queue.is_empty()
                        || *phase.borrow() == Phase::Closed
                        || phase.has_changed().is_err()
                    {
                        queue.close();
                        if let Some(peer) = state.peers.get_mut(&to) {
                            peer.dial = None;
                            if peer.link.is_none() {
                                state.peers.remove(&to);
                            }
                        }
                        return;
                    }
                }
            }
        }
    }

    async fn connect_fresh(
        self: Arc<Self>,
        to: SocketAddr,
        queue: Arc<Queue>,
        (dial, _life): (Permit, Permit),
        inbox: Arc<dyn Inbox>,
        phase: watch::Receiver<Phase>,
    ) {
        let result = Box::pin(self.dial(to, &phase)).await;
        drop(dial);
        match result {
            Ok(connection) => {
                self.carry_fresh(to, connection, (queue, LINGER), &inbox, &phase)
                    .await;
            }
            Err(failure) => {
                queue.close();
                if let Some(failure) = failure {
                    inbox.send_failed(to, failure);
                }
            }
        }
    }

    /// Carries what waits in the queue, and answers.
    async fn carry_fresh(
        &self,
        to: SocketAddr,
        connection: Connection,
        (queue, idle): (Arc<Queue>, Duration),
        inbox: &Arc<dyn Inbox>,
        phase: &watch::Receiver<Phase>,
    ) {
        let mut ends = self.ends(&connection, None, idle.min(self.config.idle_timeout));
        // Pings alone would keep it open for ever.
        ends.life = ends.life.min(FRESH_LIFE);
        let link = self.state().add(ends, queue);
        add(&self.counters.open, 1);
        let end = carry::run(self, &link, connection, inbox, phase).await;
        self.ended(&link, end, to, inbox);
    }

    /// Makes a connection and closes it. Gives whether that worked.
    pub(super) async fn try_out(
        &self,
        to: SocketAddr,
        inbox: &Arc<dyn Inbox>,
        phase: &watch::Receiver<Phase>,
    ) -> bool {
        let Ok(connection) = Box::pin(self.dial(to, phase)).await else {
            return false;
        };
        let nothing = (self.new_queue(), Duration::ZERO);
        self.carry_fresh(to, connection, nothing, inbox, phase)
            .await;
        true
    }

    /// A connection, or why there is none; without a reason if the transport stops.
    async fn dial(
        &self,
        to: SocketAddr,
        phase: &watch::Receiver<Phase>,
    ) -> Result<Connection, Option<SendFailure>> {
        let Some(me) = self.me() else {
            return Err(None);
        };
        let mut end = phase.clone();
        tokio::select! {
            result = connect::dial(self, to, &me) => result.map_err(Some),
            _ = end.wait_for(|p| *p == Phase::Closed) => Err(None),
        }
    }

    fn add_outgoing(
        &self,
        to: SocketAddr,
        queue: &Arc<Queue>,
        connection: &Connection,
    ) -> Arc<Link> {
        let ends = self.ends(connection, None, self.config.idle_timeout);
        let mut state = self.state();
        let link = state.add(ends, queue.clone());
        let peer = state.peers.entry(to).or_default();
        peer.dial = None;
        if let Some(old) = peer.link.replace(link.clone()) {
            old.close_when_idle_for(LINGER.min(self.config.idle_timeout));
        }
        add(&self.counters.open, 1);
        link
    }

    /// The side that dialled makes a connection anew after three to four quarters of the maximum
    /// age; either side closes it some time after that, if need be. Both times are random, so that
    /// the connections of a silo do not end together.
    fn ends(&self, connection: &Connection, from: Option<IpAddr>, idle: Duration) -> Ends {
        let most = self.config.max_age;
        let random = RandomState::new()
            .hash_one(connection.instance)
            .to_le_bytes();
        let part = |of: Duration, random: u8| of * u32::from(random) / 256;
        Ends {
            instance: connection.instance,
            peer: connection.peer,
            from,
            idle,
            age: most - part(most / 4, random[0]),
            life: most + most / 8 - part(most / 16, random[1]),
            standing: connection.standing,
            keys: connection.keys.clone(),
            besides: connection.besides.clone(),
            agreed: connection.agreed.clone(),
        }
    }

    pub(super) async fn run_incoming(
        &self,
        connection: Connection,
        source: IpAddr,
        inbox: &Arc<dyn Inbox>,
        phase: &watch::Receiver<Phase>,
    ) {
        let idle = self.config.idle_timeout + INCOMING_IDLE_EXTRA;
        let from = canonical(connection.advertise);
        let ends = self.ends(&connection, Some(source), idle);
        let link = {
            let mut state = self.state();
            // It claims the address of a peer, but is another process than the one connected there.
            // That connection may be dead. A wrong claim costs one dial.
            let known = state.peers.get(&from).and_then(|p| p.link.as_ref());
            if let Some(other) = known.filter(|l| l.instance != connection.instance) {
                other.doubt();
            }
            state.add(ends, self.new_queue())
        };
        self.limit_links_of(&link);
        add(&self.counters.open, 1);
        let end = carry::run(self, &link, connection, inbox, phase).await;
        self.ended(&link, end, from, inbox);
    }

    /// Forgets a connection with the silo that is dialled at `peer`, and reports it if it was lost.
    /// A newcomer may say any address, so its connections are not reported.
    fn ended(&self, link: &Link, end: End, peer: SocketAddr, inbox: &Arc<dyn Inbox>) {
        self.forget(link);
        if end == End::Lost && link.standing() == Standing::Member {
            // The end of another connection with that process may not have arrived yet: a message
            // that follows the report dials.
            let state = self.state();
            let other = state.peers.get(&peer).and_then(|p| p.link.as_ref());
            if let Some(other) = other.filter(|l| l.instance == link.instance) {
                other.doubt();
            }
            drop(state);
            inbox.disconnected(peer);
        }
    }
}

fn canonical(endpoint: SocketAddr) -> SocketAddr {
    SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port())
}
