//! `read` and `read_row`: one script each, and so one moment. Clauses T6, T12, T16.

use membership_core::{
    Operation, ReadAnswer, ReadRequest, RowRead, Rows, SiloAddress, Snapshot, TableError,
    VersionToken,
};
use membership_provider::{merge_rows, stored_heartbeat};
use redis::Value;

use crate::client::{Inner, Look, Request};
use crate::codec::{self, flag};
use crate::error::unexpected;
use crate::scripts::SCRIPTS;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.look_twice(request.new_connection, |look| self.read_once(request, look))
            .await
    }

    async fn read_once(&self, request: &ReadRequest, look: Look) -> Result<ReadAnswer, TableError> {
        let (keys, known) = (&self.keys, request.known.as_ref());
        let cached = known.and_then(|known| self.cache.of(known));
        let barrier = request.barrier && self.client.replicas() > 0;
        let mut call = Request::script(
            Operation::Read,
            &SCRIPTS.read,
            &[&keys.version, &keys.rows, &keys.heartbeats, &keys.cell],
            false,
        );
        (call.barrier, call.confirmed) = (request.barrier, barrier);
        call.look = Some(look);
        call.command
            .arg(&codec::token(known))
            .arg(flag(request.heartbeats))
            .arg(flag(cached.is_none()))
            .arg(flag(barrier));
        let answer = self.client.run(&call).await?;
        let heartbeats = |stored: Value, cell: Value, rows: Option<&Rows>| {
            request
                .heartbeats
                .then(|| codec::heartbeats(&codec::pairs(stored), codec::text(cell), rows))
        };
        match codec::parts::<4>(answer.value) {
            Ok((1, [stored, cell, ..])) => Ok(ReadAnswer::Unchanged {
                heartbeats: heartbeats(stored, cell, cached.map(|cached| cached.rows).as_ref()),
            }),
            Ok((0, [version, rows, stored, cell])) => {
                let rows = codec::pairs(rows);
                let stray = rows.first().map(|(key, _)| key.as_str());
                let row = codec::version_row(&codec::pairs(version), known, rows.len(), stray)?;
                let snapshot =
                    Snapshot::new(row.token(&[]), row, merge_rows(&rows, &self.cache.rows()));
                self.cache.store(snapshot.clone());
                let heartbeats = heartbeats(stored, cell, Some(&snapshot.rows));
                Ok(ReadAnswer::new(known, snapshot, heartbeats))
            }
            Ok((_, [other, ..])) | Err(other) => Err(unexpected(&other)),
        }
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.look_twice(false, |look| self.read_row_once(silo, known, look))
            .await
    }

    async fn read_row_once(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
        look: Look,
    ) -> Result<RowRead, TableError> {
        let (keys, key) = (&self.keys, silo.row_key());
        let mut call = Request::script(
            Operation::ReadRow,
            &SCRIPTS.read_row,
            &[&keys.version, &keys.rows, &keys.heartbeats],
            false,
        );
        call.look = Some(look);
        call.command.arg(&codec::token(known)).arg(&key);
        let answer = self.client.run(&call).await?;
        let (token, version_row, body, heartbeat) = match (codec::parts::<5>(answer.value), known) {
            (Ok((1, [body, heartbeat, ..])), Some(known)) => (
                VersionToken::new(known.table_id(), known.version(), known.commit(), &[]),
                None,
                body,
                heartbeat,
            ),
            (Ok((0, [version, rows, stray, body, heartbeat])), _) => {
                let (rows, stray) = (codec::number(&rows), codec::text(stray));
                let version = codec::pairs(version);
                let row = codec::version_row(&version, known, rows, stray.as_deref())?;
                (row.token(&[]), Some(row), body, heartbeat)
            }
            (Ok((_, [other, ..])) | Err(other), _) => return Err(unexpected(&other)),
        };
        let body = codec::text(body);
        let read = RowRead::new(
            token,
            body.map(|body| self.cache.row(&key, &body)),
            codec::text(heartbeat).map(|text| stored_heartbeat(&text)),
        );
        Ok(match version_row {
            Some(row) => read.with_version_row(row),
            None => read,
        })
    }
}
