//! `read` and `read_row`: one batch that sees one moment.

use async_trait::async_trait;
use membership_core::{
    Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress, TableError, TableErrorKind as Kind,
    VersionToken,
};
use membership_provider::gone_since;

use super::client::Inner;
use super::codec::Found;
use super::connection::{Connection, Value};
use super::error::error;
use super::sql;
use crate::shared::int;
use crate::shared::pool::Work;

pub(super) struct Read<'a>(pub(super) &'a ReadRequest);
pub(super) struct ReadRow<'a>(
    pub(super) &'a SiloAddress,
    pub(super) Option<&'a VersionToken>,
);

#[async_trait]
impl Work<Inner> for Read<'_> {
    type Answer = ReadAnswer;
    const OPERATION: Operation = Operation::Read;

    async fn run(
        &self,
        table: &Inner,
        connection: &mut Connection,
    ) -> Result<ReadAnswer, TableError> {
        let (known, heartbeats) = (self.0.known.as_ref(), self.0.heartbeats);
        let id = known.map_or_else(String::new, |known| known.table_id().to_string());
        let version = known.map_or(-1, |known| int(known.version()));
        let commit = known.map_or_else(String::new, |known| known.commit().to_string());
        let values: [Value<'_>; 5] = [&table.key, &id, &version, &commit, &heartbeats];
        let mut found = query(connection, sql::READ, &values, known).await?;
        let row = found.usable(&table.cache, known)?;
        if self.0.barrier {
            table.check_barrier()?;
        }
        let heartbeats = heartbeats.then(|| std::mem::take(&mut found.heartbeats));
        if known.is_some_and(|known| known.same_commit(&row.token(&[]))) {
            return Ok(ReadAnswer::Unchanged { heartbeats });
        }
        let snapshot = found.snapshot(&table.cache, row);
        Ok(ReadAnswer::new(known, snapshot, heartbeats))
    }
}

#[async_trait]
impl Work<Inner> for ReadRow<'_> {
    type Answer = RowRead;
    const OPERATION: Operation = Operation::ReadRow;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<RowRead, TableError> {
        let (silo, known) = (self.0, self.1);
        let key = silo.row_key();
        let found = query(connection, sql::READ_ROW, &[&table.key, &key], known).await?;
        let version = found.usable(&table.cache, known)?;
        let body = found.rows.iter().find(|(found, _)| *found == key);
        let row = body.map(|(_, body)| table.cache.row(&key, body));
        let heartbeat = found.heartbeats.silos.get(silo).copied();
        Ok(RowRead::new(version.token(&[]), row, heartbeat).with_version_row(version))
    }
}

/// Executes a read. Without tables there is no version row.
///
/// # Errors
/// The error that the server returns; a table that was known is gone with its tables.
pub(super) async fn query(
    connection: &mut Connection,
    statement: &str,
    values: &[Value<'_>],
    known: Option<&VersionToken>,
) -> Result<Found, TableError> {
    if !connection.has_tables().await? {
        return Ok(Found::default());
    }
    match connection.read(statement, values).await {
        Ok(lines) => Ok(Found::of(lines)),
        Err(e) => Err(gone_since(tables_missing(connection, e).await, known)),
    }
}

/// Whether a statement really failed because there are no tables.
pub(super) async fn tables_missing(connection: &mut Connection, e: TableError) -> TableError {
    if e.kind() != Kind::NotInitialized {
        return e;
    }
    match connection.has_tables().await {
        Ok(false) => e,
        Ok(true) => {
            let message = "the tables were dropped and created again";
            error(Kind::Unavailable, message)
        }
        Err(why) => why,
    }
}
