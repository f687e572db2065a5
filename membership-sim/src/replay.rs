//! `replay`: the campaign of one seed, every line of it.

#![allow(clippy::print_stderr, reason = "what the command answers")]

use std::io::Write;
use std::process::ExitCode;

use membership_core::testing::campaign::{self, CampaignOptions};

/// Which run.
#[derive(clap::Args)]
pub struct Replay {
    /// The seed
    seed: u64,
    /// Silos of the cluster, as in the campaign
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(5..=1000))]
    silos: u16,
    /// Virtual minutes of faults, as in the campaign
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
}

impl Replay {
    pub fn run(&self) -> ExitCode {
        let options = CampaignOptions { silos: self.silos.into(), minutes: self.minutes, ..CampaignOptions::default() };
        let (text, violation) = campaign::replay(self.seed, &options);
        // Whoever reads it may have seen enough.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
        match violation {
            None => ExitCode::SUCCESS,
            Some(violation) => {
                eprintln!("{violation}");
                ExitCode::from(1)
            }
        }
    }
}
