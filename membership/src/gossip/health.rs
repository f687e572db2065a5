//! How a member is doing, for probes and dashboards.

use std::time::Duration;

use membership_gossip::state::MemberStatus;

/// How a member is doing.
///
/// | probe | use | why |
/// |---|---|---|
/// | liveness ("restart me") | [`live`](Self::live) | After the end, or without a running driver, only a new process helps. |
/// | readiness ("send me traffic") | [`ready`](Self::ready) | No new work while joining or leaving. |
/// | neither; an alert | [`blocked_for`](Self::blocked_for), [`unreachable`](Self::unreachable) | While members do not agree nobody is moved up or removed. A new process would not help. |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How far it is in its life; none before it is a member, [`MemberStatus::Removed`] after the
    /// end.
    pub status: Option<MemberStatus>,
    /// Up or weakly up, and not asked to leave: for a readiness probe.
    pub ready: bool,
    /// Not ended, and its driver took an input within the last 30 s: for a liveness probe.
    pub live: bool,
    /// How long ago the view last changed. Large in a quiet cluster.
    pub view_age: Duration,
    /// How long members have not agreed, as this one sees it; none: they agree, or it is no member.
    pub blocked_for: Option<Duration>,
    /// How many members of its data centre somebody does not reach.
    pub unreachable: usize,
}
