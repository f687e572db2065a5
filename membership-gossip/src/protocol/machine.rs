//! The machine that combines the small ones.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::{FoundingId, MonoTime, Now, SiloAddress};

use super::admission::Admission;
use super::context::{Ctx, Timer};
use super::gossiper;
use super::heartbeat::Heartbeats;
use super::io::{Command, Effect, Input, Termination};
use super::joiner::Joiner;
use super::leading::Leading;
use super::leaver::Leaver;
use super::observer::Observer;
use super::resolver::{self, Resolver};
use super::voucher::Vouchers;
use crate::state::{Gossip, MemberStatus, Version};
use crate::view::GossipView;

/// How often the leader's work may follow from itself after one input.
const MOST_STEPS: usize = 4;
/// Timers that are this late tell a pause, if no heartbeat interval is longer.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// The protocol of one member: takes inputs and returns effects.
#[derive(Debug)]
pub struct Protocol {
    pub(super) ctx: Ctx,
    pub(super) joiner: Joiner,
    pub(super) admission: Admission,
    pub(super) vouchers: Vouchers,
    pub(super) heartbeats: Heartbeats,
    pub(super) observer: Observer,
    leading: Leading,
    leaver: Leaver,
    resolver: Resolver,
    /// What was last published.
    published: Option<(Version, bool, Option<SiloAddress>)>,
    ended: bool,
}

impl Protocol {
    /// Creates a process that is in no cluster, and does nothing until [`Command::Join`].
    #[must_use]
    pub fn new(setup: super::Setup) -> Self {
        Self {
            ctx: Ctx::new(setup),
            joiner: Joiner::default(),
            admission: Admission::default(),
            vouchers: Vouchers::default(),
            heartbeats: Heartbeats::default(),
            observer: Observer::default(),
            leading: Leading::default(),
            leaver: Leaver::default(),
            resolver: Resolver::default(),
            published: None,
            ended: false,
        }
    }

    /// Handles one input at time `now` and appends the effects to `effects`. The same seed and the
    /// same inputs give the same effects.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.ended {
            return;
        }
        self.ctx.now = now;
        std::mem::swap(&mut self.ctx.out, effects);
        self.notice_pause(&input);
        let me = self.ctx.me;
        self.take(input);
        if self.ctx.me != me {
            // What was watched, and heard, was so in an earlier life, in a cluster that never began.
            self.heartbeats = Heartbeats::default();
            self.observer = Observer::default();
        }
        // A timer that is due again at once waits for the next wake-up.
        let mut fired = BTreeSet::new();
        while let Some(timer) = self.ctx.timers.pop_due(now.mono) {
            if self.ended {
                break;
            }
            if !fired.insert(timer) {
                self.ctx.timers.set(timer, now.mono);
                break;
            }
            self.fire(timer);
        }
        self.proceed();
        std::mem::swap(&mut self.ctx.out, effects);
    }

    /// The latest time to call [`handle`](Self::handle) with [`Input::Wake`]; none: no wake-up is
    /// needed.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        if self.ended {
            return None;
        }
        self.ctx.timers.next()
    }

    /// The address of this process. Its epoch may rise until it is a member.
    #[must_use]
    pub const fn me(&self) -> SiloAddress {
        self.ctx.me
    }

    /// The founding of the cluster that it is in.
    #[must_use]
    pub const fn founding(&self) -> Option<FoundingId> {
        self.ctx.founding
    }

    /// The state that it has, and who is known to have seen it.
    #[must_use]
    pub const fn gossip(&self) -> &Gossip {
        &self.ctx.gossip
    }

    /// How far it is in its life; none before it is a member.
    #[must_use]
    pub fn status(&self) -> Option<MemberStatus> {
        self.ctx.status()
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The members that it watches.
    #[must_use]
    pub const fn watched(&self) -> &BTreeSet<SiloAddress> {
        self.heartbeats.targets()
    }

    /// What it would publish now.
    #[must_use]
    pub fn view(&self) -> GossipView {
        let ctx = &self.ctx;
        GossipView::new(
            ctx.founding,
            ctx.gossip.clone(),
            ctx.scope(),
            self.leading.blocked_since,
        )
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Wake => {}
            Input::Message {
                link,
                peer,
                header,
                body,
                waited,
            } => self.receive((link, peer), &header, &body, waited),
            Input::ExecutorLag(lag) => self.doubt(lag),
            Input::Quarantine(member) => Observer::quarantine(&mut self.ctx, &member),
            Input::LeaseAnswer { call, lease } => {
                self.resolver.answered(&mut self.ctx, call, lease);
            }
            Input::Command(Command::Join { contact_points }) => {
                self.joiner.start(&mut self.ctx, contact_points);
            }
            Input::Command(Command::Leave) => self.leave(),
            Input::Command(Command::ExitDone) => {
                let end = self.leaver.exit_done(&mut self.ctx);
                self.stop_if(end);
            }
            Input::Command(Command::Down { member }) => resolver::down(&mut self.ctx, [member]),
        }
    }

    fn fire(&mut self, timer: Timer) {
        let ctx = &mut self.ctx;
        match timer {
            Timer::Join => self.joiner.look(ctx),
            Timer::Proof => self.admission.look(ctx),
            Timer::Vouch => self.vouchers.look(ctx),
            Timer::Gossip => gossiper::round(ctx, false),
            Timer::FastGossip => gossiper::round(ctx, true),
            Timer::Heartbeat => {
                self.observer.look(ctx, &self.heartbeats);
                self.heartbeats.round(ctx);
            }
            Timer::CrossHeartbeat => self.heartbeats.cross_round(ctx),
            Timer::Leader => {
                let interval = ctx.config.leader_actions_interval;
                ctx.timers.set(Timer::Leader, ctx.mono() + interval);
                ctx.dirty = true;
            }
            Timer::Resolver => {
                self.joiner.announce(ctx);
                let may = self.leading.may_begin_without_the_silent(ctx, &self.joiner);
                self.resolver.look(ctx, may);
            }
            Timer::AskLease => self.resolver.ask(ctx),
            Timer::ReleaseLease => self.resolver.release(ctx),
            Timer::Leave => {
                let end = Leaver::out_of_time(ctx);
                self.stop_if(Some(end));
            }
        }
    }

    /// The work after every input.
    fn proceed(&mut self) {
        for _ in 0..MOST_STEPS {
            if self.ended || !self.ctx.dirty {
                return;
            }
            self.ctx.dirty = false;
            let end = self.leaver.proceed(&mut self.ctx);
            self.stop_if(end);
            if !self.ended {
                self.leading.look(&mut self.ctx, &self.joiner);
                self.publish();
            }
        }
        // What is left waits for the next look of the leader.
    }

    fn publish(&mut self) {
        if !self.ctx.is_member() {
            return;
        }
        let view = self.view();
        let shown = (view.version(), view.converged(), view.leader());
        if self.published != Some(shown) {
            self.published = Some(shown);
            self.ctx.out.push(Effect::Publish(Box::new(view)));
        }
    }

    /// Whether timers are late: this process did not run.
    fn notice_pause(&mut self, input: &Input) {
        if matches!(input, Input::ExecutorLag(_)) {
            return;
        }
        let due = self.ctx.timers.next();
        let late = due.map_or(Duration::ZERO, |due| self.ctx.mono().since(due));
        self.doubt(late);
    }

    fn doubt(&mut self, late: Duration) {
        let most = LEAST_PAUSE.max(self.ctx.config.heartbeat_interval);
        if self.ctx.config.doubt_oneself && late > most {
            self.observer
                .paused(&mut self.ctx, &mut self.heartbeats, late);
            self.resolver.paused(&self.ctx);
            let now = self.ctx.mono();
            self.admission.paused(now, late);
            self.vouchers.paused(now, late);
        }
    }

    pub(super) fn stop_if(&mut self, end: Option<Termination>) {
        if let Some(end) = end
            && !self.ended
        {
            self.ended = true;
            self.ctx.out.push(Effect::Stop(end));
        }
    }
}

/// Starts the rounds of a member.
pub(super) fn begin_membership(ctx: &mut Ctx) {
    ctx.heard_at = ctx.mono();
    gossiper::start(ctx);
    Heartbeats::start(ctx);
    Resolver::start(ctx);
    let interval = ctx.config.leader_actions_interval;
    ctx.timers.set(Timer::Leader, ctx.mono() + interval);
}
