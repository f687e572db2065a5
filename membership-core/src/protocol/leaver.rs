//! The leave: publish ShuttingDown, let the application drain, end the row with cause `left`. Its
//! duration is bounded, also when the table is unavailable.

use std::time::Duration;

use super::context::Ctx;
use super::notice::{Notice, Termination, Unreachability};
use super::timers::Timer;
use super::writer::Writer;
use crate::SiloStatus;
use crate::intent::{Action, Answer};

/// Upper bound of the writer's back-off during a leave; a long outage must not delay the leave
/// further.
const HURRY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Staying,
    /// ShuttingDown is being written.
    Announcing,
    /// The application drains.
    Draining,
    /// The end of the row is being written.
    Ending,
}

#[derive(Debug, Default)]
pub(crate) struct Leaver {
    stage: Stage,
    finish: bool,
    /// Why it leaves, if nobody asked for it.
    why: Option<Unreachability>,
}

impl Leaver {
    pub(crate) fn is_leaving(&self) -> bool {
        self.stage != Stage::Staying
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.stage == Stage::Ending
    }

    pub(crate) fn begin(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        if self.stage == Stage::Staying {
            self.stage = Stage::Announcing;
            writer.submit(
                ctx,
                Action::BeginShutdown {
                    silo: ctx.me,
                    fast: false,
                },
            );
            writer.hurry(ctx, HURRY);
            if ctx.table_changed() {
                // It writes nothing any more: waiting for the table would be in vain.
                return self.announced(ctx, writer, None);
            }
            // One half of the timeout is for ShuttingDown and the other for the end of the row, so
            // that both together stay within the timeout.
            ctx.set_timer(Timer::Leave, ctx.config.leave_timeout / 2);
        }
    }

    pub(crate) fn finish(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        match self.stage {
            Stage::Staying | Stage::Announcing => {
                self.begin(ctx, writer);
                if self.stage == Stage::Draining {
                    return self.finish(ctx, writer);
                }
                self.finish = true;
            }
            Stage::Draining => self.end(ctx, writer, ctx.config.leave_timeout / 2),
            Stage::Ending => {}
        }
    }

    pub(crate) fn stop(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        if self.stage != Stage::Ending {
            writer.submit(
                ctx,
                Action::BeginShutdown {
                    silo: ctx.me,
                    fast: true,
                },
            );
            // A silo that leaves does not accuse others.
            ctx.status = ctx.status.max(SiloStatus::Stopping);
            self.end(ctx, writer, ctx.config.leave_timeout);
        }
    }

    /// Leaves at once, because no other silo reaches this one.
    pub(crate) fn give_up(&mut self, ctx: &mut Ctx, writer: &mut Writer, why: Unreachability) {
        self.why.get_or_insert(why);
        self.stop(ctx, writer);
    }

    /// How this silo ends, as soon as its row says so (`clean`) or the time is up.
    pub(crate) fn termination(&self, clean: bool) -> Termination {
        match self.why.clone() {
            Some(why) => Termination::Unreachable { why, clean },
            None => Termination::Left { clean },
        }
    }

    fn end(&mut self, ctx: &mut Ctx, writer: &mut Writer, most: Duration) {
        self.stage = Stage::Ending;
        writer.submit(ctx, Action::Leave { silo: ctx.me });
        writer.hurry(ctx, HURRY);
        let most = if ctx.table_changed() {
            Duration::ZERO
        } else {
            most
        };
        ctx.set_timer(Timer::Leave, most);
    }

    pub(crate) fn on_answer(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        action: &Action,
        answer: &Answer,
    ) {
        if let (Action::BeginShutdown { .. }, Stage::Announcing) = (action, self.stage) {
            let version = match answer {
                Answer::Applied { version } => Some(*version),
                _ => None,
            };
            self.announced(ctx, writer, version);
        }
    }

    fn announced(&mut self, ctx: &mut Ctx, writer: &mut Writer, version: Option<u64>) {
        self.stage = Stage::Draining;
        if matches!(ctx.status, SiloStatus::Active | SiloStatus::Joining) {
            ctx.status = SiloStatus::ShuttingDown;
        }
        ctx.timers.clear(Timer::Leave);
        ctx.tell(Notice::LeaveBegun { version });
        if self.finish {
            self.end(ctx, writer, ctx.config.leave_timeout / 2);
        }
    }

    /// Returns true when the time is up and the silo stops before its row has ended.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx, writer: &mut Writer) -> bool {
        match self.stage {
            Stage::Announcing => {
                self.announced(ctx, writer, None);
                false
            }
            Stage::Ending => true,
            Stage::Staying | Stage::Draining => false,
        }
    }
}
