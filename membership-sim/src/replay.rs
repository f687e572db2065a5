//! `replay` prints the campaign of one seed, line by line. `shrink` finds a smaller one that fails
//! the same way.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of the commands"
)]

use std::io::Write;
use std::process::ExitCode;

use membership_testing::campaign::{self, CampaignOptions, Fault};

/// Which run, with the arguments that a violation prints.
#[derive(clap::Args)]
pub struct Which {
    /// The seed
    seed: u64,
    /// Silos of the cluster, as in the campaign
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(2..=1000))]
    silos: u16,
    /// Virtual minutes of faults, as in the campaign
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Exactly these kinds of faults, instead of those that the seed draws
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    faults: Vec<Fault>,
    /// A stranger, former members and one member forge messages, as in the campaign
    #[arg(long)]
    hostile: bool,
    /// One silo writes the changes of many, as in the campaign
    #[arg(long)]
    scribe: bool,
    /// With --scribe: every other silo that starts does without, as in the campaign
    #[arg(long, requires = "scribe")]
    mixed: bool,
    /// Steps at which no fault starts, counted from 0
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<u32>,
}

impl Which {
    fn options(&self) -> CampaignOptions {
        CampaignOptions {
            silos: self.silos.into(),
            minutes: self.minutes,
            only: self.faults.clone(),
            hostile: self.hostile,
            scribe: self.scribe,
            mixed: self.mixed,
            skip: self.skip.iter().copied().collect(),
            ..CampaignOptions::default()
        }
    }

    pub fn replay(&self) -> ExitCode {
        let (text, violation) = campaign::replay(self.seed, &self.options());
        // A reader may close the pipe early.
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
        eprintln!("searching for a smaller run that fails the same way: up to 300 runs");
        match campaign::shrink(self.seed, &self.options()) {
            None => {
                println!(
                    "seed {}: every invariant holds, there is nothing to shrink",
                    self.seed
                );
                ExitCode::SUCCESS
            }
            Some(small) => {
                println!(
                    "{}\n\nthe smallest of {} runs; to replay it:\n  {}",
                    small.violation,
                    small.runs,
                    small.command()
                );
                ExitCode::from(1)
            }
        }
    }
}
