//! G9: a flag follows real silence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::state::Flag;
use membership_gossip::{Config, GossipView};

use super::Facts;
use crate::gossip::NodeId;

/// A pause shows by a timer that is more than a second late, and no member is a second without one:
/// shorter pauses may not be noticed.
const LEAST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Flags {
    /// The silence that is accepted.
    pause: Duration,
    doubts_itself: bool,
    /// When one last heard of another one, or first asked it: observer, subject.
    silent_since: BTreeMap<(SiloAddress, SiloAddress), MonoTime>,
    asked: BTreeSet<(SiloAddress, SiloAddress)>,
    /// What each observer flags.
    flagged: BTreeMap<SiloAddress, BTreeSet<SiloAddress>>,
    resumed: BTreeMap<NodeId, MonoTime>,
    /// Since when nothing is wrong.
    calm: Option<MonoTime>,
}

impl Flags {
    pub(super) const fn configure(&mut self, config: &Config) {
        self.pause = config.acceptable_heartbeat_pause;
        self.doubts_itself = config.doubt_oneself;
    }
}

impl Facts {
    pub(super) fn asked(&mut self, at: MonoTime, observer: SiloAddress, subject: SiloAddress) {
        if self.flags.asked.insert((observer, subject)) {
            let since = self.flags.silent_since.entry((observer, subject));
            since.or_insert(at);
        }
    }

    pub(super) fn heard(&mut self, at: MonoTime, observer: SiloAddress, subject: SiloAddress) {
        self.flags.silent_since.insert((observer, subject), at);
    }

    /// A member handles inputs again after a pause.
    pub fn resumed(&mut self, at: MonoTime, node: NodeId, paused: Duration) {
        if paused > LEAST_PAUSE {
            self.count("resumed");
            self.flags.resumed.insert(node, at);
        }
    }

    /// From now on nothing is wrong: nobody is flagged and nobody is downed. None: until now.
    pub const fn calm(&mut self, since: Option<MonoTime>) {
        self.flags.calm = since;
        self.traffic.calm(since);
    }

    pub(super) fn new_flags(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let me = view.me();
        let rows = view.state().reachability().of(&me);
        let now: BTreeSet<SiloAddress> = rows.map_or_else(BTreeSet::new, |rows| {
            let all = rows.rows().iter();
            all.filter(|(_, flag)| **flag == Flag::Unreachable)
                .map(|(subject, _)| *subject)
                .collect()
        });
        let before = self.flags.flagged.insert(me, now.clone());
        for subject in now.difference(&before.unwrap_or_default()) {
            self.flag(at, node, me, *subject);
        }
    }

    /// An observer flags a member.
    pub fn flag(
        &mut self,
        at: MonoTime,
        node: NodeId,
        observer: SiloAddress,
        subject: SiloAddress,
    ) {
        self.count("flags");
        let since = self.flags.silent_since.get(&(observer, subject));
        let silent = since.map(|since| at.since(*since));
        if silent.is_none_or(|silent| silent < self.flags.pause) {
            let what = silent.map_or_else(
                || format!("{subject} is flagged, and was never asked"),
                |silent| format!("{subject} is flagged after {silent:?} of silence"),
            );
            self.broken("G9", at, node, &what);
        }
        let awake = self.flags.resumed.get(&node).map(|since| at.since(*since));
        if self.flags.doubts_itself && awake.is_some_and(|awake| awake < self.flags.pause) {
            let what = format!("{subject} is flagged {awake:?} after a pause of the observer");
            self.broken("G9", at, node, &what);
        }
        if self.flags.calm.is_some() {
            let what = format!("{subject} is flagged while all is well");
            self.broken("G9", at, node, &what);
        }
    }
}
