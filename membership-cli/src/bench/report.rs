//! The figures of a run: a table for people, one JSON object for programs.

use std::time::Duration;

use membership_core::{Guarantees, MembershipTable};
use serde_json::{Value, json};

use super::operations::{Operations, Timed};
use super::writers::Writers;
use crate::out::{Out, Paint};
use crate::text::{Grid, count};

/// The figures of one run.
pub(crate) struct Report {
    time: Duration,
    store: Option<Store>,
    pub operations: Vec<Operations>,
    pub writers: Vec<Writers>,
}

/// The store that was measured.
struct Store {
    name: &'static str,
    guarantees: Guarantees,
    /// What the provider calls its store's own cheapest write and read.
    own: Option<(&'static str, &'static str)>,
}

impl Report {
    pub const fn new(time: Duration) -> Self {
        Self {
            time,
            store: None,
            operations: Vec::new(),
            writers: Vec::new(),
        }
    }

    pub fn about(&mut self, table: &dyn MembershipTable) {
        self.store.get_or_insert_with(|| Store {
            name: table.store(),
            guarantees: table.guarantees(),
            own: table.baseline().map(|b| (b.write_is(), b.read_is())),
        });
    }

    pub fn show(&self, out: &mut Out) {
        let Some(store) = &self.store else { return };
        match store.own {
            Some((write, read)) => out.line(format_args!(
                "{}, beside its own cheapest write ({write}) and read ({read})",
                store.name
            )),
            None => out.line(format_args!(
                "{}; its provider has no baseline for the store, so there are no ratios",
                store.name
            )),
        }
        if !self.operations.is_empty() {
            out.line("");
            self.show_operations(out);
        }
        if !self.writers.is_empty() {
            out.line("");
            self.show_writers(out);
        }
    }

    fn show_operations(&self, out: &mut Out) {
        let mut grid = Grid::new([
            "ROWS",
            "OPERATION",
            "P50",
            "P99",
            "OWN P50",
            "OWN P99",
            "RATIO",
        ]);
        let plain = |text: String| (text, Paint::Plain);
        for of in &self.operations {
            for what in Timed::OPERATIONS {
                let (own, times) = (of.of(what.own()), of.of(what));
                grid.row([
                    plain(of.rows.to_string()),
                    plain(what.name().to_owned()),
                    plain(time(times.percentile(50))),
                    plain(time(times.percentile(99))),
                    plain(time(own.percentile(50))),
                    plain(time(own.percentile(99))),
                    plain(ratio(of.ratio(what))),
                ]);
            }
        }
        grid.show(out);
        let rounds: usize = self
            .operations
            .iter()
            .map(|o| o.of(Timed::Commit).count())
            .sum();
        let troubled: usize = self.operations.iter().map(|o| o.troubled).sum();
        let troubled = if troubled == 0 {
            String::new()
        } else {
            format!(
                ", {} more not counted: the store was busy",
                count(troubled, "round")
            )
        };
        out.line(format_args!(
            "{}{troubled}; RATIO is P50 / OWN P50",
            count(rounds, "round")
        ));
    }

    fn show_writers(&self, out: &mut Out) {
        let mut grid = Grid::new([
            "WRITERS",
            "COMMITS/S",
            "CONFLICTS",
            "BUSY",
            "UNKNOWN",
            "LONGEST WAIT",
            "OWN WRITES/S",
            "RATIO",
        ]);
        let plain = |text: String| (text, Paint::Plain);
        for of in &self.writers {
            let unless_zero = |n: u64| plain(if n == 0 { String::new() } else { n.to_string() });
            grid.row([
                plain(of.writers.to_string()),
                plain(format!("{:.0}", of.commits_per_second())),
                plain(of.tally.conflicts.to_string()),
                unless_zero(of.tally.busy),
                unless_zero(of.tally.unknown),
                plain(time(Some(of.tally.longest_wait))),
                plain(
                    of.own_per_second
                        .map_or_else(String::new, |n| format!("{n:.0}")),
                ),
                plain(ratio(of.ratio())),
            ]);
        }
        grid.show(out);
        out.line(format_args!(
            "{} s each; RATIO is OWN WRITES/S / COMMITS/S",
            self.time.as_secs()
        ));
    }

    pub fn as_json(&self) -> Value {
        let own = self.store.as_ref().and_then(|s| s.own);
        json!({
            "store": self.store.as_ref().map(|s| s.name),
            "guarantees": self.store.as_ref().map(|s| s.guarantees),
            "own_write": own.map(|(write, _)| write),
            "own_read": own.map(|(_, read)| read),
            "seconds": self.time.as_secs(),
            "operations": self.operations.iter().flat_map(|of| Timed::OPERATIONS.map(|what| operation(of, what))).collect::<Vec<_>>(),
            "writers": self.writers.iter().map(writers).collect::<Vec<_>>(),
        })
    }
}

fn operation(of: &Operations, what: Timed) -> Value {
    let (own, times) = (of.of(what.own()), of.of(what));
    json!({
        "rows": of.rows,
        "operation": what.name(),
        "rounds": times.count(),
        "p50_us": micros(times.percentile(50)),
        "p99_us": micros(times.percentile(99)),
        "own_p50_us": micros(own.percentile(50)),
        "own_p99_us": micros(own.percentile(99)),
        "ratio": of.ratio(what),
    })
}

fn writers(of: &Writers) -> Value {
    json!({
        "writers": of.writers,
        "seconds": of.time.as_secs_f64(),
        "commits": of.tally.commits,
        "commits_per_second": of.commits_per_second(),
        "conflicts": of.tally.conflicts,
        "busy": of.tally.busy,
        "unknown": of.tally.unknown,
        "longest_wait_ms": u64::try_from(of.tally.longest_wait.as_millis()).unwrap_or(u64::MAX),
        "own_writes_per_second": of.own_per_second,
        "ratio": of.ratio(),
    })
}

fn micros(time: Option<Duration>) -> Option<f64> {
    time.map(|t| t.as_secs_f64() * 1e6)
}

/// `23 µs`, `1.42 ms`, `2.3 s`: two or three digits.
fn time(time: Option<Duration>) -> String {
    let Some(time) = time else {
        return String::new();
    };
    match time.as_micros() {
        us @ 0..1_000 => format!("{us} µs"),
        us @ 1_000..10_000 => format!("{:.2} ms", us as f64 / 1e3),
        us @ 10_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        us => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |r| format!("{r:.2}"))
}
