//! `steady`: a cluster to which nothing happens.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::cast_precision_loss, reason = "what the command answers; figures for people")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use membership_core::testing::{Cluster, Violation};
use membership_core::{Config, Preset};

use crate::figures::{Figures, peak_memory};

/// How many silos join at a time before anything is measured.
const JOIN: usize = 50;

/// How large, and for how long.
#[derive(clap::Args)]
pub struct Steady {
    /// Sizes of the clusters
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1000], value_parser = clap::value_parser!(u16).range(1..=10_000))]
    silos: Vec<u16>,
    /// Virtual minutes that are measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Decides every throw of the dice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Comma-separated values
    #[arg(long)]
    csv: bool,
}

impl Steady {
    pub fn run(&self) -> ExitCode {
        let head = [
            "silos",
            "messages/silo/s",
            "reads/s",
            "rows read/s",
            "heartbeats/s",
            "commits",
            "false deaths",
            "joined in s",
            "simulated in s",
            "events",
            "events/s",
            "MiB at most",
        ];
        let mut figures = Figures::new(&head);
        for silos in &self.silos {
            match self.measure((*silos).into()) {
                Ok(row) => figures.row(row),
                Err(violation) => {
                    eprintln!("{violation}");
                    return ExitCode::from(1);
                }
            }
        }
        figures.print(self.csv);
        ExitCode::SUCCESS
    }

    fn measure(&self, silos: usize) -> Result<Vec<String>, Violation> {
        // As is recommended for large clusters.
        let lan = Config::preset(Preset::Lan);
        let config = if silos > 200 { Config { i_am_alive_period: Duration::from_secs(30), ..lan } } else { lan };
        let world = |e: &dyn std::fmt::Display| Violation::new(self.seed, "world", e.to_string(), Duration::ZERO, Vec::new());
        let mut cluster = Cluster::builder().seed(self.seed).config(config).build().map_err(|e| world(&e))?;
        let joining = Instant::now();
        let mut left = silos;
        while left > 0 {
            let now = left.min(JOIN);
            cluster.start(now);
            cluster.run_until_agreed(Duration::from_secs(300))?;
            left -= now;
        }
        cluster.run_for(Duration::from_secs(60))?;
        let joined = joining.elapsed();
        let (before, traffic) = (*cluster.stats(), cluster.table_traffic());
        let began = Instant::now();
        let time = Duration::from_secs(self.minutes * 60);
        cluster.run_for(time)?;
        let (took, after, traffic) = (began.elapsed().as_secs_f64(), *cluster.stats(), cluster.table_traffic().since(&traffic));
        let (seconds, events) = (time.as_secs_f64(), after.inputs - before.inputs);
        let reads = traffic.reads + traffic.unchanged;
        Ok(vec![
            silos.to_string(),
            format!("{:.2}", (after.sent - before.sent) as f64 / seconds / silos as f64),
            format!("{:.2}", reads as f64 / seconds),
            format!("{:.0}", reads as f64 * silos as f64 / seconds),
            format!("{:.1}", traffic.heartbeats as f64 / seconds),
            (after.commits - before.commits).to_string(),
            (after.voted_out_alive - before.voted_out_alive).to_string(),
            format!("{:.1}", joined.as_secs_f64()),
            format!("{took:.1}"),
            events.to_string(),
            format!("{:.0}", events as f64 / took),
            peak_memory().map_or_else(|| "?".to_owned(), |mib| mib.to_string()),
        ])
    }
}
