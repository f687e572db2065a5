//! The interface between an experiment and a simulated system: one schedule of faults for every
//! system.
//!
//! Members are numbered from 0 in the order in which they start; a member that is restarted keeps
//! its number. The network, its latency and its losses are those of `membership_testing` for every
//! system.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use membership_testing::TableTraffic;

/// A member of any system: the number of its host.
pub type Member = usize;

/// A simulated system.
pub trait Arena {
    /// The virtual time now.
    fn now(&self) -> Duration;
    /// Starts members at new addresses, spread over `within`.
    fn start(&mut self, members: usize, within: Duration) -> Range<Member>;
    /// Kills a member.
    fn kill(&mut self, member: Member);
    /// Kills a member if it still runs, and starts it again at the same address.
    fn restart(&mut self, member: Member);
    /// Holds a member for `time`: nothing that it sends leaves it, and nothing reaches it; its
    /// timers run. When the hold ends, held messages continue: Lifeguard's anomaly.
    fn hold(&mut self, member: Member, time: Duration);
    /// Pauses a member for `time`. Messages to it wait.
    fn pause(&mut self, member: Member, time: Duration);
    /// Sets the share of messages that are lost when they leave this member, and when they arrive
    /// at it.
    fn loss(&mut self, member: Member, egress: f64, ingress: f64);
    /// Partitions the network: members of different groups cannot reach each other. Members that
    /// are in no group form one more group; without groups the network is whole again.
    fn partition(&mut self, groups: &[Vec<Member>]);
    /// Advances virtual time.
    ///
    /// # Errors
    /// Why the simulation stopped.
    fn run_for(&mut self, time: Duration) -> Result<(), Failure>;
    /// What was recorded since the start, or since the last [`forget`](Self::forget).
    fn record(&self) -> Record;
    /// When the last of these members came to count `size` members; none while one does not.
    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration>;
    /// Removes the recorded deaths, sizes and changes. The present sizes are kept.
    fn forget(&mut self);
    /// What one member has sent so far.
    fn sent(&self, member: Member) -> Traffic;
    /// The requests of all members to their table so far; none if the system has no table.
    fn table(&self) -> Option<TableTraffic> {
        None
    }
}

/// Why an experiment has no result: the simulation stopped, or an invariant was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A description.
    pub what: String,
    /// The seed that reproduces it, if known.
    pub seed: Option<u64>,
}

impl Failure {
    /// A failure without a seed.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            seed: None,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// One member declared another one dead: it removed a member that had not left from the set of
/// members that it gives to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// When.
    pub at: Duration,
    /// The member that declared it, or that adopted the declaration.
    pub by: Member,
    /// The member that was declared dead.
    pub of: Member,
}

/// Messages and their bytes: frames or datagrams as the system encodes them, without the overhead
/// of UDP, TCP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Traffic {
    /// The traffic since `earlier`.
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
        }
    }

    /// The sum of both.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The size of the cluster as one member sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenSize {
    /// The number of members that it counts now, itself included; 0 before it counts any.
    pub size: usize,
    /// When the size last changed.
    pub since: Duration,
    /// How often the set of members that it counts has changed.
    pub changes: u64,
}

/// What was recorded in a simulation.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every declared death, in the order of time.
    pub deaths: Vec<Death>,
    /// Every size that any member saw.
    pub sizes: BTreeSet<usize>,
    /// The size that each member sees.
    pub seen: Vec<SeenSize>,
}

impl Record {
    /// Records that a member declares another one dead.
    pub fn died(&mut self, at: Duration, by: Member, of: Member) {
        if by != of {
            self.deaths.push(Death { at, by, of });
        }
    }

    /// Records that the set of members that a member counts has changed, and its new size.
    pub fn counts(&mut self, at: Duration, by: Member, size: usize) {
        if self.seen.len() <= by {
            self.seen.resize(by + 1, SeenSize::default());
        }
        let Some(size_seen) = self.seen.get_mut(by) else {
            return;
        };
        size_seen.changes += 1;
        if size_seen.size != size {
            *size_seen = SeenSize {
                size,
                since: at,
                ..*size_seen
            };
            self.sizes.insert(size);
        }
    }

    /// Removes the recorded deaths, sizes and changes.
    pub fn forget(&mut self) {
        self.deaths.clear();
        self.sizes.clear();
        for size_seen in &mut self.seen {
            size_seen.changes = 0;
        }
    }

    /// When the last of these members came to count `size` members; none while one does not.
    pub fn all_count(
        &self,
        members: impl IntoIterator<Item = Member>,
        size: usize,
    ) -> Option<Duration> {
        members
            .into_iter()
            .try_fold(Duration::ZERO, |latest, member| {
                self.seen
                    .get(member)
                    .filter(|size_seen| size_seen.size == size)
                    .map(|size_seen| latest.max(size_seen.since))
            })
    }

    /// When the first of `by` declared this member dead.
    pub fn first_death(&self, of: Member, by: &BTreeSet<Member>) -> Option<Duration> {
        self.deaths
            .iter()
            .filter(|d| d.of == of && by.contains(&d.by))
            .map(|d| d.at)
            .min()
    }

    /// When the last of `by` declared this member dead; none while one has not.
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

/// Starts a cluster of this many members, waits until all of them count all, and then for `quiet`.
///
/// # Errors
/// When they do not find each other within a virtual hour. With gossip, the last of a thousand
/// members needs up to half an hour.
pub fn settled(arena: &mut dyn Arena, members: usize, quiet: Duration) -> Result<(), Failure> {
    /// How many members join at a time, and at least one in this many.
    const BATCH: usize = 50;
    const PARTS: usize = 20;
    let batch = members.div_ceil(PARTS).max(BATCH);
    let mut left = members;
    while left > 0 {
        let now = left.min(batch);
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
) -> Result<(), Failure> {
    let end = arena.now() + at_most;
    while arena.now() < end {
        arena.run_for(Duration::from_secs(1))?;
        if arena.all_count(0..members, members).is_some() {
            return Ok(());
        }
    }
    if must {
        Err(Failure::new(format!(
            "{members} members did not all see each other within {at_most:?}"
        )))
    } else {
        Ok(())
    }
}
