//! Leaving in two steps, with time to drain in between.

use std::fmt;

use membership_core::protocol::Termination;

use super::handle::Silo;
use super::request::Stage;

/// A silo that is leaving: the others know that it takes no new work. Drain, then [`finish`](Self::finish).
///
/// Dropping the guard finishes in the background.
pub struct LeaveGuard {
    silo: Silo,
    version: Option<u64>,
}

impl LeaveGuard {
    pub(super) const fn new(silo: Silo, version: Option<u64>) -> Self {
        Self { silo, version }
    }

    /// The version of the table that says ShuttingDown; none when that could not be written in time (the table was down), or when the
    /// silo ended meanwhile.
    #[must_use]
    pub const fn version(&self) -> Option<u64> {
        self.version
    }

    /// Ends the row and waits until the silo has stopped, for no longer than
    /// [`Config::leave_timeout`](membership_core::Config::leave_timeout), however long draining took. Found dead by others meanwhile, it ends as that.
    ///
    /// Cancellation: the leave goes on in the background.
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
