//! The calls to the table: at most one read or commit is under way. The writer decides when to
//! call; [`apply`](crate::intent::apply) decides what to write, anew for each attempt. Waiting
//! intents are in `queue`, the waits in `backoff`, and the handling of results in `results`. `courier`
//! sends this silo's own changes to another one that writes them, and `desk` takes those of others,
//! activations with the contacts that `vouching` proves; `gathering` says how long they wait for each
//! other. `state` is what can be seen of it from outside.

mod backoff;
mod courier;
mod desk;
mod early;
mod gathering;
mod queue;
mod results;
mod state;
mod vouching;

pub use backoff::conflict_backoff;
pub(crate) use courier::question;
pub use state::WriterState;

use std::collections::BTreeMap;
use std::time::Duration;

use self::backoff::{CONFLICT_CAP, Conflicts, error_wait};
use self::courier::Courier;
use self::desk::Desk;
use self::gathering::Gathering;
use self::queue::Queue;
use super::context::Ctx;
use super::io::{CallId, Effect};
use super::notice::{RequestId, TableState};
use super::timers::Timer;
use crate::intent::{Action, Answer, Intent, Observed, apply};
use crate::{
    CommitId, CommitRequest, Discontinuity, IntentId, MonoTime, ReadAnswer, ReadRequest, Recency,
    RowRead, SiloAddress, Snapshot, TableError,
};

/// Number of conflicts with a version that has not moved after which the rows that this silo knows
/// cannot be those of the table.
const CONFLICTS_UNMOVED: u32 = 2;
/// The largest number of abandoned reads whose answers are still looked at.
const MAX_ABANDONED: usize = 4;
/// The time before a second look at a table whose last answer was bad.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Sent {
    request: CommitRequest,
    base: Snapshot,
    batch: Vec<Intent>,
}

/// The call that is under way.
#[derive(Debug)]
enum Exchange {
    Read {
        call: CallId,
        sent: MonoTime,
        version: u64,
        /// Whether it is linearizable.
        newest: bool,
        waiters: Vec<RequestId>,
    },
    /// A read of the version row alone, by which an announced view may be confirmed.
    Row {
        call: CallId,
        sent: MonoTime,
        silo: SiloAddress,
    },
    Commit {
        call: CallId,
        sent: MonoTime,
        commit: Box<Sent>,
    },
}

/// A second read, over a new connection, that decides whether a bad answer of the table is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Look {
    #[default]
    None,
    /// It is the next read.
    Wanted,
    /// It is the last read that was sent.
    Taken,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The table answered (a read decides whether it is this silo's table).
    Contact,
    /// The answer of a read.
    Read {
        sent: MonoTime,
        /// Whether it is linearizable.
        newest: bool,
        answer: Box<ReadAnswer>,
    },
    /// The answer of a read that was abandoned.
    Late(Box<Snapshot>),
    /// The version row, as this read of a silo's row shows it.
    VersionRow {
        sent: MonoTime,
        silo: SiloAddress,
        read: Box<RowRead>,
    },
    /// A commit of this silo, sent at this time, made this snapshot from the view.
    Made {
        sent: MonoTime,
        snapshot: Box<Snapshot>,
    },
    /// An intent is settled.
    Answered(Intent, Answer),
    /// A refresh has ended.
    Refreshed(RequestId, Result<(), TableError>),
    /// A call that was sent at this time failed.
    Failed(MonoTime, TableError),
}

#[derive(Debug, Default)]
pub(crate) struct Writer {
    exchange: Option<Exchange>,
    queue: Queue,
    courier: Courier,
    desk: Desk,
    gathering: Gathering,
    /// A commit whose outcome is unknown.
    unsettled: Option<Box<Sent>>,
    wants_read: bool,
    wants_barrier: bool,
    /// The next read takes no version as known.
    wants_all: bool,
    /// The version row is read, if no read of the rows is due.
    wants_row: bool,
    /// Whose row comes with it: this silo's own, or that of another one.
    row_of: Option<SiloAddress>,
    /// Whether the last answer is in doubt.
    look: Look,
    waiters: Vec<RequestId>,
    /// Reads whose answers prove nothing, because this process stalled after they were sent; only a
    /// death that they show is true.
    abandoned: Vec<CallId>,
    /// When the last successful read was sent.
    last_read: Option<MonoTime>,
    /// When the version row was last asked for.
    last_row: Option<MonoTime>,
    conflicts: Conflicts,
    /// The version of the last conflict, until a read shows whether it moved; and how often it had
    /// not moved.
    conflicted: Option<u64>,
    unmoved: u32,
    errors: u32,
    /// Commits in a row that failed or whose outcome was unknown; successful reads between them do
    /// not reset this.
    commit_errors: u32,
    /// A read has ended since the last commit: commits that are due precede the next read.
    read_done: bool,
    commit_after: MonoTime,
    /// The version on which commits failed again and again, while that is why this silo waits.
    failed_at: Option<u64>,
    call_after: MonoTime,
}

impl Writer {
    pub(crate) fn submit(&mut self, ctx: &mut Ctx, action: Action) -> IntentId {
        let id = IntentId::new(ctx.random_id());
        let author = (ctx.me.epoch() != 0).then_some(ctx.me);
        self.queue.push(Intent::new(id, author, action), ctx.mono());
        id
    }

    /// Withdraws intents that are not under way; returns whether there were any. An intent under
    /// way will be answered.
    pub(crate) fn withdraw(&mut self, mine: impl Fn(&Action) -> bool) -> bool {
        let (courier, desk) = (&self.courier, &self.desk);
        let is_free = |id| !courier.is_shared(id) && !desk.has(id);
        self.queue
            .withdraw(|intent| is_free(intent.id) && mine(&intent.action))
    }

    pub(crate) fn has(&self, mine: impl Fn(&Action) -> bool) -> bool {
        let under_way = match &self.exchange {
            Some(Exchange::Commit { commit, .. }) => Some(commit),
            _ => None,
        };
        let mut sent = under_way.into_iter().chain(&self.unsettled);
        let mine = |i: &Intent| !self.is_for_others(i.id) && mine(&i.action);
        sent.any(|s| s.batch.iter().any(mine)) || self.queue.any(mine) || self.courier.has(mine)
    }

    /// Reads as soon as possible; `barrier` makes it linearizable.
    pub(crate) fn want_read(&mut self, barrier: bool) {
        self.wants_read = true;
        self.wants_barrier |= barrier;
    }

    /// Reads the version row as soon as possible.
    pub(crate) fn want_row(&mut self) {
        self.wants_row = true;
    }

    /// The same, with the row of this silo.
    pub(crate) fn want_row_of(&mut self, silo: SiloAddress) {
        self.wants_row = true;
        self.row_of = Some(silo);
    }

    /// Reads all rows as soon as possible, also those that seem known.
    pub(crate) fn want_all(&mut self) {
        self.want_read(true);
        self.wants_all = true;
    }

    /// Reads everything again over a new connection after a while, because the last answer was bad.
    pub(crate) fn look_again(&mut self, ctx: &mut Ctx) {
        self.want_all();
        if self.look == Look::Wanted {
            return;
        }
        self.look = Look::Wanted;
        self.call_after = self.call_after.max(ctx.mono() + LOOK_AGAIN_AFTER);
        ctx.set_timer_at(Timer::Writer, self.call_after);
    }

    /// Whether the last answer was that of a second look.
    pub(crate) fn looked_again(&self) -> bool {
        self.look == Look::Taken
    }

    /// Adds a request that ends with the next read to start.
    pub(crate) fn wait(&mut self, request: RequestId) {
        self.waiters.push(request);
    }

    /// All requests that wait for a read, under way or not.
    pub(crate) fn take_waiters(&mut self) -> Vec<RequestId> {
        let mut all = match &mut self.exchange {
            Some(Exchange::Read { waiters, .. }) => std::mem::take(waiters),
            _ => Vec::new(),
        };
        all.append(&mut self.waiters);
        all
    }

    /// Limits the back-off from now on: there is a reason to believe that the table works, or
    /// little time left.
    pub(crate) fn hurry(&mut self, ctx: &Ctx, most: Duration) {
        self.errors = 0;
        self.call_after = self.call_after.min(ctx.mono() + most);
    }

    /// Once somebody has made a newer version, the table takes commits: a silo whose own failed does
    /// not wait for much longer, because a vote that waits is void before it is written. Invariant P14.
    pub(crate) fn follow(&mut self, ctx: &mut Ctx) {
        let moved = |failed: &mut u64| ctx.base_version() > *failed;
        if self.failed_at.take_if(moved).is_some() {
            let soon = ctx.mono() + ctx.jitter(CONFLICT_CAP);
            self.commit_after = self.commit_after.min(soon);
            ctx.set_timer_at(Timer::Writer, self.commit_after.max(self.call_after));
        }
    }

    /// Whether commits fail again and again, and nobody else has made one since.
    pub(crate) const fn waits_in_vain(&self) -> bool {
        self.failed_at.is_some()
    }

    /// Makes a read the next call after a long pause, regardless of the back-off. The answer to a
    /// call that was under way proves nothing now, and a commit counts as of unknown outcome.
    pub(crate) fn read_first(&mut self, ctx: &mut Ctx) {
        self.abandon();
        self.want_read(true);
        self.call_after = MonoTime::ZERO;
        self.start_read(ctx);
    }

    fn abandon(&mut self) {
        match self.exchange.take() {
            Some(Exchange::Read { waiters, call, .. }) => {
                self.waiters.extend(waiters);
                self.abandoned.truncate(MAX_ABANDONED - 1);
                self.abandoned.insert(0, call);
            }
            Some(Exchange::Commit { commit, .. }) => self.unsettled = Some(commit),
            Some(Exchange::Row { .. }) | None => {}
        }
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.exchange.is_none() && !self.wants_read && !self.wants_row
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn has_queued(&self) -> bool {
        self.queue.len() > 0
    }

    /// Whether votes could be written now; the caller then collects them.
    pub(crate) fn can_commit(&self, ctx: &Ctx) -> bool {
        self.exchange.is_none()
            && (!self.wants_read || self.read_done)
            && self.unsettled.is_none()
            && !ctx.suspended
            && !ctx.table_doubted()
            && !ctx.is_announced()
            && ctx.base.is_some()
            && ctx.mono() >= self.commit_after.max(self.call_after)
    }

    /// Starts the next call, if any. `votes` are fresh from the voter.
    pub(crate) fn pump(
        &mut self,
        ctx: &mut Ctx,
        votes: Vec<Intent>,
        observed: &Observed,
    ) -> Vec<Outcome> {
        let now = ctx.mono();
        // A table that was replaced is not called: no answer of it can change that. One that was
        // rolled back is read: a former server may have answered.
        let replaced = ctx.table.state == TableState::Changed(Discontinuity::Replaced);
        if self.exchange.is_some() || replaced {
            return Vec::new();
        }
        if now < self.call_after {
            ctx.set_timer_at(Timer::Writer, self.call_after);
            return Vec::new();
        }
        let mut unconfirmed = false;
        let nothing =
            (self.queue.len() == 0 && votes.is_empty()) || ctx.suspended || ctx.table_doubted();
        if !nothing && ctx.is_announced() && now >= self.commit_after {
            // A commit rests on what the table says.
            if ctx.variant.scribe && ctx.table.state == TableState::Available {
                // If it has shown something newer, others are being asked for that.
                self.wants_row |= ctx.kept.shown.is_none();
                unconfirmed = true;
            } else {
                self.want_read(true);
                self.read_done = false;
            }
        } else if !nothing
            && ctx.timers.is_set(Timer::Fetch)
            && ctx
                .kept
                .shown
                .as_ref()
                .is_some_and(|s| s.version() > ctx.base_version())
        {
            // The table has moved on: others, or the table, are being asked for that.
            unconfirmed = true;
        }
        let gathers = self.gathers_until(ctx).filter(|_| votes.is_empty());
        let nothing = nothing || unconfirmed || gathers.is_some();
        let commit_first = self.read_done && !nothing && now >= self.commit_after;
        self.read_done = commit_first;
        if (self.wants_read && !commit_first) || self.unsettled.is_some() {
            self.start_read(ctx);
            return Vec::new();
        }
        if self.wants_row && ctx.variant.scribe {
            // Whoever waits for a read gets one.
            if self.waiters.is_empty() {
                self.start_row(ctx);
            } else {
                self.start_read(ctx);
            }
            return Vec::new();
        }
        if self.wants_row && ctx.is_announced() {
            self.start_row(ctx);
            return Vec::new();
        }
        if nothing {
            if let Some(until) = gathers {
                ctx.set_timer_at(Timer::Writer, until);
            }
            return Vec::new();
        }
        if now < self.commit_after {
            ctx.set_timer_at(Timer::Writer, self.commit_after);
            return Vec::new();
        }
        self.start_commit(ctx, votes, observed)
    }

    /// When the last look was sent by which the confirmed view is the table's.
    fn last_look(&self, ctx: &Ctx) -> Option<MonoTime> {
        if ctx.variant.scribe {
            self.last_read.max(self.last_row)
        } else {
            self.last_read
        }
    }

    fn start_row(&mut self, ctx: &mut Ctx) {
        let (call, sent) = (ctx.call(), ctx.mono());
        let silo = self.row_of.take().unwrap_or(ctx.me);
        self.wants_row = false;
        self.last_row = Some(sent);
        self.exchange = Some(Exchange::Row { call, sent, silo });
        ctx.out.push(Effect::ReadRow { call, silo });
    }

    fn start_read(&mut self, ctx: &mut Ctx) {
        let call = ctx.call();
        // A store decides "unchanged" by the version. Only a read of all rows shows rows that were
        // removed or written without a commit.
        let all = self.unmoved >= CONFLICTS_UNMOVED || std::mem::take(&mut self.wants_all);
        let anew = match self.look {
            Look::Wanted => Look::Taken,
            Look::Taken | Look::None => Look::None,
        };
        self.look = anew;
        let changed = ctx.table_changed();
        let request = ReadRequest::all()
            .with_known(
                ctx.base
                    .as_ref()
                    .filter(|_| !all && !changed)
                    .map(|v| v.token().clone()),
            )
            .with_barrier(
                std::mem::take(&mut self.wants_barrier) || self.unsettled.is_some() || all,
            )
            .with_new_connection(anew == Look::Taken || changed);
        self.wants_read = false;
        (self.wants_row, self.row_of) = (false, None);
        self.exchange = Some(Exchange::Read {
            call,
            sent: ctx.mono(),
            version: ctx.base_version(),
            newest: request.barrier || ctx.reads == Recency::Linearizable,
            waiters: std::mem::take(&mut self.waiters),
        });
        ctx.out.push(Effect::Read { call, request });
    }

    fn start_commit(
        &mut self,
        ctx: &mut Ctx,
        votes: Vec<Intent>,
        observed: &Observed,
    ) -> Vec<Outcome> {
        let Some(base) = ctx.base.as_ref().map(|v| v.snapshot().clone()) else {
            return Vec::new();
        };
        let submitted: BTreeMap<IntentId, MonoTime> = self.queue.times().collect();
        self.read_done = false;
        let batch = self.take_gathered(ctx, votes);
        let mut batch = self.send_back(ctx, batch, &observed.answered);
        let result = |batch: &[Intent], ctx: &Ctx| {
            apply(&base, observed, batch, ctx.now, &ctx.config, &ctx.limits)
        };
        let mut applied = result(&batch, ctx);
        if let Some(rest) = self.wait_for_refused(ctx, &batch, &applied, &submitted) {
            applied = result(&rest, ctx);
            batch = rest;
        }
        let mut outcomes = Vec::new();
        let mut sending = Vec::new();
        for (intent, answer) in batch.into_iter().zip(applied.answers.iter()) {
            let at = submitted.get(&intent.id).copied();
            match (answer, at) {
                (Answer::Applied { .. }, _) => sending.push(intent),
                // A refusal may be due to an old view: the intent is tried again after a read.
                (Answer::Refused(_), Some(at))
                    if self.last_look(ctx).is_none_or(|r| r < at)
                        && !self.is_for_others(intent.id) =>
                {
                    if ctx.variant.scribe && ctx.table.state == TableState::Available {
                        self.want_row();
                    } else {
                        self.want_read(false);
                    }
                    self.queue.push(intent, at);
                }
                (Answer::Queued, Some(at)) => self.queue.push(intent, at),
                // The intent is a vote: the voter submits it again.
                (Answer::Queued, None) => {}
                (settled, _) => outcomes.push(Outcome::Answered(intent, settled.clone())),
            }
        }
        for rest in &applied.rest {
            if sending.iter().any(|sent| sent.id == rest.id) {
                self.queue.push(rest.clone(), ctx.now.mono);
            }
        }
        if applied.is_empty() {
            let moot = |intent| Outcome::Answered(intent, Answer::Moot);
            outcomes.extend(sending.into_iter().map(moot));
            return outcomes;
        }
        let id = CommitId::new(ctx.random_id());
        let committer = (ctx.me.epoch() != 0).then_some(ctx.me);
        let request = applied
            .into_request(base.token.clone(), id, committer)
            .made_at(ctx.now.wall)
            .with_rows_of(&base);
        let batch = sending;
        self.are_written(ctx.mono(), &batch);
        self.send(
            ctx,
            Box::new(Sent {
                request,
                base,
                batch,
            }),
        );
        outcomes
    }

    fn send(&mut self, ctx: &mut Ctx, commit: Box<Sent>) {
        let call = ctx.call();
        ctx.out.push(Effect::Commit {
            call,
            request: commit.request.clone(),
        });
        self.exchange = Some(Exchange::Commit {
            call,
            sent: ctx.mono(),
            commit,
        });
    }

    fn back_off(&mut self, ctx: &mut Ctx) {
        self.errors = (self.errors + 1).min(10);
        let wait = error_wait(ctx, self.errors);
        self.call_after = ctx.mono() + wait;
        ctx.set_timer_at(Timer::Writer, self.call_after);
    }
}
