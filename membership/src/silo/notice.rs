//! Passes notices of the protocol to the callers and streams that wait for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use membership_core::protocol::{JoinProgress, Notice};

use super::driver::Driver;

impl Driver {
    pub(super) fn tell(&mut self, notice: Notice) {
        let me = self.protocol.me();
        self.publisher
            .events
            .notice(&notice, me, self.table_error.as_ref());
        self.report
            .notice(&notice, self.table_error.as_ref(), self.clock.mono());
        match notice {
            Notice::JoinProgress(progress) => self.progress(&progress),
            Notice::Active { .. } => self.calls.end_join(),
            Notice::LeaveBegun { version } => {
                self.publisher.change(|state| state.leaving = Some(version))
            }
            Notice::Answered { request, answer } => self.waiting.answered(request, answer),
            Notice::Refreshed { request, result } => self.waiting.refreshed(request, result),
            Notice::Table(table) => self.publisher.change(|state| state.table = table),
            Notice::PartialPartition { unreached } => self
                .publisher
                .change(|state| state.unreached = unreached.len()),
            _ => {}
        }
    }

    /// The callback runs in this task: its panic must not end the silo.
    fn progress(&self, progress: &JoinProgress) {
        if let Some(callback) = &self.on_progress
            && catch_unwind(AssertUnwindSafe(|| callback(progress))).is_err()
        {
            tracing::warn!("the callback given to `on_progress` panicked");
        }
    }
}
