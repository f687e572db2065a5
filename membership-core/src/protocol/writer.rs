//! The one lane to the table: at most one read or commit in flight, batches of intents, conflicts, errors, and outcomes that must be found
//! out before anything else. It decides when to call; what to write is decided by [`apply`](crate::intent::apply) anew for each attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Ctx;
use super::io::{CallId, Effect, Observation, RequestId};
use super::timers::Timer;
use crate::intent::{Action, Answer, Intent, Observed, Refusal, apply};
use crate::{
    CommitId, CommitOutcome, CommitRequest, IntentId, MonoTime, NextStep, ReadAnswer, ReadRequest,
    SiloStatus, Snapshot, TableError, TableErrorKind, VersionToken, check_token,
};

const CONFLICT_BACKOFF: Duration = Duration::from_millis(40);
const CONFLICT_CAP_URGENT: Duration = Duration::from_secs(2);
const CONFLICT_CAP: Duration = Duration::from_secs(4);
/// After this long in conflicts a writer waits no longer than it must. Without it, who has just won, and starts over with short waits,
/// wins again and again, and one of 32 writers can wait for a minute.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(5);
/// So many silos need not keep apart at all once their patience is over. Whoever commits without a pause leaves the version row alone for
/// a round trip at a time; who waits before each attempt, however shortly, seldom hits that, and can lose for ever.
const CONFLICT_CROWD: u32 = 32;
/// After this long it is not for want of a turn: something else writes all the time, or what is wanted does not fit the rows. Whatever it is, it
/// is not asked without a pause: the waits grow again, from one step of the backoff, twofold every so often.
const CONFLICT_FRUITLESS: Duration = Duration::from_secs(30);
const CONFLICT_FRUITLESS_STEP: u64 = 10;
const CONFLICT_FRUITLESS_CAP: Duration = Duration::from_secs(1);
/// After this long without another one, a conflict is the first again.
const CONFLICT_OVER: Duration = Duration::from_secs(30);
/// So many commits in a row that failed, or that nobody knows of: the next one is smaller, and is not the same again.
const FAILED_IN_A_ROW: u32 = 2;
/// So many conflicts with a version that has not moved: what I know of its rows is not what they are.
const CONFLICTS_UNMOVED: u32 = 2;
/// Whoever commits so many intents at once is bounded by the store's own limits again.
const MANY: usize = 64;
const ERROR_BACKOFF: Duration = Duration::from_secs(1);
const ERROR_CAP: Duration = Duration::from_secs(60);

/// How long a writer waits at most after so many conflicts in a row, the last one included; the wait itself is chosen evenly below it.
///
/// It doubles with each conflict, and shrinks with the time since the first of them, so that everybody has a turn: `waited` is that
/// time. `silos` is how many rows the table has, which is how many may want to write; up to 32 it shrinks to nothing, and the more, the
/// less. After half a minute it grows again, up to a second. `urgent` is what ends somebody's life: deaths, votes, leaving. For benchmarks and tests that write as silos do.
#[must_use]
pub fn conflict_backoff(conflicts: u32, waited: Duration, silos: usize, urgent: bool) -> Duration {
    let cap = if urgent {
        CONFLICT_CAP_URGENT
    } else {
        CONFLICT_CAP
    };
    // Ten doublings are beyond both caps.
    let doubled = (CONFLICT_BACKOFF * 2u32.pow(conflicts.clamp(1, 11) - 1)).min(cap);
    let crowd = u32::try_from(silos)
        .unwrap_or(u32::MAX)
        .div_ceil(CONFLICT_CROWD)
        .max(1);
    let fruitless = match waited.checked_sub(CONFLICT_FRUITLESS) {
        // Five doublings are beyond the cap.
        Some(over) => (CONFLICT_BACKOFF
            * 2u32.pow((over.as_secs() / CONFLICT_FRUITLESS_STEP).min(5) as u32))
        .min(CONFLICT_FRUITLESS_CAP),
        None => Duration::ZERO,
    };
    let least = CONFLICT_BACKOFF.saturating_mul(crowd - 1).max(fruitless);
    doubled.min((CONFLICT_PATIENCE.saturating_sub(waited) / 4).max(least))
}

#[derive(Debug)]
struct Sent {
    request: CommitRequest,
    base: Snapshot,
    batch: Vec<Intent>,
}

#[derive(Debug)]
enum Flight {
    Read {
        call: CallId,
        sent: MonoTime,
        version: u64,
        waiters: Vec<RequestId>,
    },
    Commit {
        call: CallId,
        sent: MonoTime,
        commit: Box<Sent>,
    },
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The table answered (whether it is mine, a read decides).
    Contact,
    /// A read brought this.
    Read {
        sent: MonoTime,
        answer: Box<ReadAnswer>,
    },
    /// A commit of mine, sent at this time, made this out of the view.
    Made {
        sent: MonoTime,
        snapshot: Box<Snapshot>,
    },
    /// An intent is settled.
    Answered(Intent, Answer),
    /// A refresh is over.
    Refreshed(RequestId, Result<(), TableError>),
    /// A call that was sent at this time failed.
    Failed(MonoTime, TableError),
}

#[derive(Debug, Default)]
pub(crate) struct Writer {
    flight: Option<Flight>,
    /// Intents of mine, with the time they were submitted at; votes are not among them.
    queue: Vec<(Intent, MonoTime)>,
    /// A commit whose outcome is unknown.
    unsettled: Option<Box<Sent>>,
    wants_read: bool,
    wants_barrier: bool,
    waiters: Vec<RequestId>,
    /// When the last read that succeeded was sent.
    last_read: Option<MonoTime>,
    conflicts: u32,
    /// When the first of them was.
    conflicts_since: MonoTime,
    /// The version that the last conflict was with, until a read has told whether it moved; and how often it had not.
    conflicted: Option<u64>,
    unmoved: u32,
    last_conflict: MonoTime,
    errors: u32,
    /// Commits in a row that failed, or of which nobody knew; reads that work meanwhile do not count.
    commit_errors: u32,
    /// How many intents a commit takes, where a larger one was refused; none where there is no such bound.
    most: Option<usize>,
    /// Which of those that are waiting come first then.
    turn: usize,
    /// A read has ended since the last commit: what is due to be written goes before the next read.
    read_done: bool,
    commit_after: MonoTime,
    call_after: MonoTime,
}

impl Writer {
    pub(crate) fn submit(&mut self, ctx: &mut Ctx, action: Action) -> IntentId {
        let id = IntentId::new(ctx.random_id());
        let author = (ctx.me.epoch() != 0).then_some(ctx.me);
        self.queue.push((Intent { id, author, action }, ctx.mono()));
        id
    }

    /// Takes intents back that are not under way, and says whether there were any. One that is under way will be answered.
    pub(crate) fn withdraw(&mut self, mine: impl Fn(&Action) -> bool) -> bool {
        let before = self.queue.len();
        self.queue.retain(|(i, _)| !mine(&i.action));
        self.queue.len() < before
    }

    pub(crate) fn has(&self, mine: impl Fn(&Action) -> bool) -> bool {
        self.queue.iter().any(|(i, _)| mine(&i.action))
            || self
                .unsettled
                .iter()
                .any(|s| s.batch.iter().any(|i| mine(&i.action)))
            || matches!(&self.flight, Some(Flight::Commit { commit, .. }) if commit.batch.iter().any(|i| mine(&i.action)))
    }

    /// Reads as soon as possible; `barrier` makes it linearizable.
    pub(crate) fn want_read(&mut self, barrier: bool) {
        self.wants_read = true;
        self.wants_barrier |= barrier;
    }

    /// Somebody waits for the end of the next read that starts.
    pub(crate) fn wait(&mut self, request: RequestId) {
        self.waiters.push(request);
    }

    /// Everybody who waits for a read, under way or not.
    pub(crate) fn take_waiters(&mut self) -> Vec<RequestId> {
        let mut all = match &mut self.flight {
            Some(Flight::Read { waiters, .. }) => std::mem::take(waiters),
            _ => Vec::new(),
        };
        all.append(&mut self.waiters);
        all
    }

    /// Backs off no longer than this from now on: there is a reason to believe that the table works, or little time left.
    pub(crate) fn hurry(&mut self, ctx: &Ctx, most: Duration) {
        self.errors = 0;
        self.call_after = self.call_after.min(ctx.mono() + most);
    }

    /// The first thing after a long pause is a read, whatever the backoff says. What is under way was sent before it: its answer proves
    /// nothing now, and a commit counts as of unknown outcome.
    pub(crate) fn read_first(&mut self, ctx: &mut Ctx) {
        self.abandon();
        self.want_read(true);
        self.call_after = MonoTime::ZERO;
        self.start_read(ctx);
    }

    fn abandon(&mut self) {
        match self.flight.take() {
            Some(Flight::Read { waiters, .. }) => self.waiters.extend(waiters),
            Some(Flight::Commit { commit, .. }) => self.unsettled = Some(commit),
            None => {}
        }
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether votes could be written now: then they are asked for.
    pub(crate) fn can_commit(&self, ctx: &Ctx) -> bool {
        self.flight.is_none()
            && (!self.wants_read || self.read_done)
            && self.unsettled.is_none()
            && !ctx.suspended
            && !ctx.table_changed()
            && ctx.view.is_some()
            && ctx.mono() >= self.commit_after.max(self.call_after)
    }

    /// Starts the next call, if there is one to make. `votes` are fresh from the voter.
    pub(crate) fn pump(
        &mut self,
        ctx: &mut Ctx,
        votes: Vec<Intent>,
        observed: &Observed,
    ) -> Vec<Outcome> {
        let now = ctx.mono();
        // A table that is not the one I knew is left alone: nothing it says can change that.
        if self.flight.is_some() || ctx.table_changed() {
            return Vec::new();
        }
        if now < self.call_after {
            ctx.timers.set(Timer::Writer, self.call_after);
            return Vec::new();
        }
        let nothing = (self.queue.is_empty() && votes.is_empty()) || ctx.suspended;
        let commit_first = self.read_done && !nothing && now >= self.commit_after;
        self.read_done = commit_first;
        if (self.wants_read && !commit_first) || self.unsettled.is_some() {
            self.start_read(ctx);
            return Vec::new();
        }
        if nothing {
            return Vec::new();
        }
        if now < self.commit_after {
            ctx.timers.set(Timer::Writer, self.commit_after);
            return Vec::new();
        }
        self.start_commit(ctx, votes, observed)
    }

    fn start_read(&mut self, ctx: &mut Ctx) {
        let call = ctx.call();
        // A store says "unchanged" by the version. Rows that were removed or written past the table are seen by whoever reads all of them.
        let all = self.unmoved >= CONFLICTS_UNMOVED;
        let request = ReadRequest {
            known: ctx
                .view
                .as_ref()
                .filter(|_| !all)
                .map(|v| v.token().clone()),
            heartbeats: true,
            barrier: std::mem::take(&mut self.wants_barrier) || self.unsettled.is_some() || all,
        };
        self.wants_read = false;
        self.flight = Some(Flight::Read {
            call,
            sent: ctx.mono(),
            version: ctx.version(),
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
        let Some(base) = ctx.view.as_ref().map(|v| v.snapshot().clone()) else {
            return Vec::new();
        };
        let submitted: BTreeMap<IntentId, MonoTime> =
            self.queue.iter().map(|(i, t)| (i.id, *t)).collect();
        self.read_done = false;
        let batch = self.batch(ctx.manner.changes_per_commit.max(1), votes);
        let applied = apply(&base, observed, &batch, ctx.now, &ctx.config, &ctx.limits);
        let mut outcomes = Vec::new();
        let mut flying = Vec::new();
        for (intent, answer) in batch.into_iter().zip(applied.answers.iter()) {
            let at = submitted.get(&intent.id).copied();
            match answer {
                Answer::Applied { .. } => flying.push(intent),
                // What an old view refuses, a fresh one may not.
                Answer::Refused(_)
                    if at.is_some_and(|at| self.last_read.is_none_or(|r| r < at)) =>
                {
                    self.want_read(false);
                    self.queue.extend(at.map(|at| (intent, at)));
                }
                Answer::Queued => self.queue.extend(at.map(|at| (intent, at))),
                settled => outcomes.push(Outcome::Answered(intent, settled.clone())),
            }
        }
        let partial = applied
            .rest
            .iter()
            .filter(|r| flying.iter().any(|f| f.id == r.id))
            .cloned()
            .map(|r| (r, ctx.now.mono));
        self.queue.extend(partial.collect::<Vec<_>>());
        if applied.is_empty() {
            outcomes.extend(
                flying
                    .into_iter()
                    .map(|i| Outcome::Answered(i, Answer::Moot)),
            );
            return outcomes;
        }
        let id = CommitId::new(ctx.random_id());
        let committer = (ctx.me.epoch() != 0).then_some(ctx.me);
        let request = CommitRequest::new(
            base.token.clone(),
            id,
            committer,
            applied.inserts,
            applied.updates,
            applied.removes,
        );
        self.send(
            ctx,
            Box::new(Sent {
                request,
                base,
                batch: flying,
            }),
        );
        outcomes
    }

    /// What goes into the next commit. After a refusal fewer, and others each time: what the store refuses keeps nothing else back.
    fn batch(&mut self, most: usize, votes: Vec<Intent>) -> Vec<Intent> {
        let Some(few) = self.most.map(|few| few.min(most)) else {
            let own = most.min(self.queue.len());
            return self
                .queue
                .drain(..own)
                .map(|(i, _)| i)
                .chain(votes)
                .take(most)
                .collect();
        };
        let all = votes.len() + self.queue.len();
        let first = self.turn % all.max(1);
        let chosen = |at: usize| (at + all - first) % all.max(1) < few;
        let mut batch: Vec<Intent> = votes
            .iter()
            .enumerate()
            .filter(|(at, _)| chosen(*at))
            .map(|(_, vote)| vote.clone())
            .collect();
        let mut at = votes.len();
        self.queue.retain(|(intent, _)| {
            let taken = chosen(at);
            if taken {
                batch.push(intent.clone());
            }
            at += 1;
            !taken
        });
        if few == 1 {
            // Of many rows to remove the first; the others are asked for again.
            for intent in &mut batch {
                if let Action::RemoveDefunct { silos } = &mut intent.action {
                    silos.truncate(1);
                }
            }
        }
        batch
    }

    /// The store refuses this batch, or keeps failing it.
    fn take_fewer(&mut self, tried: usize) {
        self.most = Some((tried / 2).max(1));
        self.turn = self.turn.wrapping_add(tried.max(1));
    }

    fn send(&mut self, ctx: &mut Ctx, commit: Box<Sent>) {
        let call = ctx.call();
        ctx.out.push(Effect::Commit {
            call,
            request: commit.request.clone(),
        });
        self.flight = Some(Flight::Commit {
            call,
            sent: ctx.mono(),
            commit,
        });
    }

    pub(crate) fn on_read(
        &mut self,
        ctx: &mut Ctx,
        call: CallId,
        result: Result<ReadAnswer, TableError>,
    ) -> Vec<Outcome> {
        let (sent, version, waiters) = match self.flight.take() {
            Some(Flight::Read {
                call: c,
                sent,
                version,
                waiters,
            }) if c == call => (sent, version, waiters),
            other => {
                self.flight = other;
                return Vec::new();
            }
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                self.back_off(ctx);
                self.want_read(false);
                self.read_done = false;
                let mut outcomes: Vec<Outcome> = waiters
                    .into_iter()
                    .map(|w| Outcome::Refreshed(w, Err(error.clone())))
                    .collect();
                outcomes.insert(0, Outcome::Failed(sent, error));
                return outcomes;
            }
        };
        self.errors = 0;
        self.last_read = Some(sent);
        self.read_done = true;
        let still = |at| matches!(answer, ReadAnswer::Unchanged { .. }) && version == at;
        self.unmoved = if self.conflicted.take().is_some_and(still) {
            self.unmoved + 1
        } else {
            0
        };
        let mut settled = Vec::new();
        self.settle(ctx, version, &answer, &mut settled);
        // First the view, then what it says of my intents.
        let mut outcomes = vec![
            Outcome::Contact,
            Outcome::Read {
                sent,
                answer: Box::new(answer),
            },
        ];
        outcomes.append(&mut settled);
        outcomes.extend(waiters.into_iter().map(|w| Outcome::Refreshed(w, Ok(()))));
        outcomes
    }

    /// A commit of unknown outcome is settled by what the table says now.
    fn settle(
        &mut self,
        ctx: &mut Ctx,
        version: u64,
        answer: &ReadAnswer,
        outcomes: &mut Vec<Outcome>,
    ) {
        let Some(commit) = self.unsettled.take() else {
            return;
        };
        let expected = &commit.request.expected;
        let (now_at, row) = match answer {
            ReadAnswer::Snapshot { snapshot, .. } => {
                (snapshot.version(), Some(snapshot.version_row.clone()))
            }
            // The view may have moved on since the read began.
            ReadAnswer::Unchanged { .. } => (
                version,
                ctx.view.as_ref().map(|v| v.snapshot().version_row.clone()),
            ),
        };
        if row
            .as_ref()
            .is_some_and(|row| check_token(expected, row).is_err())
        {
            // Another table, or another past: the gate will say so, and until then nothing is written.
            self.unsettled = Some(commit);
            self.back_off(ctx);
            return;
        }
        let (id, made) = (commit.request.id, commit.request.makes());
        if row.and_then(|row| row.record(made).map(|r| r.id)) == Some(id) {
            ctx.observe(Observation::Committed {
                rows: commit.request.changes.len(),
            });
            outcomes.extend(
                commit
                    .batch
                    .into_iter()
                    .map(|i| Outcome::Answered(i, Answer::Applied { version: made })),
            );
            return;
        }
        // Votes are not sent again as they were, however long ago that was: whoever is silent still is voted against anew. Nor is what failed
        // again and again. At most one wins of two commits on one version, whatever is in them.
        let anew = self.commit_errors >= FAILED_IN_A_ROW
            || commit
                .batch
                .iter()
                .any(|i| matches!(i.action, Action::Suspect { .. }));
        if now_at == expected.version() && !anew {
            // It may still be on its way: the same bytes again, so that at most one of the two wins.
            if !ctx.suspended && !ctx.table_changed() {
                let again = Sent {
                    request: commit.request.again(),
                    ..*commit
                };
                self.send(ctx, Box::new(again));
            } else {
                self.unsettled = Some(commit);
            }
        } else {
            // The table moved on without it: it never will be. The rows say what is left to do.
            if now_at == expected.version() && self.commit_errors >= FAILED_IN_A_ROW {
                self.take_fewer(commit.batch.len());
                self.commit_after = ctx.mono() + Self::error_wait(ctx, self.commit_errors);
                ctx.timers.set(Timer::Writer, self.commit_after);
            }
            self.requeue(ctx, commit.batch);
        }
    }

    /// Of a batch that did not happen nothing is left over for later: what was split off waits in the queue, and is a part of what was sent.
    fn reunite(&mut self, batch: &[Intent]) {
        self.queue
            .retain(|(queued, _)| batch.iter().all(|sent| sent.id != queued.id));
    }

    fn requeue(&mut self, ctx: &Ctx, batch: Vec<Intent>) {
        self.reunite(&batch);
        // Votes are taken fresh from the prober for the next attempt.
        let own = batch
            .into_iter()
            .filter(|i| !matches!(i.action, Action::Suspect { .. }));
        let mut queue: Vec<(Intent, MonoTime)> = own.map(|i| (i, ctx.mono())).collect();
        queue.append(&mut self.queue);
        self.queue = queue;
    }

    pub(crate) fn on_committed(
        &mut self,
        ctx: &mut Ctx,
        call: CallId,
        result: Result<CommitOutcome, TableError>,
    ) -> Vec<Outcome> {
        let (sent, commit) = match self.flight.take() {
            Some(Flight::Commit {
                call: c,
                sent,
                commit,
            }) if c == call => (sent, commit),
            other => {
                self.flight = other;
                return Vec::new();
            }
        };
        match result {
            Ok(CommitOutcome::Committed(token))
                if !commit.request.next_token(&[]).same_commit(&token) =>
            {
                // A token of something else proves nothing: find out.
                ctx.observe(Observation::UnknownOutcome);
                self.unsettled = Some(commit);
                self.back_off(ctx);
                Vec::new()
            }
            Ok(CommitOutcome::Committed(token)) => self.on_success(ctx, sent, *commit, token),
            Ok(CommitOutcome::Conflict(conflict)) => {
                self.errors = 0;
                ctx.observe(Observation::Conflict);
                let urgent = commit.batch.iter().any(|i| {
                    matches!(
                        i.action,
                        Action::Evict { .. } | Action::Leave { .. } | Action::Suspect { .. }
                    )
                });
                self.commit_errors = 0;
                if self.conflicts == 0 || ctx.mono().since(self.last_conflict) > CONFLICT_OVER {
                    (self.conflicts, self.conflicts_since) = (0, ctx.mono());
                }
                self.last_conflict = ctx.mono();
                self.conflicts = (self.conflicts + 1).min(10);
                let waited = ctx.mono().since(self.conflicts_since);
                let wait = match ctx.manner.backoff(self.conflicts) {
                    Some((least, most)) => least + ctx.jitter(most.saturating_sub(least)),
                    None => ctx.jitter(conflict_backoff(
                        self.conflicts,
                        waited,
                        commit.base.rows.len(),
                        urgent,
                    )),
                };
                self.commit_after = ctx.mono() + wait;
                // Votes wait elsewhere, and nothing else would wake me for them.
                ctx.timers
                    .set(Timer::Writer, self.commit_after.max(self.call_after));
                let base = commit.base.version();
                self.requeue(ctx, commit.batch);
                let mut outcomes = vec![Outcome::Contact];
                match conflict.snapshot {
                    Some(snapshot) => outcomes.push(Outcome::Read {
                        sent,
                        answer: Box::new(ReadAnswer::Snapshot {
                            snapshot,
                            heartbeats: None,
                        }),
                    }),
                    None => {
                        self.want_read(false);
                        self.conflicted = Some(base);
                    }
                }
                outcomes
            }
            Err(error) => {
                self.commit_errors = (self.commit_errors + 1).min(10);
                match error.next_step() {
                    NextStep::FindOut => {
                        ctx.observe(Observation::UnknownOutcome);
                        self.unsettled = Some(commit);
                    }
                    // A first attempt certainly did not happen; a second one may belong to a first that did.
                    _ if commit.request.attempt == crate::Attempt::Again => {
                        self.unsettled = Some(commit)
                    }
                    _ if matches!(
                        error.kind(),
                        TableErrorKind::LimitExceeded | TableErrorKind::InvalidRequest
                    ) =>
                    {
                        self.take_fewer(commit.batch.len());
                        self.back_off(ctx);
                        if commit.batch.len() > 1 {
                            // One of them, or all together: tried in smaller parts, the one that is refused is told.
                            self.requeue(ctx, commit.batch);
                            return vec![Outcome::Contact];
                        }
                        let refusal = Answer::Refused(Refusal::TooLarge(error.to_string()));
                        self.reunite(&commit.batch);
                        return commit
                            .batch
                            .into_iter()
                            .map(|i| Outcome::Answered(i, refusal.clone()))
                            .collect();
                    }
                    step => {
                        if step == NextStep::GiveUp || self.commit_errors >= FAILED_IN_A_ROW {
                            self.take_fewer(commit.batch.len());
                        }
                        let mut batch = commit.batch;
                        self.reunite(&batch);
                        // Who cleans asks again in a minute.
                        batch.retain(|i| !matches!(i.action, Action::RemoveDefunct { .. }));
                        self.requeue(ctx, batch);
                    }
                }
                self.back_off(ctx);
                vec![Outcome::Failed(sent, error)]
            }
        }
    }

    fn on_success(
        &mut self,
        ctx: &mut Ctx,
        sent: MonoTime,
        commit: Sent,
        token: VersionToken,
    ) -> Vec<Outcome> {
        self.errors = 0;
        self.conflicts = 0;
        self.commit_errors = 0;
        // As many as there may be, step by step.
        self.most = self.most.map(|most| most * 2).filter(|most| *most <= MANY);
        ctx.observe(Observation::Committed {
            rows: commit.request.changes.len(),
        });
        let version = commit.request.makes();
        let made = commit.request.apply_to(&commit.base, token);
        // Whoever asked for an eviction hears of it even if it is my own end.
        let (evictions, others): (Vec<_>, Vec<_>) = commit
            .batch
            .into_iter()
            .partition(|i| matches!(i.action, Action::Evict { .. }));
        let answered = |i| Outcome::Answered(i, Answer::Applied { version });
        let mut outcomes = vec![Outcome::Contact];
        outcomes.extend(evictions.into_iter().map(answered));
        outcomes.push(Outcome::Made {
            sent,
            snapshot: Box::new(made),
        });
        outcomes.extend(others.into_iter().map(answered));
        outcomes
    }

    /// How long to wait after so many errors in a row.
    fn error_wait(ctx: &mut Ctx, errors: u32) -> Duration {
        // Leaving and joining silos do not sleep for a minute; nobody sleeps longer than a refresh period.
        let cap = if ctx.status == SiloStatus::Active {
            ERROR_CAP.min(ctx.config.table_refresh_period)
        } else {
            ERROR_BACKOFF * 2
        };
        let most = (ERROR_BACKOFF * 2u32.pow(errors.clamp(1, 10) - 1)).min(cap.max(ERROR_BACKOFF));
        most / 2 + ctx.jitter(most / 2)
    }

    fn back_off(&mut self, ctx: &mut Ctx) {
        self.errors = (self.errors + 1).min(10);
        let wait = Self::error_wait(ctx, self.errors);
        self.call_after = ctx.mono() + wait;
        ctx.timers.set(Timer::Writer, self.call_after);
    }
}
