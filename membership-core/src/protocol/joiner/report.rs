//! Reports what a join waits for: progress, and the error at the deadline.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Joiner, Stage};
use crate::SiloAddress;
use crate::protocol::context::Ctx;
use crate::protocol::notice::{JoinError, JoinProgress, Notice, TableErrorText};
use crate::protocol::timers::Timer;
use crate::protocol::unreached::Unreached;

/// How often progress is reported.
pub(super) const PROGRESS_PERIOD: Duration = Duration::from_secs(5);

impl Joiner {
    pub(super) fn verdict(&self, ctx: &Ctx, required: &BTreeSet<SiloAddress>) -> JoinError {
        let elapsed = ctx.mono().since(self.began);
        match (&self.stage, &self.last_table_error) {
            (Stage::MeetMyself, _) => self.nobody_home(ctx),
            (Stage::Initialize | Stage::FirstRead | Stage::Insert, Some(e)) => {
                JoinError::Table(TableErrorText(e.clone()))
            }
            _ => {
                let unreached = self.contacts.unreached(required);
                if unreached.is_empty() {
                    JoinError::TimedOut {
                        elapsed,
                        waiting_for: self.waiting_for(&unreached),
                    }
                } else {
                    JoinError::Unreachable { elapsed, unreached }
                }
            }
        }
    }

    pub(super) fn waiting_for(&self, unreached: &[Unreached]) -> String {
        match (&self.stage, &self.last_table_error) {
            (Stage::MeetMyself, _) => "an answer from my own advertised address".to_owned(),
            (Stage::Initialize | Stage::FirstRead | Stage::Insert, Some(e)) => {
                format!("the membership table ({e})")
            }
            (Stage::Initialize | Stage::FirstRead | Stage::Insert, None) => {
                "the membership table".to_owned()
            }
            (Stage::WatchAddress { .. }, _) => {
                "an older silo of another host at my address to beat or not".to_owned()
            }
            (Stage::Failing, _) => "my row to be ended".to_owned(),
            _ if unreached.is_empty() => "the commit that makes me Active".to_owned(),
            _ => format!("two-way contact with {} Active silos", unreached.len()),
        }
    }

    pub(crate) fn on_progress_timer(&mut self, ctx: &mut Ctx, required: &BTreeSet<SiloAddress>) {
        if self.is_joining() {
            let unreached = if self.stage == Stage::Contact {
                self.contacts.unreached(required)
            } else {
                Vec::new()
            };
            let waiting_for = self.waiting_for(&unreached);
            ctx.tell(Notice::JoinProgress(JoinProgress {
                elapsed: ctx.mono().since(self.began),
                waiting_for,
                unreached,
            }));
            ctx.set_timer(Timer::JoinProgress, PROGRESS_PERIOD);
        }
    }
}
