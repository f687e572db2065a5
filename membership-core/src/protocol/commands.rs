//! Commands of the application and hints of the store.

use std::time::Duration;

use super::io::Command;
use super::machine::Protocol;
use super::notice::TableState;
use super::notice::{JoinError, Notice};
use super::timers::Timer;
use crate::SiloStatus;
use crate::intent::{Action, Answer, Refusal};

/// Minimum time between two reads that hints cause.
const HINT_PERIOD: Duration = Duration::from_millis(200);

/// Maximum number of evictions that wait for the table; further ones are refused at once.
const EVICTIONS: usize = 1024;

impl Protocol {
    /// Handles a hint of the store: reads at once, and after that at most once per [`HINT_PERIOD`].
    pub(super) fn hint(&mut self) {
        let now = self.ctx.mono();
        if self.ctx.view.is_none() || self.ctx.timers.is_set(Timer::Hint) {
            return;
        }
        let at = self.last_hint.map_or(now, |t| t + HINT_PERIOD).max(now);
        self.last_hint = Some(at);
        self.ctx.timers.set(Timer::Hint, at);
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
                let version = self.ctx.version();
                if self.ctx.view.is_some() && at_least.is_some_and(|v| version >= v) {
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
                        _ if self.ctx.view.is_some() => self.writer.want_read(at_least.is_none()),
                        // The first read of the join answers the request.
                        _ => {}
                    }
                }
            }
        }
    }
}
