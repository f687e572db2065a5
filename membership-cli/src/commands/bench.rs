//! `membership bench`: what a table costs on this machine, beside what its store costs by itself.

use std::time::{Duration, Instant};

use crate::bench::grounds::Grounds;
use crate::bench::progress::Progress;
use crate::bench::report::Report;
use crate::bench::{operations, writers};
use crate::exit::{Exit, Failure};
use crate::program::Session;
use crate::stop::Stops;

/// Measure every operation of a table beside the store's own cheapest write and read; in clusters of its own, which it removes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to make the tables that are measured, for example sqlite:membership.db
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL"
    )]
    table: String,
    /// Sizes of table to time operations at, up to 10000; 0 = none
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [10, 100, 1000], value_parser = clap::value_parser!(u16).range(0..=10_000))]
    rows: Vec<u16>,
    /// How many clients commit at once, up to 256; 0 = none
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 32], value_parser = clap::value_parser!(u16).range(0..=256))]
    writers: Vec<u16>,
    /// How long each size and each number of writers is measured
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// The numbers of a list without nothing, each once, in their order.
fn each_once(asked: &[u16]) -> Vec<usize> {
    let mut numbers = Vec::new();
    for number in asked.iter().map(|n| usize::from(*n)).filter(|n| *n > 0) {
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let mut stops = Stops::listen(false)
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot listen to signals: {e}")))?;
    let plan = Plan {
        rows: each_once(&args.rows),
        writers: each_once(&args.writers),
        time: Duration::from_secs(args.seconds.into()),
    };
    if plan.rows.is_empty() && plan.writers.is_empty() {
        return Err(Failure::usage(
            "--rows 0 and --writers 0 leave nothing to measure",
        ));
    }
    let mut grounds = Grounds::new(session.connectors(), &args.table);
    let mut progress = Progress::new(plan.whole(), session.err.is_terminal());
    let done = tokio::select! {
        biased;
        _ = stops.next() => Err(Failure::new(Exit::Failed, "stopped before the end")),
        done = plan.carry_out(&mut grounds, &mut progress) => done,
    };
    progress.clear();
    // Whatever happened: what was made is removed.
    let left = tokio::select! {
        left = grounds.clear() => left,
        _ = stops.next() => return Err(Failure::new(Exit::Failed, "stopped while removing what was measured; clusters bench-…/… may be left")),
    };
    for (what, why) in &left {
        session.err.line(format_args!(
            "warning: {what} is left behind: {why}; `membership delete` removes a cluster"
        ));
    }
    let report = done?;
    if args.json {
        session.out.line(report.as_json());
    } else {
        report.show(&mut session.out);
    }
    if left.is_empty() {
        Ok(Exit::Ok)
    } else {
        Err(Failure::new(
            Exit::Failed,
            "not everything could be removed",
        ))
    }
}

/// What is measured, for how long each.
struct Plan {
    rows: Vec<usize>,
    writers: Vec<usize>,
    time: Duration,
}

impl Plan {
    fn whole(&self) -> Duration {
        let parts = self.rows.len() + 2 * self.writers.len();
        self.time * u32::try_from(parts).unwrap_or(u32::MAX)
    }

    async fn carry_out(
        &self,
        grounds: &mut Grounds,
        progress: &mut Progress,
    ) -> Result<Report, Failure> {
        let mut report = Report::new(self.time);
        for rows in &self.rows {
            progress.says(format!("{rows} rows: filling"));
            progress.within(Instant::now(), self.time);
            let table = grounds.cluster(&format!("rows-{rows}"), *rows).await?;
            report.about(table.as_ref());
            let yardstick = grounds.yardstick(table.as_ref());
            progress.says(format!("{rows} rows"));
            report.operations.push(
                operations::measure(table.as_ref(), yardstick, *rows, self.time, progress).await?,
            );
            progress.done(self.time);
        }
        for writers in &self.writers {
            let measured = writers::measure(grounds, *writers, self.time, progress).await?;
            report.about(measured.table.as_ref());
            report.writers.push(measured);
        }
        Ok(report)
    }
}
