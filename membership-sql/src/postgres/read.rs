//! `read` and `read_row`: one statement that sees one moment. It goes to the primary and takes its
//! snapshot when it arrives, so that every read is linearizable.

use membership_core::{ReadAnswer, ReadRequest, RowRead, SiloAddress, TableError, VersionToken};

use tokio::time::timeout;

use super::client::{Call, MAIN, Value};
use super::codec::{replaced_if_known, sort};
use super::sql::Statement;
use crate::shared::int;

impl Call {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(super) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            self.open(MAIN, true).await?;
            return self.read_once(request, None).await;
        }
        let seen = self.seen.newest();
        let read = self.look_twice(|| self.read_once(request, seen.as_ref()));
        let limit = self.client.config.operation_timeout;
        let answer = match timeout(self.client.hosts.share(limit), read).await {
            Ok(answer) => answer,
            // The host has fallen silent.
            Err(_) => {
                self.open(MAIN, true).await?;
                self.read_once(request, seen.as_ref()).await
            }
        };
        self.seen.told(answer)
    }

    /// `seen` is what the answer must not go back behind.
    async fn read_once(
        &self,
        request: &ReadRequest,
        seen: Option<&VersionToken>,
    ) -> Result<ReadAnswer, TableError> {
        let (known, heartbeats) = (request.known.as_ref(), request.heartbeats);
        let table = known.map(|known| known.table_id().to_string());
        let version = known.map(|known| int(known.version()));
        let commit = known.map(|known| known.commit().to_string());
        let statement = match request.barrier {
            true => Statement::Barrier,
            false => Statement::Read,
        };
        let values: [Value<'_>; 5] = [&self.key, &table, &version, &commit, &heartbeats];
        let rows = self.ask(statement, &values).await;
        let rows = rows.map_err(replaced_if_known(known))?;
        let mut answer = sort(&rows)?;
        if request.barrier {
            self.client.check_barrier(answer.barrier)?;
        }
        let row = answer.usable(&self.cache, known)?;
        match request.new_connection {
            true => self.seen.set(&row.token(&[])),
            false => self.seen.note(&row, seen)?,
        }
        let heartbeats = heartbeats.then(|| std::mem::take(&mut answer.heartbeats));
        if known.is_some_and(|known| known.same_commit(&row.token(&[]))) {
            return Ok(ReadAnswer::Unchanged { heartbeats });
        }
        let snapshot = answer.snapshot(&self.cache, row);
        Ok(ReadAnswer::new(known, snapshot, heartbeats))
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(super) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let seen = self.seen.newest();
        let read = || self.read_row_once(silo, known, seen.as_ref());
        self.seen.told(self.look_twice(read).await)
    }

    async fn read_row_once(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
        seen: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let key = silo.row_key();
        let rows = self.ask(Statement::ReadRow, &[&self.key, &key]).await;
        let rows = rows.map_err(replaced_if_known(known))?;
        let answer = sort(&rows)?;
        let version = answer.usable(&self.cache, known)?;
        self.seen.note(&version, seen)?;
        let body = answer.rows.iter().find(|(found, _)| *found == key);
        let row = body.map(|(_, body)| self.cache.row(&key, body));
        let heartbeat = answer.heartbeats.silos.get(silo).copied();
        Ok(RowRead::new(version.token(&[]), row, heartbeat).with_version_row(version))
    }
}
