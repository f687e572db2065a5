//! Starts in which the silo that writes for the others dies or is paused, or was dead before: a
//! restart of the whole cluster.

use std::time::Duration;

use super::super::{each, unique};
use super::phases::{Phase, counts, phase};
use super::{AT_MOST, Bootstrap, SPREAD};
use crate::arena::{Arena, Failure, settled};
use crate::figures::{Figures, number};
use crate::ours::{Make, Ours};
use crate::report::Report;
use crate::systems::System;
use membership_core::{ClusterView, SiloAddress, SiloStatus};
use membership_testing::ProcessId;

/// How often the simulation is looked at.
const STEP: Duration = Duration::from_millis(10);
/// How long the silo that writes for others is paused.
const PAUSE: Duration = Duration::from_secs(10);
/// How much longer than without a disturbance it may take.
const LONGER: f64 = 5.0;

/// What happens during a start, or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Variant {
    /// Nothing
    Undisturbed,
    /// The silo that made the last commit is killed when half of the rows are in the table
    ScribeDies,
    /// The same, but it is paused for 10 s
    ScribePaused,
    /// The whole cluster has lost power, and starts again at the same addresses
    Restart,
}

impl Variant {
    const fn name(self) -> &'static str {
        match self {
            Self::Undisturbed => "undisturbed",
            Self::ScribeDies => "scribe-dies",
            Self::ScribePaused => "scribe-paused",
            Self::Restart => "restart",
        }
    }
}

/// One start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) variant: Variant,
    pub(super) system: System,
    pub(super) silos: usize,
    pub(super) table: u64,
    pub(super) seed: u64,
    pub(super) phases: Option<Duration>,
}

/// What came of it.
pub(super) struct Outcome {
    took: Option<f64>,
    counts: [u64; 7],
    /// Silos that ran, or were paused, and were declared dead.
    lost: u64,
    pub(super) phases: Vec<Phase>,
}

/// Runs the variants that were asked for, each beside an undisturbed start.
///
/// # Errors
/// When a simulation stops.
pub(super) fn run(of: &Bootstrap, sizes: &[usize]) -> Result<(Vec<Piece>, Vec<Outcome>), Failure> {
    let mut pieces = Vec::new();
    let variants = [&[Variant::Undisturbed], &of.variants[..]].concat();
    let asked = !of.variants.is_empty();
    let systems = unique(&of.systems).into_iter();
    for system in systems.filter(|system| asked && system.has_table()) {
        for silos in sizes.iter().copied() {
            for table in unique(&of.table) {
                for seed in of.common.seeds_or(1) {
                    let each = unique(&variants).into_iter();
                    pieces.extend(each.map(|variant| Piece {
                        variant,
                        system,
                        silos,
                        table,
                        seed,
                        phases: of.phases.map(Duration::from_millis),
                    }));
                }
            }
        }
    }
    let outcomes = each(
        "bootstrap, disturbed",
        &pieces,
        of.common.threads(),
        |piece| piece.seed,
        one,
    )?;
    Ok((pieces, outcomes))
}

/// Adds the figures to the report, and what must hold.
pub(super) fn add(report: &mut Report, pieces: &[Piece], outcomes: &[Outcome]) {
    let mut figures = Figures::new(
        5,
        &[
            "system",
            "variant",
            "members",
            "table ms",
            "seed",
            "all see all s",
            "commits tried",
            "commits",
            "conflicts",
            "rows read",
            "declared dead while running",
        ],
    );
    for (piece, o) in pieces.iter().zip(outcomes) {
        let [commits, conflicts, _, _, rows, ..] = o.counts;
        let tried = commits + conflicts;
        figures.row(vec![
            piece.system.name().to_owned(),
            piece.variant.name().to_owned(),
            piece.silos.to_string(),
            piece.table.to_string(),
            piece.seed.to_string(),
            number(o.took, 2),
            tried.to_string(),
            commits.to_string(),
            conflicts.to_string(),
            rows.to_string(),
            o.lost.to_string(),
        ]);
        if piece.system != System::Scribe {
            continue;
        }
        let name = format!(
            "{}, {} members, table {} ms, seed {}",
            piece.variant.name(),
            piece.silos,
            piece.table,
            piece.seed
        );
        let silos = piece.silos as u64;
        let undisturbed = pieces.iter().zip(outcomes).find(|(other, _)| {
            let like = Piece {
                variant: Variant::Undisturbed,
                ..*piece
            };
            (other.variant, other.system, other.silos) == (like.variant, like.system, like.silos)
                && (other.table, other.seed) == (like.table, like.seed)
        });
        let most = undisturbed.and_then(|(_, o)| o.took).unwrap_or(0.0) + LONGER;
        let in_time = o.took.is_some_and(|took| took <= most);
        report.must(in_time, format!("{name}: longer than {most:.1} s"));
        report.must(
            tried <= 3 * commits + silos / 10,
            format!("{name}: {tried} commits were tried for {commits}"),
        );
        report.must(
            piece.variant != Variant::Restart || conflicts <= silos / 10,
            format!("{name}: {conflicts} conflicts"),
        );
        report.must(
            rows <= 3 * silos,
            format!("{name}: {rows} rows read by {silos} silos"),
        );
    }
    report.table(
        "The same, while the silo that writes for the others is disturbed; until all others see all \
         others Active",
        figures,
    );
}

/// Runs one start.
fn one(piece: &Piece) -> Result<Outcome, Failure> {
    let way = Duration::from_millis(piece.table) / 2;
    let make = piece.system.make(piece.seed, piece.silos)?;
    let mut ours: Ours = Make {
        table: (way.mul_f64(0.8), way.mul_f64(1.2)),
        bytes: false,
        ..make
    }
    .build()?;
    ours.supervised = false;
    let mut waiting: Vec<Option<usize>> = if piece.variant == Variant::Restart {
        settled(&mut ours, piece.silos, Duration::from_secs(60))?;
        for member in 0..piece.silos {
            ours.kill(member);
        }
        ours.run_for(Duration::from_secs(5))?;
        (0..piece.silos).map(Some).collect()
    } else {
        ours.start(1, Duration::ZERO);
        vec![None; piece.silos - 1]
    };
    let first = (*ours.cluster.stats(), ours.cluster.table_traffic());
    if piece.variant != Variant::Restart {
        ours.run_for(Duration::from_secs(10))?;
    }
    let lost = ours.cluster.stats().voted_out_alive;
    let began = ours.now();
    let mut moments: Vec<Duration> = waiting
        .iter()
        .map(|_| began + ours.cluster.rng().between(Duration::ZERO, SPREAD))
        .collect();
    moments.sort();
    moments.reverse();
    let mut victim = None;
    let (mut phases, mut next) = (Vec::new(), began);
    let mut took = None;
    while took.is_none() && ours.now() < began + AT_MOST {
        while moments.pop_if(|at| *at <= ours.now()).is_some() {
            match waiting.pop().flatten() {
                Some(member) => ours.restart(member),
                None => {
                    ours.start(1, Duration::ZERO);
                }
            }
        }
        if piece.phases.is_some() && ours.now() >= next {
            phases.push(phase(&ours, began, &first));
            next = ours.now() + piece.phases.unwrap_or(AT_MOST);
        }
        ours.run_for(STEP)?;
        if victim.is_none() && half_are_in(&ours, piece.silos) {
            victim = disturb(&mut ours, piece.variant);
        }
        let rest = piece.silos - usize::from(victim.is_some());
        if waiting.is_empty() && all_see_all(&ours, victim, rest) {
            took = Some((ours.now() - began).as_secs_f64());
        }
    }
    if piece.phases.is_some() {
        phases.push(phase(&ours, began, &first));
    }
    Ok(Outcome {
        took,
        counts: counts(&ours, &first),
        lost: ours.cluster.stats().voted_out_alive - lost,
        phases,
    })
}

/// Whether the table has half of the rows.
fn half_are_in(ours: &Ours, silos: usize) -> bool {
    let alive = |s: SiloStatus| matches!(s, SiloStatus::Joining | SiloStatus::Active);
    let table = ours.cluster.table();
    let rows = table.iter().flat_map(|t| t.rows.entries());
    2 * rows.filter(|e| alive(e.status)).count() >= silos
}

/// Disturbs the silo that made the last commit. Returns which it is; none = this variant disturbs
/// nobody, or the silo has stopped.
fn disturb(ours: &mut Ours, variant: Variant) -> Option<ProcessId> {
    let last = ours.cluster.table()?.version_row.recent.last()?.committer?;
    let scribe = *ours.cluster.truth().owners.get(&last)?;
    match variant {
        Variant::Undisturbed | Variant::Restart => return None,
        Variant::ScribeDies => ours.cluster.kill(scribe),
        Variant::ScribePaused => ours.cluster.pause(scribe, PAUSE),
    }
    Some(scribe)
}

/// Whether the table has all silos but the disturbed one as Active, and all of them have seen that.
fn all_see_all(ours: &Ours, victim: Option<ProcessId>, silos: usize) -> bool {
    let running = ours.cluster.running().into_iter();
    let others: Vec<ProcessId> = running.filter(|id| Some(*id) != victim).collect();
    let Some(table) = ours.cluster.table().filter(|_| others.len() == silos) else {
        return false;
    };
    let address = |id: &ProcessId| ours.cluster.address(*id);
    let since = |silo: SiloAddress| {
        let entry = table.rows.get(&silo)?;
        (entry.status == SiloStatus::Active).then(|| entry.active_since.unwrap_or(0))
    };
    let since = others.iter().map(|id| since(address(id)?));
    let Some(since) = since.collect::<Option<Vec<u64>>>() else {
        return false;
    };
    let last = since.into_iter().max();
    let version = |id: &ProcessId| ours.cluster.view(*id).map(ClusterView::version);
    others.iter().all(|id| version(id) >= last)
}
