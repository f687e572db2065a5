//! P5: nobody is Dead without a cause, nor voted out without enough good votes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Fact, NewlyDead, active, changed, newly_dead};
use crate::testing::circumstances::{Circumstances, VirtualTime};
use crate::{CauseOfDeath, CommitRequest, Grounds, SiloAddress, SiloStatus, Snapshot, Suspicion, WallTime};

/// P5: a silo is Dead only with one of the five causes, and `voted` only with enough distinct, fresh votes of Active accusers in that
/// commit. Deaths of one commit happen one after the other: accusers do not kill each other.
#[derive(Debug, Default)]
pub struct Votes {
    appeared: BTreeMap<(SiloAddress, SiloAddress), (WallTime, VirtualTime)>,
    joining: BTreeMap<SiloAddress, VirtualTime>,
}

impl Votes {
    fn note(&mut self, after: &Snapshot, request: &CommitRequest, truth: &Circumstances) {
        for silo in changed(request) {
            let Some(entry) = after.rows.get(&silo) else { continue };
            self.joining.entry(silo).or_insert(truth.now);
            for vote in &entry.suspicions {
                let seen = self.appeared.entry((silo, vote.accuser)).or_insert((vote.at, truth.now));
                if seen.0 != vote.at {
                    *seen = (vote.at, truth.now);
                }
            }
        }
    }

    /// A reader may see a vote a while after it appeared, so the table's own time is taken generously.
    fn fresh(&self, suspect: SiloAddress, vote: &Suspicion, committer: Option<SiloAddress>, truth: &Circumstances) -> bool {
        let expiry = truth.config.death_vote_expiration;
        let seen = self.appeared.get(&(suspect, vote.accuser)).map_or(truth.now, |(_, when)| *when);
        let clock = committer.map_or_else(|| truth.wall(&suspect), |c| truth.wall(&c));
        truth.now.saturating_sub(seen) <= truth.stretched(expiry + truth.config.table_refresh_period * 2)
            || clock.distance(vote.at) <= expiry
    }

    /// The endpoints whose votes count, with the accusers that cast them.
    fn counting<'a>(
        &self,
        dead: &NewlyDead<'a>,
        grounds: Grounds,
        may_vote: &BTreeSet<SiloAddress>,
        committer: Option<SiloAddress>,
        truth: &Circumstances,
    ) -> BTreeSet<std::net::SocketAddr> {
        let votes = dead.after.suspicions.iter();
        votes
            .filter(|v| v.grounds == grounds && may_vote.contains(&v.accuser) && v.accuser != dead.silo())
            .filter(|v| grounds == Grounds::Stuck || v.evidence.misses > 0)
            .filter(|v| self.fresh(dead.silo(), v, committer, truth))
            .map(|v| v.accuser.endpoint())
            .collect()
    }

    fn judge(&self, before: &Snapshot, after: &Snapshot, request: &CommitRequest, truth: &Circumstances) -> Result<(), String> {
        let voters: BTreeSet<SiloAddress> = active(before).map(|e| e.address).collect();
        let live = voters.iter().filter(|silo| truth.certainly_fresh(silo)).count();
        let configured = before.version_row.settings.num_votes_for_death_declaration as usize;
        let needed = configured.min(2).min(live.div_ceil(2)).max(1);
        let mut voted = Vec::new();
        for dead in newly_dead(before, after, request) {
            let (silo, name) = (dead.silo(), truth.name(&dead.silo()));
            let was = dead.before.map(|e| e.status);
            match &dead.death.cause {
                CauseOfDeath::Left if request.committer.is_some_and(|c| c != silo) => {
                    return Err(format!("{name} was made to leave by another"));
                }
                CauseOfDeath::Superseded if !after.rows.at_endpoint(silo.endpoint()).any(|e| e.address > silo) => {
                    return Err(format!("{name} is superseded by nobody"));
                }
                CauseOfDeath::Stuck if was != Some(SiloStatus::Joining) => return Err(format!("{name}, {was:?}, is called stuck")),
                CauseOfDeath::Stuck => {
                    let waited = truth.now.saturating_sub(self.joining.get(&silo).copied().unwrap_or(truth.now));
                    if waited < truth.shrunk(before.version_row.settings.max_join_attempt_time) {
                        return Err(format!("{name} is called stuck after {waited:?}"));
                    }
                    let count = self.counting(&dead, Grounds::Stuck, &voters, request.committer, truth).len();
                    if count < needed {
                        return Err(format!("{name} is called stuck with {count} votes of {needed}"));
                    }
                }
                CauseOfDeath::Voted => voted.push(dead),
                _ => {}
            }
        }
        in_some_order(&mut voted, voters, &|dead, voters| {
            let count = self.counting(dead, Grounds::Silent, voters, request.committer, truth).len();
            if count >= needed {
                Ok(())
            } else {
                Err(format!("{} is voted out with {count} votes that count, of {needed}", truth.name(&dead.silo())))
            }
        })
    }
}

/// Says whether a death has enough votes of these silos.
type Enough<'f, 'a> = dyn Fn(&NewlyDead<'a>, &BTreeSet<SiloAddress>) -> Result<(), String> + 'f;

/// Whether the deaths can have happened one after the other, each with the votes of those still Active. Each is tried first while it
/// still has what it needs; taking a silo out only ever takes votes away, so a dead end is tried from all sides while they are few.
fn in_some_order<'a>(dead: &mut Vec<NewlyDead<'a>>, voters: BTreeSet<SiloAddress>, enough: &Enough<'_, 'a>) -> Result<(), String> {
    let mut problem = Ok(());
    if dead.is_empty() || dead.len() > 6 {
        return dead.iter().try_for_each(|d| enough(d, &voters));
    }
    for i in 0..dead.len() {
        if let Err(e) = enough(&dead[i], &voters) {
            problem = Err(e);
            continue;
        }
        let one = dead.remove(i);
        let mut left = voters.clone();
        left.remove(&one.silo());
        let rest = in_some_order(dead, left, enough);
        dead.insert(i, one);
        match rest {
            Ok(()) => return Ok(()),
            Err(e) => problem = Err(e),
        }
    }
    problem
}

impl Check for Votes {
    fn invariant(&self) -> &'static str {
        "P5"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        match fact {
            Fact::Committed { before, after, request } => {
                self.note(after, request, truth);
                self.judge(before, after, request, truth)
            }
            Fact::Founded(snapshot) => {
                // Whoever was behind has noticed nothing, and goes on with what it saw of these very rows and votes.
                let there = |silo: &SiloAddress| snapshot.rows.get(silo);
                self.appeared.retain(|(silo, accuser), (at, _)| {
                    there(silo).is_some_and(|e| e.suspicions.iter().any(|v| v.accuser == *accuser && v.at == *at))
                });
                self.joining.retain(|silo, _| there(silo).is_some());
                for entry in snapshot.rows.entries() {
                    self.joining.entry(entry.address).or_insert(truth.now);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
