//! Passes notices of the protocol to the callers and streams that wait for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use membership_core::protocol::{JoinProgress, Notice, TableState};
use membership_core::{TableError, TableErrorKind};

use super::driver::Driver;

/// A silo that knew a table must not advise to make the first one.
fn said(notice: &Notice, error: &TableError) -> TableError {
    match notice {
        Notice::Table(TableState::Changed(how))
            if error.kind() == TableErrorKind::NotInitialized =>
        {
            let (kind, message) = (TableErrorKind::from(*how), error.message());
            TableError::new(kind, error.operation(), error.store(), message)
        }
        _ => error.clone(),
    }
}

impl Driver {
    pub(super) fn tell(&mut self, notice: Notice) {
        let me = self.protocol.me();
        let error = self.table_error.as_ref().map(|error| said(&notice, error));
        let error = error.as_ref();
        self.publisher.events.notice(&notice, me, error);
        self.report.notice(&notice, error, self.clock.mono());
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
