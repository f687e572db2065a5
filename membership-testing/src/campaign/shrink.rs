//! Shrinks a failing campaign to a smaller one that fails the same way.

use std::collections::BTreeSet;

use super::{CampaignOptions, Fault, drawn, replay_command, run, steps};
use crate::Violation;

/// The largest number of campaigns that a search runs.
const MOST_RUNS: usize = 300;

/// A smaller campaign that breaks the same invariant.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Its options, to be run with the same seed.
    pub options: CampaignOptions,
    /// The violation.
    pub violation: Violation,
    /// How many campaigns the search ran.
    pub runs: usize,
}

impl Shrunk {
    /// The command that replays it.
    #[must_use]
    pub fn command(&self) -> String {
        replay_command(self.violation.seed(), &self.options)
    }
}

/// Searches for a smaller campaign of the same seed that violates the same invariant: fewer silos,
/// less time, fewer kinds of faults, fewer steps. None if the campaign violates nothing. The same
/// seed and options give the same result; the search takes up to 300 runs.
#[must_use]
pub fn shrink(seed: u64, options: &CampaignOptions) -> Option<Shrunk> {
    let violation = run(seed, options).err()?;
    let options = CampaignOptions {
        only: drawn(seed, options).into_iter().collect(),
        ..options.clone()
    };
    let mut search = Search {
        seed,
        best: Shrunk {
            options,
            violation,
            runs: 1,
        },
    };
    // After one kind of reduction has succeeded, the other kinds may get further.
    while search.fewer_silos() | search.less_time() | search.fewer_kinds() | search.fewer_steps() {}
    let Search { mut best, .. } = search;
    let steps = steps(seed, &best.options);
    best.options.skip.retain(|step| *step < steps);
    Some(best)
}

struct Search {
    seed: u64,
    best: Shrunk,
}

impl Search {
    /// Accepts these options if they fail the same way.
    fn accepts(&mut self, options: CampaignOptions) -> bool {
        if self.best.runs >= MOST_RUNS {
            return false;
        }
        self.best.runs += 1;
        match run(self.seed, &options) {
            Err(violation) if violation.invariant() == self.best.violation.invariant() => {
                (self.best.options, self.best.violation) = (options, violation);
                true
            }
            _ => false,
        }
    }

    fn with(&self, change: impl FnOnce(&mut CampaignOptions)) -> CampaignOptions {
        let mut options = self.best.options.clone();
        change(&mut options);
        options
    }

    fn fewer_silos(&mut self) -> bool {
        let now = self.best.options.silos;
        [2, 3, 4, 5, 6, 8, 12, 16, now / 2, now * 3 / 4]
            .into_iter()
            .filter(|n| (2..now).contains(n))
            .any(|n| self.accepts(self.with(|o| o.silos = n)))
    }

    fn less_time(&mut self) -> bool {
        let now = self.best.options.minutes;
        // A violation before the end needs no time after it; one at the end may need less time
        // before it.
        let broke = self.best.violation.at().as_secs() / 60 + 1;
        let mut shorter: Vec<u64> = [
            now / 8,
            now / 4,
            now / 2,
            now * 3 / 4,
            broke,
            now - now.min(1),
        ]
        .into();
        shorter.sort_unstable();
        shorter.dedup();
        shorter
            .into_iter()
            .filter(|m| (1..now).contains(m))
            .any(|m| self.accepts(self.with(|o| o.minutes = m)))
    }

    fn fewer_kinds(&mut self) -> bool {
        let mut found = false;
        for kind in self.best.options.only.clone() {
            let left: Vec<Fault> = self
                .best
                .options
                .only
                .iter()
                .copied()
                .filter(|k| *k != kind)
                .collect();
            // An empty list would mean that the seed draws the kinds.
            found |= !left.is_empty() && self.accepts(self.with(|o| o.only = left));
        }
        found
    }

    fn fewer_steps(&mut self) -> bool {
        let mut found = false;
        let mut chunk = usize::MAX;
        loop {
            let left: Vec<u32> = (0..steps(self.seed, &self.best.options))
                .filter(|s| !self.best.options.skip.contains(s))
                .collect();
            chunk = chunk.min(left.len() / 2).max(1);
            for part in left.chunks(chunk) {
                let skip: BTreeSet<u32> =
                    self.best.options.skip.iter().chain(part).copied().collect();
                found |= self.accepts(self.with(|o| o.skip = skip));
            }
            if chunk == 1 || self.best.runs >= MOST_RUNS {
                return found;
            }
            chunk /= 2;
        }
    }
}
