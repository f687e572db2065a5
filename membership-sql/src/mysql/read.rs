//! `read` and `read_row`: one statement that sees one moment.

use async_trait::async_trait;
use membership_core::{
    Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress, TableError, TableErrorKind as Kind,
    VersionToken,
};

use super::client::Inner;
use super::codec::Found;
use super::connection::{Connection, Failure};
use super::error::{NO_SUCH_TABLE, code, error};
use super::sql;
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
        // Heartbeats are always new.
        let settled = known.filter(|_| !heartbeats);
        let mut skip_rows_of = known;
        loop {
            let read = sql::read(&table.key, skip_rows_of, heartbeats);
            let settle = sql::settle(&table.key, settled.and(skip_rows_of));
            let mut found = query(table, connection, &read, Some(settle)).await?;
            let row = found.usable(known)?;
            if self.0.barrier {
                table.check_barrier(connection).await?;
            }
            let shown = heartbeats.then(|| std::mem::take(&mut found.heartbeats));
            if known.is_some_and(|known| known.same_commit(&row.token(&[]))) {
                return Ok(ReadAnswer::Unchanged { heartbeats: shown });
            }
            if skip_rows_of.is_some() && found.rows.is_empty() && row.row_count > 0 {
                // The version row was changed by hand, but not the columns beside it: the server
                // took it for unchanged and sent no rows.
                let version = row.version;
                tracing::warn!(
                    version,
                    "the version row does not match the columns beside it"
                );
                skip_rows_of = None;
                continue;
            }
            let snapshot = found.snapshot(row, &table.cache);
            return Ok(ReadAnswer::new(known, snapshot, shown));
        }
    }
}

#[async_trait]
impl Work<Inner> for ReadRow<'_> {
    type Answer = RowRead;
    const OPERATION: Operation = Operation::ReadRow;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<RowRead, TableError> {
        let (silo, known) = (self.0, self.1);
        let key = silo.row_key();
        let read = sql::read_row(&table.key, &sql::text(&key));
        let settle = sql::settle(&table.key, None);
        let mut found = query(table, connection, &read, Some(settle)).await?;
        if found.version.is_none() && known.is_none() {
            // Not initialized, or damaged: that depends on other rows.
            found = query(table, connection, &sql::probe(&table.key), None).await?;
        }
        let version = found.usable(known)?;
        let body = found.rows.iter().find(|(found, _)| *found == key);
        let row = body.map(|(_, body)| table.cache.row(&key, body));
        let heartbeat = found.heartbeats.silos.get(silo).copied();
        Ok(RowRead::new(version.token(&[]), row, heartbeat).with_version_row(version))
    }
}

/// Executes a read. Without tables there is no version row. `settle` makes what is seen lasting, if
/// the server needs that.
///
/// # Errors
/// The error that the server returns.
pub(super) async fn query(
    table: &Inner,
    connection: &mut Connection,
    statement: &str,
    settle: Option<String>,
) -> Result<Found, TableError> {
    if !connection.has_tables().await? {
        return Ok(Found::default());
    }
    let sql = match settle.filter(|_| connection.facts.early) {
        Some(settle) => format!("{statement}; {settle}"),
        None => statement.to_owned(),
    };
    let sets = match connection.begin(&sql).await {
        // A user who may only read: a crash may take back what this read shows.
        Err(failure) if failure.at > 0 && matches!(code(&failure.error), Some(1142 | 1143)) => {
            connection.facts.early = false;
            connection.begin(statement).await?
        }
        Err(failure) => {
            tables_missing(connection, failure).await?;
            Vec::new()
        }
        Ok(sets) => sets,
    };
    Ok(Found::of(sets.first(), &table.cache))
}

/// Whether a statement failed because there are no tables.
///
/// # Errors
/// Any other reason; `Damaged` if only some tables are missing.
pub(super) async fn tables_missing(
    connection: &mut Connection,
    failure: Failure,
) -> Result<(), TableError> {
    if code(&failure.error) != Some(NO_SUCH_TABLE) {
        return Err(failure.into());
    }
    connection.known_tables = false;
    match connection.has_tables().await? {
        false => Ok(()),
        true => Err(error(
            Kind::Unavailable,
            "the tables were dropped and created again",
        )),
    }
}
