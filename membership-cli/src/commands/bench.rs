//! `membership bench`: the cost of a table on this machine, beside the cost of its store alone.

use std::time::{Duration, Instant};

use crate::bench::clusters::BenchClusters;
use crate::bench::progress::Progress;
use crate::bench::report::Report;
use crate::bench::{operations, writers};
use crate::exit::{Exit, Failure};
use crate::session::{Session, StoreArgs};
use crate::stop::Stops;

/// Measure every operation of a table, and beside it the store's own cheapest write and read, in
/// clusters that it makes and removes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
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

/// The numbers without 0 and without duplicates, in their order.
fn distinct(asked: &[u16]) -> Vec<usize> {
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
        rows: distinct(&args.rows),
        writers: distinct(&args.writers),
        time: Duration::from_secs(args.seconds.into()),
    };
    if plan.rows.is_empty() && plan.writers.is_empty() {
        return Err(Failure::usage(
            "--rows 0 and --writers 0 leave nothing to measure",
        ));
    }
    let mut clusters = BenchClusters::new(session.connectors(), &args.store.table);
    let mut progress = Progress::new(plan.whole(), session.err.is_terminal());
    let done = tokio::select! {
        biased;
        _ = stops.next() => Err(Failure::new(Exit::Failed, "stopped before the end")),
        done = plan.carry_out(&mut clusters, &mut progress) => done,
    };
    progress.clear();
    // The clusters are removed in any case.
    let left = tokio::select! {
        left = clusters.clear() => left,
        _ = stops.next() => return Err(Failure::new(Exit::Failed, "stopped during the clean-up; clusters bench-…/… may be left in the store")),
    };
    for (what, why) in &left {
        session.err.line(format_args!(
            "warning: {what} is left behind: {why}; remove a cluster with `membership delete`"
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
            "not everything could be removed; see the warnings above",
        ))
    }
}

/// The planned parts, with the time for each.
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
        clusters: &mut BenchClusters,
        progress: &mut Progress,
    ) -> Result<Report, Failure> {
        let mut report = Report::new(self.time);
        for rows in &self.rows {
            progress.label(format!("{rows} rows: filling"));
            progress.update(Instant::now(), self.time);
            let table = clusters.cluster(&format!("rows-{rows}"), *rows).await?;
            report.about(table.as_ref());
            let baseline = clusters.baseline(table.as_ref());
            progress.label(format!("{rows} rows"));
            report.operations.push(
                operations::measure(table.as_ref(), baseline, *rows, self.time, progress).await?,
            );
            progress.done(self.time);
        }
        for writers in &self.writers {
            let measured = writers::measure(clusters, *writers, self.time, progress).await?;
            report.about(measured.table.as_ref());
            report.writers.push(measured);
        }
        Ok(report)
    }
}
