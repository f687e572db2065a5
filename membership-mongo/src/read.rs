//! `read` and `read_row`: one find of both documents.

use std::sync::{Arc, PoisonError};

use membership_core::{
    Heartbeats, Operation, ReadAnswer, ReadRequest, RowRead, Rows, SiloAddress, Snapshot,
    TableError, TableErrorKind as Kind, VersionRow, VersionToken, usable_version_row,
};
use mongodb::bson::{Bson, Document};

use crate::STORE;
use crate::client::Inner;
use crate::codec::{self, Table};
use crate::commands::{Concern, Want};
use crate::error::error;

/// The two documents, as they were read.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) table: Option<Table>,
    pub(crate) heartbeats: Option<Document>,
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            self.reconnect().await?;
        }
        match self.read_once(request, request.barrier).await {
            Err(e) if self.may_be_stale(request.barrier, &e) => self.read_once(request, true).await,
            other => other,
        }
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        match self.read_row_once(silo, known, false).await {
            Err(e) if self.may_be_stale(false, &e) => self.read_row_once(silo, known, true).await,
            other => other,
        }
    }

    /// Whether the answer may come from a former primary that does not know that it was replaced.
    /// Before the caller gets the error that a table is gone or went back in time, a majority is
    /// asked.
    fn may_be_stale(&self, barrier: bool, e: &TableError) -> bool {
        let about_the_table = matches!(
            e.kind(),
            Kind::TableReplaced
                | Kind::TableRolledBack
                | Kind::NotInitialized
                | Kind::BeingDeleted
                | Kind::Damaged
        );
        about_the_table && matches!(self.concern(barrier), Concern::Majority(_))
    }

    async fn read_once(
        &self,
        request: &ReadRequest,
        barrier: bool,
    ) -> Result<ReadAnswer, TableError> {
        let (known, heartbeats) = (request.known.as_ref(), request.heartbeats);
        let same = |token: &VersionToken| known.is_some_and(|known| known.same_commit(token));
        let seen = known.and_then(|known| self.cache.of(known));
        let want = match known {
            // Without the rows, heartbeats of removed rows look like the others.
            Some(token) if seen.is_some() || !heartbeats => Want::Since { token, heartbeats },
            _ => Want::All { heartbeats },
        };
        let found = self.find(want, barrier).await?;
        let row = self.usable(found.table.as_ref(), known)?;
        let token = row.token(&[]);
        if same(&token) {
            let heartbeats = heartbeats.then(|| {
                let rows = seen.map_or_else(|| self.rows(found.table), |seen| seen.rows);
                self.heartbeats(found.heartbeats.as_ref(), &rows)
            });
            return Ok(ReadAnswer::Unchanged { heartbeats });
        }
        let snapshot = self.snapshot(row, found.table);
        let heartbeats =
            heartbeats.then(|| self.heartbeats(found.heartbeats.as_ref(), &snapshot.rows));
        Ok(ReadAnswer::new(known, snapshot, heartbeats))
    }

    /// The heartbeats of these rows; those without a row are remembered for the next cleanup.
    fn heartbeats(&self, stored: Option<&Document>, rows: &Rows) -> Heartbeats {
        let heartbeats = codec::heartbeats(stored, rows);
        let keys = heartbeats.orphans.iter().map(SiloAddress::row_key);
        *self.orphans.lock().unwrap_or_else(PoisonError::into_inner) = keys.collect();
        heartbeats
    }

    async fn read_row_once(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
        barrier: bool,
    ) -> Result<RowRead, TableError> {
        let key = silo.row_key();
        let mut found = self.find(Want::Row(&key), barrier).await?;
        if found
            .table
            .as_ref()
            .is_some_and(|table| table.version_row.is_none())
        {
            // Whether the table is damaged depends on its other rows.
            found = self.find(Want::All { heartbeats: false }, barrier).await?;
        }
        let version = self.usable(found.table.as_ref(), known)?;
        let members = found
            .table
            .and_then(|table| table.members)
            .unwrap_or_default();
        let row = codec::rows(members, &Rows::new()).by_key(&key).cloned();
        let heartbeat = codec::heartbeat_of(found.heartbeats.as_ref(), silo);
        let heartbeat = heartbeat.filter(|_| row.is_some());
        Ok(RowRead::new(version.token(&[]), row, heartbeat).with_version_row(version))
    }

    /// Reads the documents.
    pub(crate) async fn find(&self, want: Want<'_>, barrier: bool) -> Result<Found, TableError> {
        let mut found = Found::default();
        let read = |want| self.find_with(barrier, move |with| self.commands.read(want, with));
        let cursor = self.sort(read(want).await?, &mut found)?;
        if cursor != 0 {
            // Both together are too large for one answer. The second one alone is not.
            let _ = self.query(self.commands.close_cursor(cursor)).await;
            if found.heartbeats.is_none() {
                self.sort(read(Want::Heartbeats).await?, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Sorts the documents of an answer; returns the cursor that it left open.
    fn sort(&self, mut answer: Document, into: &mut Found) -> Result<i64, TableError> {
        let Some(Bson::Document(mut cursor)) = answer.remove("cursor") else {
            let message = "the server does not answer a read like MongoDB does";
            return Err(error(Kind::Configuration, message));
        };
        let Some(Bson::Array(batch)) = cursor.remove("firstBatch") else {
            return Ok(0);
        };
        let keys = &self.commands.keys;
        for document in batch {
            let Bson::Document(document) = document else {
                continue;
            };
            if document
                .get_str("_id")
                .is_ok_and(|id| id == keys.heartbeats)
            {
                codec::check_mark(&document).map_err(|e| e.with_key(&*keys.heartbeats))?;
                into.heartbeats = Some(document);
            } else {
                let table = Table::from(document).map_err(|e| e.with_key(&*keys.table))?;
                into.table = Some(table);
            }
        }
        Ok(cursor.get_i64("id").unwrap_or(0))
    }

    /// The version row of a table that may be used and that `known` may be from. Clauses T12, T16.
    pub(crate) fn usable(
        &self,
        table: Option<&Table>,
        known: Option<&VersionToken>,
    ) -> Result<VersionRow, TableError> {
        let text = table.and_then(Table::version_text);
        // A document without a version row is damaged, even without rows.
        let key = |table: &Table| table.any_key().unwrap_or(self.commands.keys.table.clone());
        let any_key = table.map(key);
        usable_version_row(
            text.as_deref(),
            any_key.as_deref(),
            known,
            Operation::Read,
            STORE,
        )
    }

    /// The table as it was read, which is remembered.
    pub(crate) fn snapshot(&self, row: VersionRow, table: Option<Table>) -> Snapshot {
        let (token, version_row) = (row.token(&[]), Arc::new(row));
        let snapshot = Snapshot::new(token, version_row, self.rows(table));
        self.cache.store(snapshot.clone());
        snapshot
    }

    fn rows(&self, table: Option<Table>) -> Rows {
        let members = table.and_then(|table| table.members);
        members.map_or_else(Rows::new, |members| {
            codec::rows(members, &self.cache.rows())
        })
    }
}
