//! The faults of a campaign.

use std::time::Duration;

use membership_core::SiloAddress;
use membership_gossip::protocol::Command;

use super::Run;
use crate::gossip::net::{NodeId, endpoint};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A member is killed. It comes back when the faults end.
    Crash,
    /// A member is killed, and a new process starts at its endpoint.
    Restart,
    /// A member is killed while another process starts at an endpoint that is free.
    Move,
    /// The network splits in two.
    Split,
    /// Some members do not reach some others; the rest reaches both.
    PartialSplit,
    /// Some links carry nothing in one direction.
    Links,
    /// Messages are lost.
    Loss,
    /// Messages arrive twice.
    Duplicates,
    /// Messages arrive late, and in another order.
    Delays,
    /// A member is paused.
    Pause,
    /// Many members are paused.
    Pauses,
    /// A member leaves.
    Leave,
    /// An operator downs a member that runs.
    Down,
    /// The network is whole again.
    Heal,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Crash,
        Self::Restart,
        Self::Move,
        Self::Split,
        Self::PartialSplit,
        Self::Links,
        Self::Loss,
        Self::Duplicates,
        Self::Delays,
        Self::Pause,
        Self::Pauses,
        Self::Leave,
        Self::Down,
        Self::Heal,
    ];

    /// The name under which it is counted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crashes",
            Self::Restart => "restarts",
            Self::Move => "restarts elsewhere",
            Self::Split => "splits",
            Self::PartialSplit => "partial splits",
            Self::Links => "links cut",
            Self::Loss => "loss",
            Self::Duplicates => "duplicates",
            Self::Delays => "delays",
            Self::Pause => "pauses",
            Self::Pauses => "pauses of many",
            Self::Leave => "leaves",
            Self::Down => "downs",
            Self::Heal => "heals",
        }
    }
}

impl Run<'_> {
    /// Does something to the members or to the network.
    pub(super) fn fault(&mut self) {
        let living = self.net.living();
        if living.is_empty() {
            return;
        }
        let one = living[self.net.below(living.len())];
        let fault = Fault::ALL[self.net.below(Fault::ALL.len())];
        self.note(format_args!("{fault:?} {one} {}", self.net.me(one)));
        self.count(fault.name());
        match fault {
            Fault::Crash => self.net.kill(one),
            Fault::Restart => self.restart(one),
            Fault::Move => self.restart_elsewhere(one),
            Fault::Split => {
                let cut = self.net.below(living.len());
                let (left, right) = living.split_at(cut);
                self.net.split(left, right);
            }
            Fault::PartialSplit => self.partial_split(living),
            Fault::Links => self.cut_links(&living),
            Fault::Loss => self.net.loss = self.net.below(40) as f64 / 100.0,
            Fault::Duplicates => self.net.duplicates = self.net.below(50) as f64 / 100.0,
            Fault::Delays => {
                let most = Duration::from_millis(self.net.below(3_000) as u64);
                self.net.delayed = (self.net.below(50) as f64 / 100.0, most);
            }
            Fault::Pause => self.pause(one),
            Fault::Pauses => {
                for node in living {
                    if self.net.chance(0.3) {
                        self.pause(node);
                    }
                }
            }
            Fault::Leave => self.net.command(one, Command::Leave),
            Fault::Down => {
                let by = living[self.net.below(living.len())];
                let member = self.net.me(one);
                self.operator.insert(member);
                self.net.command(by, Command::Down { member });
            }
            Fault::Heal => self.net.heal(),
        }
    }

    fn pause(&mut self, node: NodeId) {
        let time = Duration::from_millis(self.net.below(20_000) as u64);
        self.net.pause(node, time);
    }

    fn place(&self, of: SiloAddress) -> Option<usize> {
        (0..self.options.members).find(|at| endpoint(*at) == of.endpoint())
    }

    fn restart(&mut self, node: NodeId) {
        let place = self.place(self.net.me(node));
        self.net.kill(node);
        let time = Duration::from_millis(self.net.below(4_000) as u64);
        self.pass(time);
        if let Some(place) = place.filter(|place| !self.is_occupied(*place)) {
            let node = self.net.start(place, self.config);
            self.net.join_all(&[node]);
        }
    }

    fn restart_elsewhere(&mut self, node: NodeId) {
        self.net.kill(node);
        let own = self.place(self.net.me(node));
        let free = (0..self.options.members).find(|at| Some(*at) != own && !self.is_occupied(*at));
        if let Some(place) = free {
            let node = self.net.start(place, self.config);
            self.net.join_all(&[node]);
        }
    }

    /// Three groups: the first two do not reach each other, both reach the third.
    fn partial_split(&mut self, mut living: Vec<NodeId>) {
        for place in (1..living.len()).rev() {
            let other = self.net.below(place + 1);
            living.swap(place, other);
        }
        let third = living.len() / 3;
        let (one, rest) = living.split_at(third);
        let two = &rest[..third.min(rest.len())];
        self.net.split(one, two);
    }

    fn cut_links(&mut self, living: &[NodeId]) {
        for _ in 0..self.options.members {
            let (a, b) = (
                living[self.net.below(living.len())],
                living[self.net.below(living.len())],
            );
            let link = (self.net.me(a).endpoint(), self.net.me(b).endpoint());
            self.net.cut.insert(link);
        }
    }
}
