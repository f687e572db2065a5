//! What happened, as far as the rows of a table tell.

use membership_core::{CommitRecord, MembershipEntry, Snapshot, WallTime};
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

/// One of the last commits of the table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Commit<'a> {
    /// When it was made, by the committer's clock.
    pub at: WallTime,
    /// Whether `at` is the time itself, or only a lower bound, because an older build made it.
    pub exact: bool,
    /// The commit.
    pub record: &'a CommitRecord,
}

/// As `membership history --json` and `/api/v1/history` show it.
impl Serialize for Commit<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let CommitRecord {
            version,
            id,
            committer,
            changed,
            ..
        } = self.record;
        let mut fields = serializer.serialize_struct("Commit", 7)?;
        fields.serialize_field("event", "commit")?;
        fields.serialize_field("at", &self.at)?;
        fields.serialize_field("exact", &self.exact)?;
        fields.serialize_field("version", version)?;
        fields.serialize_field("id", id)?;
        fields.serialize_field("committer", committer)?;
        fields.serialize_field("changed", changed)?;
        fields.end()
    }
}

/// The last commits, oldest first.
#[must_use]
pub fn commits(snapshot: &Snapshot) -> Vec<Commit<'_>> {
    let events = events(snapshot);
    let mut commits: Vec<Commit<'_>> = Vec::new();
    for record in &snapshot.version_row.recent {
        let at = record.at.unwrap_or_else(|| {
            // Events at lower versions, and in this one, were before; so was the commit before.
            let before = |version: Option<u64>| version.is_some_and(|v| v <= record.version);
            let known = events.iter().filter(|e| e.exact && before(e.version));
            let commit = commits.last().map(|last| last.at);
            known.map(|e| e.at).chain(commit).max().unwrap_or_default()
        });
        commits.push(Commit {
            at,
            exact: record.at.is_some(),
            record,
        });
    }
    commits
}

/// All events in the rows, in the order of their times. A row that an older build wrote has the
/// version of its activation but not the time; the time is at least that of its own start and of
/// every event at a lower version.
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
            let (at, exact) = match entry.active_at {
                Some(at) => (at, true),
                None => (entry.start_time, false),
            };
            versioned.push(event("active", at, exact, Some(version)));
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
