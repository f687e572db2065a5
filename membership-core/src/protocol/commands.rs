//! Commands of the application and hints of the store.

use std::time::Duration;

use super::io::Command;
use super::machine::Protocol;
use super::notice::TableState;
use super::notice::{JoinError, Notice};
use super::timers::Timer;
use crate::intent::{Action, Answer, Refusal};
use crate::{ClusterView, MonoTime, SiloStatus};

/// Minimum time between two reads that hints cause.
const HINT_PERIOD: Duration = Duration::from_millis(200);

/// How much rarer the reads that strangers cause become with each row of the table.
const TIME_PER_ROW: Duration = Duration::from_millis(10);

/// Maximum number of evictions that wait for the table; further ones are refused at once.
const EVICTIONS: usize = 1024;

impl Protocol {
    /// Handles a hint of the store: reads at once, and after that at most once per [`HINT_PERIOD`].
    pub(super) fn hint(&mut self) {
        let now = self.ctx.mono();
        self.read_within(HINT_PERIOD, now);
    }

    /// Handles a message of somebody whom the table does not name, for example of a silo that has
    /// just joined. It may be true, so the table is read; how often depends on the size of the
    /// table, because all silos may get such messages.
    pub(super) fn hint_of_stranger(&mut self) {
        let now = self.ctx.mono();
        self.read_within(self.hint_period(), now);
    }

    /// Has an announced view confirmed by the table, not by all silos at once.
    pub(super) fn confirm_soon(&mut self) {
        let period = self.hint_period();
        let at = self.ctx.mono() + self.ctx.jitter(period);
        self.read_within(period, at);
    }

    /// The time between two reads that messages cause.
    fn hint_period(&self) -> Duration {
        let rows = self.ctx.base.as_ref().map_or(0, ClusterView::len);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let looks = self.ctx.variant.look_per_row;
        let per_row = looks.filter(|_| self.row_is_enough());
        let period = HINT_PERIOD + per_row.unwrap_or(TIME_PER_ROW).saturating_mul(rows);
        period.min(self.ctx.config.table_refresh_period)
    }

    /// Reads not before `earliest`, and not within `period` of the read for the last hint.
    fn read_within(&mut self, period: Duration, earliest: MonoTime) {
        if self.ctx.view.is_none() || self.ctx.timers.is_set(Timer::Hint) {
            return;
        }
        let at = self
            .last_hint
            .map_or(earliest, |t| t + period)
            .max(earliest);
        self.last_hint = Some(at);
        self.ctx.set_timer_at(Timer::Hint, at);
    }

    pub(super) fn command(&mut self, command: Command) {
        let joining = self.joiner.is_joining() || self.ctx.status == SiloStatus::Created;
        match command {
            Command::BeginLeave | Command::FinishLeave | Command::Stop if joining => {
                let step = self.joiner.fail(&mut self.ctx, JoinError::Stopped);
                self.step(step);
            }
            Command::BeginLeave => self.leaver.begin(&mut self.ctx, &mut self.writer),
            Command::FinishLeave => self.leaver.finish(&mut self.ctx, &mut self.writer),
            Command::Stop => self.leaver.stop(&mut self.ctx, &mut self.writer),
            Command::Evict { request, .. }
                if self.ctx.table_changed() || self.evictions.len() >= EVICTIONS =>
            {
                self.ctx.tell(Notice::Answered {
                    request,
                    answer: Answer::Refused(Refusal::Abandoned),
                });
            }
            Command::Evict {
                request,
                silo,
                reason,
            } => {
                let by = self.ctx.me.to_string();
                let id = self
                    .writer
                    .submit(&mut self.ctx, Action::Evict { silo, by, reason });
                self.evictions.insert(id, request);
            }
            Command::Refresh { request, at_least } => {
                let version = self.ctx.base_version();
                if self.ctx.base.is_some() && at_least.is_some_and(|v| version >= v) {
                    self.ctx.tell(Notice::Refreshed {
                        request,
                        result: Ok(version),
                    });
                } else {
                    self.writer.wait(request);
                    match self.ctx.table.state {
                        TableState::Changed(how) => {
                            self.answer_the_waiting(
                                how.into(),
                                "the table is not the one that this silo knew",
                            );
                        }
                        // A request for the newest version needs a barrier, so that every store
                        // returns it.
                        _ if self.ctx.base.is_some() => {
                            let newest = at_least.is_none() || self.ctx.is_announced();
                            self.writer.want_read(newest);
                        }
                        // The first read of the join answers the request.
                        _ => {}
                    }
                }
            }
        }
    }
}
