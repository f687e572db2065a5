//! Convenience operations known from other membership tables, implemented once over the contract.

use std::time::Duration;

use async_trait::async_trait;

use super::change::{ChangeError, Changer, Patience, Runtime, read};
use super::{CommitOutcome, CommitRequest, MembershipTable, Operation, TableError, TableErrorKind};
use crate::intent::oldest_first;
use crate::{
    CommitId, Gateway, Heartbeats, MembershipEntry, SiloStatus, Snapshot, VersionToken, WallTime,
};

/// Selects the defunct rows that a cleanup removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanupPolicy {
    /// The current time by the caller's clock.
    pub now: WallTime,
    /// Minimum age of the deaths whose rows are removed.
    pub older_than: Duration,
    /// Number of rows with the most recent deaths that are kept at any age, so that people can
    /// still read them.
    pub keep: usize,
}

impl CleanupPolicy {
    /// Creates a policy as of the time `now`.
    #[must_use]
    pub const fn new(now: WallTime, older_than: Duration, keep: usize) -> Self {
        Self {
            now,
            older_than,
            keep,
        }
    }

    /// The keys of the rows to remove, in the order of addresses. Only Dead rows; their age is that
    /// of the death, not of the start. A row stays until the rows of older silos at its address are
    /// removed; otherwise the next silo there could take its epoch.
    #[must_use]
    pub fn defunct(&self, snapshot: &Snapshot) -> Vec<String> {
        let mut dead: Vec<_> = snapshot
            .rows
            .entries()
            .filter(|e| e.status == SiloStatus::Dead)
            .filter_map(|e| e.death.as_ref().map(|d| (d.at, e.address)))
            .collect();
        dead.sort_unstable();
        dead.truncate(dead.len().saturating_sub(self.keep));
        let limit = self.now.minus(self.older_than);
        let old = dead
            .into_iter()
            .filter(|(at, _)| *at < limit)
            .collect::<Vec<_>>();
        let gone = oldest_first(&snapshot.rows, old.iter().map(|(_, silo)| *silo).collect());
        gone.into_iter().map(|silo| silo.row_key()).collect()
    }
}

/// Convenience operations for every [`MembershipTable`]; a provider does not implement them.
///
/// # Cancellation
/// Dropping one of these futures leaves the table in a legal state; a commit under way may or may
/// not have happened (clause T14).
#[async_trait]
pub trait TableExt: MembershipTable {
    /// Reads the whole table and all heartbeats.
    ///
    /// # Errors
    /// The errors of [`MembershipTable::read`].
    async fn read_all(&self) -> Result<(Snapshot, Heartbeats), TableError>;

    /// Adds one row to the version that `token` names.
    ///
    /// # Errors
    /// The errors of [`MembershipTable::commit`]; an existing row is a conflict, not an error.
    async fn insert_row(
        &self,
        entry: MembershipEntry,
        token: &VersionToken,
        id: CommitId,
    ) -> Result<CommitOutcome, TableError>;

    /// Replaces one row in the version that `token` names.
    ///
    /// # Errors
    /// The errors of [`MembershipTable::commit`]; a missing row is a conflict, not an error.
    async fn update_row(
        &self,
        entry: MembershipEntry,
        token: &VersionToken,
        id: CommitId,
    ) -> Result<CommitOutcome, TableError>;

    /// Removes the rows that the policy calls defunct, in as few commits as the limits allow.
    /// Returns the keys of the removed rows. `ids` creates the commit ids.
    ///
    /// # Errors
    /// The errors of reads and commits; `Busy` when other commits kept getting in first. Rows that
    /// are already removed stay removed.
    async fn cleanup_defunct_silo_entries(
        &self,
        policy: &CleanupPolicy,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<Vec<String>, TableError>;

    /// The silos that clients may connect to, by address: Active silos with a gateway port.
    ///
    /// # Errors
    /// The errors of [`MembershipTable::read`].
    async fn gateways(&self) -> Result<Vec<Gateway>, TableError>;

    /// Removes a row that cannot be decoded (clause T12). Returns whether there was one.
    ///
    /// # Errors
    /// `InvalidRequest` for a row that can be decoded, which is left unchanged; the errors of reads
    /// and commits; `Busy` when other commits kept getting in first.
    async fn remove_undecodable(
        &self,
        key: &str,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<bool, TableError>;
}

/// The caller's ids, without pauses: the patience is that of one table call.
struct Ids<'a>(&'a mut (dyn FnMut() -> CommitId + Send));

#[async_trait]
impl Runtime for Ids<'_> {
    fn commit_id(&mut self) -> CommitId {
        (self.0)()
    }

    async fn pause(&mut self, _: Duration) {}
}

/// The row can be decoded, so it needs no repair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {0} can be decoded: evict the silo instead")]
pub struct Decodable(pub String);

const PATIENCE: Patience = Patience {
    conflicts: 16,
    errors: 2,
};

/// Removes the rows that the policy calls defunct, commit by commit.
pub(crate) async fn cleanup<T, R>(
    changer: &mut Changer<'_, T, R>,
    policy: &CleanupPolicy,
    at_once: usize,
) -> Result<Vec<String>, ChangeError>
where
    T: MembershipTable + ?Sized,
    R: Runtime + ?Sized,
{
    let mut removed = Vec::new();
    loop {
        // Of every attempt: when the table has moved too far to show the outcome of one, its rows
        // are gone and no later plan names them.
        let mut asked: Vec<String> = Vec::new();
        let plan = |now: &Snapshot, id| {
            let mut keys = policy.defunct(now);
            keys.truncate(at_once.max(1));
            for key in &keys {
                if !asked.contains(key) {
                    asked.push(key.clone());
                }
            }
            let any = !keys.is_empty();
            Ok(any.then(|| CommitRequest::new(now.token.clone(), id, None, [], [], keys)))
        };
        if changer.change(plan).await?.is_none() {
            return Ok(removed);
        }
        let is_gone = |key: &String| {
            changer
                .now()
                .is_some_and(|now| now.rows.by_key(key).is_none())
        };
        removed.extend(asked.into_iter().filter(is_gone));
    }
}

/// Removes a row that cannot be decoded; returns whether there was one.
pub(crate) async fn remove_undecodable<T, R>(
    changer: &mut Changer<'_, T, R>,
    key: &str,
) -> Result<bool, ChangeError<Decodable>>
where
    T: MembershipTable + ?Sized,
    R: Runtime + ?Sized,
{
    let plan = |now: &Snapshot, id| match now.rows.by_key(key) {
        None => Ok(None),
        Some(row) if row.entry().is_some() => Err(Decodable(key.to_owned())),
        Some(_) => {
            let gone = [key.to_owned()];
            let request = CommitRequest::new(now.token.clone(), id, None, [], [], gone);
            Ok(Some(request))
        }
    };
    Ok(changer.change(plan).await?.is_some())
}

#[async_trait]
impl<T: MembershipTable + ?Sized> TableExt for T {
    async fn read_all(&self) -> Result<(Snapshot, Heartbeats), TableError> {
        read(self, true).await
    }

    async fn insert_row(
        &self,
        entry: MembershipEntry,
        token: &VersionToken,
        id: CommitId,
    ) -> Result<CommitOutcome, TableError> {
        self.commit(&CommitRequest::new(
            token.clone(),
            id,
            None,
            [entry],
            [],
            [],
        ))
        .await
    }

    async fn update_row(
        &self,
        entry: MembershipEntry,
        token: &VersionToken,
        id: CommitId,
    ) -> Result<CommitOutcome, TableError> {
        self.commit(&CommitRequest::new(
            token.clone(),
            id,
            None,
            [],
            [entry],
            [],
        ))
        .await
    }

    async fn cleanup_defunct_silo_entries(
        &self,
        policy: &CleanupPolicy,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<Vec<String>, TableError> {
        let at_once = self.limits().rows_per_commit;
        let mut ids = Ids(ids);
        cleanup(&mut Changer::new(self, &mut ids, PATIENCE), policy, at_once)
            .await
            .map_err(|error| error.into_table_error(|never| match never {}))
    }

    async fn gateways(&self) -> Result<Vec<Gateway>, TableError> {
        let (now, _) = read(self, false).await?;
        Ok(now.rows.entries().filter_map(Gateway::of).collect())
    }

    async fn remove_undecodable(
        &self,
        key: &str,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<bool, TableError> {
        let mut ids = Ids(ids);
        remove_undecodable(&mut Changer::new(self, &mut ids, PATIENCE), key)
            .await
            .map_err(|error| {
                error.into_table_error(|decodable| {
                    TableError::new(
                        TableErrorKind::InvalidRequest,
                        Operation::Commit,
                        self.store(),
                        decodable.to_string(),
                    )
                    .with_key(key)
                })
            })
    }
}
