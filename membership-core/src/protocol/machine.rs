//! The machine that combines the small ones: it takes an input and fires the timers that are due.
//! The work that follows is in `proceed`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::answerer::{Answerer, Judge};
use super::callers::Callers;
use super::challenge::Challenges;
use super::cleaner::Cleaner;
use super::contacts::PassedOver;
use super::context::Ctx;
use super::disseminator::Disseminator;
use super::fetch::Fetch;
use super::flood::Flood;
use super::gate;
use super::heartbeat_writer::HeartbeatWriter;
use super::interned::Interned;
use super::io::{Effect, Input};
use super::isolation::Isolation;
use super::joiner::{Joiner, Step};
use super::leaver::Leaver;
use super::monitor::Monitor;
use super::notice::Termination;
use super::notice::{RequestId, TableState};
use super::pause::Pause;
use super::prober::Prober;
use super::pulse::Pulse;
use super::reach::Reach;
use super::roll_call::RollCall;
use super::staleness::Staleness;
use super::timers::Timer;
use super::voter::Voter;
use super::writer::Writer;
use super::{Health, Setup, rings};
use crate::hooks::ProtocolVariant;
use crate::intent::FEW;
use crate::{
    ClusterView, Heartbeats, IntentId, MonoTime, Now, SharedSettings, SiloAddress, SiloStatus,
};

/// The protocol of one silo: takes inputs and returns effects.
#[derive(Debug)]
pub struct Protocol {
    pub(super) ctx: Ctx,
    pub(super) writer: Writer,
    pub(super) joiner: Joiner,
    pub(super) prober: Prober,
    pub(super) answerer: Answerer,
    pub(super) callers: Callers,
    pub(super) roll_call: RollCall,
    pub(super) reach: Reach,
    pub(super) voter: Voter,
    pub(super) staleness: Staleness,
    pub(super) challenges: Challenges,
    pub(super) isolation: Isolation,
    pub(super) monitor: Monitor,
    pub(super) disseminator: Disseminator,
    pub(super) fetch: Fetch,
    /// How often in a row this silo waited in vain for what the table has shown.
    pub(super) waited: u32,
    /// Whom it has asked for that.
    pub(super) asked_for_news: Option<SiloAddress>,
    /// Whether the version row that was last read came with this silo's own row.
    pub(super) row_is_in: bool,
    /// The heartbeats are read as soon as the confirmed view is the table's.
    pub(super) wants_heartbeats: bool,
    /// How often in a row the news had overtaken what the table has shown.
    pub(super) overtaken: u32,
    pub(super) flood: Flood,
    pub(super) successors: rings::Successors,
    /// The current targets of the prober, and the value of `losses` when they were set.
    pub(super) aimed_at: (BTreeSet<SiloAddress>, u64),
    pub(super) heartbeat_writer: HeartbeatWriter,
    pub(super) pulse: Pulse,
    pub(super) leaver: Leaver,
    pub(super) cleaner: Cleaner,
    pub(super) pause: Pause,
    /// Silos whose heartbeat is stale and that do not answer, as of the last check.
    pub(super) stale: BTreeSet<SiloAddress>,
    /// Challenged silos that have written no heartbeat since and do not answer.
    pub(super) challenged: BTreeSet<SiloAddress>,
    /// The same while this silo joins, if no Active silo writes heartbeats; otherwise empty.
    pub(super) gone: BTreeSet<SiloAddress>,
    /// When this silo, while it joins, last looked at the Active silos that do not answer it.
    pub(super) looked_at_silent: MonoTime,
    /// The challenged silos whose heartbeats this silo reads.
    pub(super) waits_for: BTreeSet<SiloAddress>,
    /// The heartbeats of the last read; used for rows that were abandoned long ago.
    pub(super) last_heartbeats: Heartbeats,
    pub(super) evictions: BTreeMap<IntentId, RequestId>,
    /// Refresh requests whose read has ended.
    pub(super) refreshing: BTreeSet<RequestId>,
    /// The view has moved since targets were chosen.
    pub(super) dirty: bool,
    pub(super) published: Option<u64>,
    /// A view that was withdrawn, and the table's version: told once the table's view is published.
    pub(super) to_tell_withdrawn: Option<(u64, u64)>,
    pub(super) told_active: bool,
    /// The settings of the table that were last reported as different to the application.
    pub(super) settings_seen: Option<SharedSettings>,
    pub(super) last_hint: Option<MonoTime>,
    pub(super) last_fast_read: Option<MonoTime>,
    /// When an announced view was last read again because this silo suspects others.
    pub(super) last_confirming: Option<MonoTime>,
    pub(super) ended: bool,
}

impl Protocol {
    /// Creates a silo that does nothing until [`Input::Start`].
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            ctx: Ctx::new(setup),
            writer: Writer::default(),
            joiner: Joiner::default(),
            prober: Prober::default(),
            answerer: Answerer::default(),
            callers: Callers::default(),
            roll_call: RollCall::default(),
            reach: Reach::default(),
            voter: Voter::default(),
            staleness: Staleness::default(),
            challenges: Challenges::default(),
            isolation: Isolation::default(),
            monitor: Monitor::default(),
            disseminator: Disseminator::default(),
            fetch: Fetch::default(),
            waited: 0,
            asked_for_news: None,
            row_is_in: false,
            wants_heartbeats: false,
            overtaken: 0,
            flood: Flood::default(),
            successors: rings::Successors::default(),
            aimed_at: (BTreeSet::new(), 0),
            heartbeat_writer: HeartbeatWriter::default(),
            pulse: Pulse::default(),
            leaver: Leaver::default(),
            cleaner: Cleaner::default(),
            pause: Pause::default(),
            stale: BTreeSet::new(),
            challenged: BTreeSet::new(),
            gone: BTreeSet::new(),
            looked_at_silent: MonoTime::ZERO,
            waits_for: BTreeSet::new(),
            last_heartbeats: Heartbeats::default(),
            evictions: BTreeMap::new(),
            refreshing: BTreeSet::new(),
            dirty: false,
            published: None,
            to_tell_withdrawn: None,
            told_active: false,
            settings_seen: None,
            last_hint: None,
            last_fast_read: None,
            last_confirming: None,
            ended: false,
        }
    }

    /// Creates a silo that behaves as another protocol of the same family; see [`crate::hooks`].
    pub(crate) fn with_variant(setup: Setup, variant: ProtocolVariant) -> Self {
        let mut protocol = Self::new(setup);
        protocol.ctx.variant = variant;
        protocol
    }

    /// The silos of one simulation share their views.
    pub(crate) fn sharing(mut self, views: Interned) -> Self {
        self.ctx.views = Some(views);
        self
    }

    /// Handles one input at time `now` and appends the effects to `effects`. The same seed and the
    /// same inputs give the same effects.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.ended {
            return;
        }
        self.ctx.now = now;
        std::mem::swap(&mut self.ctx.out, effects);
        self.notice_pause();
        self.take(input);
        // Not before the input: it may be the answer that ends this silo.
        if self.pause.was_silent_for_long(now.mono) {
            self.end_silence();
        }
        // A timer that is due again at once waits for the next wake-up, so that handling ends for
        // any period in the table.
        let mut fired = BTreeSet::new();
        while let Some(timer) = self.ctx.timers.pop_due(now.mono) {
            if self.ended {
                break;
            }
            if !fired.insert(timer) {
                self.ctx.set_timer_at(timer, now.mono);
                break;
            }
            self.fire(timer);
        }
        self.proceed();
        std::mem::swap(&mut self.ctx.out, effects);
    }

    /// The latest time to call [`handle`](Self::handle) with [`Input::Wake`]; `None` = no wake-up
    /// is needed.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        if self.ended {
            None
        } else {
            self.ctx.timers.next()
        }
    }

    /// The address of this silo; `None` until the epoch is decided.
    #[must_use]
    pub fn me(&self) -> Option<SiloAddress> {
        (self.ctx.me.epoch() != 0).then_some(self.ctx.me)
    }

    /// The status of this silo.
    #[must_use]
    pub fn status(&self) -> SiloStatus {
        if self.ended {
            SiloStatus::Dead
        } else {
            self.ctx.status
        }
    }

    /// The view that this silo acts on; it is published once it contains this silo's row.
    #[must_use]
    pub fn view(&self) -> Option<&ClusterView> {
        self.ctx.view.as_ref()
    }

    /// The newest view that the table showed or took. It is [`view`](Self::view), unless that is
    /// announced by another silo and newer. Tokens, leases and everything that must not be wrong
    /// rest on it.
    #[must_use]
    pub fn confirmed_view(&self) -> Option<&ClusterView> {
        self.ctx.base.as_ref()
    }

    /// When the last call that the table answered well was sent; `None` before the first.
    #[must_use]
    pub fn table_contact(&self) -> Option<MonoTime> {
        self.ctx.contact
    }

    /// The health of this silo.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            score: self.monitor.score(),
            local: self.monitor.local(),
        }
    }

    /// The state of the table as this silo sees it.
    #[must_use]
    pub fn table_state(&self) -> TableState {
        self.ctx.table.state
    }

    /// Whether this silo publishes and writes nothing after a long pause.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.ctx.suspended
    }

    /// The shortest silence that can end in a death, as the cluster has set it.
    #[must_use]
    pub fn failure_window(&self) -> Duration {
        self.ctx.failure_window()
    }

    /// Whether this silo has stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.ended
    }

    /// Whether other silos may know this silo: its row is in the table, or may be. A message to
    /// this silo by its full address proves that the sender has seen the row.
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
            Input::Message {
                link,
                peer,
                header,
                body,
            } => self.receive(link, peer, &header, &body),
            Input::SendFailed {
                to,
                refused,
                reason,
            } => {
                let (ctx, writer) = (&mut self.ctx, &mut self.writer);
                self.joiner
                    .on_send_failed(ctx, writer, to, &reason, refused);
                self.isolation.on_send_failed(ctx, to, &reason);
                if refused {
                    self.on_gone(to, None);
                    let judge = self.judge();
                    self.prober.on_refused(&mut self.ctx, to, judge.multiplier);
                    self.answerer
                        .on_refused(&mut self.ctx, &self.prober, to, judge);
                }
            }
            Input::Disconnected { peer } => {
                let multiplier = self.monitor.health_multiplier();
                self.prober.on_disconnected(&mut self.ctx, peer, multiplier);
                self.on_gone(peer, None);
            }
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
            Input::RowRead { call, result } => {
                let outcomes = self.writer.on_row(&self.ctx, call, result);
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

    /// Handles the result of a step of the join.
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
            Timer::Heartbeat => {
                self.pace_heartbeats();
                self.heartbeat_writer.on_timer(&mut self.ctx);
            }
            Timer::Refresh => {
                self.refresh();
                self.arm_refresh();
            }
            Timer::FastRead => {
                self.last_fast_read = Some(self.ctx.now.mono);
                if !self.ctx.table_changed() {
                    self.read_heartbeats(false);
                }
            }
            Timer::Writer => {}
            Timer::Hint if self.ctx.variant.scribe => {
                self.look_at_the_table(self.ctx.is_announced());
            }
            Timer::Hint if gate::may_be_confirmed_by_its_version_row(&self.ctx) => {
                self.writer.want_row();
            }
            Timer::Hint => self.writer.want_read(self.ctx.is_announced()),
            Timer::Join => {
                let required = self.required();
                let step = self
                    .joiner
                    .on_timer(&mut self.ctx, &mut self.writer, &required);
                self.step(step);
            }
            Timer::JoinDeadline => {
                self.joiner.contacts.draw_last(&self.ctx);
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
            Timer::Answers => {
                let judge = self.judge();
                self.answerer.on_timer(&mut self.ctx, &self.prober, judge);
            }
            Timer::Check => self.roll_call.look(),
            // The work that is due is determined after every input.
            Timer::Standoff => {}
            Timer::Leave => {
                if self.leaver.on_timer(&mut self.ctx, &mut self.writer) {
                    let end = self.leaver.termination(false);
                    self.end(end);
                }
            }
            Timer::Clean => self.cleaner.on_timer(&mut self.ctx, &mut self.writer),
            Timer::Desk => self.writer.on_desk_timer(&mut self.ctx),
            Timer::Vouching => self.writer.on_vouching_timer(&mut self.ctx),
            Timer::Flood => self.flood.on_timer(&mut self.ctx),
            Timer::Fetch => self.on_fetch_timer(),
            Timer::Courier => self.writer.on_courier_timer(&mut self.ctx),
        }
    }

    /// Ticks often enough to notice a pause longer than a probe timeout, and to update health and
    /// staleness.
    pub(super) fn tick(&mut self) {
        let period =
            (self.ctx.probe_timeout() / 5).clamp(Duration::from_millis(50), Duration::from_secs(1));
        self.ctx.set_timer(Timer::Tick, period);
        if self.ctx.status == SiloStatus::Created {
            return;
        }
        let accusers = self.accusers();
        let (targets, last) = (self.prober.targets(), self.prober.last_answer());
        self.monitor.update(&mut self.ctx, targets, last, &accusers);
        self.judge_staleness();
        self.pace_heartbeats();
        self.challenge_the_unmet();
        self.reach.look(&mut self.ctx, &self.prober);
        let probed = self.monitor.last_probe_received();
        let why = self
            .isolation
            .look(&mut self.ctx, &self.stale, probed, last);
        if let Some(why) = why {
            self.leaver.give_up(&mut self.ctx, &mut self.writer, why);
        }
    }

    /// How well this silo is to judge others.
    pub(super) fn judge(&self) -> Judge {
        Judge {
            score: self.monitor.score(),
            local: self.monitor.local(),
            multiplier: self.monitor.health_multiplier(),
        }
    }

    pub(super) fn arm_refresh(&mut self) {
        let mut period = self.ctx.config.table_refresh_period;
        if self.ctx.members.active.len() <= FEW {
            // There may be nobody who could tell this silo what has changed.
            period = period.min(self.ctx.heartbeat_period());
        }
        let jitter = self.ctx.jitter(period / 5);
        self.ctx
            .set_timer(Timer::Refresh, period - period / 10 + jitter);
    }

    pub(super) fn required(&self) -> BTreeSet<SiloAddress> {
        self.joiner
            .contacts
            .required(&self.ctx, &self.passed_over())
    }

    /// Silos that need not be reached during the join.
    pub(super) fn passed_over(&self) -> PassedOver<'_> {
        PassedOver {
            stale: &self.stale,
            beats: &self.last_heartbeats,
            challenged: &self.gone,
        }
    }
}
