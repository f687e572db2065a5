//! `read` and `read_row`: one partition, read with serial consistency, and the heartbeats beside
//! it. Clauses T6, T8, T16.

use futures_util::future::try_join;
use membership_core::{
    Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress, TableError, VersionToken,
};
use membership_provider::{StoredHeartbeats, counted_token};
use tokio::time::Instant;

use crate::client::Inner;
use crate::codec::{self, Partition, Stored, text};
use crate::keys::VERSION;

/// A read of a larger table asks for the version first, if the caller probably has the newest: two
/// requests if it changed.
const LARGE: usize = 200;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let (deadline, known) = (self.client.deadline(), request.known.as_ref());
        if request.new_connection {
            // No node can answer alone: a majority decides each serial read. But the names may lead
            // to other nodes by now, for example to a restored copy.
            self.client.open(deadline, true).await?;
        }
        let heartbeats = || self.heartbeats(request.heartbeats, deadline);
        let seen = self.cache.latest();
        let large = seen.as_ref().filter(|seen| {
            known.is_some_and(|known| known.same_commit(&seen.token)) && seen.rows.len() > LARGE
        });
        if let Some(seen) = large {
            let (stored, heartbeats) = try_join(self.version(deadline), heartbeats()).await?;
            let row = codec::usable(
                stored.as_ref(),
                None,
                known,
                Operation::Read,
                &self.decided_by,
            )?;
            if counted_token(&row).same_commit(&seen.token) {
                let heartbeats = heartbeats.map(|all| all.shown(&seen.rows));
                return Ok(ReadAnswer::Unchanged { heartbeats });
            }
        }
        let (partition, heartbeats) = try_join(self.snapshot_read(deadline), heartbeats()).await?;
        let rows = seen.map(|seen| seen.rows).unwrap_or_default();
        let snapshot = partition.snapshot(known, &rows, &self.decided_by)?;
        let heartbeats = heartbeats.map(|all| all.shown(&snapshot.rows));
        let orphans = heartbeats.iter().flat_map(|all| &all.orphans);
        self.remember(&snapshot, orphans.map(SiloAddress::row_key).collect());
        Ok(ReadAnswer::new(known, snapshot, heartbeats))
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let client = &self.client;
        let (deadline, key) = (client.deadline(), silo.row_key());
        let of_row = (text(&client.cluster), codec::keys([VERSION, &key]));
        let of_heartbeat = (text(&client.cluster), text(&key));
        let (rows, heartbeats) = try_join(
            client.execute(deadline, false, |all| &all.some, of_row),
            client.execute(deadline, false, |all| &all.heartbeat, of_heartbeat),
        )
        .await?;
        let mut partition = Partition::of(rows)?;
        if partition.version.is_none() && partition.rows.is_empty() {
            // Another row makes the difference between "damaged" and "not initialized".
            partition = self.snapshot_read(deadline).await?;
        }
        let version = partition.usable(known, Operation::ReadRow, &self.decided_by)?;
        let mut rows = partition.rows.into_iter();
        let row = rows
            .find(|(of, _)| *of == key)
            .map(|(key, body)| self.cache.row(&key, &body));
        let heartbeat = match row {
            Some(_) => codec::heartbeats(heartbeats)?.get(&key),
            None => None,
        };
        Ok(RowRead::new(counted_token(&version), row, heartbeat).with_version_row(version))
    }

    /// The whole partition: the version row and all rows.
    pub(crate) async fn snapshot_read(&self, deadline: Instant) -> Result<Partition, TableError> {
        let values = (text(&self.client.cluster),);
        let answer = self
            .client
            .execute(deadline, false, |all| &all.all, values)
            .await?;
        Partition::of(answer)
    }

    /// The version row alone.
    pub(crate) async fn version(&self, deadline: Instant) -> Result<Option<Stored>, TableError> {
        let values = (text(&self.client.cluster), codec::keys([VERSION]));
        let answer = self
            .client
            .execute(deadline, false, |all| &all.some, values)
            .await?;
        Ok(Partition::of(answer)?.version)
    }

    async fn heartbeats(
        &self,
        wanted: bool,
        deadline: Instant,
    ) -> Result<Option<StoredHeartbeats>, TableError> {
        if !wanted {
            return Ok(None);
        }
        let values = (text(&self.client.cluster),);
        let answer = self
            .client
            .execute(deadline, false, |all| &all.heartbeats, values)
            .await?;
        codec::heartbeats(answer).map(Some)
    }
}
