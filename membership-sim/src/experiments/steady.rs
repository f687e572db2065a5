//! `steady`: a cluster without events.

use std::time::Duration;

use super::{QUIET, WITHOUT_CHITCHAT, each, large, unique};
use crate::arena::{Arena, Failure, Traffic, settled};
use crate::figures::{Figures, mean, number, peak_memory, quantile};
use crate::ours::Make;
use crate::report::{Common, Report};
use crate::systems::System;
use crate::work::Stopwatch;

/// The costs of a cluster without faults: messages, table operations, and the speed of the
/// simulation
#[derive(clap::Args, Clone, Debug)]
pub struct Steady {
    #[command(flatten)]
    pub common: Common,
    /// The sizes of the clusters
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1000], value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub silos: Vec<u16>,
    /// The measured virtual minutes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub minutes: u64,
    /// The systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Gossip, System::Foca])]
    pub systems: Vec<System>,
    /// Members begin with the state of a cluster in which all are up instead of joining it; only gossip
    /// can. To simulate that thousands join takes hours
    #[arg(long)]
    pub formed: bool,
}

/// The quiet before the measured minutes of a formed cluster.
const BEGUN: Duration = Duration::from_secs(30);
/// The most that a member of a thousand may send without a store, in KB/s.
const WITHOUT_STORE: f64 = 0.4;

#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    silos: usize,
    seed: u64,
    minutes: u64,
    formed: bool,
}

#[derive(Default)]
struct Outcome {
    /// Per member and second.
    messages: Vec<f64>,
    kbytes: Vec<f64>,
    /// Per second: reads, those of the whole table, rows in them, heartbeats in reads, heartbeats
    /// written. Then commits.
    table: Option<[f64; 6]>,
    given_up: usize,
    /// Virtual seconds until all members counted all, and how long the simulation of that took.
    joined: [f64; 2],
    took: f64,
    events: Option<f64>,
}

impl Steady {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let sizes: Vec<usize> = if self.common.quick {
            vec![10]
        } else {
            unique(&self.silos).into_iter().map(usize::from).collect()
        };
        let minutes = if self.common.quick { 1 } else { self.minutes };
        let mut pieces = Vec::new();
        for system in &unique(&self.systems) {
            for silos in &sizes {
                pieces.extend(self.common.seeds_or(1).into_iter().map(|seed| Piece {
                    system: *system,
                    silos: *silos,
                    seed,
                    minutes,
                    formed: self.formed,
                }));
            }
        }
        let outcomes = each(
            "steady",
            &pieces,
            self.common.threads(),
            |piece| piece.seed,
            one,
        )?;
        let mut load = Figures::new(
            2,
            &[
                "system",
                "members",
                "messages/s: mean",
                "p99",
                "max",
                "KB/s: mean",
                "p99",
                "max",
                "table reads/s",
                "whole",
                "rows/s",
                "heartbeats read/s",
                "heartbeats/s",
                "commits",
                "given up",
            ],
        );
        let mut speed = Figures::new(
            2,
            &[
                "system",
                "members",
                "all know all after s",
                "of a core s",
                "the minutes: of a core s",
                "virtual over real",
                "events/s",
            ],
        );
        let mut report = Report::default();
        for (piece, o) in pieces.iter().zip(outcomes) {
            let name = || vec![piece.system.name().to_owned(), piece.silos.to_string()];
            let mut row = name();
            for values in [&o.messages, &o.kbytes] {
                row.extend(
                    [mean(values), quantile(values, 0.99), quantile(values, 1.0)]
                        .map(|value| number(value, 2)),
                );
            }
            row.extend((0..6).map(|i| {
                number(
                    o.table.and_then(|table| table.get(i).copied()),
                    if i < 2 { 2 } else { 0 },
                )
            }));
            row.push(o.given_up.to_string());
            load.row(row);
            let mut row = name();
            #[allow(clippy::cast_precision_loss, reason = "figures for people")]
            let ratio = (minutes * 60) as f64 / o.took;
            row.extend([
                number(Some(o.joined[0]), 0),
                number(Some(o.joined[1]), 1),
                number(Some(o.took), 1),
                number(Some(ratio), 0),
                number(o.events.map(|events| events / o.took), 0),
            ]);
            speed.row(row);
            if piece.system == System::Gossip {
                let sent = mean(&o.kbytes).unwrap_or(f64::INFINITY);
                report.must(
                    piece.silos > 1000 || sent <= WITHOUT_STORE,
                    format!(
                        "gossip, {} members: {sent:.2} KB/s, not {WITHOUT_STORE}",
                        piece.silos
                    ),
                );
                report.must(
                    o.given_up == 0,
                    format!(
                        "gossip, {} members: {} were given up",
                        piece.silos, o.given_up
                    ),
                );
            }
            if piece.system == System::Membership {
                report.must(
                    o.joined[0] <= 1200.0,
                    format!(
                        "{} silos: all knew all after {:.0} s, not 20 min",
                        piece.silos, o.joined[0]
                    ),
                );
                report.must(
                    o.given_up == 0,
                    format!(
                        "{} silos: {} were given up, and nothing had happened",
                        piece.silos, o.given_up
                    ),
                );
                report.must(
                    piece.silos != 1000 || minutes != 10 || o.took <= 60.0,
                    format!(
                        "1000 silos for 10 virtual minutes took {:.0} s of a core, not 60",
                        o.took
                    ),
                );
            }
        }
        let published = [
            ("ZooKeeper, published", ["0.01", "0.33", "0.67"]),
            ("memberlist, published", ["0.64", "6.40", "8.04"]),
            ("Rapid, published", ["0.71", "3.72", "11.37"]),
        ];
        let at_their_size = sizes.contains(&1000) || self.common.quick;
        for (name, sent) in published.into_iter().filter(|_| at_their_size) {
            let dashes = |n: usize| std::iter::repeat_n("–".to_owned(), n);
            let cells = [name.to_owned(), "1000".to_owned()]
                .into_iter()
                .chain(dashes(3))
                .chain(sent.iter().map(|s| (*s).to_owned()))
                .chain(dashes(7));
            load.row(cells.collect());
        }
        // It is that of the process, in which other systems may have run, and larger clusters of them.
        let with_table = pieces
            .iter()
            .any(|piece| piece.system == System::Membership);
        if let Some(mib) = peak_memory().filter(|_| with_table) {
            report.must(mib < 2048, format!("{mib} MiB at most, not 2 GiB"));
        }
        report.table(
            format!(
                "{minutes} virtual minutes of quiet: what each member sends per second, and \
                     what all of them request from the table"
            ),
            load,
        );
        report.table("Speed of the simulation, on one core each", speed);
        report.note(format!("Settings: {}.", large()));
        report.note(format!(
            "Members join 50 at a time, above 1,000 one in twenty, the next ones when all know all or 20 s later. Sizes are \
             those of frames and datagrams as the systems encode them, without what TCP, UDP and \
             IP add. Published: Rapid, ATC 2018, table 2, \
             KB/s sent per process at 1,000, over a run with crashes. Microsoft Orleans, derived from its settings: at 1,000 silos 33 \
             heartbeats and 17 reads per second, 17,000 rows per second, each with its heartbeat \
             in it; the corresponding figure of membership is the sum of *rows/s* and *heartbeats \
             read/s*, and a heartbeat is shorter than a row. {WITHOUT_CHITCHAT}"
        ));
        Ok(report)
    }
}

/// The simulation of one run. For ours it also gives access to the cluster.
enum World {
    Ours(Box<crate::ours::Ours>),
    Other(Box<dyn Arena>),
}

impl World {
    fn arena(&mut self) -> &mut dyn Arena {
        match self {
            Self::Ours(ours) => &mut **ours,
            Self::Other(other) => &mut **other,
        }
    }
}

/// Starts the members of a formed cluster, and waits until what they exchange at first is over.
fn begun(arena: &mut dyn Arena, members: usize) -> Result<(), Failure> {
    arena.start(members, Duration::from_secs(1));
    arena.run_for(BEGUN)?;
    if arena.all_count(0..members, members).is_none() {
        return Err(Failure::new(format!(
            "{members} members of a formed cluster do not all see each other after {BEGUN:?}"
        )));
    }
    arena.forget();
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn one(piece: &Piece) -> Result<Outcome, Failure> {
    let mut world = match piece.system {
        system if piece.formed => World::Other(system.formed(piece.seed, piece.silos)?),
        system if !system.has_table() => World::Other(system.world(piece.seed, piece.silos)?),
        _ => World::Ours(Box::new(
            Make {
                watched: false,
                ..piece.system.make(piece.seed, piece.silos)?
            }
            .build()?,
        )),
    };
    let mut outcome = Outcome::default();
    let watch = Stopwatch::start();
    if piece.formed {
        begun(world.arena(), piece.silos)?;
        outcome.joined = [0.0, watch.seconds()];
    } else {
        settled(world.arena(), piece.silos, QUIET)?;
        outcome.joined = [(world.arena().now() - QUIET).as_secs_f64(), watch.seconds()];
    }
    let before = if let World::Ours(ours) = &world {
        Some((*ours.cluster.stats(), ours.cluster.table_traffic()))
    } else {
        None
    };
    let mut sent: Vec<Traffic> = (0..piece.silos)
        .map(|member| world.arena().sent(member))
        .collect();
    for _ in 0..piece.minutes * 60 {
        let watch = Stopwatch::start();
        world.arena().run_for(Duration::from_secs(1))?;
        outcome.took += watch.seconds();
        for (member, last) in sent.iter_mut().enumerate() {
            let now = world.arena().sent(member);
            let since = now.since(*last);
            *last = now;
            outcome.messages.push(since.messages as f64);
            outcome.kbytes.push(since.bytes as f64 / 1e3);
        }
    }
    if let (World::Ours(ours), Some((stats, traffic))) = (&world, before) {
        let (now, traffic, seconds) = (
            *ours.cluster.stats(),
            ours.cluster.table_traffic().since(&traffic),
            (piece.minutes * 60) as f64,
        );
        let (reads, whole) = (
            (traffic.reads + traffic.unchanged + traffic.row_reads) as f64 / seconds,
            traffic.reads as f64 / seconds,
        );
        let per_second = [
            traffic.rows_read,
            traffic.heartbeats_read,
            traffic.heartbeats,
        ]
        .map(|count| count as f64 / seconds);
        outcome.table = Some([
            reads,
            whole,
            per_second[0],
            per_second[1],
            per_second[2],
            traffic.commits as f64,
        ]);
        outcome.events = Some((now.inputs - stats.inputs) as f64);
    }
    outcome.given_up = super::victims(world.arena().record().deaths.iter());
    Ok(outcome)
}
