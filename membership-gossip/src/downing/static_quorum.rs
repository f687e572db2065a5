//! Static quorum: a side goes on if it has a fixed number of members.

use super::{Situation, Verdict};

pub(super) fn verdict(situation: &Situation, size: u32, role: Option<&str>) -> Verdict {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let (reached, unreached) = situation.sides(situation.counted(role));
    // With more members both sides could have the quorum.
    if reached + unreached > size.saturating_mul(2).saturating_sub(1) {
        Verdict::DownAll
    } else if reached >= size {
        Verdict::DownUnreachable
    } else {
        Verdict::DownReachable
    }
}
