//! What the silos ask of their table, and how much goes to and fro: what a store that is paid by request charges for.

use std::net::IpAddr;
use std::sync::Arc;

use super::store::Call;
use crate::protocol::Input;
use crate::{
    CommitOutcome, CommitRequest, Heartbeat, Heartbeats, ReadAnswer, Row, RowChange, SiloAddress,
    Snapshot, VersionRow,
};

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
    /// Rows that came with whole tables: with reads, and with conflicts.
    pub rows_read: u64,
    /// Heartbeats of silos that came with reads, whole tables and "unchanged" alike: in most stores a row, or a column of it, each.
    pub heartbeats_read: u64,
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
            rows_read: self.rows_read - earlier.rows_read,
            heartbeats_read: self.heartbeats_read - earlier.heartbeats_read,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }

    pub(super) fn count(&mut self, asked: &Call, answer: &Input, scale: &mut Scale) {
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
                self.heartbeats_read += long(beats_in(heartbeats.as_ref()));
                self.bytes_read += scale.size(snapshot) + heartbeats.as_ref().map_or(0, beats);
            }
            (
                _,
                Input::Read {
                    result: Ok(ReadAnswer::Unchanged { heartbeats }),
                    ..
                },
            ) => {
                self.unchanged += 1;
                self.heartbeats_read += long(beats_in(heartbeats.as_ref()));
                self.bytes_read += heartbeats.as_ref().map_or(0, beats);
            }
            (
                Call::Commit(request),
                Input::Committed {
                    result: Ok(CommitOutcome::Committed(_)),
                    ..
                },
            ) => {
                self.commits += 1;
                self.bytes_written += changes(request);
            }
            (
                Call::Commit(request),
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
            (Call::Beat(write), Input::HeartbeatWritten { result: Ok(()), .. }) => match write {
                crate::HeartbeatWrite::Silo { silo, heartbeat } => {
                    self.heartbeats += 1;
                    self.bytes_written += beat(silo, *heartbeat);
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

/// How many heartbeats of silos come with the answer to a read.
pub(super) fn beats_in(heartbeats: Option<&Heartbeats>) -> usize {
    heartbeats.map_or(0, |all| all.silos.len())
}

fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Measures whole tables. The version row is written out for it, once for as long as it stays the same object.
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
                let bytes = long(crate::encoding::encode_version_row(row).len());
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

fn beats(heartbeats: &Heartbeats) -> u64 {
    heartbeats
        .silos
        .iter()
        .map(|(silo, heartbeat)| beat(silo, *heartbeat))
        .sum::<u64>()
        + heartbeats
            .cluster
            .as_ref()
            .map_or(0, |text| long(text.len()))
}

/// A heartbeat and its key, as text. There are as many in each read as there are silos: they are measured without being written.
fn beat(silo: &SiloAddress, heartbeat: Heartbeat) -> u64 {
    /// The text of a time, from the year 0 to the year 9999.
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
    use crate::{ReadRequest, WallTime};

    #[test]
    fn heartbeats_are_counted_and_charged_with_and_without_the_rows() {
        let mut cluster = super::super::fake::cluster(3, 5);
        cluster
            .run_until_agreed(std::time::Duration::from_secs(60))
            .unwrap();
        cluster.run_for(std::time::Duration::from_secs(10)).unwrap();
        let known = cluster.table().unwrap().token.clone();
        let mut read = |request: ReadRequest| {
            let call = crate::protocol::CallId(1);
            let (asked, before) = (Call::Read(request), cluster.store.traffic);
            let answer = cluster.store.perform(
                call,
                &asked,
                &mut super::super::Dice::new(1),
                &mut super::super::store::Happened::default(),
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
            read(ReadRequest {
                known: Some(known.clone()),
                ..ReadRequest::all()
            }),
            (1, 0, 5, 6)
        );
        assert_eq!(
            read(ReadRequest {
                known: Some(known),
                heartbeats: false,
                ..ReadRequest::all()
            }),
            (1, 0, 0, 1)
        );
    }

    #[test]
    fn a_heartbeat_is_as_long_as_its_text() {
        let mut dice = super::super::Dice::new(1);
        for _ in 0..1_000 {
            let ip = [dice.below(256), dice.below(20), dice.below(256), 0]
                .map(|octet| u8::try_from(octet).unwrap());
            let ip = if dice.chance(0.5) {
                IpAddr::from(ip)
            } else {
                [1, 0, 2, 3, 0, 0, 7, 8].into()
            };
            let mut number = || dice.number() >> dice.below(64);
            let silo = SiloAddress::new(ip, (number() & 0xffff) as u16, number());
            let heartbeat = Heartbeat {
                counter: number(),
                at: WallTime::from_millis(number() % 253_402_300_800_000),
            };
            assert_eq!(
                beat(&silo, heartbeat),
                long(silo.row_key().len() + heartbeat.to_string().len()),
                "{silo} {heartbeat}"
            );
        }
    }
}
