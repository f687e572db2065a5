//! Which changes of the table's state clients are told: those that the log tells.

use membership_core::protocol::TableState;

use crate::silo::Observed;
use crate::{Event, EventKind, TableLine, TableLog};

/// Leaves out what a store says by turns whose reads work and whose writes fail: see [`TableLog`].
pub(super) struct Steady {
    log: TableLog,
    observed: Observed,
}

impl Steady {
    pub(super) fn new(observed: &Observed) -> Self {
        let mut log = TableLog::default();
        let state = observed.health().table;
        if state != TableState::Available {
            log.changed(state, None, observed.now().mono);
        }
        let observed = observed.clone();
        Self { log, observed }
    }

    /// Whether to tell of an event.
    pub(super) fn tells(&mut self, event: &Event) -> bool {
        let EventKind::Table { state, error } = &event.kind else {
            return true;
        };
        let error = error.as_ref().map(ToString::to_string);
        self.log.changed(*state, error, event.mono).is_some()
    }

    /// That the table is available, once that has lasted. Call it about once a second.
    pub(super) fn tick(&mut self) -> Option<Event> {
        let now = self.observed.now();
        let view = self.observed.view();
        let settings = view.snapshot().version_row.settings.workable();
        self.log.heartbeats(settings.i_am_alive_period);
        match self.log.tick(now.mono)? {
            TableLine::Available => Some(Event {
                at: now.wall,
                mono: now.mono,
                version: self.observed.view().version(),
                kind: EventKind::Table {
                    state: TableState::Available,
                    error: None,
                },
            }),
            TableLine::Broken(..) => None,
        }
    }
}
