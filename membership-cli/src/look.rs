//! Reading the table for a person: the freshest there is, with heartbeats.

use std::time::Duration;

use membership_core::{
    Heartbeats, MembershipEntry, MembershipTable, SharedSettings, SiloStatus, Snapshot, TableExt,
    WallTime,
};

use crate::clock;
use crate::exit::Failure;

/// The table as of one moment.
pub(crate) struct Look {
    pub snapshot: Snapshot,
    pub heartbeats: Heartbeats,
    /// When it was read, by this machine's clock.
    pub now: WallTime,
}

impl Look {
    pub async fn at(table: &dyn MembershipTable) -> Result<Self, Failure> {
        let (snapshot, heartbeats) = table.read_all().await?;
        Ok(Self {
            snapshot,
            heartbeats,
            now: clock::wall(),
        })
    }

    /// How long ago a silo's heartbeat was, going by its clock and this one; by its start when it never beat.
    pub fn silence(&self, entry: &MembershipEntry) -> Duration {
        let last = self
            .heartbeats
            .silos
            .get(&entry.address)
            .map_or(entry.start_time, |h| h.at);
        self.now.since(last)
    }

    /// The shared settings as silos follow them: within their ranges, whatever the table says.
    pub fn settings(&self) -> SharedSettings {
        self.snapshot.version_row.settings.workable()
    }

    /// Whether a silo that should be alive has not written its heartbeat for so long that others will call it stale. Going by clocks: a
    /// hint for people; the silos themselves compare no clocks.
    pub fn seems_stale(&self, entry: &MembershipEntry) -> bool {
        entry.status != SiloStatus::Dead && self.silence(entry) > self.settings().staleness()
    }
}
