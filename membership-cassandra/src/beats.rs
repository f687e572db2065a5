//! Heartbeats: plain writes, of which the last said wins and not the last to arrive. Clauses T7, T8.
//!
//! A server stamps what it writes with the time at which it comes to it, so that a heartbeat that was held up and given up by its silo would
//! win over the next one. The silo's own stamps, which never fall in a process, let the older one lose whenever it arrives. One silo's
//! heartbeats are written by that silo alone, so that its clock is compared with itself. The cluster's cell has many writers and keeps the
//! servers' time.
//!
//! Heartbeats are removed with the very stamp they were seen with: that hides them whatever clock they are from, and nothing that is said
//! later.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use membership_core::TableError;
use scylla::value::{CqlValue, MaybeUnset};
use tokio::time::Instant;

use crate::codec::{self, Value, text};
use crate::link::Link;
use crate::schema;

/// Heartbeats that are removed at once.
const BATCH: usize = 100;

/// Keys, and the stamps that their heartbeats have.
pub(crate) type Stamped = Vec<(String, Option<i64>)>;

/// Microseconds since 1970 by this machine's clock, and more than any before in this process, also when the clock is put back.
fn stamp() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        });
    let later = |last: i64| now.max(last.saturating_add(1));
    let before = LAST
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            Some(later(last))
        })
        .unwrap_or(now);
    later(before)
}

fn stamped(at: i64) -> Value {
    MaybeUnset::Set(Some(CqlValue::BigInt(at)))
}

impl Link {
    /// Overwrites a silo's heartbeat.
    ///
    /// # Errors
    /// What the servers say.
    pub(crate) async fn beat(&self, key: &str, beat: String) -> Result<(), TableError> {
        let values = (text(&self.cluster), text(key), text(beat), stamped(stamp()));
        self.execute(self.deadline(), true, |all| &all.write_beat, values)
            .await
            .map(drop)
            .map_err(|failed| failed.error)
    }

    /// Overwrites the cluster's cell.
    ///
    /// # Errors
    /// What the servers say.
    pub(crate) async fn write_cell(&self, content: String) -> Result<(), TableError> {
        let values = (text(&self.cluster), text(schema::CELL), text(content));
        self.execute(self.deadline(), true, |all| &all.write_cell, values)
            .await
            .map(drop)
            .map_err(|failed| failed.error)
    }

    /// Everything beside the rows, with its stamps.
    ///
    /// # Errors
    /// What the servers say.
    pub(crate) async fn beat_times(&self, deadline: Instant) -> Result<Stamped, TableError> {
        let values = (text(&self.cluster),);
        let answer = self
            .execute(deadline, false, |all| &all.beat_times, values)
            .await
            .map_err(|failed| failed.error)?;
        let stamp = |row: &codec::Named| row.get("written").and_then(CqlValue::as_bigint);
        let all = codec::named(answer)?.into_iter();
        Ok(all
            .filter_map(|row| Some((row.get("silo")?.as_text()?.clone(), stamp(&row))))
            .collect())
    }

    /// Removes these as they were seen.
    ///
    /// # Errors
    /// What the servers say.
    pub(crate) async fn remove_beats(
        &self,
        seen: &[(String, Option<i64>)],
    ) -> Result<(), TableError> {
        for some in seen.chunks(BATCH) {
            let one = |(key, at): &(String, Option<i64>)| {
                vec![
                    at.map_or(MaybeUnset::Unset, stamped),
                    text(&self.cluster),
                    text(key),
                ]
            };
            let values: Vec<_> = some.iter().map(one).collect();
            let statements = |all: &schema::Statements| vec![all.remove_beat.clone(); some.len()];
            self.batch(self.deadline(), statements, &values)
                .await
                .map_err(|failed| failed.error)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_later_than_any_before_and_is_of_this_time() {
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
        let mut all: Vec<i64> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1_000).map(|_| stamp()).collect::<Vec<_>>()))
            .flat_map(|thread| {
                let some = thread.join().unwrap();
                assert!(some.is_sorted());
                some
            })
            .collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "a stamp was given twice");
        assert!(all[0] >= now && all[0] < now + 60_000_000);
    }
}
