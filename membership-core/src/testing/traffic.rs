//! What the silos ask of their table, and how much goes to and fro: what a store that is paid by request charges for.

use super::store::Call;
use crate::protocol::Input;
use crate::{CommitOutcome, CommitRequest, Heartbeats, ReadAnswer, Row, RowChange, Snapshot};

/// Requests that the table answered, and bytes of keys and values of what they carried; what a store adds to them is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableTraffic {
    /// Reads that were answered with the whole table.
    pub reads: u64,
    /// Reads that were answered with "unchanged".
    pub unchanged: u64,
    /// Commits that were committed.
    pub commits: u64,
    /// Commits that met a conflict.
    pub conflicts: u64,
    /// Heartbeats of silos.
    pub heartbeats: u64,
    /// Writes of the cluster's own cell.
    pub cells: u64,
    /// From the table: version rows, rows and heartbeats.
    pub bytes_read: u64,
    /// To the table: rows of commits, version rows, heartbeats.
    pub bytes_written: u64,
}

impl TableTraffic {
    /// All requests together.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads + self.unchanged + self.commits + self.conflicts + self.heartbeats + self.cells
    }

    /// What came after `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            unchanged: self.unchanged - earlier.unchanged,
            commits: self.commits - earlier.commits,
            conflicts: self.conflicts - earlier.conflicts,
            heartbeats: self.heartbeats - earlier.heartbeats,
            cells: self.cells - earlier.cells,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }

    pub(super) fn count(&mut self, asked: &Call, answer: &Input) {
        match (asked, answer) {
            (_, Input::Read { result: Ok(ReadAnswer::Snapshot { snapshot, heartbeats }), .. }) => {
                self.reads += 1;
                self.bytes_read += size(snapshot) + heartbeats.as_ref().map_or(0, beats);
            }
            (_, Input::Read { result: Ok(ReadAnswer::Unchanged { heartbeats }), .. }) => {
                self.unchanged += 1;
                self.bytes_read += heartbeats.as_ref().map_or(0, beats);
            }
            (Call::Commit(request), Input::Committed { result: Ok(CommitOutcome::Committed(_)), .. }) => {
                self.commits += 1;
                self.bytes_written += changes(request);
            }
            (Call::Commit(request), Input::Committed { result: Ok(CommitOutcome::Conflict(conflict)), .. }) => {
                self.conflicts += 1;
                self.bytes_written += changes(request);
                self.bytes_read += conflict.snapshot.as_ref().map_or(0, size);
            }
            (Call::Beat(write), Input::HeartbeatWritten { result: Ok(()), .. }) => match write {
                crate::HeartbeatWrite::Silo { silo, heartbeat } => {
                    self.heartbeats += 1;
                    self.bytes_written += long(silo.row_key().len() + heartbeat.to_string().len());
                }
                crate::HeartbeatWrite::Cluster { text } => {
                    self.cells += 1;
                    self.bytes_written += long(text.len());
                }
            },
            _ => {}
        }
    }
}

fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn version_row(snapshot: &Snapshot) -> u64 {
    long(crate::encoding::encode_version_row(&snapshot.version_row).len())
}

fn size(snapshot: &Snapshot) -> u64 {
    version_row(snapshot) + snapshot.rows.iter().map(|row| long(row.size())).sum::<u64>()
}

fn changes(request: &CommitRequest) -> u64 {
    let rows = request.changes.iter().map(|change| match change {
        RowChange::Insert(row) | RowChange::Update(row) => Row::size(row),
        RowChange::Remove(key) => key.len(),
    });
    rows.map(long).sum()
}

fn beats(heartbeats: &Heartbeats) -> u64 {
    let silos = heartbeats.silos.iter().map(|(silo, beat)| long(silo.row_key().len() + beat.to_string().len()));
    silos.sum::<u64>() + heartbeats.cluster.as_ref().map_or(0, |text| long(text.len()))
}
