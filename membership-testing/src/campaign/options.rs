//! The options of a campaign, and the commands that run it again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::fault::Fault;
use crate::Builder;
use membership_core::{Config, Preset};

/// The options of a campaign.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// The number of silos, at least 2. Default 20.
    pub silos: usize,
    /// The virtual minutes with faults. Default 30.
    pub minutes: u64,
    /// The configuration of each silo. Default: the `lan` preset.
    pub config: Config,
    /// The least number of kinds of faults, of those in [`Fault::ALL`]; a campaign draws up to six
    /// more. Default 6.
    pub least_kinds: usize,
    /// Exactly these kinds; empty = drawn from the seed.
    pub only: Vec<Fault>,
    /// Whether a stranger, former members and one member forge messages all the time.
    pub hostile: bool,
    /// Whether one silo writes the changes of many: [`Config::scribe`].
    pub scribe: bool,
    /// With `scribe`: every other silo that starts does without.
    pub mixed: bool,
    /// Steps at which no fault starts, counted from 0: to find out which of them matter.
    pub skip: BTreeSet<u32>,
    /// Other changes of the simulation, such as other machines or checkers.
    pub prepare: Option<fn(Builder) -> Builder>,
    /// Whether to keep every line of the trace.
    pub everything: bool,
}

impl Default for CampaignOptions {
    fn default() -> Self {
        Self {
            silos: 20,
            minutes: 30,
            config: Config::preset(Preset::Lan),
            least_kinds: 6,
            only: Vec::new(),
            hostile: false,
            scribe: false,
            mixed: false,
            skip: BTreeSet::new(),
            prepare: None,
            everything: false,
        }
    }
}

impl CampaignOptions {
    /// The arguments of a command that runs with these options: `--silos N`, `--minutes N`,
    /// `--faults A,B,…`, `--hostile`, `--scribe`, `--mixed` and `--skip N,N,…`, each only if it differs from the
    /// default. The configuration and `prepare` have no arguments.
    #[must_use]
    pub fn arguments(&self) -> String {
        let (defaults, mut text) = (Self::default(), String::new());
        if self.silos != defaults.silos {
            let _ = write!(text, " --silos {}", self.silos);
        }
        if self.minutes != defaults.minutes {
            let _ = write!(text, " --minutes {}", self.minutes);
        }
        if !self.only.is_empty() {
            let _ = write!(text, " --faults {}", list(self.only.iter().copied()));
        }
        if self.hostile {
            text.push_str(" --hostile");
        }
        if self.scribe {
            text.push_str(" --scribe");
        }
        if self.mixed {
            text.push_str(" --mixed");
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

/// The command that searches for a smaller campaign that fails the same way.
#[must_use]
pub fn shrink_command(seed: u64, options: &CampaignOptions) -> String {
    format!(
        "cargo run --release -p membership-sim -- shrink {seed}{}",
        options.arguments()
    )
}
