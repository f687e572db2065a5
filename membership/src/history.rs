//! What happened, as far as the rows of a table tell.

use membership_core::{MembershipEntry, Snapshot, WallTime};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// Something that happened to a silo.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// By the clock of the silo that wrote it.
    pub at: WallTime,
    /// Whether `at` is the time itself, or only a lower bound.
    pub exact: bool,
    /// The version of the commit; none for a start, which is in the row from its insertion on.
    pub version: Option<u64>,
    /// `started`, `active` or `dead`.
    pub what: &'static str,
    /// The silo's row.
    pub entry: &'a MembershipEntry,
}

impl Event<'_> {
    /// How it ended, for a death.
    #[must_use]
    pub fn cause(&self) -> Option<&'static str> {
        let death = self.entry.death.as_ref().filter(|_| self.what == "dead");
        death.map(|death| death.cause.as_str())
    }
}

/// As `membership history --json` and `/api/v1/history` show it.
impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Event", 6)?;
        fields.serialize_field("event", self.what)?;
        fields.serialize_field("at", &self.at)?;
        fields.serialize_field("exact", &self.exact)?;
        fields.serialize_field("version", &self.version)?;
        fields.serialize_field("silo", &self.entry.address)?;
        fields.serialize_field("cause", &self.cause())?;
        fields.end()
    }
}

/// All events in the rows, in the order of their times. A row has the version of its activation but
/// not the time; the time is at least that of its own start and of every event at a lower version.
#[must_use]
pub fn events(snapshot: &Snapshot) -> Vec<Event<'_>> {
    let mut versioned = Vec::new();
    let mut all = Vec::new();
    for entry in snapshot.rows.entries() {
        let event = |what, at, exact, version| Event {
            at,
            exact,
            version,
            what,
            entry,
        };
        all.push(event("started", entry.start_time, true, None));
        if let Some(version) = entry.active_since {
            versioned.push(event("active", entry.start_time, false, Some(version)));
        }
        if let Some(death) = &entry.death {
            versioned.push(event("dead", death.at, true, Some(death.version)));
        }
    }
    versioned.sort_by_key(|e| (e.version, e.what, e.entry.address));
    let mut earliest = WallTime::default();
    for event in &mut versioned {
        if !event.exact {
            event.at = event.at.max(earliest);
        }
        earliest = earliest.max(event.at);
    }
    all.append(&mut versioned);
    all.sort_by_key(|e| e.at);
    all
}
