//! The table as a command shows it: one fresh read, with heartbeats.

use std::time::Duration;

use membership_core::{
    ClusterKeys, Heartbeats, MembershipEntry, MembershipTable, SharedSettings, SiloStatus,
    Snapshot, TableExt, WallTime,
};

use crate::clock;
use crate::exit::Failure;

/// The table as of one moment.
pub(crate) struct Inspection {
    pub snapshot: Snapshot,
    pub heartbeats: Heartbeats,
    /// When it was read, by this machine's clock.
    pub now: WallTime,
}

impl Inspection {
    pub async fn of(table: &dyn MembershipTable) -> Result<Self, Failure> {
        let (snapshot, heartbeats) = table.read_all().await?;
        Ok(Self {
            snapshot,
            heartbeats,
            now: clock::wall(),
        })
    }

    /// How long ago a silo wrote its last heartbeat, or started if it wrote none, by its clock and
    /// this one.
    pub fn silence(&self, entry: &MembershipEntry) -> Duration {
        let last = self
            .heartbeats
            .silos
            .get(&entry.address)
            .map_or(entry.start_time, |h| h.at);
        self.now.since(last)
    }

    /// The shared settings as silos follow them: forced into their ranges.
    pub fn settings(&self) -> SharedSettings {
        self.snapshot.version_row.settings.workable()
    }

    /// The keys of the cluster, to be counted.
    pub fn cluster_keys(&self) -> ClusterKeys {
        self.snapshot.version_row.core.cluster_keys()
    }

    /// What to do about the keys of the cluster, if anything.
    pub fn rotation(&self) -> Option<String> {
        match self.cluster_keys() {
            keys if keys.is_empty() => Some(
                "the table has no cluster key, because an older build made it: run `membership settings rotate-key` once"
                    .to_owned(),
            ),
            keys if keys.are_in_rotation() => Some(format!(
                "{} cluster keys: a rotation is unfinished; once every silo has read the table since, end it with `membership settings rotate-key --finish`",
                keys.len()
            )),
            _ => None,
        }
    }

    /// Whether somebody changed or removed rows without a commit, as far as the rows tell.
    pub fn is_changed_by_hand(&self) -> bool {
        self.by_hand().is_some()
    }

    /// What somebody did to the rows without a commit, as far as the rows tell.
    pub fn by_hand(&self) -> Option<String> {
        let row = &self.snapshot.version_row;
        let rows = &self.snapshot.rows;
        if rows.undecodable().next().is_none() && self.snapshot.is_as_committed() == Some(false) {
            return Some(format!(
                "the rows are not those of version {}: somebody changed or removed some without a commit",
                row.version
            ));
        }
        // A later commit has confirmed what is left.
        let (counted, there) = (row.row_count, rows.len() as u64);
        (counted != there).then(|| {
            format!(
                "the commits so far leave {counted} rows, and the table has {there}: somebody removed or added some without a commit"
            )
        })
    }

    /// What to say before a commit of a person: it makes a change by hand final.
    pub fn commit_warning(&self) -> Option<String> {
        let changed = self.snapshot.is_as_committed() == Some(false);
        changed.then(|| {
            "warning: somebody changed or removed rows without a commit. Undo that first (`membership doctor`): after the \
             next commit a silo without a row stops, and where a row was changed all silos write nothing any more"
                .to_owned()
        })
    }

    /// How far this machine's clock is behind those of the silos, if all heartbeats of at least two
    /// living silos are in its future.
    pub fn behind(&self) -> Option<Duration> {
        let rows = self.snapshot.rows.entries();
        let living = rows.filter(|e| e.status != SiloStatus::Dead);
        let beats: Vec<WallTime> = living
            .filter_map(|e| Some(self.heartbeats.silos.get(&e.address)?.at))
            .collect();
        let first = beats.iter().min().filter(|_| beats.len() > 1)?;
        let behind = (*first > self.now).then(|| first.since(self.now))?;
        (behind > Duration::from_secs(1)).then_some(behind)
    }

    /// Whether the cluster is so large that silos which run may write heartbeats rarely.
    pub fn beats_rarely(&self) -> bool {
        self.heartbeat_period() > self.settings().i_am_alive_period
    }

    /// The longest usual time between two heartbeats of a silo.
    pub fn heartbeat_period(&self) -> Duration {
        self.settings().heartbeat_period(self.snapshot.rows.len())
    }

    /// Whether a silo that should be alive has been silent for so long that others will call it
    /// stale, or that it should have written in a large cluster. A hint for people, because it compares
    /// clocks; the silos themselves compare none.
    pub fn seems_stale(&self, entry: &MembershipEntry) -> bool {
        let longest = || self.settings().longest_silence(self.snapshot.rows.len());
        entry.status != SiloStatus::Dead && self.silence(entry) > longest()
    }
}
