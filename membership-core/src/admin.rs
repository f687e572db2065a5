//! Changes to the table from outside the protocol: evict a silo, clean up, change the shared
//! settings, or commit any other change.
//!
//! A change reads the table, decides what to write, and commits. After a conflict it starts over.
//! When the outcome of the commit is unknown, it reads the table to find out. Every change ends in
//! one of three ways: it happened (`Ok`), it did not happen ([`ChangeError::Refused`],
//! [`ChangeError::NotDone`]), or it may have happened ([`ChangeError::MayHaveHappened`]).
//!
//! This crate has no clock, no timer and no random numbers: the caller passes them in as a
//! [`Runtime`].
//!
//! ```
//! use std::time::Duration;
//! use membership_core::admin::{Admin, ChangeError, Runtime};
//! use membership_core::*;
//!
//! struct Mine(u128);
//! #[async_trait::async_trait]
//! impl Runtime for Mine {
//!     fn commit_id(&mut self) -> CommitId {
//!         self.0 += 1;
//!         CommitId::new(self.0)
//!     }
//!     async fn pause(&mut self, _at_most: Duration) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::task::{Context, Poll, Waker};
//! # let example = async {
//! let table = MemoryTable::new("billing/blue".parse()?);
//! let (table_id, settings) = (TableId::new(1), SharedSettings::default());
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize(&InitializeRequest::new(table_id, settings, cluster_key)).await?;
//! let mut runtime = Mine(0);
//! let mut admin = Admin::new(&table, &mut runtime);
//! let slower = |old: &SharedSettings| {
//!     let mut new = old.clone();
//!     new.i_am_alive_period = Duration::from_secs(30);
//!     Ok::<_, std::convert::Infallible>(new)
//! };
//! assert_eq!(admin.settings(slower).await?, Some(1));
//! assert_eq!(admin.settings(slower).await?, None, "there is nothing to change");
//! let silo = "10.0.0.1:7100@5".parse()?;
//! let refused = admin.evict(silo, "ops", "its disk is broken", WallTime::from_millis(7)).await;
//! assert!(matches!(refused, Err(ChangeError::Refused(intent::Refusal::NoSuchSilo(_)))));
//! # Ok(())
//! # };
//! # match std::pin::pin!(example).poll(&mut Context::from_waker(Waker::noop())) {
//! #     Poll::Ready(done) => done,
//! #     Poll::Pending => unreachable!("the table in memory does not wait"),
//! # }
//! # }
//! ```

use std::fmt;

pub use crate::table::change::{ChangeError, Runtime};
pub use crate::table::ext::Decodable;

use crate::intent::{Action, Answer, Intent, Observed, Refusal, apply};
use crate::table::change::{Changer, Patience};
use crate::table::{TableLimits, ext};
use crate::{
    CleanupPolicy, ClusterKeys, CommitId, CommitRequest, Config, IntentId, MembershipTable,
    MonoTime, Now, SharedSettings, SiloAddress, Snapshot, WallTime,
};

const PATIENCE: Patience = Patience {
    conflicts: 30,
    errors: 6,
};

/// Makes changes to one table; see the [module](self).
pub struct Admin<'a, T: ?Sized, R: ?Sized> {
    changer: Changer<'a, T, R>,
    limits: TableLimits,
}

impl<T: MembershipTable + ?Sized, R: ?Sized> fmt::Debug for Admin<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl<'a, T, R> Admin<'a, T, R>
where
    T: MembershipTable + ?Sized,
    R: Runtime + ?Sized,
{
    /// Creates a value that changes this table. It makes one change at a time and reuses what it
    /// last read.
    pub fn new(table: &'a T, runtime: &'a mut R) -> Self {
        Self {
            limits: table.limits(),
            changer: Changer::new(table, runtime, PATIENCE),
        }
    }

    /// Commits the change that `plan` returns for the current table, under the commit id that
    /// `plan` receives. Returns the version that contains the change, or `None` when `plan` finds
    /// nothing to do.
    ///
    /// `plan` is called again after each conflict. It must return `None` once its own change is in
    /// the table.
    ///
    /// # Errors
    /// See [`ChangeError`].
    ///
    /// # Cancellation
    /// A commit that is under way may still happen.
    pub async fn change<E: fmt::Display>(
        &mut self,
        plan: impl FnMut(&Snapshot, CommitId) -> Result<Option<CommitRequest>, E> + Send,
    ) -> Result<Option<u64>, ChangeError<E>> {
        self.changer.change(plan).await
    }

    /// Ends a silo without a vote: its row becomes Dead with cause `evicted`, `by` and `reason`.
    /// Returns the version that contains the change, or `None` when the silo is already Dead.
    ///
    /// # Errors
    /// [`ChangeError::Refused`] when the silo has no row or its row cannot be changed; otherwise
    /// see [`ChangeError`].
    pub async fn evict(
        &mut self,
        silo: SiloAddress,
        by: &str,
        reason: &str,
        now: WallTime,
    ) -> Result<Option<u64>, ChangeError<Refusal>> {
        let action = Action::Evict {
            silo,
            by: by.to_owned(),
            reason: reason.to_owned(),
        };
        // The id only matches answers to intents, and there is only one intent.
        let intents = [Intent::new(IntentId::new(1), None, action)];
        let now = Now {
            mono: MonoTime::ZERO,
            wall: now,
        };
        let (observed, config, limits) = (Observed::default(), Config::default(), self.limits);
        let plan = |table: &Snapshot, id| {
            let done = apply(table, &observed, &intents, now, &config, &limits);
            match done.answers.first() {
                Some(Answer::Applied { .. }) => {
                    let request = done.into_request(table.token.clone(), id, None);
                    Ok(Some(request.made_at(now.wall)))
                }
                Some(Answer::Refused(refusal)) => Err(refusal.clone()),
                Some(Answer::Queued) => Err(Refusal::TooLarge(
                    "the eviction does not fit into one commit".to_owned(),
                )),
                Some(Answer::Moot) | None => Ok(None),
            }
        };
        self.changer.change(plan).await
    }

    /// Changes the settings that all silos share. Silos apply them when they read the new version.
    /// Returns that version, or `None` when `edit` changes nothing.
    ///
    /// # Errors
    /// [`ChangeError::Refused`] with the error of `edit`; otherwise see [`ChangeError`].
    pub async fn settings<E: fmt::Display>(
        &mut self,
        mut edit: impl FnMut(&SharedSettings) -> Result<SharedSettings, E> + Send,
    ) -> Result<Option<u64>, ChangeError<E>> {
        let plan = |table: &Snapshot, id| {
            let old = &table.version_row.settings;
            let new = edit(old)?;
            let request = || CommitRequest::of_changes(table.token.clone(), id, Vec::new());
            Ok((new != *old).then(|| request().with_settings(new)))
        };
        self.changer.change(plan).await
    }

    /// Changes the keys by which newcomers prove that they have read the table; `edit` gets the old
    /// ones. Returns the version that has the new ones, or `None` when `edit` changes nothing.
    /// `edit` is called again after a conflict, and must then change nothing if its own change is
    /// in the table.
    ///
    /// Silos with a row stay connected whatever the keys are. A newcomer is heard by those that
    /// know one of its keys: to rotate, [add](crate::ClusterKeys::with) a key, wait until every
    /// silo has read the table, and then keep the [newest](crate::ClusterKeys::newest) alone.
    ///
    /// # Errors
    /// [`ChangeError::Refused`] with the error of `edit`; otherwise see [`ChangeError`].
    pub async fn cluster_keys<E: fmt::Display>(
        &mut self,
        mut edit: impl FnMut(&ClusterKeys) -> Result<ClusterKeys, E> + Send,
    ) -> Result<Option<u64>, ChangeError<E>> {
        let plan = |table: &Snapshot, id| {
            let cell = &table.version_row.core;
            let (old, request) = (cell.cluster_keys(), CommitRequest::of_changes);
            let new = edit(&old)?;
            let cell = cell.with_cluster_keys(&new);
            let request = || request(table.token.clone(), id, Vec::new()).with_core(cell);
            Ok((new != old).then(request))
        };
        self.changer.change(plan).await
    }

    /// Removes the rows that `policy` calls defunct, in as few commits as the limits allow. Returns
    /// their keys.
    ///
    /// # Errors
    /// See [`ChangeError`]. Commits that precede the failed one stay in effect.
    pub async fn cleanup(&mut self, policy: &CleanupPolicy) -> Result<Vec<String>, ChangeError> {
        ext::cleanup(&mut self.changer, policy, self.limits.rows_per_commit).await
    }

    /// Removes a row that cannot be decoded (clause T12). Returns whether there was one.
    ///
    /// # Errors
    /// [`ChangeError::Refused`] when the row can be decoded; otherwise see [`ChangeError`].
    pub async fn remove_undecodable(&mut self, key: &str) -> Result<bool, ChangeError<Decodable>> {
        ext::remove_undecodable(&mut self.changer, key).await
    }
}
