//! The runs of one row of the report, and the figures of that row.

use std::collections::BTreeSet;

use super::{Cell, Outcome, Piece};
use crate::figures::{mean, number, quantile, spread};
use crate::systems::System;

/// The runs of one row: of a system, all of them or only those that chitchat had, too.
pub(super) struct Runs<'a> {
    pub(super) system: System,
    pub(super) shared: bool,
    pub(super) of: Vec<&'a (Piece, Outcome)>,
}

/// A count of a run.
pub(super) type Count = fn(&Outcome) -> usize;

/// The compared counts, in order: each is the mean over the repetitions of the sum over all cells,
/// of repeated and of single anomalies.
pub(super) const COMPARED: [(&str, Count); 3] = [
    ("false deaths", |o| o.all),
    ("false deaths at healthy members", |o| o.healthy),
    ("healthy members given up", |o| o.victims),
];

impl<'a> Runs<'a> {
    pub(super) fn name(&self) -> String {
        if self.shared {
            format!("{}, only chitchat's runs", self.system.name())
        } else {
            self.system.name().to_owned()
        }
    }

    pub(super) fn repeats(&self) -> u32 {
        self.of
            .iter()
            .map(|(piece, _)| piece.repeat + 1)
            .max()
            .unwrap_or(1)
    }

    pub(super) fn outcomes(&self, which: fn(&Cell) -> bool) -> impl Iterator<Item = &'a Outcome> {
        self.of
            .iter()
            .filter(move |(piece, _)| which(&piece.cell))
            .map(|(_, outcome)| outcome)
    }

    /// A sum over these cells, for each repetition.
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn sums(&self, what: Count, which: fn(&Cell) -> bool) -> Vec<f64> {
        let sum = |repeat: u32| -> usize {
            self.of
                .iter()
                .filter(|(piece, _)| piece.repeat == repeat && which(&piece.cell))
                .map(|(_, outcome)| what(outcome))
                .sum()
        };
        (0..self.repeats())
            .map(|repeat| sum(repeat) as f64)
            .collect()
    }

    /// The spread of the repetitions.
    pub(super) fn spread(&self, what: Count, which: fn(&Cell) -> bool) -> String {
        spread(&self.sums(what, which), 0)
    }

    pub(super) fn compared(&self) -> [f64; 3] {
        COMPARED.map(|(_, what)| mean(&self.sums(what, |_| true)).unwrap_or(0.0))
    }

    pub(super) fn times(&self, of: fn(&Outcome) -> &[f64]) -> Vec<f64> {
        self.of
            .iter()
            .flat_map(|(_, outcome)| of(outcome).iter().copied())
            .collect()
    }

    /// The median of the first detections; infinite when half of the members were never detected,
    /// none when no member had to be.
    pub(super) fn median(&self) -> Option<f64> {
        quantile(&self.times(|o| &o.first), 0.5)
    }

    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn repeated(&self) -> Vec<String> {
        const AGAIN: fn(&Cell) -> bool = |cell| cell.off > 0;
        let once = self
            .of
            .iter()
            .filter(|(piece, _)| piece.repeat == 0 && AGAIN(&piece.cell))
            .count();
        let runs = if self.repeats() == 1 {
            once.to_string()
        } else {
            format!("{} × {once}", self.repeats())
        };
        let seconds: f64 = self.outcomes(AGAIN).map(|o| o.member_seconds).sum();
        let load = |sum: Option<u64>| {
            number(
                sum.filter(|_| seconds > 0.0)
                    .map(|sum| sum as f64 / seconds),
                2,
            )
        };
        let kload = |sum: Option<u64>| {
            number(
                sum.filter(|_| seconds > 0.0)
                    .map(|sum| sum as f64 / seconds / 1e3),
                2,
            )
        };
        let mut row = vec![self.name(), runs];
        let counts: [Count; 4] = [|o| o.all, |o| o.healthy, |o| o.victims, |o| o.blocked];
        for what in counts {
            row.push(self.spread(what, AGAIN));
        }
        row.extend([
            load(Some(self.outcomes(AGAIN).map(|o| o.traffic.messages).sum())),
            kload(Some(self.outcomes(AGAIN).map(|o| o.traffic.bytes).sum())),
            load(
                self.outcomes(AGAIN)
                    .map(|o| o.table.map(|table| table.requests()))
                    .sum(),
            ),
            kload(
                self.outcomes(AGAIN)
                    .map(|o| o.table.map(|table| table.bytes_read + table.bytes_written))
                    .sum(),
            ),
        ]);
        row
    }

    pub(super) fn single(&self) -> Vec<String> {
        let (first, full) = (self.times(|o| &o.first), self.times(|o| &o.full));
        let mut row = vec![self.name(), first.len().to_string()];
        for values in [&first, &full] {
            row.extend([0.5, 0.99, 0.999].map(|q| number(quantile(values, q), 2)));
        }
        row.push(self.spread(
            |o| o.first.iter().filter(|time| time.is_infinite()).count(),
            |_| true,
        ));
        let counts: [Count; 2] = [|o| o.all, |o| o.healthy];
        for what in counts {
            row.push(self.spread(what, |cell| cell.off == 0));
        }
        row
    }
}
pub(super) fn rows<'a>(systems: &[System], results: &'a [(Piece, Outcome)]) -> Vec<Runs<'a>> {
    let cells_of = |system: System| -> BTreeSet<Cell> {
        results
            .iter()
            .filter(|(p, _)| p.system == system)
            .map(|(p, _)| p.cell)
            .collect()
    };
    let of = |system: System| {
        results
            .iter()
            .filter(move |(piece, _)| piece.system == system)
    };
    let mut rows: Vec<Runs<'_>> = systems
        .iter()
        .map(|system| Runs {
            system: *system,
            shared: false,
            of: of(*system).collect(),
        })
        .collect();
    // A system that ran fewer cells is compared in these cells.
    let (shared, ours) = (cells_of(System::Chitchat), cells_of(System::Membership));
    if !shared.is_empty() && shared != ours && systems.contains(&System::Membership) {
        let of = of(System::Membership)
            .filter(|(piece, _)| shared.contains(&piece.cell))
            .collect();
        rows.push(Runs {
            system: System::Membership,
            shared: true,
            of,
        });
    }
    rows
}
