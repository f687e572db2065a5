//! `replay`: the campaign of one seed, every line of it. `shrink`: a smaller one that fails the same way.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what the commands answer"
)]

use std::io::Write;
use std::process::ExitCode;

use membership_core::testing::campaign::{self, CampaignOptions, Fault};

/// Which run, in the words of the command that a violation prints.
#[derive(clap::Args)]
pub struct Which {
    /// The seed
    seed: u64,
    /// Silos of the cluster, as in the campaign
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(5..=1000))]
    silos: u16,
    /// Virtual minutes of faults, as in the campaign
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Exactly these kinds of faults, instead of those that the seed draws
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Steps at which no fault begins after all, counted from 0
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<u32>,
}

impl Which {
    fn options(&self) -> CampaignOptions {
        CampaignOptions {
            silos: self.silos.into(),
            minutes: self.minutes,
            only: self.faults.clone(),
            skip: self.skip.iter().copied().collect(),
            ..CampaignOptions::default()
        }
    }

    pub fn replay(&self) -> ExitCode {
        let (text, violation) = campaign::replay(self.seed, &self.options());
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

    pub fn shrink(&self) -> ExitCode {
        eprintln!("looking for a smaller run that fails the same way: up to 300 runs");
        match campaign::shrink(self.seed, &self.options()) {
            None => {
                println!(
                    "seed {}: every invariant holds, there is nothing to make smaller",
                    self.seed
                );
                ExitCode::SUCCESS
            }
            Some(small) => {
                println!(
                    "{}\n\nthe smallest of {} runs; again, line by line:\n  {}",
                    small.violation,
                    small.runs,
                    small.command()
                );
                ExitCode::from(1)
            }
        }
    }
}
