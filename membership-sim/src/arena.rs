//! What an experiment may do to a world of members, and what it may ask it: one schedule of faults for every system.
//!
//! Members are numbered as they start, from 0; a member that comes back after it stopped keeps its number. The network, its latency and
//! its losses are those of `membership_core::testing` in every world.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use membership_core::testing::TableTraffic;

/// A member of any system: which machine it runs on.
pub type Member = usize;

/// A world of members.
pub trait Arena {
    /// How much virtual time has passed.
    fn now(&self) -> Duration;
    /// Starts so many members at new addresses, spread over `within`.
    fn start(&mut self, members: usize, within: Duration) -> Range<Member>;
    /// Ends a member at once.
    fn kill(&mut self, member: Member);
    /// Kills a member, if it still runs, and starts it anew at the same address.
    fn restart(&mut self, member: Member);
    /// For so long nothing that this member sends leaves it and nothing that arrives is taken in; its timers run. What was held goes on
    /// when it ends: Lifeguard's anomaly.
    fn hold(&mut self, member: Member, time: Duration);
    /// For so long this member does not run at all. What arrives waits.
    fn pause(&mut self, member: Member, time: Duration);
    /// So much of what leaves this member, and of what reaches it, gets lost from now on.
    fn loss(&mut self, member: Member, egress: f64, ingress: f64);
    /// Between members of different groups nothing gets through from now on. Whoever is in no group is in one more;
    /// without any group everybody is with everybody again.
    fn partition(&mut self, groups: &[Vec<Member>]);
    /// Lets virtual time pass.
    ///
    /// # Errors
    /// What made the world stand still.
    fn run_for(&mut self, time: Duration) -> Result<(), Trouble>;
    /// What was seen since the beginning, or since it was forgotten.
    fn record(&self) -> Record;
    /// When the last of these members came to count so many; none while one does not.
    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration>;
    /// Forgets deaths, sizes and changes so far. Who knows how many is kept.
    fn forget(&mut self);
    /// What one member sent so far.
    fn sent(&self, member: Member) -> Traffic;
    /// What all of them asked of their table so far; none where there is no table.
    fn table(&self) -> Option<TableTraffic> {
        None
    }
}

/// Why an experiment came to no result: the world stood still, or an invariant is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In words.
    pub what: String,
    /// The seed with which the same experiment comes to it again, where that is known.
    pub seed: Option<u64>,
}

impl Trouble {
    /// Without a seed as yet.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            seed: None,
        }
    }
}

impl<E: std::error::Error> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// One member took another one for dead: the other one left the set of those that it tells its application to use, against that one's will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// When.
    pub at: Duration,
    /// Whose judgement, or whose copy of it.
    pub by: Member,
    /// About whom.
    pub of: Member,
}

/// Messages and their bytes: frames or datagrams as the system encodes them, without what UDP, TCP and IP add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Traffic {
    /// What came after `earlier`.
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
        }
    }

    /// Both.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// What one member saw of the size of its cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// How many members it counts now, itself included; 0 before it counts any.
    pub size: usize,
    /// When that last changed.
    pub since: Duration,
    /// How often the set of members that it counts has changed.
    pub changes: u64,
}

/// What was seen in a world.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every death that anybody believed in, in the order of time.
    pub deaths: Vec<Death>,
    /// Every size that anybody saw.
    pub sizes: BTreeSet<usize>,
    /// By member.
    pub sights: Vec<Sight>,
}

impl Record {
    /// A member takes another one for dead.
    pub fn died(&mut self, at: Duration, by: Member, of: Member) {
        if by != of {
            self.deaths.push(Death { at, by, of });
        }
    }

    /// The set of members that a member counts has changed: so many now.
    pub fn counts(&mut self, at: Duration, by: Member, size: usize) {
        if self.sights.len() <= by {
            self.sights.resize(by + 1, Sight::default());
        }
        let Some(sight) = self.sights.get_mut(by) else {
            return;
        };
        sight.changes += 1;
        if sight.size != size {
            *sight = Sight {
                size,
                since: at,
                ..*sight
            };
            self.sizes.insert(size);
        }
    }

    /// Forgets deaths, sizes and changes.
    pub fn forget(&mut self) {
        self.deaths.clear();
        self.sizes.clear();
        for sight in &mut self.sights {
            sight.changes = 0;
        }
    }

    /// When the last of these members came to count so many; none while one does not.
    pub fn all_count(
        &self,
        members: impl IntoIterator<Item = Member>,
        size: usize,
    ) -> Option<Duration> {
        members
            .into_iter()
            .try_fold(Duration::ZERO, |latest, member| {
                self.sights
                    .get(member)
                    .filter(|sight| sight.size == size)
                    .map(|sight| latest.max(sight.since))
            })
    }

    /// When the first of `by` took this member for dead.
    pub fn first_death(&self, of: Member, by: &BTreeSet<Member>) -> Option<Duration> {
        self.deaths
            .iter()
            .filter(|d| d.of == of && by.contains(&d.by))
            .map(|d| d.at)
            .min()
    }

    /// When the last of `by` came to take this member for dead; none while one does not.
    pub fn known_to_all(&self, of: Member, by: &BTreeSet<Member>) -> Option<Duration> {
        let mut first = std::collections::BTreeMap::new();
        for death in self
            .deaths
            .iter()
            .filter(|d| d.of == of && by.contains(&d.by))
        {
            first.entry(death.by).or_insert(death.at);
        }
        if first.len() < by.len() {
            None
        } else {
            first.into_values().max()
        }
    }
}

/// So many members in one cluster, all of which count all, and then so much quiet.
///
/// # Errors
/// When they do not find each other within a virtual hour: of those that gossip, a thousand take half of it until the last one knows all.
pub fn settled(arena: &mut dyn Arena, members: usize, quiet: Duration) -> Result<(), Trouble> {
    /// How many join at a time.
    const BATCH: usize = 50;
    let mut left = members;
    while left > 0 {
        let now = left.min(BATCH);
        arena.start(now, Duration::from_secs(2));
        left -= now;
        agreed(
            arena,
            members - left,
            Duration::from_secs(if left == 0 { 3600 } else { 20 }),
            left == 0,
        )?;
    }
    arena.run_for(quiet)?;
    arena.forget();
    Ok(())
}

fn agreed(
    arena: &mut dyn Arena,
    members: usize,
    at_most: Duration,
    must: bool,
) -> Result<(), Trouble> {
    let end = arena.now() + at_most;
    while arena.now() < end {
        arena.run_for(Duration::from_secs(1))?;
        if arena.all_count(0..members, members).is_some() {
            return Ok(());
        }
    }
    if must {
        Err(Trouble::new(format!(
            "{members} members do not all see each other within {at_most:?}"
        )))
    } else {
        Ok(())
    }
}
