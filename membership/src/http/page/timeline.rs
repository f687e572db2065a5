//! What happened to the silos: first as far as the rows tell, then as it is seen.

use std::collections::VecDeque;

use membership_core::{
    Change, ChangeKind, ClusterView, MembershipEntry, SiloAddress, Snapshot, WallTime,
};
use serde::Serialize;

use super::words::happening;
use crate::history;
use crate::words::suspected;

/// The time line keeps so many of the last.
const MOST: usize = 400;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Happening {
    /// From the rows: by the clock of the silo that wrote it. Seen: by that of this process.
    pub(super) at: WallTime,
    /// Whether `at` is the time itself, or only a lower bound.
    pub(super) exact: bool,
    pub(super) version: Option<u64>,
    pub(super) silo: Option<SiloAddress>,
    pub(super) name: String,
    /// `started`, `active`, `leaving`, `dead`, `suspected`, `changed`, `removed`, `table`, `reach`.
    pub(super) what: &'static str,
    /// For a death.
    pub(super) cause: Option<&'static str>,
    pub(super) text: String,
}

/// The last happenings, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline(VecDeque<Happening>);

impl Timeline {
    /// What the rows tell of the time before.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut line = Self::default();
        for event in history::events(snapshot) {
            let text = match (event.what, &event.entry.death) {
                ("dead", Some(death)) => format!("Dead: {}", death.cause),
                (what, _) => what.to_owned(),
            };
            line.add(Happening {
                at: event.at,
                exact: event.exact,
                version: event.version,
                silo: Some(event.entry.address),
                name: event.entry.info.silo_name.clone(),
                what: event.what,
                cause: event.cause(),
                text,
            });
        }
        line
    }

    /// The newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &Happening> {
        self.0.iter().rev()
    }

    fn add(&mut self, happening: Happening) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(happening);
    }

    /// Adds what changed between two views.
    pub(super) fn changes(&mut self, older: &Snapshot, newer: &Snapshot, now: WallTime) {
        let version = newer.version();
        let (older, newer) = (
            ClusterView::new(older.clone()),
            ClusterView::new(newer.clone()),
        );
        for change in newer.changes_since(&older) {
            let before = older.get(&change.entry.address);
            let Some((what, text)) = said(&change, before) else {
                continue;
            };
            let entry = change.entry;
            let death = entry.death.as_ref().filter(|_| what == "dead");
            self.add(Happening {
                at: now,
                exact: true,
                version: Some(version),
                silo: Some(entry.address),
                cause: death.map(|death| death.cause.as_str()),
                name: entry.info.silo_name,
                what,
                text,
            });
        }
    }

    /// Adds something about the table or the network.
    pub(super) fn note(&mut self, what: &'static str, text: String, now: WallTime) {
        self.add(Happening {
            at: now,
            exact: true,
            version: None,
            silo: None,
            name: String::new(),
            what,
            cause: None,
            text,
        });
    }
}

/// None for a change that is not worth a line.
fn said(change: &Change, before: Option<&MembershipEntry>) -> Option<(&'static str, String)> {
    let entry = &change.entry;
    Some(match change.kind {
        ChangeKind::Died => match &entry.death {
            Some(death) => ("dead", format!("Dead: {}", death.cause)),
            None => ("removed", "its row is gone".to_owned()),
        },
        ChangeKind::Updated => {
            let (had, has) = (
                before.map_or(0, |e| e.suspicions.len()),
                entry.suspicions.len(),
            );
            match has {
                0 if had > 0 => ("changed", "no votes against it any more".to_owned()),
                _ if has > had => ("suspected", format!("suspected by {}", suspected(entry))),
                _ => return None,
            }
        }
        _ => (happening(entry.status), entry.status.to_string()),
    })
}
