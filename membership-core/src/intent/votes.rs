//! Votes: which silos may vote, which votes count, how many are needed, and the suspect's row after
//! a vote. Invariant P5.
//!
//! The partition rule and the decision to vote are not here; they belong to the silo that suspects.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::apply::{Context, Observed};
use super::lives::{dead, find, refuse, shrink};
use super::working::{Change, Planned, Working};
use super::{Answer, Refusal};
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

/// Only a Joining silo can be stuck in joining.
fn has_reason(suspect: &MembershipEntry, vote: &Suspicion) -> bool {
    match vote.reason {
        SuspicionReason::Silent => true,
        SuspicionReason::Stuck => suspect.status <= SiloStatus::Joining,
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
}

impl<'a, 'b> Ballot<'a, 'b> {
    fn new(working: &'a Working<'b>, context: &'a Context<'b>, entry: &MembershipEntry) -> Self {
        // The deaths of this commit make no other death cheaper.
        let needed = needed_votes(working.before(), &context.stale) as usize;
        Self {
            working,
            context,
            entry: entry.clone(),
            needed,
            written: BTreeSet::new(),
        }
    }

    /// Whether a silo may vote: it is Active in the snapshot and after the intents so far.
    fn votes(&self, silo: &SiloAddress) -> bool {
        is_active(self.working.before(), silo) && is_active(self.working.after(), silo)
    }

    fn is_legal(&self, author: &SiloAddress, vote: &Suspicion) -> bool {
        // A vote is written by its accuser, or by the silo that requested the accuser's indirect
        // probe.
        let own = vote.accuser == *author || vote.evidence.via == Some(*author);
        own && !vote.accuser.same_endpoint(&self.entry.address) && self.votes(&vote.accuser)
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

    /// Adds a vote; it replaces the accuser's older one.
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
        if vote.at > stored.at || set_back {
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
        if count(SuspicionReason::Silent) >= self.needed {
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

/// Whether the votes of a batch against one silo together would end it.
pub(super) fn would_kill(
    working: &Working<'_>,
    context: &Context<'_>,
    suspect: SiloAddress,
    votes: &[(SiloAddress, &Suspicion)],
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
    for (author, vote) in votes {
        if ballot.votes(author) && ballot.is_legal(author, vote) {
            ballot.add(vote);
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
    if !ballot.votes(&author) {
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
        activated: None,
    })
}
