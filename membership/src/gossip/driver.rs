//! Owns the protocol: gives it inputs and carries out its effects, in order.
//!
//! One task per member. It never waits for the network, the arbiter or the application.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{ClusterName, InstanceId, SiloAddress};
use membership_gossip::downing::{Claim, Lease};
use membership_gossip::protocol::{Command, Effect, Input, Protocol, Termination};
use membership_gossip::state::MemberStatus;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::arbiter::Arbiter;
use super::report::Report;
use super::state::Publisher;
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
    /// Answers of the arbiter.
    leases: JoinSet<Option<(u64, Lease)>>,
    lag: Lag,
    helpers: JoinSet<()>,
    contact_points: BTreeSet<SocketAddr>,
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
            leases: JoinSet::new(),
            lag,
            helpers,
            contact_points: BTreeSet::new(),
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
                let (call, lease) = answer.ok().flatten()?;
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
            } => Some(Input::Message {
                link,
                peer,
                header,
                body,
                waited,
            }),
            WireInbound::SendFailed { to, reason, .. } => {
                let joins = self.protocol.status().is_none();
                if joins && self.contact_points.contains(&to) {
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

    fn requested(&mut self, request: Request) -> Option<Input> {
        match request {
            Request::Join(contact_points) => {
                if self.contact_points.is_empty() {
                    self.contact_points.extend(&contact_points);
                }
                Some(Input::Command(Command::Join { contact_points }))
            }
            Request::Down { member, reply } => {
                let status = self.protocol.gossip().state().status(&member);
                let is_member = status.is_some_and(|s| s < MemberStatus::Removed);
                // Answered before it is done: nothing can keep this member from it.
                let _ = reply.send(is_member);
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
            Effect::Tell(notice) => {
                self.report.notice(&notice);
                self.publisher.events.notice(&notice);
            }
            Effect::AcquireLease { call, claim } => {
                let arbiter = self.arbiter.clone();
                self.leases
                    .spawn(async move { Some((call, acquire(arbiter, &claim).await)) });
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

async fn acquire(arbiter: Option<Arc<dyn Arbiter>>, claim: &Claim) -> Lease {
    let Some(arbiter) = arbiter else {
        return Lease::refused();
    };
    match timeout(ARBITER, arbiter.acquire(claim)).await {
        Ok(Ok(lease)) => lease,
        Ok(Err(error)) => {
            tracing::error!(%error, "no lease: this side downs itself");
            Lease::refused()
        }
        Err(_) => {
            let error = silent();
            tracing::error!(error, "no lease: this side downs itself");
            Lease::refused()
        }
    }
}

/// Why an arbiter that does not answer was not asked to the end.
pub(super) fn silent() -> String {
    format!("the arbiter has not answered within {ARBITER:?}")
}
