//! Owns the protocol: gives it inputs and carries out its effects, in order.
//!
//! One task per member. It never waits for the network, the arbiter or the application.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, LinkId};
use membership_core::{ClusterName, InstanceId, SiloAddress};
use membership_gossip::downing::{Claim, Lease, Strategy};
use membership_gossip::protocol::{
    Command, Effect, Header, Input, Message, Notice, Protocol, Termination,
};
use membership_gossip::state::MemberStatus;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::arbiter::{Arbiter, ArbiterAnswer};
use super::events::Decided;
use super::report::Report;
use super::state::Publisher;
use super::waits::Waits;
use super::wire::GossipWire;
use crate::runtime::CLOSING;
use crate::runtime::clock::Clock;
use crate::runtime::guard::panic_of;
use crate::runtime::lag::Lag;
use crate::runtime::stage::Stage;
use crate::transport::{Transport, WireEncoder, WireInbound, WireMessages};

/// A request of a handle.
pub(super) enum Request {
    Join(Vec<SocketAddr>),
    Down {
        member: SiloAddress,
        /// Whether it is a member.
        reply: oneshot::Sender<bool>,
    },
}

/// What a driver needs.
pub(super) struct Parts {
    pub(super) cluster: ClusterName,
    pub(super) protocol: Protocol,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) inbox: WireMessages<GossipWire>,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) publisher: Publisher,
    pub(super) arbiter: Option<Arc<dyn Arbiter>>,
    pub(super) strategy: Strategy,
    pub(super) instance: InstanceId,
    pub(super) seed: u64,
}

pub(super) struct Driver {
    protocol: Protocol,
    transport: Arc<dyn Transport>,
    publisher: Publisher,
    report: Report,
    encoder: WireEncoder<GossipWire>,
    clock: Clock,
    inbox: WireMessages<GossipWire>,
    requests: mpsc::Receiver<Request>,
    stage: watch::Receiver<Stage>,
    asked: Stage,
    dropped: bool,
    arbiter: Option<Arc<dyn Arbiter>>,
    strategy: Strategy,
    /// Answers of the arbiter.
    leases: JoinSet<Option<(u64, Lease, ArbiterAnswer)>>,
    /// What the arbiter said, for the decision that follows from it.
    answer: Option<ArbiterAnswer>,
    waits: Waits,
    lag: Lag,
    helpers: JoinSet<()>,
    /// Its own view says that it leaves.
    is_leaving: bool,
    /// The transport has not been told of the newest members.
    members_changed: bool,
    effects: Vec<Effect>,
    end: Option<Termination>,
}

/// How long the arbiter may take. Later it has not given the lease.
pub(super) const ARBITER: Duration = Duration::from_secs(5);

impl Driver {
    /// Runs a member to its end, and tells so if that is a panic.
    pub(super) async fn run(parts: Parts) {
        let (end, mut events) = (parts.publisher.end.clone(), parts.publisher.events.clone());
        if let Some(message) = panic_of(Self::run_to_the_end(parts)).await {
            tracing::error!(message, "the member's task panicked: this is a defect");
            let panicked = Termination::Panicked { message };
            crate::metrics::stopped_because(panicked.as_str());
            events.at(Clock::new().now());
            events.ended(&panicked);
            end.send_replace(Some(panicked));
        }
    }

    async fn run_to_the_end(parts: Parts) {
        let mut helpers = JoinSet::new();
        let lag = Lag::default();
        helpers.spawn(lag.clone().measure(parts.seed));
        let mut driver = Self {
            waits: Waits::new(parts.cluster.fingerprint(), parts.instance),
            report: Report::new(parts.cluster, parts.protocol.me()),
            protocol: parts.protocol,
            transport: parts.transport,
            publisher: parts.publisher,
            encoder: WireEncoder::default(),
            clock: Clock::new(),
            inbox: parts.inbox,
            requests: parts.requests,
            stage: parts.stage,
            asked: Stage::Running,
            dropped: false,
            arbiter: parts.arbiter,
            strategy: parts.strategy,
            leases: JoinSet::new(),
            answer: None,
            lag,
            helpers,
            is_leaving: false,
            members_changed: false,
            effects: Vec::new(),
            end: None,
        };
        while driver.end.is_none() {
            if let Some(input) = driver.next().await {
                driver.take(input);
            }
            // Others asked: from now on the time for leaving counts.
            if driver.is_leaving && driver.asked == Stage::Running {
                driver.asked = Stage::Leave;
                driver.take(Input::Command(Command::Leave));
            }
        }
        driver.close().await;
    }

    /// Sends what is queued before it publishes the end, because the process may exit then.
    async fn close(self) {
        drop(self.helpers);
        if timeout(CLOSING, self.transport.shutdown()).await.is_err() {
            tracing::warn!("the transport did not shut down within {CLOSING:?}");
        }
        if let Some(end) = &self.end {
            self.publisher.events.ended(end);
        }
        self.publisher.end.send_replace(self.end);
    }

    /// The next input. Every branch is cancel safe.
    async fn next(&mut self) -> Option<Input> {
        let wake = self.protocol.next_wakeup();
        let wake_at = self.clock.instant(wake.unwrap_or_default());
        tokio::select! {
            () = sleep_until(wake_at), if wake.is_some() => Some(Input::Wake),
            Some((inbound, waited)) = self.inbox.recv_waited() => self.arrived(inbound, waited),
            Some(request) = self.requests.recv() => self.requested(request),
            changed = self.stage.changed(), if !self.dropped => self.leave(changed.is_ok()),
            Some(answer) = self.leases.join_next() => {
                let (call, lease, answer) = answer.ok().flatten()?;
                self.report.arbiter(&answer);
                self.answer = Some(answer);
                Some(Input::LeaseAnswer { call, lease })
            }
            late = self.lag.next() => {
                self.tick(late);
                Some(Input::ExecutorLag(late))
            }
        }
    }

    fn arrived(&mut self, inbound: WireInbound<GossipWire>, waited: Duration) -> Option<Input> {
        match inbound {
            WireInbound::Message {
                link,
                peer,
                header,
                body,
            } => {
                match &*body {
                    Message::Inspect { nonce } => {
                        if let Some(answer) = self.waits.answer(&self.protocol, &header, *nonce) {
                            let (header, body) = answer;
                            let to = Destination::Link(link);
                            self.carry_out(Effect::Send { to, header, body });
                            return None;
                        }
                    }
                    Message::Down { member } => self.asked_to_down(link, &header, *member),
                    _ => {}
                }
                if self.protocol.status().is_none() {
                    self.waits.heard(&header.from.endpoint());
                }
                Some(Input::Message {
                    link,
                    peer,
                    header,
                    body,
                    waited,
                })
            }
            WireInbound::SendFailed { to, reason, .. } => {
                let joins = self.protocol.status().is_none();
                if joins && self.waits.failed(to, &reason) {
                    self.publisher.events.at(self.clock.now());
                    if self.publisher.events.contact_failed(to, &reason) {
                        self.report.contact_failed(to, &reason);
                    }
                }
                None
            }
            // Heartbeats find out.
            WireInbound::Disconnected { .. } => None,
        }
    }

    /// Tells who asked for a downing, if that was no member: a member tells others what its resolver
    /// decided.
    fn asked_to_down(&mut self, link: LinkId, header: &Header, member: SiloAddress) {
        let state = self.protocol.gossip().state();
        let is_tool = header.founding.is_some()
            && header.founding == self.protocol.founding()
            && !state.members().contains(&header.from);
        // Asked again until it is seen to be done.
        if is_tool
            && state
                .status(&member)
                .is_some_and(|s| s < MemberStatus::Down)
        {
            let from = self.transport.dialled_from(link);
            self.tell_down_asked(member, from.map(|ip| ip.to_canonical()));
        }
    }

    fn tell_down_asked(&mut self, member: SiloAddress, from: Option<IpAddr>) {
        self.report.down_asked(&member, from);
        self.publisher.events.at(self.clock.now());
        self.publisher.events.down_asked(member, from);
    }

    fn requested(&mut self, request: Request) -> Option<Input> {
        match request {
            Request::Join(contact_points) => {
                self.waits.begin(&contact_points, self.clock.mono());
                Some(Input::Command(Command::Join { contact_points }))
            }
            Request::Down { member, reply } => {
                let status = self.protocol.gossip().state().status(&member);
                let is_member = status.is_some_and(|s| s < MemberStatus::Removed);
                // Answered before it is done: nothing can keep this member from it.
                let _ = reply.send(is_member);
                if status.is_some_and(|s| s < MemberStatus::Down) {
                    self.tell_down_asked(member, None);
                }
                is_member.then_some(Input::Command(Command::Down { member }))
            }
        }
    }

    /// Handles a request to leave. If the last handle is gone, the member leaves without a
    /// hand-over.
    fn leave(&mut self, handles: bool) -> Option<Input> {
        let wanted = if handles {
            *self.stage.borrow_and_update()
        } else {
            self.dropped = true;
            Stage::Finish
        };
        let before = std::mem::replace(&mut self.asked, wanted);
        if wanted == Stage::Finish && before == Stage::Running {
            self.take(Input::Command(Command::Leave));
        }
        match wanted {
            Stage::Running => None,
            Stage::Leave => Some(Input::Command(Command::Leave)),
            Stage::Finish => Some(Input::Command(Command::ExitDone)),
        }
    }

    /// A few times a second.
    fn tick(&mut self, late: Duration) {
        let now = self.clock.mono();
        self.report.tick(now, late, self.transport.stats());
        if let Some(waiting) = self.waits.due(&self.protocol, now) {
            self.report.waiting(&waiting);
            self.publisher.events.at(self.clock.now());
            self.publisher.events.waiting(waiting);
        }
        if std::mem::take(&mut self.members_changed) {
            let members = self.protocol.gossip().state().members();
            let members: Vec<(SiloAddress, InstanceId)> = members
                .iter()
                .map(|member| (member.address(), member.instance()))
                .collect();
            self.transport.update_members(self.protocol.me(), &members);
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.clock.now();
        let mut effects = std::mem::take(&mut self.effects);
        self.publisher.events.at(now);
        self.protocol.handle(now, input, &mut effects);
        // Published before the effects, so that a task that an effect wakes finds the new state.
        self.publisher.update(&self.protocol, now.mono);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.answer = None;
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, header, body } => match self.encoder.encode(&header, &body) {
                Ok(message) => self.transport.send(to, message),
                Err(error) => tracing::error!(%error, message = body.name(), "message dropped"),
            },
            Effect::Publish(view) => {
                let now = self.clock.mono();
                let status = view.status(&view.me());
                self.is_leaving |= status.is_some_and(|s| s >= MemberStatus::Leaving);
                self.members_changed = true;
                self.report.view(&view, now);
                self.publisher.publish(*view, now);
            }
            Effect::Tell(Notice::Decided(decision)) => {
                let decided = Decided {
                    strategy: self.strategy.clone(),
                    decision,
                    arbiter: self.answer.clone(),
                };
                self.report.decided(&decided);
                self.publisher.events.decided(decided);
            }
            Effect::Tell(notice) => {
                if let Notice::NotTakenIn { by, reason } = &notice {
                    let reason = format!("did not take it in: {reason}");
                    self.waits.failed(by.endpoint(), &reason);
                }
                self.report.notice(&notice);
                self.publisher.events.notice(&notice);
            }
            Effect::AcquireLease { call, claim } => {
                let arbiter = self.arbiter.clone();
                self.leases.spawn(async move {
                    let (lease, answer) = acquire(arbiter, &claim).await;
                    Some((call, lease, answer))
                });
            }
            Effect::ReleaseLease => {
                if let Some(arbiter) = self.arbiter.clone() {
                    let me = self.protocol.me();
                    self.leases.spawn(async move {
                        if let Err(error) = arbiter.release(me).await {
                            tracing::warn!(%error, "the lease was not given back");
                        }
                        None
                    });
                }
            }
            Effect::Stop(termination) => {
                self.report.end(&termination);
                self.end = Some(termination);
            }
            other => tracing::error!(effect = ?other, "unknown effect"),
        }
    }
}

/// An arbiter that cannot be asked has not given the lease.
async fn acquire(arbiter: Option<Arc<dyn Arbiter>>, claim: &Claim) -> (Lease, ArbiterAnswer) {
    let failed = |reason: String| (Lease::refused(), ArbiterAnswer::Silent { reason });
    let Some(arbiter) = arbiter else {
        return failed("there is no arbiter".to_owned());
    };
    match timeout(ARBITER, arbiter.acquire(claim)).await {
        Ok(Ok(lease)) if lease.is_granted() => (lease, ArbiterAnswer::Granted),
        Ok(Ok(lease)) => (lease, ArbiterAnswer::Refused),
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed(silent()),
    }
}

/// Why an arbiter that does not answer was not asked to the end.
pub(super) fn silent() -> String {
    format!("the arbiter has not answered within {ARBITER:?}")
}
