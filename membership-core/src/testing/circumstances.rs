//! What was really going on: the truth that no silo knows, kept for the checkers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::clock::Skew;
use crate::{CommitId, Config, SiloAddress, WallTime};

/// Time since the virtual world began.
pub type VirtualTime = Duration;

/// The wall time at which every virtual world begins, before clock offsets: 2026-01-01.
pub const WORLD_BEGIN: WallTime = WallTime::from_millis(1_767_225_600_000);

/// One process of the virtual world. Processes are numbered as they start; a restarted silo is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub usize);

/// Something that holds at times: whether it does now, and when it last did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spell {
    on: bool,
    began: Option<VirtualTime>,
    last: Option<VirtualTime>,
}

impl Spell {
    /// It begins to hold, or ends.
    pub fn set(&mut self, on: bool, now: VirtualTime) {
        if on && !self.on {
            self.began = Some(now);
        } else if self.on && !on {
            self.last = Some(now);
        }
        self.on = on;
    }

    /// When it last began to hold.
    #[must_use]
    pub fn began(&self) -> Option<VirtualTime> {
        self.began
    }

    /// Whether it holds now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Whether it held at any time from `from` until now.
    #[must_use]
    pub fn touched(&self, from: VirtualTime) -> bool {
        self.on || self.last.is_some_and(|t| t >= from)
    }
}

/// One process's life as it really was.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its name in traces.
    pub name: String,
    /// The machine it runs on: what the network connects.
    pub place: usize,
    /// What it advertises.
    pub endpoint: SocketAddr,
    /// Its address, once decided.
    pub silo: Option<SiloAddress>,
    /// When it started.
    pub started: VirtualTime,
    /// When it was killed or stopped.
    pub ended: Option<VirtualTime>,
    /// When it did not run.
    pub paused: Spell,
    /// When nothing got out of it or into it, though it ran.
    pub held: Spell,
    /// When it could not reach the table alone.
    pub table_cut: Spell,
    /// When the application asked it to leave.
    pub leaving: Option<VirtualTime>,
    /// How wrong its wall clock is.
    pub skew: Skew,
    /// How wrong it was before, and until when.
    pub earlier_skews: Vec<(VirtualTime, Skew)>,
    /// Whether another process listens at the address it advertises.
    pub hidden: bool,
}

/// A silo judges heartbeats anew at least so often.
const JUDGED: Duration = Duration::from_secs(1);

impl Life {
    /// How wrong its wall clock was at a time, in milliseconds.
    #[must_use]
    pub fn skew_at(&self, at: VirtualTime) -> i64 {
        self.earlier_skews
            .iter()
            .find(|(until, _)| *until > at)
            .map_or(self.skew, |(_, skew)| *skew)
            .at(at)
    }

    /// How wrong its wall clock was at the ends of each stretch of time from `from` until now, in milliseconds.
    pub fn skews(&self, from: VirtualTime, now: VirtualTime) -> impl Iterator<Item = i64> + Clone {
        let earlier = self
            .earlier_skews
            .iter()
            .filter(move |(until, _)| *until >= from)
            .copied();
        earlier
            .chain([(now, self.skew)])
            .flat_map(move |(until, skew)| [skew.at(from), skew.at(until)])
    }
}

/// A split of the network into groups that do not hear each other at all.
#[derive(Clone, Debug)]
pub struct Split {
    /// When it began.
    pub since: VirtualTime,
    /// When it was healed.
    pub healed: Option<VirtualTime>,
    /// Whether nothing else was wrong with the network from well before it began, nor was added to it.
    pub clean: bool,
    /// The group of each place; places that are not listed form one more group.
    pub group: BTreeMap<usize, usize>,
}

/// Everything that really happened to processes, network and table, as far as it decides who may be blamed for what.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Now.
    pub now: VirtualTime,
    /// How the silos are configured.
    pub config: Config,
    /// Every process that ever started.
    pub lives: Vec<Life>,
    /// Which process owns an address.
    pub owners: BTreeMap<SiloAddress, ProcessId>,
    /// Messages got lost at random, or took longer than usual.
    pub rough_network: Spell,
    /// Some pair could not talk, or not always.
    pub any_block: Spell,
    /// Nobody could talk to anybody.
    pub network_down: Spell,
    /// Nobody could use the table.
    pub table_down: Spell,
    /// Table calls were slow or their outcomes unknown.
    pub rough_table: Spell,
    /// The table was wiped, restored or rolled back.
    pub table_changed: Spell,
    /// Which places lose messages of their own, or did.
    pub lossy: BTreeMap<usize, Spell>,
    /// Which directions between places are blocked, or were.
    pub blocks: BTreeMap<(usize, usize), Spell>,
    /// The last clean split.
    pub split: Option<Split>,
    /// Whom an operator told a silo to evict, and the address of that silo as text.
    pub evictions: BTreeSet<(SiloAddress, String)>,
    /// How much any monotonic clock was ever too fast or too slow, in parts per million.
    pub worst_ppm: u64,
    /// When a silo decided on a commit that was sent.
    pub decided: BTreeMap<CommitId, VirtualTime>,
    /// When a row's heartbeat last moved in the table: the last three times.
    pub beats: BTreeMap<SiloAddress, [Option<VirtualTime>; 3]>,
}

impl Circumstances {
    /// A quiet world without anybody.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            now: Duration::ZERO,
            config,
            lives: Vec::new(),
            owners: BTreeMap::new(),
            rough_network: Spell::default(),
            any_block: Spell::default(),
            network_down: Spell::default(),
            table_down: Spell::default(),
            rough_table: Spell::default(),
            table_changed: Spell::default(),
            lossy: BTreeMap::new(),
            blocks: BTreeMap::new(),
            split: None,
            evictions: BTreeSet::new(),
            worst_ppm: 0,
            decided: BTreeMap::new(),
            beats: BTreeMap::new(),
        }
    }

    /// The life of a process.
    #[must_use]
    pub fn life(&self, process: ProcessId) -> Option<&Life> {
        self.lives.get(process.0)
    }

    /// The life of the process that owns an address.
    #[must_use]
    pub fn owner(&self, silo: &SiloAddress) -> Option<&Life> {
        self.owners.get(silo).and_then(|p| self.life(*p))
    }

    /// The name of a silo in traces: its process's, or its address if it has none.
    #[must_use]
    pub fn name(&self, silo: &SiloAddress) -> String {
        self.owner(silo)
            .map_or_else(|| silo.to_string(), |life| life.name.clone())
    }

    /// Whether the silo's process ran without a break, and nothing was held, since `from` (or since its start).
    #[must_use]
    pub fn ran_since(&self, silo: &SiloAddress, from: VirtualTime) -> bool {
        self.owner(silo).is_some_and(|l| {
            l.ended.is_none() && !l.paused.touched(from) && !l.held.touched(from) && !l.hidden
        })
    }

    /// Whether the table is the one that the silo's process found when it started. After a wipe, a restore or a rollback it says so, and
    /// writes no heartbeats until it is started anew.
    #[must_use]
    pub fn has_its_table(&self, silo: &SiloAddress) -> bool {
        self.owner(silo)
            .is_some_and(|life| !self.table_changed.touched(life.started))
    }

    /// Whether the silo may not know yet that its row is in: it was never seen to beat, and table calls were slow or their outcomes unknown.
    /// Until it knows it writes no heartbeat.
    #[must_use]
    pub fn may_not_know_its_row(&self, silo: &SiloAddress, from: VirtualTime) -> bool {
        self.rough_table.touched(from)
            && self.beats.get(silo).is_none_or(|beats| beats[0].is_none())
    }

    /// Whether both ran and could talk both ways since `from` (or since the younger one's start).
    #[must_use]
    pub fn in_touch_since(&self, a: &SiloAddress, b: &SiloAddress, from: VirtualTime) -> bool {
        let (Some(la), Some(lb)) = (self.owner(a), self.owner(b)) else {
            return false;
        };
        let open = |x, y| {
            self.blocks
                .get(&(x, y))
                .is_none_or(|spell| !spell.touched(from))
        };
        let lossless = |place| {
            self.lossy
                .get(&place)
                .is_none_or(|spell: &Spell| !spell.touched(from))
        };
        self.ran_since(a, from)
            && self.ran_since(b, from)
            && !self.network_down.touched(from)
            && (la.place == lb.place
                || (open(la.place, lb.place)
                    && open(lb.place, la.place)
                    && lossless(la.place)
                    && lossless(lb.place)))
    }

    /// How far back something may have led to a vote that counts now: votes expire, and were formed before they were written.
    #[must_use]
    pub fn memory_of_votes(&self) -> Duration {
        let c = &self.config;
        let time = c.death_vote_expiration
            + c.failure_window() * 2
            + c.max_probe_timeout * c.num_missed_probes_limit;
        self.stretched(time + c.table_refresh_period)
    }

    /// At most so long does something take that takes this long by the clock of any process.
    #[must_use]
    pub fn stretched(&self, time: Duration) -> Duration {
        if self.worst_ppm == 0 {
            time
        } else {
            time.mul_f64(1e6 / (1e6 - self.worst_ppm.min(900_000) as f64))
        }
    }

    /// At least so long does something take that takes this long by the clock of any process.
    #[must_use]
    pub fn shrunk(&self, time: Duration) -> Duration {
        if self.worst_ppm == 0 {
            time
        } else {
            time.mul_f64(1e6 / (1e6 + self.worst_ppm as f64))
        }
    }

    /// `now` minus `back`, not before the beginning.
    #[must_use]
    pub fn ago(&self, back: Duration) -> VirtualTime {
        self.now.saturating_sub(back)
    }

    /// When a commit was decided on: what its author knew, and what its clock showed, was that of then.
    #[must_use]
    pub fn decided(&self, commit: CommitId) -> VirtualTime {
        self.decided.get(&commit).copied().unwrap_or(self.now)
    }

    /// Whether nobody who decided at a time can have thought this row stale: its heartbeat moved, long enough before to have been read and
    /// judged, and not too long ago.
    #[must_use]
    pub fn certainly_fresh(&self, silo: &SiloAddress, decided: VirtualTime) -> bool {
        let period = self.config.i_am_alive_period;
        let oldest = self.ago(self.shrunk(period * self.config.num_missed_i_am_alive_limit));
        let newest = decided.saturating_sub(self.stretched(period + JUDGED));
        self.beats.get(silo).is_some_and(|beats| {
            beats
                .iter()
                .flatten()
                .any(|t| (oldest..=newest).contains(t))
        })
    }

    /// The wall clock of a silo's process at a time, which may lie behind.
    #[must_use]
    pub fn wall(&self, silo: &SiloAddress, at: VirtualTime) -> WallTime {
        wall(at, self.owner(silo).map_or(0, |life| life.skew_at(at)))
    }
}

/// What a wall clock shows that is `skew_ms` away from the truth.
pub(super) fn wall(now: VirtualTime, skew_ms: i64) -> WallTime {
    let millis = WORLD_BEGIN.as_millis() + u64::try_from(now.as_millis()).unwrap_or(0);
    WallTime::from_millis(millis.saturating_add_signed(skew_ms))
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_remembers_when_it_ended() {
        let s = Duration::from_secs;
        let mut spell = Spell::default();
        assert!(!spell.touched(s(0)));
        spell.set(true, s(5));
        assert!(spell.is_on() && spell.touched(s(100)));
        spell.set(false, s(9));
        assert!(!spell.is_on() && spell.touched(s(9)) && !spell.touched(s(10)));
    }
}
