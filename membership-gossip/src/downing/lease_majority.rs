//! Lease majority: the side that gets a lease from an arbiter goes on. The larger side asks first, so
//! that it usually gets it.

use std::time::Duration;

use super::keep_majority::compare;
use super::{Situation, Strategy, Verdict};

pub(super) const fn verdict(situation: &Situation) -> Verdict {
    match situation.lease {
        None => Verdict::AskLease,
        Some(true) => Verdict::DownUnreachable,
        Some(false) => Verdict::DownReachable,
    }
}

/// How long this side waits before it asks for the lease: the smaller side, or the half without the
/// lowest address, lets the other one go first. Where some are connected indirectly the sides are not
/// clear, and nobody waits.
#[must_use]
pub fn lease_delay(strategy: &Strategy, situation: &Situation) -> Duration {
    let Strategy::LeaseMajority {
        role,
        delay_for_minority,
        ..
    } = strategy
    else {
        return Duration::ZERO;
    };
    let larger = compare(situation, situation.counted(role.as_deref()));
    if situation.indirect.is_empty() && larger == Verdict::DownReachable {
        *delay_for_minority
    } else {
        Duration::ZERO
    }
}
