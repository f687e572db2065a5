//! What is different between two views of one member.

use std::sync::Arc;

use crate::state::{Member, MemberStatus};
use crate::view::GossipView;

/// A member that is further in its life than before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The member, as it was last seen.
    pub member: Arc<Member>,
    /// Its status in the older view; none if it was not in it.
    pub before: Option<MemberStatus>,
    /// Its status now; [`MemberStatus::Removed`] if it is no member any more.
    pub now: MemberStatus,
}

impl GossipView {
    /// Which members changed their status since an older view of the same member, by address. Who
    /// came and went in between is not in it.
    #[must_use]
    pub fn changes_since(&self, older: &Self) -> Vec<Change> {
        let mut changes: Vec<Change> = self
            .members()
            .map(|member| Change {
                member: Arc::clone(member),
                before: older.member(&member.address()).map(Member::status),
                now: member.status(),
            })
            .filter(|change| change.before != Some(change.now))
            .collect();
        let gone = older
            .members()
            .filter(|member| self.member(&member.address()).is_none());
        changes.extend(gone.map(|member| Change {
            member: Arc::clone(member),
            before: Some(member.status()),
            now: MemberStatus::Removed,
        }));
        changes.sort_by_key(|change| change.member.address());
        changes
    }
}
