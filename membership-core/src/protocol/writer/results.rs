//! Handles the end of a call for the intents in it: they happened, they did not, or they may have.
//! In the last case a read decides before anything else is written.

use std::sync::Arc;

use super::{Exchange, Outcome, Sent, Writer, error_wait};
use crate::intent::{Action, Answer, Intent, Refusal};
use crate::protocol::context::Ctx;
use crate::protocol::io::CallId;
use crate::protocol::notice::TableState;
use crate::protocol::observation::Observation;
use crate::protocol::timers::Timer;
use crate::{
    CommitOutcome, Conflict, Fate, Judgement, MonoTime, NextStep, ReadAnswer, Recency, RowRead,
    TableError, TableErrorKind, VersionToken,
};

/// Number of commits in a row that failed or are of unknown outcome, after which the next commit is
/// smaller and not the same again.
const FAILED_IN_A_ROW: u32 = 2;

/// As many silos may contend for the version row while each writes for many.
const FEW_WRITERS: usize = 8;

impl Writer {
    pub(crate) fn on_read(
        &mut self,
        ctx: &mut Ctx,
        call: CallId,
        result: Result<ReadAnswer, TableError>,
    ) -> Vec<Outcome> {
        let (sent, version, newest, waiters) = match self.exchange.take() {
            Some(Exchange::Read {
                call: c,
                sent,
                version,
                newest,
                waiters,
            }) if c == call => (sent, version, newest, waiters),
            other => {
                self.exchange = other;
                return self.late(call, result);
            }
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                self.back_off(ctx);
                self.want_read(false);
                self.read_done = false;
                let mut outcomes = vec![Outcome::Failed(sent, error.clone())];
                let refreshed = |w| Outcome::Refreshed(w, Err(error.clone()));
                outcomes.extend(waiters.into_iter().map(refreshed));
                return outcomes;
            }
        };
        self.errors = 0;
        if matches!(answer, ReadAnswer::Unchanged { .. }) && version < ctx.base_version() {
            // An abandoned read has shown a newer view since this one was sent: it does not confirm that.
            self.waiters.extend(waiters);
            self.want_read(true);
            self.read_done = false;
            return vec![Outcome::Contact];
        }
        self.last_read = Some(sent);
        self.read_done = true;
        let still = |at| matches!(answer, ReadAnswer::Unchanged { .. }) && version == at;
        self.unmoved = if self.conflicted.take().is_some_and(still) {
            self.unmoved + 1
        } else {
            0
        };
        let settled = self.settle(ctx, version, &answer);
        // The view comes before the answers to intents that depend on it.
        let answer = Box::new(answer);
        let mut outcomes = vec![
            Outcome::Contact,
            Outcome::Read {
                sent,
                newest,
                answer,
            },
        ];
        outcomes.extend(settled);
        outcomes.extend(waiters.into_iter().map(|w| Outcome::Refreshed(w, Ok(()))));
        outcomes
    }

    /// The answer of an abandoned read: it may show the death of this silo.
    fn late(&mut self, call: CallId, result: Result<ReadAnswer, TableError>) -> Vec<Outcome> {
        let abandoned = self.abandoned.iter().position(|c| *c == call);
        let was_abandoned = abandoned.map(|at| self.abandoned.remove(at)).is_some();
        match result {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) if was_abandoned => {
                vec![Outcome::Late(Box::new(snapshot))]
            }
            _ => Vec::new(),
        }
    }

    /// Handles the answer to a read of the version row. Without one the rows are read: that finds
    /// out what is wrong.
    pub(crate) fn on_row(
        &mut self,
        ctx: &Ctx,
        call: CallId,
        result: Result<RowRead, TableError>,
    ) -> Vec<Outcome> {
        let (sent, silo) = match self.exchange.take() {
            Some(Exchange::Row {
                call: c,
                sent,
                silo,
            }) if c == call => (sent, silo),
            other => {
                self.exchange = other;
                return Vec::new();
            }
        };
        match result {
            Ok(read) => {
                let version = read.token.version();
                let read = Box::new(read);
                let row = Outcome::VersionRow { sent, silo, read };
                if ctx.variant.scribe {
                    self.errors = 0;
                    match self.conflicted {
                        // Only the rows can tell why.
                        Some(at) if version == at => self.want_read(false),
                        _ => (self.conflicted, self.unmoved) = (None, 0),
                    }
                    return vec![Outcome::Contact, row];
                }
                vec![row]
            }
            Err(_) => {
                self.want_read(true);
                Vec::new()
            }
        }
    }

    /// Settles a commit of unknown outcome by the current table.
    fn settle(&mut self, ctx: &mut Ctx, version: u64, answer: &ReadAnswer) -> Vec<Outcome> {
        let Some(commit) = self.unsettled.take() else {
            return Vec::new();
        };
        let (now_at, row) = match answer {
            ReadAnswer::Snapshot { snapshot, .. } => {
                (snapshot.version(), Some(snapshot.version_row.clone()))
            }
            ReadAnswer::Unchanged { .. } => (
                version,
                ctx.base.as_ref().map(|v| v.snapshot().version_row.clone()),
            ),
        };
        let again = commit.request.again();
        match row.as_ref().map(|row: &Arc<_>| again.judge(row)) {
            // Another table, or the same one rolled back: the gate reports it, and nothing is
            // written until then.
            Some(Judgement::Refused(_)) => {
                self.unsettled = Some(commit);
                self.back_off(ctx);
                return Vec::new();
            }
            Some(Judgement::AlreadyCommitted) => {
                self.observe_committed(ctx, &commit);
                return answered(commit.batch, commit.request.next_version()).collect();
            }
            _ => {}
        }
        let failing = self.commit_errors >= FAILED_IN_A_ROW;
        let may_still_land = now_at == commit.request.expected.version();
        // Votes are not sent again unchanged, however recent: a silo that is still silent is voted
        // against anew. Neither is a commit that failed repeatedly. Of two commits on one version
        // at most one succeeds.
        let votes = |i: &Intent| matches!(i.action, Action::Suspect { .. });
        if may_still_land && !failing && !commit.batch.iter().any(votes) {
            // The same bytes are sent again, so that at most one of the two succeeds.
            // Nothing is written to a table that shows less than it did: the gate judges it next.
            let rolled_back = now_at < ctx.base_version() || ctx.table_doubted();
            if rolled_back {
                self.unsettled = Some(commit);
                self.back_off(ctx);
            } else if ctx.suspended {
                self.unsettled = Some(commit);
            } else {
                let request = again;
                self.send(ctx, Box::new(Sent { request, ..*commit }));
            }
        } else {
            // The commit is not sent again. The rows show what remains to be done.
            if may_still_land && failing {
                self.queue.take_fewer(commit.batch.len());
                self.commit_after = ctx.mono() + error_wait(ctx, self.commit_errors);
                self.failed_at = Some(now_at);
                ctx.set_timer_at(Timer::Writer, self.commit_after);
            }
            self.queue.requeue(ctx.mono(), commit.batch);
        }
        Vec::new()
    }

    pub(crate) fn on_committed(
        &mut self,
        ctx: &mut Ctx,
        call: CallId,
        result: Result<CommitOutcome, TableError>,
    ) -> Vec<Outcome> {
        let (sent, commit) = match self.exchange.take() {
            Some(Exchange::Commit {
                call: c,
                sent,
                commit,
            }) if c == call => (sent, commit),
            other => {
                self.exchange = other;
                return Vec::new();
            }
        };
        match commit.request.fate(result) {
            Fate::Happened(token) => self.on_success(ctx, sent, *commit, token),
            Fate::Conflict(conflict) => self.on_conflict(ctx, sent, *commit, conflict),
            Fate::Failed(error) => self.on_failure(ctx, sent, *commit, error),
            Fate::Unknown(error) => {
                let of_this_sending = |e: &TableError| e.next_step() == NextStep::FindOut;
                if error.as_ref().is_none_or(of_this_sending) {
                    ctx.observe(Observation::UnknownOutcome);
                }
                self.unsettled = Some(commit);
                if error.is_some() {
                    self.count_error();
                }
                self.back_off(ctx);
                let failed = |error| Outcome::Failed(sent, error);
                error.map(failed).into_iter().collect()
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
        self.conflicts.clear();
        (self.commit_errors, self.failed_at) = (0, None);
        self.queue.take_more();
        self.observe_committed(ctx, &commit);
        let version = commit.request.next_version();
        let snapshot = Box::new(commit.request.apply_to(&commit.base, token));
        // An eviction is answered before the view is adopted, because the view may end this silo.
        let (evictions, others): (Vec<_>, Vec<_>) = commit
            .batch
            .into_iter()
            .partition(|i| matches!(i.action, Action::Evict { .. }));
        let mut outcomes = vec![Outcome::Contact];
        outcomes.extend(answered(evictions, version));
        outcomes.push(Outcome::Made { sent, snapshot });
        outcomes.extend(answered(others, version));
        outcomes
    }

    fn observe_committed(&self, ctx: &mut Ctx, commit: &Sent) {
        let rows = commit.request.changes.len();
        ctx.observe(Observation::Committed { rows });
        let for_others = |i: &&Intent| self.is_for_others(i.id);
        let changes = commit.batch.iter().filter(for_others).count();
        if changes > 0 {
            ctx.observe(Observation::WrittenForOthers { changes });
        }
    }

    fn on_conflict(
        &mut self,
        ctx: &mut Ctx,
        sent: MonoTime,
        commit: Sent,
        conflict: Conflict,
    ) -> Vec<Outcome> {
        self.errors = 0;
        (self.commit_errors, self.failed_at) = (0, None);
        ctx.observe(Observation::Conflict);
        let ends_a_life = |i: &Intent| {
            matches!(
                i.action,
                Action::Evict { .. } | Action::Leave { .. } | Action::Suspect { .. }
            )
        };
        let urgent = commit.batch.iter().any(ends_a_life);
        // Those whose changes this silo writes do not write themselves.
        let writers = if self.desk.is_open() {
            commit.base.rows.len().min(FEW_WRITERS)
        } else {
            commit.base.rows.len()
        };
        let wait = self.conflicts.wait(ctx, writers, urgent);
        self.commit_after = ctx.mono() + wait;
        // Votes are not in the queue, so a timer is needed to collect them again.
        let next = self.commit_after.max(self.call_after);
        ctx.set_timer_at(Timer::Writer, next);
        self.queue.requeue(ctx.mono(), commit.batch);
        let mut outcomes = vec![Outcome::Contact];
        match conflict.snapshot {
            Some(snapshot) => {
                let answer = Box::new(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats: None,
                });
                let newest = ctx.reads == Recency::Linearizable;
                outcomes.push(Outcome::Read {
                    sent,
                    newest,
                    answer,
                });
            }
            None => {
                if ctx.variant.scribe && ctx.table.state == TableState::Available {
                    // Whoever has won is asked for the rest, and then to write for this silo.
                    self.want_row();
                } else {
                    self.want_read(false);
                }
                self.conflicted = Some(commit.base.version());
            }
        }
        outcomes
    }

    /// Handles a commit that certainly did not happen.
    fn on_failure(
        &mut self,
        ctx: &mut Ctx,
        sent: MonoTime,
        commit: Sent,
        error: TableError,
    ) -> Vec<Outcome> {
        self.count_error();
        let mut batch = commit.batch;
        if matches!(
            error.kind(),
            TableErrorKind::LimitExceeded | TableErrorKind::InvalidRequest
        ) {
            self.queue.take_fewer(batch.len());
            self.back_off(ctx);
            if batch.len() > 1 {
                // One of the intents, or all of them together, exceed a limit. Smaller batches find
                // the one to refuse.
                self.queue.requeue(ctx.mono(), batch);
                return vec![Outcome::Contact];
            }
            let refusal = Answer::Refused(Refusal::TooLarge(error.to_string()));
            self.queue.reunite(&batch);
            let refused = |i| Outcome::Answered(i, refusal.clone());
            return batch.into_iter().map(refused).collect();
        }
        if error.next_step() == NextStep::GiveUp || self.commit_errors >= FAILED_IN_A_ROW {
            self.queue.take_fewer(batch.len());
        }
        self.queue.reunite(&batch);
        // The cleaner submits removals again.
        batch.retain(|i| !matches!(i.action, Action::RemoveDefunct { .. }));
        self.queue.requeue(ctx.mono(), batch);
        self.back_off(ctx);
        vec![Outcome::Failed(sent, error)]
    }

    fn count_error(&mut self) {
        self.commit_errors = (self.commit_errors + 1).min(10);
    }
}

fn answered(batch: Vec<Intent>, version: u64) -> impl Iterator<Item = Outcome> {
    batch
        .into_iter()
        .map(move |i| Outcome::Answered(i, Answer::Applied { version }))
}
