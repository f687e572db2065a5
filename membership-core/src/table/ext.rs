//! What people know from other membership tables, written once over the contract.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Attempt, CommitOutcome, CommitRequest, MembershipTable, Operation, ReadAnswer, ReadRequest,
    RowChange, TableError, TableErrorKind,
};
use crate::intent::oldest_first;
use crate::{
    CommitId, Heartbeats, MembershipEntry, SiloAddress, SiloStatus, Snapshot, VersionToken,
    WallTime,
};

/// How often a repair or a cleanup starts over when others commit in between, before it says so.
const CONFLICTS: u32 = 16;

/// Which defunct rows a cleanup removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// The clock of whoever cleans.
    pub now: WallTime,
    /// Dead rows that died longer ago than this go.
    pub older_than: Duration,
    /// This many of the most recently dead rows stay whatever their age, so that people can still read what happened.
    pub keep: usize,
}

impl CleanupPolicy {
    /// The keys of the rows that go, in the order of addresses. Only Dead rows; their age is that of their death, not of their start. None goes
    /// before the older silos at its address: the next one there could take its epoch.
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

/// Comfort over [`MembershipTable`]: nothing here is for a provider to implement.
///
/// Dropping one of these futures leaves the table in a legal state; a commit under way may or may not have happened (clause T14).
#[async_trait]
pub trait TableExt: MembershipTable {
    /// The whole table and every heartbeat.
    ///
    /// # Errors
    /// As [`MembershipTable::read`].
    async fn read_all(&self) -> Result<(Snapshot, Heartbeats), TableError>;

    /// Adds one row to the version that `token` names.
    ///
    /// # Errors
    /// As [`MembershipTable::commit`]; a row that exists is a conflict, not an error.
    async fn insert_row(
        &self,
        entry: MembershipEntry,
        token: &VersionToken,
        id: CommitId,
    ) -> Result<CommitOutcome, TableError>;

    /// Replaces one row in the version that `token` names.
    ///
    /// # Errors
    /// As [`MembershipTable::commit`]; a row that does not exist is a conflict, not an error.
    async fn update_row(
        &self,
        entry: MembershipEntry,
        token: &VersionToken,
        id: CommitId,
    ) -> Result<CommitOutcome, TableError>;

    /// Removes what the policy calls defunct, in as few commits as the limits allow; gives the removed keys. `ids` names the commits.
    ///
    /// # Errors
    /// What a read or a commit says; `Busy` when others kept committing in between. What was removed until then stays removed.
    async fn cleanup_defunct_silo_entries(
        &self,
        policy: &CleanupPolicy,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<Vec<String>, TableError>;

    /// Where clients may connect: Active silos with a gateway port, with that port in their address, by address.
    ///
    /// # Errors
    /// As [`MembershipTable::read`].
    async fn gateways(&self) -> Result<Vec<SiloAddress>, TableError>;

    /// The repair for a row that cannot be decoded (clause T12): removes it. Says whether there was one. A row that can be decoded is
    /// left alone and gives `InvalidRequest`.
    ///
    /// # Errors
    /// What a read or a commit says; `Busy` when others kept committing in between.
    async fn remove_undecodable(
        &self,
        key: &str,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<bool, TableError>;
}

async fn snapshot<T: MembershipTable + ?Sized>(
    table: &T,
    heartbeats: bool,
) -> Result<(Snapshot, Heartbeats), TableError> {
    match table
        .read(&ReadRequest {
            known: None,
            heartbeats,
            barrier: true,
        })
        .await?
    {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } => Ok((snapshot, heartbeats.unwrap_or_default())),
        ReadAnswer::Unchanged { .. } => Err(TableError::new(
            TableErrorKind::Damaged,
            Operation::Read,
            table.store(),
            "it says unchanged to somebody who knows nothing",
        )),
    }
}

/// Sends a commit, and once more where its outcome was unknown: the second answer is by the commit id. A second error says nothing of the
/// first sending, whose outcome stays unknown.
async fn settle<T: MembershipTable + ?Sized>(
    table: &T,
    request: CommitRequest,
) -> Result<CommitOutcome, TableError> {
    match table.commit(&request).await {
        Err(unknown)
            if unknown.kind() == TableErrorKind::OutcomeUnknown
                && request.attempt == Attempt::First =>
        {
            table.commit(&request.again()).await.map_err(|_| unknown)
        }
        other => other,
    }
}

fn busy<T: MembershipTable + ?Sized>(table: &T) -> TableError {
    TableError::new(
        TableErrorKind::Busy,
        Operation::Commit,
        table.store(),
        "others kept committing in between",
    )
}

#[async_trait]
impl<T: MembershipTable + ?Sized> TableExt for T {
    async fn read_all(&self) -> Result<(Snapshot, Heartbeats), TableError> {
        snapshot(self, true).await
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
        let at_once = self.limits().rows_per_commit.max(1);
        let mut removed = Vec::new();
        let mut conflicts = 0;
        let mut now = snapshot(self, false).await?.0;
        loop {
            let mut keys = policy.defunct(&now);
            keys.truncate(at_once);
            if keys.is_empty() {
                return Ok(removed);
            }
            let request =
                CommitRequest::new(now.token.clone(), ids(), None, [], [], keys.iter().cloned());
            match settle(self, request.clone()).await? {
                CommitOutcome::Committed(token) => {
                    removed.append(&mut keys);
                    now = request.apply_to(&now, token);
                }
                CommitOutcome::Conflict(_) if conflicts == CONFLICTS => return Err(busy(self)),
                CommitOutcome::Conflict(conflict) => {
                    conflicts += 1;
                    now = match conflict.snapshot {
                        Some(fresh) => fresh,
                        None => snapshot(self, false).await?.0,
                    };
                }
            }
        }
    }

    async fn gateways(&self) -> Result<Vec<SiloAddress>, TableError> {
        let (now, _) = snapshot(self, false).await?;
        let gateways = now.rows.entries().filter(|e| e.is_gateway());
        Ok(gateways
            .map(|e| SiloAddress::new(e.address.ip(), e.gateway_port, e.address.epoch()))
            .collect())
    }

    async fn remove_undecodable(
        &self,
        key: &str,
        ids: &mut (dyn FnMut() -> CommitId + Send),
    ) -> Result<bool, TableError> {
        for _ in 0..CONFLICTS {
            let (now, _) = snapshot(self, false).await?;
            match now.rows.by_key(key) {
                None => return Ok(false),
                Some(row) if row.entry().is_some() => {
                    let error = TableError::new(
                        TableErrorKind::InvalidRequest,
                        Operation::Commit,
                        self.store(),
                        "the row can be decoded: evict the silo instead",
                    );
                    return Err(error.with_key(key));
                }
                Some(_) => {}
            }
            let request = CommitRequest {
                expected: now.token,
                id: ids(),
                attempt: Attempt::First,
                committer: None,
                changes: vec![RowChange::Remove(key.to_owned())],
                settings: None,
                core: None,
            };
            if let CommitOutcome::Committed(_) = settle(self, request).await? {
                return Ok(true);
            }
        }
        Err(busy(self))
    }
}
