//! Changes the table from outside the protocol: evict a silo, clean up, change the shared settings,
//! or commit anything else.
//!
//! [`Admin`] reads, decides and commits. It starts over after a conflict, and finds out the outcome
//! of a commit if that is unknown. [`TokioRuntime`] provides what it needs of tokio and the system.
//!
//! ```
//! use membership::admin::{Admin, TokioRuntime};
//! use membership::{ClusterKey, InitializeRequest, MembershipTable, MemoryTable, SharedSettings, TableId};
//! use std::convert::Infallible;
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let table = MemoryTable::new("billing/blue".parse()?);
//! let (table_id, settings) = (TableId::new(1), SharedSettings::default());
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize(&InitializeRequest::new(table_id, settings, cluster_key)).await?;
//!
//! let mut runtime = TokioRuntime;
//! let slower = |old: &SharedSettings| {
//!     let mut new = old.clone();
//!     new.i_am_alive_period = Duration::from_secs(30);
//!     Ok::<_, Infallible>(new)
//! };
//! let version = Admin::new(&table, &mut runtime).settings(slower).await?;
//! assert_eq!(version, Some(1));
//! # Ok(())
//! # }
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use membership_core::{CommitId, WallTime};

pub use membership_core::admin::{Admin, ChangeError, Decodable, Runtime};

/// Ids from the system's random numbers, and pauses on tokio's timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioRuntime;

#[async_trait]
impl Runtime for TokioRuntime {
    fn commit_id(&mut self) -> CommitId {
        CommitId::new(random())
    }

    fn now(&self) -> Option<WallTime> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let millis = u64::try_from(since.as_millis()).ok()?;
        Some(WallTime::from_millis(millis))
    }

    async fn pause(&mut self, at_most: Duration) {
        let share = u32::try_from(random() % 1000).unwrap_or(0);
        tokio::time::sleep(at_most * share / 1000).await;
    }
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Without randomness: unique on this machine, which is enough for an id of a commit.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        return now.as_nanos() << 32 | u128::from(std::process::id());
    }
    u128::from_le_bytes(bytes)
}
