//! Asks the silos of a table who of them does not reach whom, as `membership status --ask` does.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use membership_core::{SiloAddress, SiloStatus};

use super::picture::Picture;
use super::source::{Reach, Source, wall};
use crate::transport::{Security, TransportError, ask_reach};

/// With fewer Active silos nobody can be reached by some and not by others.
const FEWEST: usize = 3;
/// So many are asked first, and then so many more if none answers: if all of these refuse this
/// program, no other has to say so in its log.
const FIRST: [usize; 2] = [1, 2];
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(3);
const EVERY: Duration = Duration::from_secs(10);

/// Ends when nobody shows the source any more.
pub(super) async fn ask_on(source: Weak<Source>, security: Security) {
    loop {
        let Some(source) = source.upgrade() else {
            return;
        };
        let Some(picture) = source.picture() else {
            drop(source);
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let reach = match ask(&source, &picture, &security).await {
            Ok(reach) => reach,
            Err(error) => {
                tracing::warn!(cluster = %source.cluster, %error, "the silos cannot be asked who does not reach whom");
                return;
            }
        };
        answered(&source, reach);
        drop(source);
        tokio::time::sleep(EVERY).await;
    }
}

fn answered(source: &Source, reach: Option<Reach>) {
    let mut state = source.state();
    let was_partial = is_partial(state.reach.as_ref());
    let changed = state.reach != reach;
    if is_partial(reach.as_ref()) != was_partial {
        let text = match was_partial {
            true => "each silo that answers reaches all that others reach again",
            false => "a partial partition: some silos do not reach others that others reach",
        };
        state.timeline.note("reach", text.to_owned(), wall());
    }
    state.reach = reach;
    drop(state);
    if changed {
        source.changed();
    }
}

fn is_partial(reach: Option<&Reach>) -> bool {
    reach.is_some_and(|reach| !reach.partial.is_empty())
}

/// None if there are too few silos for a partial partition.
async fn ask(
    source: &Source,
    picture: &Picture,
    security: &Security,
) -> Result<Option<Reach>, TransportError> {
    let rows = &picture.snapshot.rows;
    let active = rows.entries().filter(|e| e.status == SiloStatus::Active);
    let living = active.filter(|entry| !picture.seems_stale(entry));
    let mut silos: BTreeSet<SiloAddress> = living.map(|entry| entry.address).collect();
    if silos.len() < FEWEST {
        return Ok(None);
    }
    let (asked, view) = (silos.len(), picture.view());
    let mut answers = std::collections::BTreeMap::new();
    for first in FIRST {
        if answers.is_empty() {
            let some = (0..first).filter_map(|_| silos.pop_first()).collect();
            answers = ask_reach(&source.cluster, &view, &some, security.clone(), LIMIT).await?;
        }
    }
    if !answers.is_empty() {
        let mut rest = ask_reach(&source.cluster, &view, &silos, security.clone(), LIMIT).await?;
        answers.append(&mut rest);
    }
    let answered = answers.len();
    // An answer may name any silo: only those that the table has are shown.
    let lives = |silo: &SiloAddress| rows.get(silo).is_some_and(|e| e.status != SiloStatus::Dead);
    let partial = answers.into_iter().filter_map(|(by, unreached)| {
        let named = unreached.into_iter().map(|one| one.silo);
        let named: BTreeSet<SiloAddress> =
            named.filter(|silo| *silo != by && lives(silo)).collect();
        (!named.is_empty()).then(|| (by, named.into_iter().collect()))
    });
    Ok(Some(Reach {
        asked,
        answered,
        partial: partial.collect(),
    }))
}
