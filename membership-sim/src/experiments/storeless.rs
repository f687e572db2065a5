//! `storeless`: what members without a store promise, beside other systems without one: a start of all
//! at once, one crash, quiet, and the anomalies of Lifeguard.

use super::bootstrap::Bootstrap;
use super::crash::Crash;
use super::lifeguard::Lifeguard;
use super::steady::Steady;
use crate::arena::Failure;
use crate::report::{Common, Report};
use crate::systems::System;

/// As many members as chitchat can be simulated with where it has to settle first.
const SOME: u16 = 100;
/// As many as a cluster without a store should have at most. They begin as a formed cluster.
const MANY: u16 = 10_000;

/// Members without a store beside others: a start, one crash, quiet, slow members
#[derive(clap::Args, Clone, Debug)]
pub struct Storeless {
    #[command(flatten)]
    pub common: Common,
    /// The number of members that start, of whom one crashes, and that are quiet
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(4..=2000))]
    pub silos: u16,
    /// The systems. chitchat runs in the start besides, and in a crash and in quiet with a hundred
    /// members: its simulation takes long
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Gossip, System::Foca])]
    pub systems: Vec<System>,
    /// Also run chitchat among slow members
    #[arg(long)]
    pub chitchat: bool,
}

impl Storeless {
    /// Runs the experiments.
    ///
    /// # Errors
    /// When a simulation stops, or a system has a table.
    pub fn report(&self) -> Result<Report, Failure> {
        if let Some(system) = self.systems.iter().find(|system| system.has_table()) {
            return Err(Failure::new(format!("{} has a table", system.name())));
        }
        let quick = self.common.quick;
        let silos = if quick { 20 } else { self.silos };
        let some = if quick { 10 } else { SOME };
        let mut with_chitchat = self.systems.clone();
        with_chitchat.push(System::Chitchat);
        let slow = if self.chitchat {
            &with_chitchat
        } else {
            &self.systems
        };
        let bootstrap = Bootstrap {
            batch: 100,
            rows_per_second: None,
            common: self.common.clone(),
            silos: vec![silos],
            table: vec![20],
            systems: with_chitchat.clone(),
            ghosts: None,
            phases: None,
            variants: Vec::new(),
            full: false,
        };
        let crash = |silos, systems: &[System]| Crash {
            common: self.common.clone(),
            silos: Some(silos),
            crashed: Some(1),
            systems: systems.to_vec(),
        };
        let steady = |silos, minutes, systems: &[System], formed| Steady {
            common: self.common.clone(),
            silos: vec![silos],
            minutes,
            systems: systems.to_vec(),
            formed,
        };
        let lifeguard = Lifeguard {
            common: self.common.clone(),
            silos: 128,
            systems: slow.clone(),
            full: false,
        };
        let mut report = Report::default();
        for part in [
            bootstrap.report()?,
            crash(some, &with_chitchat).report(false)?,
            crash(silos, &self.systems).report(false)?,
            steady(some, 10, &with_chitchat, false).report()?,
            steady(silos, 10, &self.systems, false).report()?,
            steady(MANY, 1, &[System::Gossip], true).report()?,
            lifeguard.report()?,
        ] {
            report.append(part);
        }
        Ok(report)
    }
}
