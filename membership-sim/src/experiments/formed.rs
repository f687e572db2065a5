//! A large cluster that has just formed, soon: one silo starts, and then all others at once.

use std::time::Duration;

use crate::arena::{Arena as _, Failure};
use crate::ours::Ours;

/// How long the first silo is alone.
const ALONE: Duration = Duration::from_secs(5);
/// The time within which all others start.
const SPREAD: Duration = Duration::from_millis(500);
/// How often the cluster is looked at: a look costs a pass over all silos.
const STEP: Duration = Duration::from_millis(250);
/// The longest time that it may take.
const AT_MOST: Duration = Duration::from_secs(900);

/// Starts so many silos, waits until all of them are Active and see exactly these, and then for
/// `quiet`. Silos that stop are not started again.
///
/// # Errors
/// When they do not agree in time.
pub(super) fn formed(ours: &mut Ours, silos: usize, quiet: Duration) -> Result<(), Failure> {
    ours.supervised = false;
    ours.start(1, Duration::ZERO);
    ours.run_for(ALONE)?;
    ours.start(silos.saturating_sub(1), SPREAD);
    let end = ours.now() + AT_MOST;
    while !(ours.cluster.running().len() == silos && ours.cluster.agrees()) {
        if ours.now() >= end {
            return Err(Failure::new(format!(
                "{silos} silos did not all see each other within {AT_MOST:?}"
            )));
        }
        ours.run_for(STEP)?;
    }
    ours.run_for(quiet)?;
    ours.forget();
    Ok(())
}
