//! Counts the requests of the silos to their table, and their bytes: what a store that bills by
//! request charges for.

use std::net::IpAddr;
use std::sync::Arc;

use crate::table_call::{TableCall, heartbeats_in};
use membership_core::protocol::Input;
use membership_core::{
    CommitOutcome, CommitRequest, Heartbeat, Heartbeats, ReadAnswer, Row, RowChange, SiloAddress,
    Snapshot, VersionRow,
};

/// Requests that the table answered, and the bytes of the keys and values in them. What a store
/// adds to them is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableTraffic {
    /// Reads that returned the whole table.
    pub reads: u64,
    /// Reads that returned "unchanged".
    pub unchanged: u64,
    /// Reads of the version row with one row, which confirm what another silo announced.
    pub row_reads: u64,
    /// Commits that were applied.
    pub commits: u64,
    /// Commits that met a conflict.
    pub conflicts: u64,
    /// Heartbeats of silos.
    pub heartbeats: u64,
    /// Writes of the cluster's own cell.
    pub cells: u64,
    /// Rows in whole tables, from reads and from conflicts.
    pub rows_read: u64,
    /// Heartbeats of silos in the answers to reads, whole tables and "unchanged" alike: in most
    /// stores each is a row, or a column of a row.
    pub heartbeats_read: u64,
    /// Bytes from the table: version rows, rows and heartbeats.
    pub bytes_read: u64,
    /// Bytes to the table: rows of commits, version rows, heartbeats.
    pub bytes_written: u64,
}

impl TableTraffic {
    /// The sum of all requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads
            + self.unchanged
            + self.row_reads
            + self.commits
            + self.conflicts
            + self.heartbeats
            + self.cells
    }

    /// The counts since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            unchanged: self.unchanged - earlier.unchanged,
            row_reads: self.row_reads - earlier.row_reads,
            commits: self.commits - earlier.commits,
            conflicts: self.conflicts - earlier.conflicts,
            heartbeats: self.heartbeats - earlier.heartbeats,
            cells: self.cells - earlier.cells,
            rows_read: self.rows_read - earlier.rows_read,
            heartbeats_read: self.heartbeats_read - earlier.heartbeats_read,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }

    pub(super) fn count(&mut self, asked: &TableCall, answer: &Input, scale: &mut Scale) {
        match (asked, answer) {
            (
                _,
                Input::Read {
                    result:
                        Ok(ReadAnswer::Snapshot {
                            snapshot,
                            heartbeats,
                        }),
                    ..
                },
            ) => {
                self.reads += 1;
                self.rows_read += long(snapshot.rows.len());
                self.heartbeats_read += long(heartbeats_in(heartbeats.as_ref()));
                self.bytes_read +=
                    scale.size(snapshot) + heartbeats.as_ref().map_or(0, heartbeat_bytes);
            }
            (
                _,
                Input::Read {
                    result: Ok(ReadAnswer::Unchanged { heartbeats }),
                    ..
                },
            ) => {
                self.unchanged += 1;
                self.heartbeats_read += long(heartbeats_in(heartbeats.as_ref()));
                self.bytes_read += heartbeats.as_ref().map_or(0, heartbeat_bytes);
            }
            (
                TableCall::ReadRow(_),
                Input::RowRead {
                    result: Ok(read), ..
                },
            ) => {
                self.row_reads += 1;
                let row = read.row.as_ref().map_or(0, |row| long(row.size()));
                let version_row = read.version_row.as_ref();
                self.bytes_read += row + version_row.map_or(0, |row| scale.version_row(row));
            }
            (
                TableCall::Commit(request),
                Input::Committed {
                    result: Ok(CommitOutcome::Committed(_)),
                    ..
                },
            ) => {
                self.commits += 1;
                self.bytes_written += changes(request);
            }
            (
                TableCall::Commit(request),
                Input::Committed {
                    result: Ok(CommitOutcome::Conflict(conflict)),
                    ..
                },
            ) => {
                self.conflicts += 1;
                self.rows_read += conflict
                    .snapshot
                    .as_ref()
                    .map_or(0, |snapshot| long(snapshot.rows.len()));
                self.bytes_written += changes(request);
                self.bytes_read += conflict
                    .snapshot
                    .as_ref()
                    .map_or(0, |snapshot| scale.size(snapshot));
            }
            (TableCall::Heartbeat(write), Input::HeartbeatWritten { result: Ok(()), .. }) => {
                match write {
                    membership_core::HeartbeatWrite::Silo { silo, heartbeat } => {
                        self.heartbeats += 1;
                        self.bytes_written += one_heartbeat_bytes(silo, *heartbeat);
                    }
                    membership_core::HeartbeatWrite::Cluster { text } => {
                        self.cells += 1;
                        self.bytes_written += long(text.len());
                    }
                }
            }
            _ => {}
        }
    }
}

fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Measures whole tables. A version row is encoded once, as long as it is the same object.
#[derive(Clone, Debug, Default)]
pub(super) struct Scale {
    last: Option<(Arc<VersionRow>, u64)>,
}

impl Scale {
    fn size(&mut self, snapshot: &Snapshot) -> u64 {
        self.version_row(&snapshot.version_row)
            + snapshot
                .rows
                .iter()
                .map(|row| long(row.size()))
                .sum::<u64>()
    }

    fn version_row(&mut self, row: &Arc<VersionRow>) -> u64 {
        match &self.last {
            Some((last, bytes)) if Arc::ptr_eq(last, row) => *bytes,
            _ => {
                let bytes = long(membership_core::encoding::encode_version_row(row).len());
                self.last = Some((Arc::clone(row), bytes));
                bytes
            }
        }
    }
}

fn changes(request: &CommitRequest) -> u64 {
    let rows = request.changes.iter().map(|change| match change {
        RowChange::Insert(row) | RowChange::Update(row) => Row::size(row),
        RowChange::Remove(key) => key.len(),
    });
    rows.map(long).sum()
}

fn heartbeat_bytes(heartbeats: &Heartbeats) -> u64 {
    heartbeats
        .silos
        .iter()
        .map(|(silo, heartbeat)| one_heartbeat_bytes(silo, *heartbeat))
        .sum::<u64>()
        + heartbeats
            .cluster
            .as_ref()
            .map_or(0, |text| long(text.len()))
}

/// The size of a heartbeat and its key as text. Each read returns one per silo, so they are
/// measured without being encoded.
fn one_heartbeat_bytes(silo: &SiloAddress, heartbeat: Heartbeat) -> u64 {
    /// The length of a time as text, for the years 0 to 9999.
    const TIME: u64 = 24;
    let key = match silo.ip() {
        IpAddr::V4(ip) => {
            let octets: u64 = ip
                .octets()
                .iter()
                .map(|octet| digits((*octet).into()))
                .sum();
            octets + 3 + 1 + digits(silo.port().into()) + 1 + digits(silo.epoch())
        }
        IpAddr::V6(_) => long(silo.row_key().len()),
    };
    key + digits(heartbeat.counter) + 1 + TIME
}

fn digits(number: u64) -> u64 {
    number.checked_ilog10().map_or(1, |log| u64::from(log) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{ReadRequest, WallTime};

    #[test]
    fn heartbeats_are_counted_and_charged_with_and_without_the_rows() {
        let mut cluster = crate::fake::cluster(3, 5);
        cluster
            .run_until_agreed(std::time::Duration::from_secs(60))
            .unwrap();
        cluster.run_for(std::time::Duration::from_secs(10)).unwrap();
        let known = cluster.table().unwrap().token.clone();
        let mut read = |request: ReadRequest| {
            let call = membership_core::protocol::CallId(1);
            let (asked, before) = (TableCall::Read(request), cluster.store.traffic);
            let answer = cluster.store.execute(
                call,
                &asked,
                &mut crate::Rng::new(1),
                &mut crate::store::TableChanges::default(),
            );
            let traffic = cluster.store.traffic.since(&before);
            (
                traffic.requests(),
                traffic.rows_read,
                traffic.heartbeats_read,
                asked.rows(&answer),
            )
        };
        assert_eq!(read(ReadRequest::all()), (1, 5, 5, 11));
        assert_eq!(
            read(ReadRequest::all().with_known(known.clone())),
            (1, 0, 5, 6)
        );
        assert_eq!(
            read(ReadRequest::all().with_known(known).with_heartbeats(false)),
            (1, 0, 0, 1)
        );
    }

    #[test]
    fn a_heartbeat_is_as_long_as_its_text() {
        let mut rng = crate::Rng::new(1);
        for _ in 0..1_000 {
            let ip = [rng.below(256), rng.below(20), rng.below(256), 0]
                .map(|octet| u8::try_from(octet).unwrap());
            let ip = if rng.chance(0.5) {
                IpAddr::from(ip)
            } else {
                [1, 0, 2, 3, 0, 0, 7, 8].into()
            };
            let mut number = || rng.next_u64() >> rng.below(64);
            let silo = SiloAddress::new(ip, (number() & 0xffff) as u16, number());
            let heartbeat = Heartbeat {
                counter: number(),
                at: WallTime::from_millis(number() % 253_402_300_800_000),
            };
            assert_eq!(
                one_heartbeat_bytes(&silo, heartbeat),
                long(silo.row_key().len() + heartbeat.to_string().len()),
                "{silo} {heartbeat}"
            );
        }
    }
}
