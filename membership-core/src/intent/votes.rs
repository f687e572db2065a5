//! Votes: which silos may vote, which votes count, how many are needed, and the suspect's row after
//! a vote. Invariant P5.
//!
//! A vote counts only on the ground of a roll call with a majority, or against a stale suspect that
//! nobody reaches. The decision to vote is not here; it belongs to the silo that suspects.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::apply::{Context, Observed};
use super::lives::{dead, find, refuse, shrink};
use super::working::{Change, Planned, Working};
use super::{Answer, Call, Refusal};
use crate::{
    CauseOfDeath, MembershipEntry, Now, SharedSettings, SiloAddress, SiloStatus, Snapshot,
    Suspicion, SuspicionReason,
};

/// How many votes beyond the needed number a row keeps as evidence.
const SPARE_VOTES: usize = 3;

/// How many votes declare a silo dead in a commit on this version: the number in the shared settings, but at
/// most half of the live silos (rounded up) and at least one. Live = Active and not in `stale`.
#[must_use]
pub fn needed_votes(snapshot: &Snapshot, stale: &BTreeSet<SiloAddress>) -> u32 {
    let live = snapshot
        .rows
        .entries()
        .filter(|e| e.status == SiloStatus::Active && !stale.contains(&e.address))
        .count();
    let half = u32::try_from(live.div_ceil(2)).unwrap_or(u32::MAX);
    snapshot
        .version_row
        .settings
        .num_votes_for_death_declaration
        .min(half)
        .max(1)
}

/// The same for a silo that has challenged others. `challenged` have written no heartbeat since.
/// They count as live as long as another Active silo writes; the only one that does needs no second
/// vote.
pub(crate) fn needed_after_challenge(
    snapshot: &Snapshot,
    stale: &BTreeSet<SiloAddress>,
    challenged: &BTreeSet<SiloAddress>,
) -> u32 {
    let mut writers = snapshot.rows.entries().filter(|e| {
        let silo = &e.address;
        e.status == SiloStatus::Active && !stale.contains(silo) && !challenged.contains(silo)
    });
    match (writers.next(), writers.next()) {
        (Some(_), None) if !challenged.is_empty() => 1,
        _ => needed_votes(snapshot, stale),
    }
}

/// Whether these silos are a majority against `suspect`: more than half of all Active silos that
/// are not stale, or exactly half of more than two with the leader among them, if the suspect is
/// `unopposed`: nobody reaches it. (A split leaves nobody on this side who does.) For a suspect that
/// is Joining, the Joining silos count, too; and if at most two silos are Active, they count as if
/// they were, so that one of two that cannot be reached does not keep them out. So does the suspect
/// itself while it leaves: else the last Active silo would end it alone, also in an outage of the
/// network for all. Of a `sample`, more than half are needed, by as much as makes sure of a majority
/// of all. Invariants P6 and P10 to P14.
#[must_use]
pub fn is_majority(
    snapshot: &Snapshot,
    stale: &BTreeSet<SiloAddress>,
    suspect: &SiloAddress,
    silos: &BTreeSet<SiloAddress>,
    unopposed: bool,
    sample: Option<usize>,
) -> bool {
    let rows = &snapshot.rows;
    let is_joining = rows
        .get(suspect)
        .is_some_and(|e| e.status == SiloStatus::Joining);
    let (mut active, mut joining, mut leader) = (Count::default(), Count::default(), None);
    for entry in rows.entries() {
        if entry.status == SiloStatus::Active {
            let since = (entry.active_since.unwrap_or(u64::MAX), entry.address);
            leader = leader.min(Some(since)).or(Some(since));
        }
        if stale.contains(&entry.address) {
            continue;
        }
        let count = match entry.status {
            SiloStatus::Active => &mut active,
            SiloStatus::Joining => &mut joining,
            SiloStatus::ShuttingDown | SiloStatus::Stopping if entry.address == *suspect => {
                &mut joining
            }
            _ => continue,
        };
        count.all += 1;
        count.some += usize::from(silos.contains(&entry.address));
    }
    let leads = unopposed
        && leader.is_some_and(|(_, silo)| silos.contains(&silo) && !stale.contains(&silo));
    outnumber(active, joining, is_joining, leads, sample)
}

/// How many silos there are, and how many of them are against a suspect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) all: usize,
    pub(crate) some: usize,
}

impl Count {
    const fn is_majority(self, leads: bool) -> bool {
        self.some * 2 > self.all || (self.some * 2 == self.all && self.all > 2 && leads)
    }

    /// Whether so many of a sample show that more than half of all are against a suspect: the excess
    /// over half of the sample must be at least 5⅓ standard deviations of what a sample of this size
    /// shows where exactly half are. Of 256 drawn from very many silos, that is two thirds; the more
    /// of all silos are in the sample, the closer it comes to a majority of them.
    const fn is_majority_by_sample(self, sample: usize) -> bool {
        let (all, some, sample) = (self.all as u128, self.some as u128, sample as u128);
        let Some(excess) = (some * 2).checked_sub(sample) else {
            return false;
        };
        // excess / 2 >= 16/3 * sqrt(sample / 4 * (1 - sample / all))
        let rest = all.saturating_sub(sample);
        excess > 0 && 9 * excess * excess * all >= 256 * sample * rest
    }
}

/// Up to this number of Active silos, the Joining ones count in a majority against an Active one.
pub(crate) const FEW: usize = 2;

/// Whether the Joining silos count in a majority against a suspect that is Joining, or is not.
pub(crate) const fn joining_count(active: usize, is_joining: bool) -> bool {
    is_joining || active <= FEW
}

/// Whether these Active silos are a majority against a suspect. If the Joining ones count, they must
/// be a majority together with them; then the Active ones alone need to be one only against a
/// suspect that is Joining. A suspect that leaves is one of `joining`. `leads` = the leader is among
/// them.
pub(crate) const fn outnumber(
    active: Count,
    joining: Count,
    is_joining: bool,
    leads: bool,
    sample: Option<usize>,
) -> bool {
    let both = if joining_count(active.all, is_joining) {
        Count {
            all: active.all + joining.all,
            some: active.some + joining.some,
        }
    } else {
        active
    };
    let alone_too = is_joining && active.all > 0;
    match sample {
        Some(sample) => both.is_majority_by_sample(sample),
        None => both.is_majority(leads) && (!alone_too || active.is_majority(leads)),
    }
}

/// The votes against `suspect` that count at this version: fresh, from Active accusers, one per
/// endpoint (the newest). Votes for the reason "stuck" count only while the suspect is Joining.
/// Empty when the suspect has no row.
#[must_use]
pub fn fresh_votes<'a>(
    snapshot: &'a Snapshot,
    suspect: &SiloAddress,
    observed: &Observed,
    now: Now,
) -> Vec<&'a Suspicion> {
    let Some(entry) = snapshot.rows.get(suspect) else {
        return Vec::new();
    };
    let settings = &snapshot.version_row.settings;
    let mut votes: Vec<&Suspicion> = entry
        .suspicions
        .iter()
        .filter(|v| {
            may_accuse(snapshot, &v.accuser, suspect)
                && has_reason(entry, v)
                && is_fresh(suspect, v, observed, now, settings)
        })
        .collect();
    votes.sort_by_key(|v| (std::cmp::Reverse(v.at), v.accuser));
    let mut endpoints = BTreeSet::new();
    votes.retain(|v| endpoints.insert(v.accuser.endpoint()));
    votes
}

/// Whether a vote is recent enough: this silo saw it appear within the expiry by its monotonic
/// clock, or the time of the vote is within the expiry of this silo's wall clock.
fn is_fresh(
    suspect: &SiloAddress,
    vote: &Suspicion,
    observed: &Observed,
    now: Now,
    settings: &SharedSettings,
) -> bool {
    let expiry = settings.vote_expiration();
    let seen = observed.first_seen.get(&(*suspect, vote.accuser));
    let saw_it_appear =
        seen.is_some_and(|(at, when)| *at == vote.at && now.mono.since(*when) <= expiry);
    saw_it_appear || now.wall.distance(vote.at) <= expiry
}

/// Only Active silos accuse, and no silo accuses itself or another incarnation of itself.
fn may_accuse(snapshot: &Snapshot, accuser: &SiloAddress, suspect: &SiloAddress) -> bool {
    !accuser.same_endpoint(suspect) && is_active(snapshot, accuser)
}

fn is_active(snapshot: &Snapshot, silo: &SiloAddress) -> bool {
    snapshot
        .rows
        .get(silo)
        .is_some_and(|e| e.status == SiloStatus::Active)
}

fn is_joining(snapshot: &Snapshot, silo: &SiloAddress) -> bool {
    snapshot
        .rows
        .get(silo)
        .is_some_and(|e| e.status == SiloStatus::Joining)
}

/// Only a Joining silo can be stuck in joining.
fn has_reason(suspect: &MembershipEntry, vote: &Suspicion) -> bool {
    match vote.reason {
        SuspicionReason::Silent => true,
        SuspicionReason::Stuck => suspect.status <= SiloStatus::Joining,
        SuspicionReason::Challenge => false,
    }
}

/// A suspect's row with the votes of one or more intents.
struct Ballot<'a, 'b> {
    working: &'a Working<'b>,
    context: &'a Context<'b>,
    entry: MembershipEntry,
    needed: usize,
    /// The accusers whose votes this commit adds to the row.
    written: BTreeSet<SiloAddress>,
    /// A roll call allows this death.
    allowed: bool,
    /// All votes to add are challenges.
    challenges: bool,
}

impl<'a, 'b> Ballot<'a, 'b> {
    fn new(working: &'a Working<'b>, context: &'a Context<'b>, entry: &MembershipEntry) -> Self {
        // The deaths of this commit make no other death cheaper.
        let challenged = &context.observed.challenged;
        let needed = needed_after_challenge(working.before(), &context.stale, challenged) as usize;
        Self {
            working,
            context,
            entry: entry.clone(),
            needed,
            written: BTreeSet::new(),
            allowed: context.observed.without_calls,
            challenges: false,
        }
    }

    /// Whether the roll call of an intent allows the death of the suspect in this snapshot.
    fn allows(&self, call: Option<&Call>) -> bool {
        let silo = &self.entry.address;
        let Some(call) = call else {
            return self.context.observed.without_calls;
        };
        let expired =
            self.context.stale.contains(silo) || self.context.observed.challenged.contains(silo);
        if expired && call.reached == 0 {
            return true;
        }
        let failed = call.failed.iter().copied().collect();
        let sample = call
            .sample
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let stale = &self.context.stale;
        let unopposed = call.reached == 0;
        is_majority(
            self.working.before(),
            stale,
            silo,
            &failed,
            unopposed,
            sample,
        )
    }

    /// Whether a silo may vote: it is Active in the snapshot and after the intents so far.
    fn votes(&self, silo: &SiloAddress) -> bool {
        is_active(self.working.before(), silo) && is_active(self.working.after(), silo)
    }

    /// Whether a silo may write the votes to add: who is Joining may challenge.
    fn may_write(&self, silo: &SiloAddress) -> bool {
        let joins = |snapshot| self.challenges && is_joining(snapshot, silo);
        self.votes(silo) || (joins(self.working.before()) && joins(self.working.after()))
    }

    fn is_legal(&self, author: &SiloAddress, vote: &Suspicion) -> bool {
        // A vote is written by its accuser, or by the caller whom the accuser answered.
        let own = vote.accuser == *author || vote.evidence.via == Some(*author);
        own && !vote.accuser.same_endpoint(&self.entry.address) && self.may_write(&vote.accuser)
    }

    fn is_fresh(&self, vote: &Suspicion) -> bool {
        let suspect = &self.entry.address;
        self.written.contains(&vote.accuser)
            || self.working.wrote_vote(suspect, &vote.accuser)
            || is_fresh(
                suspect,
                vote,
                self.context.observed,
                self.context.now,
                &self.working.before().version_row.settings,
            )
    }

    fn counts(&self, vote: &Suspicion) -> bool {
        !vote.accuser.same_endpoint(&self.entry.address)
            && has_reason(&self.entry, vote)
            && self.votes(&vote.accuser)
            && self.is_fresh(vote)
    }

    /// Adds a vote; it replaces the accuser's older one. A challenge gives way to a vote of any time: the
    /// accuser's clock may have been set back since.
    fn add(&mut self, vote: &Suspicion) {
        let Some(place) = self
            .entry
            .suspicions
            .iter()
            .position(|s| s.accuser == vote.accuser)
        else {
            self.written.insert(vote.accuser);
            self.entry.suspicions.push(vote.clone());
            return;
        };
        let stored = &self.entry.suspicions[place];
        // The accuser's clock may have been set back since its older vote. The older vote must not
        // block the new one for ever.
        let expiry = self.working.before().version_row.settings.vote_expiration();
        let set_back = vote.at < stored.at
            && self.context.now.wall.distance(vote.at) <= expiry
            && !self.is_fresh(stored);
        let after_challenge = stored.reason == SuspicionReason::Challenge
            && vote.reason != SuspicionReason::Challenge;
        if vote.at > stored.at || set_back || after_challenge {
            self.written.insert(vote.accuser);
            self.entry.suspicions[place] = vote.clone();
        }
    }

    /// The cause of death if there are enough votes. Votes are counted separately for each
    /// [`SuspicionReason`]; accusers at one endpoint count once.
    fn verdict(&self) -> Option<CauseOfDeath> {
        let count = |reason: SuspicionReason| {
            let votes = self
                .entry
                .suspicions
                .iter()
                .filter(|v| v.reason == reason && self.counts(v));
            votes
                .map(|v| v.accuser.endpoint())
                .collect::<BTreeSet<SocketAddr>>()
                .len()
        };
        if self.allowed && count(SuspicionReason::Silent) >= self.needed {
            Some(CauseOfDeath::Voted)
        } else if count(SuspicionReason::Stuck) >= self.needed {
            Some(CauseOfDeath::Stuck)
        } else {
            None
        }
    }

    /// The row with its votes in order of time, at most needed + 3 of them. Votes that do not count
    /// are dropped first, then the oldest. Votes that do not count are also dropped when the row
    /// exceeds the store's limit.
    fn into_row(mut self, verdict: Option<CauseOfDeath>, author: SiloAddress) -> MembershipEntry {
        let rank =
            |v: &Suspicion| u8::from(self.counts(v)) + u8::from(self.written.contains(&v.accuser));
        let mut ranked: Vec<(u8, Suspicion)> = self
            .entry
            .suspicions
            .iter()
            .map(|v| (rank(v), v.clone()))
            .collect();
        ranked.sort_by_key(|(rank, v)| std::cmp::Reverse((*rank, v.at, v.accuser)));
        ranked.truncate(self.needed + SPARE_VOTES);
        ranked.sort_by_key(|(_, v)| (v.at, v.accuser));
        let idle: BTreeSet<SiloAddress> = ranked
            .iter()
            .filter(|(rank, _)| *rank == 0)
            .map(|(_, v)| v.accuser)
            .collect();
        self.entry.suspicions = ranked.into_iter().map(|(_, v)| v).collect();
        if let Some(cause) = verdict {
            self.entry = dead(
                self.working,
                self.entry,
                cause,
                self.context.now.wall,
                Some(author),
            );
        }
        shrink(self.working, &mut self.entry, |v| idle.contains(&v.accuser));
        self.entry
    }
}

/// The votes of intents against one silo: author, votes, and the roll call on which they rest.
pub(super) type Accusations<'a> = Vec<(SiloAddress, &'a [Suspicion], Option<&'a Call>)>;

/// Whether the votes of a batch against one silo together would end it.
pub(super) fn would_kill(
    working: &Working<'_>,
    context: &Context<'_>,
    suspect: SiloAddress,
    accusations: &Accusations<'_>,
) -> bool {
    let Some(entry) = working
        .after()
        .rows
        .get(&suspect)
        .filter(|e| e.status != SiloStatus::Dead)
    else {
        return false;
    };
    let mut ballot = Ballot::new(working, context, entry);
    for (author, votes, call) in accusations {
        ballot.allowed |= ballot.allows(*call);
        for vote in *votes {
            if ballot.votes(author) && ballot.is_legal(author, vote) {
                ballot.add(vote);
            }
        }
    }
    ballot.verdict().is_some()
}

pub(super) fn suspect(
    working: &Working<'_>,
    context: &Context<'_>,
    author: Option<SiloAddress>,
    suspect: SiloAddress,
    votes: &[Suspicion],
    call: Option<&Call>,
) -> Planned {
    let entry = match find(working, &suspect) {
        Err(refusal) => return refuse(refusal),
        Ok(entry) if entry.status == SiloStatus::Dead => return Planned::Answer(Answer::Moot),
        Ok(entry) => entry,
    };
    let mut ballot = Ballot::new(working, context, entry);
    let Some(author) = author else {
        // A person or a program cannot vote; it evicts.
        return refuse(Refusal::NotAVoter(
            votes.first().map_or(suspect, |v| v.accuser),
        ));
    };
    let is_challenge = |v: &Suspicion| v.reason == SuspicionReason::Challenge;
    ballot.challenges = votes.iter().all(is_challenge) && !votes.is_empty();
    if !ballot.may_write(&author) {
        // A silo that becomes Active in this commit votes in the next one.
        let soon = working.activated().contains_key(&author) && is_active(working.after(), &author);
        return if soon {
            Planned::Answer(Answer::Queued)
        } else {
            refuse(Refusal::NotAVoter(author))
        };
    }
    let mut legal: Vec<&Suspicion> = votes
        .iter()
        .filter(|v| ballot.is_legal(&author, v))
        .collect();
    if let (true, Some(first)) = (legal.is_empty(), votes.first()) {
        return refuse(Refusal::NotAVoter(first.accuser));
    }
    ballot.allowed |= ballot.allows(call);
    let is_silent = |v: &&Suspicion| v.reason == SuspicionReason::Silent;
    if !ballot.allowed && legal.iter().any(is_silent) {
        // The majority of the call is none in this snapshot: the silo asks again.
        return Planned::Answer(Answer::Moot);
    }
    legal.sort_by_key(|v| (v.accuser != author, v.accuser));
    legal.truncate(ballot.needed + SPARE_VOTES);
    for vote in legal {
        ballot.add(vote);
    }
    let verdict = ballot.verdict();
    if ballot.written.is_empty() && verdict.is_none() {
        return Planned::Answer(Answer::Moot);
    }
    let votes = ballot
        .written
        .iter()
        .map(|accuser| (suspect, *accuser))
        .collect();
    Planned::Change(Change {
        rows: vec![ballot.into_row(verdict, author)],
        votes,
        ..Change::default()
    })
}
