//! A member's log and metrics. One line per change of state at info; nothing per heartbeat.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use membership_core::{ClusterName, MonoTime, SiloAddress};
use membership_gossip::protocol::{Notice, Termination, Waiting};
use membership_gossip::state::MemberStatus;
use membership_gossip::{Change, GossipView};
use tracing::{debug, error, info, warn};

use super::arbiter::ArbiterAnswer;
use super::events::Decided;
use crate::metrics;
use crate::runtime::MAX_LINES;
use crate::transport::TransportStats;

/// Of the lines that say what `Member::events` and `Member::terminated` say too: a program that shows
/// those can switch them off.
const EVENTS: &str = "membership::gossip::events";
/// How often gauges of ages are set.
const GAUGES_EVERY: Duration = Duration::from_secs(1);
/// At most so many members are named in a line.
const MAX_NAMES: usize = 8;

pub(super) struct Report {
    cluster: ClusterName,
    me: SiloAddress,
    last: Option<(GossipView, MonoTime)>,
    unreachable: BTreeSet<SiloAddress>,
    gauges_at: MonoTime,
    sent: TransportStats,
}

impl Report {
    pub(super) fn new(cluster: ClusterName, me: SiloAddress) -> Self {
        metrics::begin_member();
        Self {
            cluster,
            me,
            last: None,
            unreachable: BTreeSet::new(),
            gauges_at: MonoTime::ZERO,
            sent: TransportStats::default(),
        }
    }

    /// A few times a second.
    pub(super) fn tick(&mut self, now: MonoTime, late: Duration, stats: TransportStats) {
        metrics::executor_lag(late);
        if now.since(self.gauges_at) < GAUGES_EVERY {
            return;
        }
        self.gauges_at = now;
        if let Some((view, published)) = &self.last {
            let blocked = view.blocked_since().map(|since| now.since(since));
            metrics::agreement(now.since(*published), blocked.unwrap_or_default());
        }
        metrics::transport(&self.sent, &stats);
        self.sent = stats;
    }

    pub(super) fn view(&mut self, view: &GossipView, now: MonoTime) {
        self.me = view.me();
        let (silo, cluster, version) = (self.me, &self.cluster, view.version());
        metrics::members(MemberStatus::ALL.iter().map(|status| {
            let with = view.members().filter(|m| m.status() == *status);
            (status.name(), with.count())
        }));
        match &self.last {
            None => {
                info!(%silo, %cluster, %version, members = view.members().count(), active = view.active().count(), "first view")
            }
            Some((older, _)) => {
                let changes = view.changes_since(older);
                if older.founding() == view.founding() {
                    self.ends(&changes);
                }
                for change in &changes {
                    let was_down = change.before == Some(MemberStatus::Down);
                    match change.now {
                        MemberStatus::Down => metrics::died("downed"),
                        MemberStatus::Removed if !was_down => metrics::died("left"),
                        _ => {}
                    }
                }
                if changes.len() > MAX_LINES {
                    info!(%silo, %cluster, %version, changes = changes.len(), active = view.active().count(), "many members changed");
                } else {
                    for change in changes {
                        info!(%silo, %cluster, %version, peer = %change.member.address(), status = %change.now, "member changed");
                    }
                }
            }
        }
        self.reachability(view);
        self.last = Some((view.clone(), now));
    }

    fn reachability(&mut self, view: &GossipView) {
        let unreachable = view.unreachable();
        metrics::unreached(unreachable.len());
        if unreachable == self.unreachable {
            return;
        }
        let (silo, cluster) = (self.me, &self.cluster);
        if unreachable.is_empty() {
            let is_ended = |member: &&SiloAddress| {
                let status = view.status(member);
                status.is_none_or(|s| s >= MemberStatus::Exiting)
            };
            let (ended, reached): (Vec<_>, Vec<_>) = self.unreachable.iter().partition(is_ended);
            if ended.is_empty() {
                warn!(target: EVENTS, %silo, %cluster, "all members are reached again");
            } else {
                let (ended, reached) = (names(&ended), names(&reached));
                warn!(target: EVENTS, %silo, %cluster, ended, reached, "nobody is unreachable any more: those that were have ended, or are reached again");
            }
        } else {
            let peers = names(&unreachable.iter().collect::<Vec<_>>());
            warn!(target: EVENTS, %silo, %cluster, unreachable = unreachable.len(), peers, "members are unreachable: nobody is moved up or removed until they answer or are downed");
        }
        self.unreachable = unreachable;
    }

    /// Who was downed or removed.
    fn ends(&self, changes: &[Change]) {
        let (silo, cluster) = (self.me, &self.cluster);
        let of = |which: &dyn Fn(&&Change) -> bool| -> Vec<SiloAddress> {
            let found = changes.iter().filter(which);
            found.map(|change| change.member.address()).collect()
        };
        let downed = of(&|change| change.now == MemberStatus::Down);
        if downed.len() > MAX_LINES {
            warn!(target: EVENTS, %silo, %cluster, downed = downed.len(), "many members were downed");
        } else {
            for peer in downed {
                warn!(target: EVENTS, %silo, %cluster, %peer, "a member was downed: it is removed, and never comes back");
            }
        }
        // Those that leave are no news, and the others were downed in between, or replaced.
        let removed = of(&|change| {
            let before = change.before;
            change.now == MemberStatus::Removed && before.is_some_and(|s| s < MemberStatus::Leaving)
        });
        if removed.len() > MAX_LINES {
            warn!(target: EVENTS, %silo, %cluster, removed = removed.len(), "many members were removed");
        } else {
            for peer in removed {
                warn!(target: EVENTS, %silo, %cluster, %peer, "a member was removed: it was downed, or a newer process has its endpoint");
            }
        }
    }

    pub(super) fn decided(&self, decided: &Decided) {
        let (silo, cluster, strategy) = (self.me, &self.cluster, decided.strategy.name());
        let decision = &decided.decision;
        let down = names(&decision.down.iter().collect::<Vec<_>>());
        let indirect = names(&decision.indirect.iter().collect::<Vec<_>>());
        let (reached, unreached) = (decision.reached, decision.unreached);
        let (verdict, asked) = (decision.verdict.as_str(), decided.arbiter.as_ref());
        let arbiter = asked.map_or_else(|| "not asked".to_owned(), ToString::to_string);
        warn!(target: EVENTS, %silo, %cluster, strategy, decision = verdict, down, reached, unreached, indirect, arbiter, "the resolver has decided");
    }

    pub(super) fn arbiter(&self, answer: &ArbiterAnswer) {
        let (silo, cluster) = (self.me, &self.cluster);
        match answer {
            ArbiterAnswer::Silent { reason } => {
                error!(%silo, %cluster, reason, "no lease, the arbiter cannot be asked: this side downs itself");
            }
            answer => {
                let answer = answer.as_str();
                info!(%silo, %cluster, answer, "the arbiter has answered");
            }
        }
    }

    pub(super) fn down_asked(&self, member: &SiloAddress, from: Option<IpAddr>) {
        let (silo, cluster, peer) = (self.me, &self.cluster, member);
        match from {
            Some(from) => {
                warn!(target: EVENTS, %silo, %cluster, %peer, %from, "an operator downs a member");
            }
            None => {
                warn!(target: EVENTS, %silo, %cluster, %peer, "the application or an operator downs a member");
            }
        }
    }

    pub(super) fn waiting(&self, waiting: &Waiting) {
        let (silo, cluster) = (self.me, &self.cluster);
        info!(target: EVENTS, %silo, %cluster, %waiting, "in no cluster yet");
    }

    pub(super) fn contact_failed(&self, contact_point: SocketAddr, reason: &str) {
        let (silo, cluster) = (self.me, &self.cluster);
        warn!(target: EVENTS, %silo, %cluster, peer = %contact_point, reason, "a contact point cannot be reached");
    }

    pub(super) fn notice(&self, notice: &Notice) {
        let (silo, cluster) = (self.me, &self.cluster);
        match notice {
            Notice::Founded(founding) => info!(%silo, %cluster, %founding, "founded a cluster"),
            Notice::Welcomed { by } => info!(%silo, %cluster, peer = %by, "taken in"),
            Notice::NotTakenIn { by, reason } => {
                warn!(target: EVENTS, %silo, %cluster, peer = %by, %reason, "not taken in");
            }
            Notice::Exiting => info!(%silo, %cluster, "exiting: all know that it leaves"),
            Notice::LinkBroken { to } => {
                warn!(target: EVENTS, %silo, %cluster, peer = %to, "a member answers others and not this one: the link is broken");
            }
            Notice::Paused(pause) => {
                metrics::paused();
                warn!(%silo, %cluster, ?pause, "this process was paused");
            }
            other => debug!(%silo, %cluster, notice = ?other, "notice"),
        }
    }

    pub(super) fn end(&self, termination: &Termination) {
        metrics::stopped_because(termination.as_str());
        let (silo, cluster) = (self.me, &self.cluster);
        match termination {
            Termination::Left => info!(target: EVENTS, %silo, %cluster, "left"),
            other => error!(target: EVENTS, %silo, %cluster, why = %other, "ended"),
        }
    }
}

/// At most so many names.
fn names(members: &[&SiloAddress]) -> String {
    let some = members.iter().take(MAX_NAMES);
    let mut names: Vec<String> = some.map(ToString::to_string).collect();
    if let Some(more @ 1..) = members.len().checked_sub(MAX_NAMES) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
