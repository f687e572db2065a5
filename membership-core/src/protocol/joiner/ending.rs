//! Ends a failed join: the row is ended before the error is reported, whatever the outcome of its
//! commit.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Joiner, Stage, Step};
use crate::intent::Action;
use crate::protocol::context::Ctx;
use crate::protocol::notice::JoinError;
use crate::protocol::timers::Timer;
use crate::protocol::writer::Writer;
use crate::{SiloAddress, SiloStatus};

impl Joiner {
    pub(crate) fn give_up(&mut self) -> Step {
        self.stage = Stage::Done;
        Step::Failed(self.failure.take().unwrap_or(JoinError::Stopped))
    }

    /// Fails the join. If this silo's row is in the table, or may be, the row is ended first.
    pub(crate) fn fail(&mut self, ctx: &mut Ctx, error: JoinError) -> Step {
        self.failure.get_or_insert(error);
        ctx.timers.clear(Timer::JoinProgress);
        if !self.row_may_be_in() {
            return self.give_up();
        }
        if self.stage != Stage::Failing {
            self.stage = Stage::Failing;
            ctx.set_timer(
                Timer::JoinDeadline,
                ctx.config.leave_timeout.min(Duration::from_secs(10)),
            );
        }
        Step::Nothing
    }

    pub(crate) fn on_deadline(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        required: &BTreeSet<SiloAddress>,
    ) -> Step {
        match self.stage {
            Stage::Idle | Stage::Done => Step::Nothing,
            Stage::Failing => self.give_up(),
            _ => {
                let error = self.verdict(ctx, required);
                match self.fail(ctx, error) {
                    Step::Nothing => self.end_row(ctx, writer),
                    failed => failed,
                }
            }
        }
    }

    /// After a failure: ends this silo's row, whatever the outcome of the commit that inserts it.
    pub(crate) fn end_row(&mut self, ctx: &mut Ctx, writer: &mut Writer) -> Step {
        if self.stage != Stage::Failing {
            return Step::Nothing;
        }
        writer.withdraw(|a| matches!(a, Action::Join(_) | Action::BecomeActive { .. }));
        if ctx.status == SiloStatus::Created {
            // There is no row, unless a commit that is under way or of unknown outcome inserts it.
            return if writer.has(|a| matches!(a, Action::Join(_))) {
                Step::Nothing
            } else {
                self.give_up()
            };
        }
        if !writer.has(|a| matches!(a, Action::Leave { .. })) {
            writer.submit(ctx, Action::Leave { silo: ctx.me });
        }
        Step::Nothing
    }
}
