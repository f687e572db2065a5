//! The one machine made of the small ones: it takes an input and lets due timers fire. What follows from
//! that is in `proceed`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cleaner::Cleaner;
use super::contacts::PassedOver;
use super::context::Ctx;
use super::disseminator::Disseminator;
use super::heartbeat_writer::HeartbeatWriter;
use super::intermediary::Intermediary;
use super::io::{Effect, Input};
use super::joiner::{Joiner, Step};
use super::leaver::Leaver;
use super::monitor::Monitor;
use super::notice::Termination;
use super::notice::{RequestId, TableState};
use super::partition::PartitionCheck;
use super::pause::Pause;
use super::prober::Prober;
use super::staleness::Staleness;
use super::timers::Timer;
use super::voter::Voter;
use super::writer::Writer;
use super::{Health, Setup, rings};
use crate::hooks::ProtocolVariant;
use crate::{
    ClusterView, Heartbeats, IntentId, MonoTime, Now, SharedSettings, SiloAddress, SiloStatus,
};

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
    pub(super) successors: rings::Successors,
    /// Whom the prober was told to probe, and how many losses ago.
    pub(super) aimed_at: (BTreeSet<SiloAddress>, u64),
    pub(super) heartbeat_writer: HeartbeatWriter,
    pub(super) leaver: Leaver,
    pub(super) cleaner: Cleaner,
    pub(super) pause: Pause,
    /// Silos whose heartbeat stands still and that do not answer, as of the last look.
    pub(super) stale: BTreeSet<SiloAddress>,
    /// The heartbeats that were read last: for rows abandoned long ago.
    pub(super) last_heartbeats: Heartbeats,
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
    pub(super) last_fast_read: Option<MonoTime>,
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
            heartbeat_writer: HeartbeatWriter::default(),
            leaver: Leaver::default(),
            cleaner: Cleaner::default(),
            pause: Pause::default(),
            stale: BTreeSet::new(),
            last_heartbeats: Heartbeats::default(),
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
        let health_multiplier = self.monitor.health_multiplier();
        match timer {
            Timer::Tick => self.tick(),
            Timer::Heartbeat => self.heartbeat_writer.on_timer(&mut self.ctx),
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
            Timer::Probe(silo) => self.prober.on_timer(&mut self.ctx, silo, health_multiplier),
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
    pub(super) fn tick(&mut self) {
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

    pub(super) fn required(&self) -> BTreeSet<SiloAddress> {
        self.joiner
            .contacts
            .required(&self.ctx, &self.passed_over())
    }

    /// Who need not be reached when I join.
    pub(super) fn passed_over(&self) -> PassedOver<'_> {
        PassedOver {
            stale: &self.stale,
            beats: &self.last_heartbeats,
        }
    }
}
