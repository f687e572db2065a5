//! The one machine made of the small ones: takes an input, lets due timers fire, and sees what there is to do next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::beater::Beater;
use super::cleaner::Cleaner;
use super::contacts::PassedOver;
use super::context::Ctx;
use super::disseminator::Disseminator;
use super::intermediary::Intermediary;
use super::io::{Effect, Input, Notice, Observation, RequestId, TableState, Termination};
use super::joiner::{Joiner, Step};
use super::leaver::Leaver;
use super::monitor::Monitor;
use super::partition::PartitionCheck;
use super::pause::{Length, Pause};
use super::prober::Prober;
use super::rings::Rings;
use super::staleness::Staleness;
use super::timers::Timer;
use super::voter::{Sight, Voter};
use super::writer::Writer;
use super::{Health, Setup, rings};
use crate::hooks::ProtocolVariant;
use crate::intent::Observed;
use crate::{
    ClusterView, Heartbeats, IntentId, MonoTime, Now, SharedSettings, SiloAddress, SiloStatus,
    Suspicion, TableErrorKind,
};

/// Besides its ring successors a silo probes at most so many that others accuse.
const MAX_ACCUSED_TARGETS: usize = 10;
/// So many silos share the probing of each stale row.
const STALE_SHARE: usize = 4;

/// One silo's protocol: feed it inputs, carry out its effects.
#[derive(Debug)]
pub struct Protocol {
    pub(super) ctx: Ctx,
    pub(super) writer: Writer,
    pub(super) joiner: Joiner,
    pub(super) prober: Prober,
    pub(super) intermediary: Intermediary,
    pub(super) check: PartitionCheck,
    pub(super) voter: Voter,
    pub(super) staleness: Staleness,
    pub(super) monitor: Monitor,
    pub(super) disseminator: Disseminator,
    successors: rings::Successors,
    /// Whom the prober was told to probe, and how many losses ago.
    aimed_at: (BTreeSet<SiloAddress>, u64),
    pub(super) beater: Beater,
    pub(super) leaver: Leaver,
    pub(super) cleaner: Cleaner,
    pub(super) pause: Pause,
    /// Silos whose heartbeat stands still and that do not answer, as of the last look.
    pub(super) stale: BTreeSet<SiloAddress>,
    /// The heartbeats that were read last: for rows abandoned long ago.
    pub(super) last_beats: Heartbeats,
    pub(super) evictions: BTreeMap<IntentId, RequestId>,
    /// Requests for a refresh whose read has ended.
    pub(super) refreshing: BTreeSet<RequestId>,
    /// The view moved since targets were chosen.
    pub(super) dirty: bool,
    pub(super) published: Option<u64>,
    pub(super) told_active: bool,
    /// The settings of the table that the application was last told about, if they differ.
    pub(super) settings_seen: Option<SharedSettings>,
    pub(super) last_hint: Option<MonoTime>,
    last_fast_read: Option<MonoTime>,
    pub(super) ended: bool,
}

impl Protocol {
    /// A silo that does nothing until [`Input::Start`].
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            ctx: Ctx::new(setup),
            writer: Writer::default(),
            joiner: Joiner::default(),
            prober: Prober::default(),
            intermediary: Intermediary::default(),
            check: PartitionCheck::default(),
            voter: Voter::default(),
            staleness: Staleness::default(),
            monitor: Monitor::default(),
            disseminator: Disseminator::default(),
            successors: rings::Successors::default(),
            aimed_at: (BTreeSet::new(), 0),
            beater: Beater::default(),
            leaver: Leaver::default(),
            cleaner: Cleaner::default(),
            pause: Pause::default(),
            stale: BTreeSet::new(),
            last_beats: Heartbeats::default(),
            evictions: BTreeMap::new(),
            refreshing: BTreeSet::new(),
            dirty: false,
            published: None,
            told_active: false,
            settings_seen: None,
            last_hint: None,
            last_fast_read: None,
            ended: false,
        }
    }

    /// A silo that behaves as another protocol of the same family does; see [`crate::hooks`].
    pub(crate) fn with_variant(setup: Setup, variant: ProtocolVariant) -> Self {
        let mut protocol = Self::new(setup);
        protocol.ctx.variant = variant;
        protocol
    }

    /// Takes one input and appends the effects. Same seed, same inputs, same effects.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.ended {
            return;
        }
        self.ctx.now = now;
        std::mem::swap(&mut self.ctx.out, effects);
        self.notice_pause();
        self.take(input);
        // One that is due again at once waits for the next wake-up: an input ends, whatever periods the table asks for.
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

    /// When to call [`handle`](Self::handle) with [`Input::Wake`], at the latest; none = only when something happens.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        if self.ended {
            None
        } else {
            self.ctx.timers.next()
        }
    }

    /// My address, once the epoch is decided.
    #[must_use]
    pub fn me(&self) -> Option<SiloAddress> {
        (self.ctx.me.epoch() != 0).then_some(self.ctx.me)
    }

    /// Where I am in my life.
    #[must_use]
    pub fn status(&self) -> SiloStatus {
        if self.ended {
            SiloStatus::Dead
        } else {
            self.ctx.status
        }
    }

    /// The view I act by; published if my row is in it.
    #[must_use]
    pub fn view(&self) -> Option<&ClusterView> {
        self.ctx.view.as_ref()
    }

    /// How I feel.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            score: self.monitor.score(),
            local: self.monitor.local(),
        }
    }

    /// How the table answers.
    #[must_use]
    pub fn table_state(&self) -> TableState {
        self.ctx.table.state
    }

    /// Whether I publish and write nothing after a long pause.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.ctx.suspended
    }

    /// Whether I have stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.ended
    }

    /// Others may know me: my row is in, or may be. Whoever asks for me by my address has seen it, whether I was told so or not.
    pub(super) fn is_exposed(&self) -> bool {
        self.ctx.status != SiloStatus::Created || self.joiner.row_may_be_in()
    }

    fn notice_pause(&mut self) {
        let now = self.ctx.mono();
        let late = self
            .ctx
            .timers
            .next()
            .map_or(Duration::ZERO, |due| now.since(due));
        self.monitor.timers_late(now, late);
        let length = Pause::judge(
            late,
            self.ctx.config.probe_timeout,
            self.ctx.failure_window(),
        );
        if length == Length::None {
            return;
        }
        // Others may have declared me dead: the table is asked before anything else is done. (One that is not mine has nothing to say.)
        let suspend = length == Length::Long && self.is_exposed() && !self.ctx.table_changed();
        if suspend {
            self.writer.read_first(&mut self.ctx);
        }
        self.ctx.observe(Observation::Paused(late));
        self.pause.last_at = Some(now);
        self.prober.void(&mut self.ctx);
        self.prober.forget_misses();
        self.check.void(&mut self.ctx);
        self.intermediary.void(&mut self.ctx);
        self.staleness.reset();
        self.stale.clear();
        self.voter.reset(now);
        self.monitor.reset();
        self.dirty = true;
        if suspend {
            if !self.ctx.suspended {
                self.ctx.suspended = true;
                self.ctx.tell(Notice::Suspended(true));
            }
            self.pause.silent = true;
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Start => {
                if self.ctx.status == SiloStatus::Created && !self.joiner.is_joining() {
                    self.tick();
                    self.joiner.start(&mut self.ctx);
                }
            }
            Input::Wake => {}
            Input::Message { link, header, body } => self.receive(link, &header, &body),
            Input::SendFailed { to, reason } => self.joiner.on_send_failed(&self.ctx, to, &reason),
            Input::Heard { from, asked } => self.prober.on_evidence(&self.ctx, from, asked),
            Input::Initialized { call, result } => {
                let step =
                    self.joiner
                        .on_initialized(&mut self.ctx, &mut self.writer, call, result);
                self.step(step);
            }
            Input::Read { call, result } => {
                let outcomes = self.writer.on_read(&mut self.ctx, call, result);
                self.settle(outcomes);
            }
            Input::Committed { call, result } => {
                let outcomes = self.writer.on_committed(&mut self.ctx, call, result);
                self.settle(outcomes);
            }
            Input::HeartbeatWritten { call, result } => self.heartbeat_written(call, result),
            Input::ExecutorLag(lag) => self.monitor.executor_lag(self.ctx.now.mono, lag),
            Input::Hint => self.hint(),
            Input::Command(command) => self.command(command),
        }
    }

    /// A step of the join that may have ended everything.
    pub(super) fn step(&mut self, step: Step) {
        let step = match step {
            Step::Nothing => self.joiner.end_row(&mut self.ctx, &mut self.writer),
            failed => failed,
        };
        if let Step::Failed(error) = step {
            self.end(Termination::JoinFailed(error));
        }
    }

    fn fire(&mut self, timer: Timer) {
        let stretch = self.monitor.stretch();
        match timer {
            Timer::Tick => self.tick(),
            Timer::Heartbeat => self.beater.on_timer(&mut self.ctx),
            Timer::Refresh => {
                self.writer.want_read(false);
                self.arm_refresh();
            }
            Timer::FastRead => {
                self.last_fast_read = Some(self.ctx.now.mono);
                if !self.ctx.table_changed() {
                    self.writer.want_read(false);
                }
            }
            Timer::Writer => {}
            Timer::Hint => self.writer.want_read(false),
            Timer::Join => {
                let required = self.required();
                let step = self
                    .joiner
                    .on_timer(&mut self.ctx, &mut self.writer, &required);
                self.step(step);
            }
            Timer::JoinDeadline => {
                let required = self.required();
                let step = self
                    .joiner
                    .on_deadline(&mut self.ctx, &mut self.writer, &required);
                self.step(step);
            }
            Timer::JoinProgress => {
                let required = self.required();
                self.joiner.on_progress_timer(&mut self.ctx, &required);
            }
            Timer::Probe(silo) => self.prober.on_timer(&mut self.ctx, silo, stretch),
            Timer::Round(key) => {
                let alive = self
                    .intermediary
                    .suspect(key)
                    .and_then(|s| self.prober.last_sign(&s));
                self.intermediary.on_timer(
                    &mut self.ctx,
                    key,
                    alive,
                    self.monitor.score(),
                    self.monitor.local(),
                );
            }
            // What is to be done is found out after every input.
            Timer::Doubt(_) => {}
            Timer::Check => self.check.on_timer(&mut self.ctx),
            Timer::Leave => {
                if self.leaver.on_timer(&mut self.ctx, &mut self.writer) {
                    self.end(Termination::Left { clean: false });
                }
            }
            Timer::Clean => self.cleaner.on_timer(&mut self.ctx, &mut self.writer),
        }
    }

    /// Often enough to notice a pause that is longer than a probe timeout, and to judge health and staleness anew.
    fn tick(&mut self) {
        let period = (self.ctx.config.probe_timeout / 5)
            .clamp(Duration::from_millis(50), Duration::from_secs(1));
        self.ctx.set_timer(Timer::Tick, period);
        if self.ctx.status == SiloStatus::Created {
            return;
        }
        let accusers = self.accusers();
        let (targets, last) = (self.prober.targets(), self.prober.last_answer());
        self.monitor.update(&mut self.ctx, targets, last, &accusers);
        self.judge_staleness();
    }

    pub(super) fn arm_refresh(&mut self) {
        let period = self.ctx.config.table_refresh_period;
        let jitter = self.ctx.jitter(period / 5);
        self.ctx
            .set_timer(Timer::Refresh, period - period / 10 + jitter);
    }

    /// Active silos with a fresh vote against me.
    fn accusers(&self) -> Vec<SiloAddress> {
        if self
            .ctx
            .members
            .accused
            .binary_search(&self.ctx.me)
            .is_err()
        {
            return Vec::new();
        }
        let entry = self.ctx.view.as_ref().and_then(|v| v.get(&self.ctx.me));
        let active = |s: &SiloAddress| self.ctx.members.active.binary_search(s).is_ok();
        let fresh = |s: &&Suspicion| active(&s.accuser) && self.ctx.is_fresh(self.ctx.me, s);
        entry
            .map(|e| {
                e.suspicions
                    .iter()
                    .filter(fresh)
                    .map(|s| s.accuser)
                    .collect()
            })
            .unwrap_or_default()
    }

    pub(super) fn judge_staleness(&mut self) {
        let settings = self.ctx.settings();
        let now = self.ctx.mono();
        let alive = &self.ctx.members.alive;
        let counts = |s: &SiloAddress| {
            *s != self.ctx.me
                && alive.binary_search(s).is_ok()
                && !self.prober.answered_within(s, now, settings.failure_window)
        };
        let stale: BTreeSet<SiloAddress> = self
            .staleness
            .standing_still(now, &settings)
            .filter(counts)
            .collect();
        if stale != self.stale {
            self.stale = stale;
            self.dirty = true;
        }
    }

    fn required(&self) -> BTreeSet<SiloAddress> {
        self.joiner
            .contacts
            .required(&self.ctx, &self.passed_over())
    }

    /// Who need not be reached when I join.
    fn passed_over(&self) -> PassedOver<'_> {
        PassedOver {
            stale: &self.stale,
            beats: &self.last_beats,
        }
    }

    /// What there is to do after every input.
    fn proceed(&mut self) {
        for _ in 0..8 {
            if self.ended {
                return;
            }
            if self.dirty {
                self.dirty = false;
                self.retarget();
            }
            if !self.pump() {
                break;
            }
        }
        if self.ended {
            return;
        }
        self.publish();
        self.arm_fast_read();
    }

    fn sight(&self) -> Sight<'_> {
        let (targets, last) = (self.prober.targets(), self.prober.last_answer());
        Sight {
            stale: &self.stale,
            deaf: self.monitor.hears_nobody(&self.ctx, targets, last),
            score: self.monitor.score(),
            local: self.monitor.local(),
            stretch: self.monitor.stretch(),
        }
    }

    /// Votes, joins and writes; true when something happened that may call for more.
    pub(super) fn pump(&mut self) -> bool {
        if let Some(verdict) = self.check.poll(&mut self.ctx) {
            self.voter.on_verdict(&verdict);
        }
        let stale = self.stale.clone();
        let (targets, last) = (self.prober.targets(), self.prober.last_answer());
        let deaf = self.monitor.hears_nobody(&self.ctx, targets, last);
        let (score, local, stretch) = (
            self.monitor.score(),
            self.monitor.local(),
            self.monitor.stretch(),
        );
        let sight = Sight {
            stale: &stale,
            deaf,
            score,
            local,
            stretch,
        };
        self.voter
            .poll(&mut self.ctx, &mut self.prober, &mut self.check, &sight);
        if self.joiner.is_joining() {
            let passed = PassedOver {
                stale: &self.stale,
                beats: &self.last_beats,
            };
            let step = self.joiner.poll(&mut self.ctx, &mut self.writer, &passed);
            if let Step::Failed(_) = step {
                self.step(step);
                return false;
            }
        }
        let can_commit = self.writer.can_commit(&self.ctx);
        let votes = if can_commit {
            self.voter.intents(&mut self.ctx, &self.prober, &sight)
        } else {
            Vec::new()
        };
        let observed = if can_commit && (!votes.is_empty() || self.writer.has_queued()) {
            let now = self.ctx.mono();
            let window = self.ctx.failure_window();
            let answered = self.prober.answered(now, window);
            let sighted = self
                .ctx
                .members
                .first_seen
                .iter()
                .flat_map(|(silo, votes)| votes.iter().map(|(by, seen)| ((*silo, *by), *seen)));
            let first_seen = sighted
                .filter_map(|(vote, (at, when))| Some((vote, (at, when?))))
                .collect();
            let mut stale = stale;
            if self.joiner.is_joining() {
                // Who need not be reached does not hold up the commit either.
                stale.append(
                    &mut self
                        .joiner
                        .contacts
                        .abandoned(&self.ctx, &self.passed_over()),
                );
            }
            Observed {
                stale,
                answered,
                first_seen,
            }
        } else {
            Observed::default()
        };
        let outcomes = self.writer.pump(&mut self.ctx, votes, &observed);
        if outcomes.is_empty() {
            return false;
        }
        self.settle(outcomes);
        true
    }

    /// Chooses whom to probe: ring successors, accused silos, and my share of the stale rows.
    fn retarget(&mut self) {
        self.voter.on_view(&self.ctx);
        let mut targets = BTreeSet::new();
        let moved = self.ctx.members.moved.replace(Vec::new());
        if self.ctx.is_active() {
            let ctx = &self.ctx;
            let (silos, one_ring) = (ctx.config.num_probed_silos, ctx.variant.one_ring);
            self.successors.follow(
                ctx.me,
                &ctx.members,
                moved.as_deref(),
                Rings {
                    silos,
                    one: one_ring,
                },
            );
            targets.extend(self.successors.silos());
            let votes = |s: &SiloAddress| {
                ctx.view
                    .as_ref()
                    .and_then(|v| v.get(s))
                    .map_or(&[][..], |e| &e.suspicions)
            };
            let fresh = |s: &SiloAddress| votes(s).iter().any(|v| ctx.is_fresh(*s, v));
            targets.extend(
                ctx.members
                    .accused
                    .iter()
                    .filter(|s| **s != ctx.me && fresh(s))
                    .take(MAX_ACCUSED_TARGETS),
            );
            if !self.stale.is_empty() {
                let live: Vec<SiloAddress> = ctx
                    .members
                    .active
                    .iter()
                    .filter(|s| !self.stale.contains(s))
                    .copied()
                    .collect();
                targets.extend(
                    self.stale
                        .iter()
                        .filter(|s| rings::is_my_share(&ctx.me, s, &live, STALE_SHARE)),
                );
            }
        } else {
            self.successors = rings::Successors::default();
        }
        // Usually nothing has changed about them.
        if self.aimed_at.0 != targets || self.aimed_at.1 != self.ctx.members.losses {
            self.prober.set_targets(&mut self.ctx, &targets);
            self.aimed_at = (targets, self.ctx.members.losses);
        }
    }

    fn arm_fast_read(&mut self) {
        if self.ctx.timers.is_set(Timer::FastRead) || self.ctx.table_changed() {
            return;
        }
        let passed = PassedOver {
            stale: &self.stale,
            beats: &self.last_beats,
        };
        let waits = self.joiner.is_joining() && self.joiner.waits(&self.ctx, &passed);
        if waits
            || self
                .voter
                .waits_for_staleness(&self.ctx, &self.prober, &self.sight())
        {
            let period = self.ctx.heartbeat_period() / 2;
            let at = self
                .last_fast_read
                .map_or(self.ctx.mono(), |t| t + period)
                .max(self.ctx.mono());
            self.ctx.timers.set(Timer::FastRead, at);
        }
    }

    pub(super) fn publish(&mut self) {
        if self.ended || self.ctx.suspended || self.ctx.status == SiloStatus::Created {
            return;
        }
        let Some(view) = &self.ctx.view else { return };
        if self.published.is_none_or(|v| view.version() > v) {
            self.published = Some(view.version());
            let view = view.clone();
            self.ctx.out.push(Effect::Publish(view));
        }
        if self.ctx.is_active() && !self.told_active {
            self.told_active = true;
            let version = self
                .ctx
                .view
                .as_ref()
                .and_then(|v| v.get(&self.ctx.me))
                .and_then(|e| e.active_since)
                .unwrap_or(0);
            self.ctx.tell(Notice::Active { version });
        }
    }

    /// The end: nothing is sent, written or published after this.
    pub(super) fn end(&mut self, termination: Termination) {
        if !self.ended {
            self.ended = true;
            self.answer_the_waiting(TableErrorKind::Unavailable, "the silo has stopped");
            self.ctx.out.push(Effect::Stop(termination));
        }
    }
}
