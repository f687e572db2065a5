//! Applies the answers of the table to the other machines.

use super::cleaner::Cleaner;
use super::flood;
use super::gate::{self, Passage, Source};
use super::io::CallId;
use super::machine::Protocol;
use super::notice::{DeclaredDead, JoinError, Notice, TableState, Termination};
use super::observation::{Learned, Observation};
use super::timers::Timer;
use super::unreached::Unreached;
use super::writer::Outcome;
use crate::intent::{Action, Answer, Intent, Refusal};
use crate::{
    CauseOfDeath, ClusterView, Discontinuity, Heartbeats, MembershipEntry, MonoTime, NextStep,
    Operation, ReadAnswer, Recency, RowRead, SiloAddress, SiloStatus, Snapshot, TableError,
    TableErrorKind, check_snapshot,
};

impl Protocol {
    pub(super) fn settle(&mut self, outcomes: Vec<Outcome>) {
        // Records the refresh requests first, so that they are answered even if this read ends the
        // silo.
        self.refreshing.extend(outcomes.iter().filter_map(|o| {
            if let Outcome::Refreshed(r, _) = o {
                Some(*r)
            } else {
                None
            }
        }));
        for outcome in outcomes {
            if self.ended {
                return;
            }
            match outcome {
                Outcome::Contact => self.table_answers(),
                Outcome::Read {
                    sent,
                    newest,
                    answer,
                } => self.on_read(sent, newest, *answer, Learned::Read),
                Outcome::Late(snapshot) => {
                    self.adopt(*snapshot, Source::Read, None, Learned::Read);
                }
                Outcome::VersionRow { sent, silo, read } => self.on_version_row(sent, silo, *read),
                Outcome::Made { sent, snapshot } => {
                    if self.adopt(*snapshot, Source::Commit, Some(sent), Learned::Commit) {
                        self.ctx.contacted(sent);
                    }
                }
                Outcome::Answered(intent, answer) => self.on_answer(&intent, &answer),
                Outcome::Refreshed(request, result) => {
                    if !self.refreshing.remove(&request) {
                        continue;
                    }
                    // The view is published before the request is answered.
                    self.publish();
                    let result = result.map(|()| self.ctx.base_version());
                    self.ctx.tell(Notice::Refreshed { request, result });
                }
                Outcome::Failed(sent, error) => self.on_failure(sent, error),
            }
        }
    }

    /// `how` is how the rows of the answer came to this silo.
    pub(super) fn on_read(
        &mut self,
        sent: MonoTime,
        newest: bool,
        answer: ReadAnswer,
        how: Learned,
    ) {
        let newest_at = newest.then_some(sent);
        let (fits, heartbeats) = match answer {
            ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            } => {
                self.recover(&snapshot);
                let fits = self.adopt(snapshot, Source::Read, newest_at, how);
                (fits, heartbeats)
            }
            ReadAnswer::Unchanged { heartbeats } => (self.unchanged(newest_at), heartbeats),
        };
        if self.ended || !fits {
            self.end_silence();
            return;
        }
        // Only now is it certain that the answer came from this silo's table.
        self.ctx.contacted(sent);
        self.wants_heartbeats = false;
        self.ended_a_look();
        self.ctx.table.doubted = None;
        self.ctx.set_table_state(TableState::Available);
        if self.ctx.suspended && self.pause.last_at.is_none_or(|at| sent >= at) {
            self.ctx.suspended = false;
            self.ctx.tell(Notice::Suspended(false));
            self.end_silence();
        }
        let beaten = heartbeats.is_some();
        if let Some(heartbeats) = heartbeats {
            self.on_heartbeats(sent, heartbeats);
        }
        if !self.ctx.timers.is_set(Timer::Refresh) {
            self.arm_refresh();
        }
        let heartbeats = beaten.then_some(&self.last_heartbeats);
        let step = self
            .joiner
            .on_read(&mut self.ctx, &mut self.writer, sent, heartbeats);
        self.step(step);
    }

    /// Confirms the announced view by the version row alone, if the hash in it is that of the view's
    /// rows; otherwise reads the rows.
    fn on_version_row(&mut self, sent: MonoTime, silo: SiloAddress, read: RowRead) {
        if self.ctx.variant.scribe {
            return self.on_shown(sent, silo, read);
        }
        let newest_at = (self.ctx.reads == Recency::Linearizable).then_some(sent);
        match gate::as_the_table_has_it(&self.ctx, read) {
            Some(snapshot) if !self.ctx.table_doubted() => {
                // Another silo has announced these rows.
                if self.adopt(snapshot, Source::Read, newest_at, Learned::Changes) {
                    self.ctx.contacted(sent);
                }
            }
            _ => self.writer.want_read(true),
        }
    }

    fn on_heartbeats(&mut self, sent: MonoTime, heartbeats: Heartbeats) {
        let period = self.ctx.heartbeat_period();
        self.staleness.on_read(
            sent,
            self.ctx.now.mono,
            &heartbeats,
            &self.ctx.members.alive,
            period,
        );
        let (now, me) = (self.ctx.now.mono, self.ctx.me);
        self.challenges
            .on_read(sent, now, &heartbeats, &self.waits_for, &me);
        if let Some(leader) = self.ctx.leader() {
            let counter = heartbeats.counter(&leader);
            self.pulse.on_look(sent, leader, counter);
        }
        self.last_heartbeats = heartbeats;
        self.pace_fast_reads();
        self.judge_staleness();
    }

    /// Passes a snapshot of the table through the gate; returns whether it is of the table that this
    /// silo knows. `how` is how its rows came to this silo.
    pub(super) fn adopt(
        &mut self,
        snapshot: Snapshot,
        source: Source,
        newest_at: Option<MonoTime>,
        how: Learned,
    ) -> bool {
        if self.ctx.table_changed() {
            return false;
        }
        let before = self.ctx.base.clone();
        let shown = self.ctx.view.as_ref().map(ClusterView::version);
        let passage = gate::pass(&mut self.ctx, snapshot, source, newest_at);
        match passage {
            Passage::Adopted => {}
            Passage::Withdrawn(version) => self.withdrawn(version),
            Passage::Known | Passage::Old => return true,
            Passage::Broken(how) => {
                self.table_broke(how);
                return false;
            }
        }
        // A view that another silo announced was counted then.
        if self.ctx.view.as_ref().map(ClusterView::version) != shown {
            self.ctx.learned(how);
        }
        self.decided(before.as_ref(), source);
        true
    }

    /// Handles the answer that the confirmed view is still the table's.
    pub(super) fn unchanged(&mut self, newest_at: Option<MonoTime>) -> bool {
        if self.ctx.table_changed() {
            return false;
        }
        if let Passage::Withdrawn(version) = gate::confirm(&mut self.ctx, newest_at) {
            self.withdrawn(version);
        }
        true
    }

    /// The table contradicts a view that another silo announced: the table's is published instead.
    fn withdrawn(&mut self, version: u64) {
        self.published = None;
        let table = self.ctx.base_version();
        self.to_tell_withdrawn = Some((version, table));
    }

    /// Reports the votes against this silo that are new in its row.
    fn count_votes(&mut self, before: Option<&ClusterView>, now: &ClusterView) {
        let me = self.ctx.me;
        let votes = |view: &ClusterView| view.get(&me).map(|e| e.suspicions.clone());
        let was = before.and_then(votes).unwrap_or_default();
        for vote in votes(now).unwrap_or_default() {
            if !was.contains(&vote) {
                let accuser = vote.accuser;
                self.ctx.observe(Observation::VoteReceived { accuser });
            }
        }
    }

    /// Handles a confirmed view that moved: only the table decides about this silo and its
    /// settings. `before` is the one before.
    fn decided(&mut self, before: Option<&ClusterView>, source: Source) {
        let Some(base) = self.ctx.base.clone() else {
            return;
        };
        self.dirty = true;
        if self.ctx.is_announced() {
            self.confirm_soon();
        }
        self.count_votes(before, &base);
        let (view_before, before) = (before, before.map_or(0, ClusterView::version));
        let table = &base.snapshot().version_row.settings;
        if self.settings_seen.as_ref() != Some(table) {
            self.settings_seen = Some(table.clone());
            let (table, configured) = (table.clone(), self.ctx.config.shared());
            if (crate::SharedSettings {
                extra: crate::Extra::default(),
                ..table.clone()
            }) != configured
            {
                self.ctx.tell(Notice::SettingsDiffer { table, configured });
            }
        }
        if self.ctx.status != SiloStatus::Created && gate::ends_me(&self.ctx, base.snapshot()) {
            self.found_my_end(&base, Some(before));
            return;
        }
        if let Some(mine) = base.get(&self.ctx.me).map(|e| e.status)
            && self.ctx.status != SiloStatus::Created
        {
            self.ctx.status = self.ctx.status.max(mine);
            if mine == SiloStatus::Active {
                self.joiner.on_active(&mut self.ctx, &mut self.writer);
            }
        }
        if source == Source::Commit {
            self.disseminator.on_commit(&mut self.ctx, view_before);
        }
        let all_are_told = source == Source::Commit && !flood::is_due(&self.ctx);
        self.disseminator.on_news(&mut self.ctx, all_are_told);
    }

    /// Ends this silo: the table says that it is Dead, or has no row of it any more.
    fn found_my_end(&mut self, view: &ClusterView, before: Option<u64>) {
        let me = self.ctx.me;
        let entry = view.get(&me);
        let cause = entry
            .and_then(|e| e.death.as_ref())
            .map(|d| d.cause.clone());
        let left = cause == Some(CauseOfDeath::Left);
        let newer = view
            .snapshot()
            .rows
            .at_endpoint(me.endpoint())
            .next_back()
            .map(|e| e.address)
            .filter(|s| s.is_successor_of(&me));
        if left && (self.joiner.is_failing() || self.leaver.is_leaving()) {
            self.disseminator
                .farewell(&mut self.ctx, view.version(), before);
            let termination = if self.joiner.is_failing() {
                match self.joiner.give_up() {
                    super::joiner::Step::Failed(error) => Termination::JoinFailed(error),
                    super::joiner::Step::Nothing => Termination::JoinFailed(JoinError::Stopped),
                }
            } else {
                self.leaver.termination(true)
            };
            self.end(termination);
        } else if let (true, None | Some(CauseOfDeath::Superseded), Some(newer)) =
            (self.joiner.is_joining(), &cause, newer)
        {
            self.end(Termination::JoinFailed(JoinError::Superseded { newer }));
        } else if let Some(unreached) = entry.and_then(|e| self.voted_out_of_the_join(e)) {
            self.end(Termination::JoinFailed(JoinError::VotedOut {
                silo: me,
                version: view.version(),
                unreached,
            }));
        } else {
            self.end(Termination::DeclaredDead(DeclaredDead {
                silo: me,
                version: view.version(),
                death: entry.and_then(|e| e.death.clone()),
                votes: entry.map(|e| e.suspicions.clone()).unwrap_or_default(),
                at: self.ctx.now.wall,
            }));
        }
    }

    /// The silos to which the join has no two-way contact, if this silo was voted out before it was
    /// Active, and there are some.
    fn voted_out_of_the_join(&self, mine: &MembershipEntry) -> Option<Vec<Unreached>> {
        let cause = mine.death.as_ref().map(|death| &death.cause);
        let voted = matches!(cause, Some(CauseOfDeath::Voted | CauseOfDeath::Stuck));
        if !voted || mine.active_since.is_some() || !self.joiner.is_contacting() {
            return None;
        }
        let unreached = self.joiner.contacts.unreached(&self.required());
        (!unreached.is_empty()).then_some(unreached)
    }

    fn on_answer(&mut self, intent: &Intent, answer: &Answer) {
        if self.writer.answer_others(&mut self.ctx, intent.id, answer) {
            return;
        }
        if let Action::Suspect { suspect, .. } = &intent.action {
            match answer {
                Answer::Applied { .. } => {
                    self.voter.landed(&self.ctx, *suspect);
                    self.ctx
                        .observe(Observation::VoteCast { suspect: *suspect });
                }
                // The table already has the vote or refused it: it is not submitted again at once.
                _ => self.voter.landed(&self.ctx, *suspect),
            }
            return;
        }
        if let Some(request) = self.evictions.remove(&intent.id) {
            self.ctx.tell(Notice::Answered {
                request,
                answer: answer.clone(),
            });
        }
        let step = self
            .joiner
            .on_answer(&mut self.ctx, &mut self.writer, &intent.action, answer);
        if let (Action::Join(_), Answer::Applied { .. } | Answer::Moot) = (&intent.action, answer) {
            self.dirty = true;
            self.heartbeat_writer.start(&mut self.ctx);
            Cleaner::start(&mut self.ctx);
            // The view may have moved in the meantime.
            if let Some(base) = self.ctx.base.clone()
                && gate::ends_me(&self.ctx, base.snapshot())
            {
                self.found_my_end(&base, None);
                return;
            }
        }
        self.step(step);
        if self.ended {
            return;
        }
        self.leaver
            .on_answer(&mut self.ctx, &mut self.writer, &intent.action, answer);
        if matches!(intent.action, Action::Leave { .. })
            && self.leaver.is_ending()
            && !matches!(answer, Answer::Queued)
        {
            // The view would have shown an end of the row already; here the row was missing before.
            let end = self
                .leaver
                .termination(!matches!(answer, Answer::Refused(_)));
            self.end(end);
        }
    }

    fn on_failure(&mut self, sent: MonoTime, error: TableError) {
        self.table_failed(sent, &error);
        self.end_silence();
        let step = self.joiner.on_table_error(&mut self.ctx, error);
        self.step(step);
    }

    fn table_failed(&mut self, sent: MonoTime, error: &TableError) {
        self.ctx.table.failing_since.get_or_insert(sent);
        self.staleness.reset();
        self.challenges.reset();
        self.isolation.reset();
        self.challenged.clear();
        self.gone.clear();
        if !self.stale.is_empty() {
            self.stale.clear();
            self.dirty = true;
        }
        match error.kind() {
            TableErrorKind::TableReplaced => self.table_broke(Discontinuity::Replaced),
            TableErrorKind::TableRolledBack => self.table_broke(Discontinuity::RolledBack),
            TableErrorKind::NotInitialized if self.ctx.base.is_some() => {
                self.table_broke(Discontinuity::Replaced)
            }
            kind if kind.next_step() == NextStep::GiveUp => {
                self.doubt(TableState::Unusable(kind));
            }
            _ => self.ctx.set_table_state(TableState::Unavailable),
        }
    }

    /// The table is no longer the one this silo knew. When that is certain, nothing is adopted or
    /// written any more, and the silo keeps running.
    fn table_broke(&mut self, how: Discontinuity) {
        if self.doubt(TableState::Changed(how)) {
            self.answer_the_waiting(how.into(), "the table is not the one that this silo knew");
        }
    }

    /// Handles a bad answer of the table. One answer may come from a server that was deposed and
    /// does not know it yet: until a second one, over a new connection, says the same, the table is
    /// unavailable. Returns whether it is certain now.
    fn doubt(&mut self, state: TableState) -> bool {
        if self.ctx.table_changed() {
            return false;
        }
        // Before the first view there is nothing to lose.
        let known = self.ctx.base.is_some();
        let again = self.ctx.table.doubted.replace(state) == Some(state);
        if (again && self.writer.looked_again()) || !known {
            self.ctx.table.doubted = None;
            self.ctx.set_table_state(state);
            return true;
        }
        self.ctx.set_table_state(TableState::Unavailable);
        self.writer.look_again(&mut self.ctx);
        false
    }

    /// A table that was rolled back is this silo's again when it shows the last commit that this
    /// silo knows, and its rows: a former server had answered, or a row was changed by hand and
    /// changed back.
    fn recover(&mut self, snapshot: &Snapshot) {
        let Some(base) = &self.ctx.base else { return };
        let token = base.token();
        let is_mine = snapshot.table_id() == token.table_id()
            && snapshot.version_row.record(token.version()).map_or_else(
                || snapshot.token.same_commit(token),
                |record| record.id == token.commit(),
            )
            && check_snapshot(base.snapshot(), snapshot).is_ok();
        if is_mine && self.ctx.table.state == TableState::Changed(Discontinuity::RolledBack) {
            self.ctx.table.state = TableState::Unavailable;
            self.ctx.set_table_state(TableState::Available);
            self.writer.want_read(true);
        }
    }

    /// Answers all waiting requests with an error, because no result will come.
    pub(super) fn answer_the_waiting(&mut self, kind: TableErrorKind, why: &str) {
        let reading = std::mem::take(&mut self.refreshing);
        for request in reading.into_iter().chain(self.writer.take_waiters()) {
            let error = TableError::new(kind, Operation::Read, "membership", why);
            self.ctx.tell(Notice::Refreshed {
                request,
                result: Err(error),
            });
        }
        for (_, request) in std::mem::take(&mut self.evictions) {
            self.ctx.tell(Notice::Answered {
                request,
                answer: Answer::Refused(Refusal::Abandoned),
            });
        }
    }

    fn table_answers(&mut self) {
        if let Some(since) = self.ctx.table.failing_since.take() {
            let now = self.ctx.mono();
            self.ctx.table.recovered_at = Some(now);
            if now.since(since) >= self.ctx.failure_window() {
                self.prober.forget_misses();
                self.roll_call.void(&mut self.ctx);
                self.voter.reset(now);
            }
        }
        if self.ctx.table.doubted.is_none() {
            self.ctx.set_table_state(TableState::Available);
        }
    }

    pub(super) fn heartbeat_written(&mut self, call: CallId, result: Result<(), TableError>) {
        let Some(sent) = self
            .heartbeat_writer
            .on_written(&mut self.ctx, call, &result)
        else {
            return;
        };
        match result {
            Ok(()) => {
                if self.ctx.table.state == TableState::Available {
                    self.table_answers();
                } else {
                    // The table works again. The next read confirms that; it need not wait for the
                    // back-off.
                    self.writer.hurry(&self.ctx, std::time::Duration::ZERO);
                    self.writer.want_read(false);
                }
            }
            Err(error) if error.kind() == TableErrorKind::NoSuchRow => self.writer.want_read(true),
            Err(error) => self.table_failed(sent, &error),
        }
    }

    /// Answers the probes that waited for the end of the read after a pause, successful or not, or
    /// too long for it.
    pub(super) fn end_silence(&mut self) {
        if self.pause.is_silent() {
            let waiting = self.pause.release();
            if !self.ended {
                for (link, from, nonce) in waiting {
                    self.ctx
                        .reply(link, from, super::message::Message::ProbeAck { nonce });
                }
            }
        }
    }
}
