//! `storeless`: what members without a store promise, beside other systems without one: a start of all
//! at once, one crash, quiet, and the anomalies of Lifeguard.

use super::bootstrap::Bootstrap;
use super::crash::Crash;
use super::lifeguard::Lifeguard;
use super::steady::Steady;
use crate::arena::Failure;
use crate::report::{Common, Report};
use crate::systems::System;

/// Members without a store beside others: a start, one crash, quiet, slow members
#[derive(clap::Args, Clone, Debug)]
pub struct Storeless {
    #[command(flatten)]
    pub common: Common,
    /// The number of members that start, of whom one crashes, and that are quiet
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(4..=2000))]
    pub silos: u16,
    /// The systems; chitchat, whose simulation takes long, runs only in the table of slow members
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
        let silos = if self.common.quick { 20 } else { self.silos };
        let mut slow = self.systems.clone();
        slow.extend(self.chitchat.then_some(System::Chitchat));
        let (common, systems) = (self.common.clone(), self.systems.clone());
        let bootstrap = Bootstrap {
            common: common.clone(),
            silos: vec![silos],
            table: vec![20],
            systems: systems.clone(),
            ghosts: None,
            phases: None,
            variants: Vec::new(),
            full: false,
        };
        let crash = Crash {
            common: common.clone(),
            silos: Some(silos),
            crashed: Some(1),
            systems: systems.clone(),
        };
        let steady = Steady {
            common: common.clone(),
            silos: vec![silos],
            minutes: 10,
            systems,
        };
        let lifeguard = Lifeguard {
            common,
            silos: 128,
            systems: slow,
            full: false,
        };
        let mut report = Report::default();
        for part in [
            bootstrap.report()?,
            crash.report(false)?,
            steady.report()?,
            lifeguard.report()?,
        ] {
            report.append(part);
        }
        Ok(report)
    }
}
