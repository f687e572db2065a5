//! Leaving in two steps, with time to hand over in between.

use std::fmt;

use membership_gossip::protocol::Termination;

use super::handle::Member;
use crate::runtime::stage::{self, Stage};

/// A member that is exiting: all know that it leaves. Hand over what it owns, then call
/// [`finish`](Self::finish).
///
/// Dropping the guard finishes in the background.
pub struct LeaveGuard {
    member: Member,
}

impl Member {
    /// Publishes that this member is leaving, and waits until all know: then it is exiting. Or until
    /// it has ended. Leaving cannot be undone.
    ///
    /// Takes as long as members need to agree, at most
    /// [`Config::leave_timeout`](super::Config::leave_timeout), which is also the time for the
    /// hand-over. Cancellation: the member is leaving nevertheless, and waits for another
    /// `begin_leave`, a `leave`, or the drop of the last handle.
    pub async fn begin_leave(&self) -> LeaveGuard {
        self.ask_stage(Stage::Leave);
        let mut state = self.inner.observed.subscriber.state.clone();
        tokio::select! {
            biased;
            _ = state.wait_for(|s| s.exiting) => {}
            _ = self.terminated() => {}
        }
        LeaveGuard {
            member: self.clone(),
        }
    }

    /// Leaves without a hand-over, and waits for the end: [`begin_leave`](Self::begin_leave) and
    /// [`LeaveGuard::finish`] in one.
    ///
    /// Cancellation: the leave continues in the background.
    pub async fn leave(&self) -> Termination {
        self.ask_stage(Stage::Finish);
        self.terminated().await
    }

    fn ask_stage(&self, wanted: Stage) {
        stage::ask(&self.inner.stage, wanted);
    }
}

impl LeaveGuard {
    /// Says that everything was handed over, and waits for the end. A member that was downed
    /// meanwhile ends as that.
    ///
    /// Cancellation: the leave continues in the background.
    pub async fn finish(self) -> Termination {
        self.member.ask_stage(Stage::Finish);
        self.member.terminated().await
    }
}

impl Drop for LeaveGuard {
    fn drop(&mut self) {
        self.member.ask_stage(Stage::Finish);
    }
}

impl fmt::Debug for LeaveGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaveGuard")
            .field("member", &self.member)
            .finish()
    }
}
