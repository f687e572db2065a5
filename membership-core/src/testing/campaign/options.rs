//! What a campaign is like, and the commands that run it again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Fault;
use crate::testing::Builder;
use crate::{Config, Preset};

/// What a campaign is like.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// How many silos; at least 5. Default 20.
    pub silos: usize,
    /// How many virtual minutes of faults. Default 30.
    pub minutes: u64,
    /// How each silo is configured. Default: the `lan` preset.
    pub config: Config,
    /// At least so many kinds of faults, of those in [`Fault::ALL`], and up to five more. Default 5.
    pub least_kinds: usize,
    /// Exactly these kinds; empty = drawn from the seed.
    pub only: Vec<Fault>,
    /// Steps of the plan at which no fault begins after all, counted from 0: to find out which of them matter.
    pub skip: BTreeSet<u32>,
    /// How else the world is built: other machines, other checkers.
    pub prepare: Option<fn(Builder) -> Builder>,
    /// Keep every line of the trace.
    pub everything: bool,
}

impl Default for CampaignOptions {
    fn default() -> Self {
        Self {
            silos: 20,
            minutes: 30,
            config: Config::preset(Preset::Lan),
            least_kinds: 5,
            only: Vec::new(),
            skip: BTreeSet::new(),
            prepare: None,
            everything: false,
        }
    }
}

impl CampaignOptions {
    /// What to add to a command so that it runs with these options: `--silos N`, `--minutes N`, `--faults A,B,…` and `--skip N,N,…`, each
    /// only where it differs from the default. The configuration and what is prepared otherwise have no place in it.
    #[must_use]
    pub fn arguments(&self) -> String {
        let (usual, mut text) = (Self::default(), String::new());
        if self.silos != usual.silos {
            let _ = write!(text, " --silos {}", self.silos);
        }
        if self.minutes != usual.minutes {
            let _ = write!(text, " --minutes {}", self.minutes);
        }
        if !self.only.is_empty() {
            let _ = write!(text, " --faults {}", list(self.only.iter().copied()));
        }
        if !self.skip.is_empty() {
            let _ = write!(text, " --skip {}", list(self.skip.iter()));
        }
        text
    }
}

fn list(items: impl Iterator<Item = impl ToString>) -> String {
    items
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(",")
}

/// The command that replays a campaign, with a readable trace.
#[must_use]
pub fn replay_command(seed: u64, options: &CampaignOptions) -> String {
    format!(
        "cargo run --release -p membership-sim -- replay {seed}{}",
        options.arguments()
    )
}

/// The command that looks for a smaller campaign that fails like this one.
#[must_use]
pub fn shrink_command(seed: u64, options: &CampaignOptions) -> String {
    format!(
        "cargo run --release -p membership-sim -- shrink {seed}{}",
        options.arguments()
    )
}
