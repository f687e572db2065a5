//! Keep majority: the larger side goes on; of two halves the one with the lowest address.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Situation, Verdict};
use crate::state::Member;

pub(super) fn verdict(situation: &Situation, role: Option<&str>) -> Verdict {
    let verdict = compare(
        situation,
        situation.with_unaware(role, situation.counted(role)),
    );
    if verdict != Verdict::DownUnreachable {
        return verdict;
    }
    // The other side may know changes that this one does not. If with them it were the larger one,
    // both would go on.
    let after = situation.after_changes(role, true);
    match compare(situation, situation.with_unaware(role, after)) {
        Verdict::DownUnreachable => verdict,
        _ => Verdict::DownAll,
    }
}

/// Whether this side is the larger one.
pub(super) fn compare<'a>(
    situation: &Situation,
    members: impl Iterator<Item = &'a Arc<Member>> + Clone,
) -> Verdict {
    let (reached, unreached) = situation.sides(members.clone());
    let Some(lowest) = members.min_by_key(|m| m.address()) else {
        return Verdict::DownAll;
    };
    match reached.cmp(&unreached) {
        Ordering::Greater => Verdict::DownUnreachable,
        Ordering::Less => Verdict::DownReachable,
        Ordering::Equal if situation.reaches(lowest) => Verdict::DownUnreachable,
        Ordering::Equal => Verdict::DownReachable,
    }
}
