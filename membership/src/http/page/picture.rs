//! What the page shows of a cluster: the rows as of one moment, and which of them need a person.

use std::time::Duration;

use membership_core::{
    ClusterView, Discontinuity, Heartbeats, MembershipEntry, SharedSettings, SiloStatus, Snapshot,
    WallTime,
};

use crate::words::{Concern, ago, count, span};

/// The rows as of one moment.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) snapshot: Snapshot,
    /// None where they are not known: a silo does not read those of others.
    pub(super) heartbeats: Option<Heartbeats>,
    /// When it was read, by this process's clock.
    pub(super) read_at: WallTime,
    /// By the same clock.
    pub(super) now: WallTime,
}

impl Picture {
    pub(super) fn view(&self) -> ClusterView {
        ClusterView::new(self.snapshot.clone())
    }

    /// The shared settings as silos follow them: forced into their ranges.
    pub(super) fn settings(&self) -> SharedSettings {
        self.snapshot.version_row.settings.workable()
    }

    /// How long a silo had written no heartbeat, since its start if it wrote none, when the table was
    /// read, by its clock and this one. What nobody can read now says nothing of silos.
    pub(super) fn silence(&self, entry: &MembershipEntry) -> Option<Duration> {
        let heartbeats = self.heartbeats.as_ref()?;
        let last = heartbeats.silos.get(&entry.address);
        Some(self.read_at.since(last.map_or(entry.start_time, |h| h.at)))
    }

    /// Whether a silo that should be alive has been silent for so long that others will call it
    /// stale. A hint for people, because it compares clocks.
    pub(super) fn seems_stale(&self, entry: &MembershipEntry) -> bool {
        let silence = self.silence(entry);
        let longest = || self.settings().longest_silence(self.snapshot.rows.len());
        entry.status != SiloStatus::Dead && silence.is_some_and(|s| s > longest())
    }

    pub(super) fn concern(&self, entry: &MembershipEntry) -> Concern {
        Concern::of(entry, &self.settings(), self.seems_stale(entry), self.now)
    }

    /// How many silos should be alive, if there are several and all of them are silent: then it is
    /// the store, and no silo is called a ghost for it.
    fn all_silent(&self) -> Option<usize> {
        let rows = self.snapshot.rows.entries();
        let living = rows.filter(|entry| entry.status != SiloStatus::Dead);
        let living: Vec<_> = living.collect();
        let all = living.iter().all(|entry| self.seems_stale(entry));
        (living.len() > 1 && all).then_some(living.len())
    }

    /// The rows, the worst first; equal ones by address.
    pub(super) fn worst_first(&self) -> Vec<(Concern, &MembershipEntry)> {
        let rows = self.snapshot.rows.entries();
        let mut rows: Vec<_> = rows.map(|entry| (self.concern(entry), entry)).collect();
        rows.sort_by_key(|(concern, entry)| (*concern, entry.address));
        rows
    }

    /// `5 Active, 1 Dead · version 17 · leader …`.
    pub(super) fn summary(&self) -> String {
        let number = |status| {
            let rows = self.snapshot.rows.entries();
            rows.filter(|entry| entry.status == status).count()
        };
        let counted = SiloStatus::ALL.map(|status| (number(status), status));
        let some = counted.into_iter().filter(|(n, _)| *n > 0);
        let mut parts: Vec<String> = some.map(|(n, status)| format!("{n} {status}")).collect();
        if parts.is_empty() {
            parts.push("no silo yet".to_owned());
        }
        let damaged = self.snapshot.rows.undecodable().count();
        if damaged > 0 {
            parts.push(count(damaged, "damaged row"));
        }
        let mut text = format!("{} · version {}", parts.join(", "), self.snapshot.version());
        if let Some(leader) = self.view().leader() {
            text.push_str(&format!(" · leader {}", leader.address));
        }
        text
    }

    /// What a person should look at, in sentences; the worst first.
    pub(super) fn attention(&self) -> Vec<Attention> {
        let mut found = Vec::new();
        let mut add = |kind, about: String, text: String| {
            found.push(Attention { kind, about, text });
        };
        let rows = &self.snapshot.rows;
        for row in rows.undecodable() {
            let why = row.undecodable().unwrap_or_default();
            let text = format!("the row cannot be decoded: {why}. Run `membership doctor`");
            add("damaged", row.key().to_owned(), text);
        }
        if self.snapshot.is_as_committed() == Some(false) && rows.undecodable().next().is_none() {
            let text = format!(
                "the rows are not those of version {}: somebody changed or removed some without a commit. Run `membership doctor`",
                self.snapshot.version()
            );
            add("changed", String::new(), text);
        }
        let (counted, there) = (self.snapshot.version_row.row_count, rows.len() as u64);
        if counted != there {
            let text = format!(
                "the commits so far leave {counted} rows, and the table has {there}. Run `membership doctor`"
            );
            add("changed", String::new(), text);
        }
        let silent = self.all_silent();
        if let Some(silos) = silent {
            let text = format!(
                "none of {silos} silos writes heartbeats: look at the store first (space, memory, permission to write), and into their logs: where they say table_replaced or table_rolled_back, restart all silos together. Run `membership doctor`; evict none of them for it"
            );
            add("store", String::new(), text);
        }
        for (concern, entry) in self.worst_first() {
            let silence = self.silence(entry).map(span).unwrap_or_default();
            match concern {
                Concern::Stale if silent.is_none() => add(
                    "ghost",
                    entry.address.to_string(),
                    format!(
                        "{}, and has written no heartbeat for {silence}: `membership doctor` finds out whether it is gone",
                        entry.status
                    ),
                ),
                Concern::Changing
                    if entry.status == SiloStatus::Joining
                        && self.now.since(entry.start_time)
                            > self.settings().max_join_attempt_time =>
                {
                    let since = ago(entry.start_time, self.now);
                    let text = format!("Joining, and started {since}: see its log");
                    add("stuck", entry.address.to_string(), text);
                }
                _ => {}
            }
        }
        let keys = self.snapshot.version_row.core.cluster_keys();
        if keys.are_in_rotation() {
            let text = format!(
                "{} cluster keys: a rotation is unfinished; end it with `membership settings rotate-key --finish`",
                keys.len()
            );
            add("rotation", String::new(), text);
        }
        found
    }
}

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Attention {
    pub(super) kind: &'static str,
    /// A silo or the key of a row; empty if it is about the table.
    pub(super) about: String,
    pub(super) text: String,
}

impl Attention {
    /// Another table than before: which silos know which one, it does not tell.
    pub(super) fn broken(what: Discontinuity) -> Self {
        let what = match what {
            Discontinuity::RolledBack => "went back in time, as after a restore or a failover",
            _ => "was wiped, or is another one",
        };
        Self {
            kind: "table",
            about: String::new(),
            text: format!(
                "the table {what}: the silos that knew it before write nothing any more, and keep running. Run `membership doctor`; bring the right table back or accept this one, then restart all silos together, because those that still run admit nobody. Evict none for it"
            ),
        }
    }
}
