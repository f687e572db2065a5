//! Heartbeats: plain writes, of which the newest wins, not the last to arrive. Clauses T7, T8.
//!
//! By default a server stamps a write with the time at which it handles it, so that a delayed
//! heartbeat, which its silo has given up, would win over the next one. The silo's own timestamps
//! never decrease within a process, so the older heartbeat loses whenever it arrives. Only the silo
//! itself writes its heartbeats, so that its clock is compared only with itself.
//!
//! The cluster's cell has many writers, whose clocks differ, as those of the servers do: a clock that
//! is ahead would win over all later writes until the others have reached its time. So a writer
//! first reads the timestamp of what it replaces, and writes with a later one. A comparison
//! (`IF`) would not do: it and the plain writes of other builds do not see each other.
//!
//! Heartbeats are removed with the timestamp that they were read with. That removes them whatever
//! clock they come from, and no later ones.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use membership_core::{HeartbeatWrite, TableError};
use scylla::value::{CqlValue, MaybeUnset};
use tokio::time::Instant;

use crate::client::{Client, Inner};
use crate::codec::{self, Value, text};
use crate::keys::CELL;
use crate::statements::Statements;

/// How many heartbeats are removed at once.
const BATCH: usize = 100;

/// Keys, and the timestamps of their heartbeats.
pub(crate) type Times = Vec<(String, Option<i64>)>;

/// Microseconds since 1970 by this machine's clock, but more than any before in this process, even
/// if the clock is set back.
fn timestamp() -> i64 {
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

fn bound(at: i64) -> Value {
    MaybeUnset::Set(Some(CqlValue::BigInt(at)))
}

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.client.heartbeat(write).await
    }
}

impl Client {
    async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let cluster = text(&self.cluster);
        let deadline = self.deadline();
        let (key, content, at) = match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                (silo.row_key(), heartbeat.to_string(), timestamp())
            }
            HeartbeatWrite::Cluster { text: cell } => {
                let before = self.cell_time(deadline).await?;
                let later = before.map_or(0, |before| before.saturating_add(1));
                (CELL.to_owned(), cell.clone(), timestamp().max(later))
            }
        };
        let values = (cluster, text(&key), text(content), bound(at));
        let write = || self.execute(deadline, true, |all| &all.write_heartbeat, values.clone());
        let mut written = write().await;
        // A node fell silent or went away. The same text at the same time changes nothing twice.
        if written.as_ref().is_err_and(|failed| failed.ends_session) {
            written = write().await;
        }
        written
            .map(drop)
            .map_err(|failed| failed.error.with_key(key))
    }

    /// The timestamp of the cluster's cell.
    async fn cell_time(&self, deadline: Instant) -> Result<Option<i64>, TableError> {
        let values = (text(&self.cluster), text(CELL));
        let answer = self
            .execute(deadline, false, |all| &all.heartbeat_time, values)
            .await?;
        let rows = codec::named(answer)?;
        Ok(rows.first().and_then(|row| row.get("written")?.as_bigint()))
    }

    /// The timestamps of the cluster's heartbeats and of its cell.
    pub(crate) async fn heartbeat_times(&self, deadline: Instant) -> Result<Times, TableError> {
        let values = (text(&self.cluster),);
        let answer = self
            .execute(deadline, false, |all| &all.heartbeat_times, values)
            .await?;
        let time = |row: &codec::Named| row.get("written").and_then(CqlValue::as_bigint);
        let all = codec::named(answer)?.into_iter();
        Ok(all
            .filter_map(|row| Some((row.get("silo")?.as_text()?.clone(), time(&row))))
            .collect())
    }

    /// Removes heartbeats with the timestamps that they were read with.
    pub(crate) async fn remove_heartbeats(
        &self,
        times: &[(String, Option<i64>)],
    ) -> Result<(), TableError> {
        for some in times.chunks(BATCH) {
            let one = |(key, time): &(String, Option<i64>)| {
                let time = time.map_or(MaybeUnset::Unset, bound);
                vec![time, text(&self.cluster), text(key)]
            };
            let values: Vec<_> = some.iter().map(one).collect();
            let statements = |all: &Statements| vec![all.remove_heartbeat.clone(); some.len()];
            self.batch(self.deadline(), statements, &values).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_rise_and_are_of_this_time() {
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
        let mut all: Vec<i64> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1_000).map(|_| timestamp()).collect::<Vec<_>>()))
            .flat_map(|thread| {
                let some = thread.join().unwrap();
                assert!(some.is_sorted());
                some
            })
            .collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "a timestamp was given twice");
        assert!(all[0] >= now && all[0] < now + 60_000_000);
    }
}
