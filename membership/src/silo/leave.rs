//! Leaving in two steps, with time to drain in between.

use std::fmt;

use membership_core::protocol::Termination;

use super::handle::Silo;
use crate::runtime::stage::{self, Stage};

/// A silo that is leaving: the others know that it takes no new work. Drain, then call
/// [`finish`](Self::finish).
///
/// Dropping the guard finishes in the background.
pub struct LeaveGuard {
    silo: Silo,
    version: Option<u64>,
}

impl Silo {
    /// Publishes that this silo is leaving (ShuttingDown), so that it gets no new work. Waits until
    /// that is in the table, or until the silo has ended. Then drain, and finish with the guard.
    /// Leaving cannot be undone.
    ///
    /// Takes at most [`Config::leave_timeout`](membership_core::Config::leave_timeout), also while
    /// the table is down. Cancellation: the silo is leaving nevertheless, and waits for another
    /// `begin_leave`, a `leave`, or the drop of the last handle.
    pub async fn begin_leave(&self) -> LeaveGuard {
        self.ask_stage(Stage::Leave);
        let mut state = self.inner.observed.subscriber.state.clone();
        let version = tokio::select! {
            biased;
            state = state.wait_for(|s| s.leaving.is_some()) => state.ok().and_then(|s| s.leaving).flatten(),
            _ = self.terminated() => None,
        };
        LeaveGuard::new(self.clone(), version)
    }

    /// Leaves without draining, and waits for the end: [`begin_leave`](Self::begin_leave) and
    /// [`LeaveGuard::finish`] in one.
    ///
    /// Cancellation: the leave continues in the background.
    pub async fn leave(&self) -> Termination {
        self.ask_stage(Stage::Finish);
        self.terminated().await
    }

    pub(super) fn ask_stage(&self, wanted: Stage) {
        stage::ask(&self.inner.stage, wanted);
    }
}

impl LeaveGuard {
    pub(super) const fn new(silo: Silo, version: Option<u64>) -> Self {
        Self { silo, version }
    }

    /// The version of the table that says ShuttingDown; none if the table could not be written in
    /// time, or if the silo ended meanwhile.
    #[must_use]
    pub const fn version(&self) -> Option<u64> {
        self.version
    }

    /// Writes the end into the row and waits until the silo has stopped, for at most
    /// [`Config::leave_timeout`](membership_core::Config::leave_timeout), however long draining
    /// took. A silo that was declared dead meanwhile ends as that.
    ///
    /// Cancellation: the leave continues in the background.
    pub async fn finish(self) -> Termination {
        self.silo.ask_stage(Stage::Finish);
        self.silo.terminated().await
    }
}

impl Drop for LeaveGuard {
    fn drop(&mut self) {
        self.silo.ask_stage(Stage::Finish);
    }
}

impl fmt::Debug for LeaveGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaveGuard")
            .field("silo", &self.silo)
            .field("version", &self.version)
            .finish()
    }
}
