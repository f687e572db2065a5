//! A member's log and metrics. One line per change of state at info; nothing per heartbeat.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use membership_core::{ClusterName, MonoTime, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::protocol::{Notice, Termination};
use membership_gossip::state::MemberStatus;
use tracing::{debug, error, info, warn};

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
            warn!(target: EVENTS, %silo, %cluster, "all members are reached again");
        } else {
            let mut names: Vec<String> = unreachable
                .iter()
                .take(MAX_NAMES)
                .map(ToString::to_string)
                .collect();
            if let Some(more @ 1..) = unreachable.len().checked_sub(MAX_NAMES) {
                names.push(format!("and {more} more"));
            }
            let peers = names.join(", ");
            warn!(target: EVENTS, %silo, %cluster, unreachable = unreachable.len(), peers, "members are unreachable: nobody is moved up or removed until they answer or are downed");
        }
        self.unreachable = unreachable;
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
            Notice::Decided(decision) => {
                let down: Vec<String> = decision.down.iter().map(ToString::to_string).collect();
                warn!(target: EVENTS, %silo, %cluster, decision = ?decision.verdict, down = down.join(", "), "the resolver has decided");
            }
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
