//! The join: dial the own advertised address, read the table, choose an epoch, insert the row,
//! establish two-way contact with every Active silo that is not stale, become Active. Invariant P9.

mod address;
mod ending;
mod quiet;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::quiet::Quiet;
use self::report::PROGRESS_PERIOD;
use crate::intent::{Action, Answer, Refusal};
use crate::protocol::callers::Callers;
use crate::protocol::contacts::{Contacts, PassedOver};
use crate::protocol::context::Ctx;
use crate::protocol::io::{CallId, Effect};
use crate::protocol::message::Message;
use crate::protocol::notice::{JoinError, Notice, TableErrorText};
use crate::protocol::timers::Timer;
use crate::protocol::writer::Writer;
use crate::{
    Config, Heartbeats, InitializeRequest, MembershipEntry, MonoTime, NextStep, SiloAddress,
    SiloStatus, TableError, TableId,
};

/// Back-off after an activation is refused: usually another silo became Active meanwhile and must
/// be contacted first.
const REFUSED_BACKOFF: Duration = Duration::from_millis(100);

/// How long after a view has added silos they are contacted.
const SOON: Duration = Duration::from_millis(50);

/// The time that the own advertised address has at least to lead to this process.
pub(crate) const MEETING: Duration = Duration::from_secs(3);

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Dialling the own advertised address.
    MeetMyself,
    /// Creating the table, or finding it.
    Initialize,
    /// Reading the table for the first time.
    FirstRead,
    /// Watching whether an older row of another host at this silo's address still gets heartbeats.
    WatchAddress {
        counters: BTreeMap<SiloAddress, Option<u64>>,
        until: MonoTime,
        quiet: Quiet,
    },
    /// Inserting the row.
    Insert,
    /// Establishing two-way contact.
    Contact,
    /// Failed; the row is being ended before the failure is reported.
    Failing,
    Done,
}

#[derive(Debug, Default)]
pub(crate) struct Joiner {
    stage: Stage,
    began: MonoTime,
    nonce: u64,
    /// When the advertised address last led to this process.
    met_myself: Option<MonoTime>,
    call: Option<CallId>,
    /// Older rows of other hosts at this silo's address whose heartbeat stood still while it was
    /// watched.
    watched: BTreeSet<SiloAddress>,
    pub(crate) contacts: Contacts,
    /// When the row of this silo was found in the table.
    contacting_since: MonoTime,
    /// When to attempt activation again after a refusal. The table is read before that.
    again_at: MonoTime,
    last_error: Option<String>,
    last_table_error: Option<TableError>,
    failure: Option<JoinError>,
}

/// The result of a step of the join.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing has ended.
    Nothing,
    /// The join has failed and this silo has no row in the table that is not Dead.
    Failed(JoinError),
}

fn retry_period(config: &Config) -> Duration {
    (config.probe_period / 2).min(Duration::from_secs(1))
}

impl Joiner {
    pub(crate) fn is_joining(&self) -> bool {
        !matches!(self.stage, Stage::Idle | Stage::Done)
    }

    /// Whether this silo's row is in the table, and it establishes contact with the others.
    pub(crate) fn is_contacting(&self) -> bool {
        self.stage == Stage::Contact
    }

    /// Whether the join has failed and its row is being ended.
    pub(crate) fn is_failing(&self) -> bool {
        self.stage == Stage::Failing
    }

    /// Whether this silo's row is in the table or may still be inserted.
    pub(crate) fn row_may_be_in(&self) -> bool {
        matches!(self.stage, Stage::Insert | Stage::Contact | Stage::Failing)
    }

    pub(crate) fn start(&mut self, ctx: &mut Ctx) {
        self.began = ctx.mono();
        self.stage = Stage::MeetMyself;
        // One nonce for all attempts: an answer may take longer than the time between two attempts.
        self.nonce = ctx.random();
        ctx.set_timer(Timer::JoinDeadline, ctx.config.max_join_attempt_time);
        ctx.set_timer(Timer::JoinProgress, PROGRESS_PERIOD);
        self.meet_myself(ctx);
    }

    fn initialize(&mut self, ctx: &mut Ctx) {
        let call = ctx.call();
        self.call = Some(call);
        let request = InitializeRequest::new(
            TableId::new(ctx.random_id()),
            ctx.config.shared(),
            ctx.cluster_key,
        );
        ctx.out.push(Effect::Initialize { call, request });
        ctx.timers.clear(Timer::Join);
    }

    pub(crate) fn on_initialized(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        call: CallId,
        result: Result<(), TableError>,
    ) -> Step {
        if self.stage != Stage::Initialize || self.call.take_if(|c| *c == call).is_none() {
            return Step::Nothing;
        }
        match result {
            Ok(()) => {
                self.stage = Stage::FirstRead;
                if ctx.variant.scribe {
                    writer.want_row();
                } else {
                    writer.want_read(false);
                }
            }
            Err(error) => return self.on_table_error(ctx, error),
        }
        Step::Nothing
    }

    /// Handles a failed table call during the join: some errors end the join, the others delay it.
    pub(crate) fn on_table_error(&mut self, ctx: &mut Ctx, error: TableError) -> Step {
        if !self.is_joining() || self.stage == Stage::Failing {
            return Step::Nothing;
        }
        if error.next_step() == NextStep::GiveUp
            && matches!(self.stage, Stage::Initialize | Stage::FirstRead)
        {
            return self.fail(ctx, JoinError::Table(TableErrorText(error)));
        }
        self.last_table_error = Some(error);
        if self.stage == Stage::Initialize {
            let wait = Duration::from_millis(500) + ctx.jitter(Duration::from_millis(500));
            ctx.set_timer(Timer::Join, wait);
        }
        Step::Nothing
    }

    /// Handles a successful read that was sent at `sent`; the view is in the context.
    pub(crate) fn on_read(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        sent: MonoTime,
        heartbeats: Option<&Heartbeats>,
    ) -> Step {
        match &mut self.stage {
            Stage::FirstRead if !ctx.has_cluster_key() => self.fail(ctx, JoinError::NoClusterKey),
            // While the table was away for long, another process may have taken the address.
            Stage::FirstRead
                if self
                    .met_myself
                    .is_none_or(|met| sent.since(met) > ctx.failure_window()) =>
            {
                self.stage = Stage::MeetMyself;
                self.meet_myself(ctx);
                Step::Nothing
            }
            Stage::FirstRead => {
                self.choose_epoch(ctx, writer, heartbeats);
                Step::Nothing
            }
            Stage::WatchAddress {
                counters,
                until,
                quiet,
            } => {
                let Some(now) = heartbeats else {
                    return Step::Nothing;
                };
                for (silo, counter) in counters.iter_mut() {
                    counter.get_or_insert_with(|| now.counter(silo));
                }
                let moved = counters
                    .iter()
                    .find(|(s, c)| c.is_some_and(|c| now.counter(s) > c))
                    .map(|(s, _)| *s);
                let may_be_quiet = quiet.look(ctx, sent, now, counters.keys());
                let over = sent >= *until && !may_be_quiet;
                match moved {
                    Some(silo) => {
                        let host = ctx
                            .view
                            .as_ref()
                            .and_then(|v| v.get(&silo))
                            .map_or_else(String::new, |e| e.info.host_name.clone());
                        self.fail(
                            ctx,
                            JoinError::AddressInUse {
                                endpoint: silo.endpoint(),
                                silo: silo.to_string(),
                                host,
                            },
                        )
                    }
                    None if over => {
                        self.watched.extend(counters.keys());
                        self.insert(ctx, writer);
                        Step::Nothing
                    }
                    None => Step::Nothing,
                }
            }
            _ => Step::Nothing,
        }
    }

    fn choose_epoch(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        heartbeats: Option<&Heartbeats>,
    ) {
        let Some(view) = &ctx.base else { return };
        let endpoint = ctx.identity.advertise;
        let newest = view
            .snapshot()
            .rows
            .at_endpoint(endpoint)
            .next_back()
            .map(|e| e.address.epoch());
        let epoch = ctx
            .now
            .wall
            .as_millis()
            .max(newest.map_or(1, |e| e.saturating_add(1)));
        ctx.me = SiloAddress::at(endpoint, epoch);
        // What others have told was for the address of before.
        self.contacts.forget();
        // The cluster's settings decide how long a join may take.
        ctx.set_timer_at(
            Timer::JoinDeadline,
            self.began + ctx.settings().max_join_attempt_time,
        );
        let strangers = self.strangers(ctx);
        if strangers.is_empty() {
            self.insert(ctx, writer);
        } else {
            let counters = strangers
                .into_iter()
                .map(|s| (s, heartbeats.map(|h| h.counter(&s))))
                .collect();
            self.watch(ctx, counters);
        }
    }

    fn insert(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        let id = &ctx.identity;
        let mut entry = MembershipEntry::new(ctx.me, id.instance, ctx.now.wall);
        entry.info.clone_from(&id.info);
        self.stage = Stage::Insert;
        writer.submit(ctx, Action::Join(Box::new(entry)));
    }

    /// Handles the answer to an intent of the join.
    pub(crate) fn on_answer(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        action: &Action,
        answer: &Answer,
    ) -> Step {
        match (action, answer) {
            (Action::Join(_), Answer::Applied { .. } | Answer::Moot)
                if self.stage == Stage::Insert =>
            {
                self.stage = Stage::Contact;
                self.contacting_since = ctx.mono();
                ctx.status = SiloStatus::Joining;
                ctx.tell(Notice::Joining {
                    silo: ctx.me,
                    version: ctx.version(),
                });
                ctx.set_timer_at(Timer::Join, ctx.mono());
                Step::Nothing
            }
            (Action::Join(_), Answer::Applied { .. } | Answer::Moot)
                if self.stage == Stage::Failing =>
            {
                // The row was inserted after the join had failed.
                ctx.status = SiloStatus::Joining;
                writer.submit(ctx, Action::Leave { silo: ctx.me });
                Step::Nothing
            }
            (Action::Join(_), Answer::Refused(refusal)) => {
                if self.stage == Stage::Failing {
                    return self.give_up();
                }
                let error = match refusal {
                    Refusal::Superseded(newer) => JoinError::Superseded { newer: *newer },
                    other => JoinError::Refused(other.clone()),
                };
                self.fail(ctx, error)
            }
            (Action::BecomeActive { .. }, Answer::Applied { .. } | Answer::Moot)
                if self.stage == Stage::Contact =>
            {
                self.on_active(ctx, writer);
                Step::Nothing
            }
            (Action::BecomeActive { .. }, Answer::Refused(_)) if self.stage == Stage::Contact => {
                self.again_at = ctx.mono() + REFUSED_BACKOFF;
                ctx.set_timer_at(Timer::Join, self.again_at);
                if !ctx.variant.scribe {
                    writer.want_read(false);
                } else if !ctx.is_announced() {
                    // Otherwise what follows is on its way.
                    writer.want_row();
                }
                Step::Nothing
            }
            (Action::Leave { .. }, Answer::Applied { .. } | Answer::Moot | Answer::Refused(_))
                if self.stage == Stage::Failing =>
            {
                self.give_up()
            }
            _ => Step::Nothing,
        }
    }

    /// This silo is Active, according to the answer to its commit or to a view from another silo.
    /// The answer to the commit no longer matters to the join.
    ///
    /// This also applies after the deadline: the intent to end the row is withdrawn, unless it is
    /// already under way.
    pub(crate) fn on_active(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        let in_time = match self.stage {
            Stage::Contact => true,
            Stage::Failing
                if matches!(
                    self.failure,
                    Some(JoinError::TimedOut { .. } | JoinError::Unreachable { .. })
                ) =>
            {
                writer.withdraw(|a| matches!(a, Action::Leave { .. }))
            }
            _ => false,
        };
        if !in_time {
            return;
        }
        self.failure = None;
        self.stage = Stage::Done;
        self.contacts.clear();
        ctx.timers.clear(Timer::Join);
        ctx.timers.clear(Timer::JoinDeadline);
        ctx.timers.clear(Timer::JoinProgress);
    }

    pub(crate) fn on_timer(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        required: &BTreeSet<SiloAddress>,
    ) -> Step {
        match self.stage {
            Stage::MeetMyself => {
                if ctx.mono().since(self.began) >= ctx.config.failure_window.max(MEETING) {
                    let error = self.nobody_home(ctx);
                    return self.fail(ctx, error);
                }
                self.meet_myself(ctx);
            }
            Stage::Initialize => self.initialize(ctx),
            Stage::WatchAddress { .. } => {
                let body = Message::Identify { nonce: self.nonce };
                ctx.dial_afresh(ctx.identity.advertise, None, body);
                writer.want_read(false);
                let retry = retry_period(&ctx.config);
                ctx.set_timer(Timer::Join, retry);
            }
            Stage::Contact => {
                let retry = retry_period(&ctx.config);
                self.contacts.try_again(ctx, required, retry);
                ctx.set_timer(Timer::Join, retry);
            }
            _ => {}
        }
        Step::Nothing
    }

    /// Others that join have dialled this silo, and it has dialled them.
    pub(crate) fn on_met(&mut self, ctx: &mut Ctx, callers: &mut Callers) {
        let met = callers.take_met();
        if self.is_joining() {
            let retry = retry_period(&ctx.config);
            for met in met {
                self.contacts.on_met(ctx, met, retry);
            }
        }
    }

    /// Tries to reach whom the last view has added, together with whom the next ones add.
    pub(crate) fn contact_soon(&self, ctx: &mut Ctx) {
        let at = ctx.mono() + SOON;
        if self.stage == Stage::Contact && ctx.timers.at(Timer::Join).is_none_or(|t| t > at) {
            ctx.set_timer_at(Timer::Join, at);
        }
    }

    /// Called before anything is written: becomes Active when no contact is missing, and withdraws
    /// intents that must not be written now.
    pub(crate) fn poll(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        passed: &PassedOver<'_>,
    ) -> Step {
        match self.stage {
            Stage::Failing => return self.end_row(ctx, writer),
            Stage::Insert => {
                // Another silo's row is at this silo's address: it is watched before it is
                // superseded.
                let strangers = self.strangers(ctx);
                if !strangers.is_empty() && writer.withdraw(|a| matches!(a, Action::Join(_))) {
                    self.watch(ctx, strangers.into_iter().map(|s| (s, None)).collect());
                }
            }
            Stage::Contact
                if ctx.mono() >= self.again_at
                    && !writer.has(|a| matches!(a, Action::BecomeActive { .. }))
                    && !self.contacts.lacks_any(ctx, passed)
                    && !self.contacts.waits_for_others(ctx, self.contacting_since) =>
            {
                writer.submit(
                    ctx,
                    Action::BecomeActive {
                        silo: ctx.me,
                        contacted: self.contacts.both_ways(),
                    },
                );
            }
            _ => {}
        }
        Step::Nothing
    }

    /// Whether the join depends on staleness, so that heartbeats must be read often.
    pub(crate) fn waits(&mut self, ctx: &Ctx, passed: &PassedOver<'_>) -> bool {
        self.stage == Stage::Contact && self.contacts.lacks_any(ctx, passed)
    }
}
