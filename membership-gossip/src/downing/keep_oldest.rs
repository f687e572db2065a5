//! Keep oldest: the side of the oldest member goes on, unless that one is alone.

use std::sync::Arc;

use super::{Situation, Verdict};
use crate::state::Member;

pub(super) fn verdict(situation: &Situation, down_if_alone: bool, role: Option<&str>) -> Verdict {
    let counted = situation.counted(role);
    let members: Vec<_> = situation.with_unaware(role, counted).collect();
    let verdict = side_of_oldest(situation, &members, down_if_alone);
    if verdict != Verdict::DownUnreachable {
        return verdict;
    }
    // The other side may know that a member of this one has left, or that one of its own is up.
    let after = situation.after_changes(role, down_if_alone);
    let after: Vec<_> = situation.with_unaware(role, after).collect();
    match side_of_oldest(situation, &after, down_if_alone) {
        Verdict::DownUnreachable => verdict,
        _ => Verdict::DownAll,
    }
}

fn side_of_oldest(situation: &Situation, members: &[&Arc<Member>], down_if_alone: bool) -> Verdict {
    let Some(oldest) = members.iter().min_by(|a, b| a.age_order(b)) else {
        return Verdict::DownAll;
    };
    let (reached, unreached) = situation.sides(members.iter().copied());
    let is_here = situation.reaches(oldest);
    let (its_side, other) = if is_here {
        (reached, unreached)
    } else {
        (unreached, reached)
    };
    let loses = down_if_alone && its_side == 1 && other >= 2;
    if is_here == loses {
        Verdict::DownReachable
    } else {
        Verdict::DownUnreachable
    }
}
