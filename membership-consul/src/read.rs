//! `read` and `read_row`: one request each, and so one moment. Clauses T6, T12, T16.

use std::sync::Arc;

use membership_core::{
    Operation, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress, Snapshot, TableError,
    VersionRow, VersionToken,
};
use tokio::time::Instant;

use crate::codec::{self, Found, Pair};
use crate::error::wrong;
use crate::link::Request;
use crate::table::Inner;
use crate::txn::Txn;

impl Inner {
    /// Everything of the cluster, as of one moment.
    ///
    /// # Errors
    /// What the servers say. `PermissionDenied` too: they hide what a token may not see, and answer as if nothing were there.
    pub(crate) async fn everything(&self, by: Instant) -> Result<Found, TableError> {
        let (body, _) = self.link.keys(&Request::tree(self.keys.root()), by).await?;
        let pairs: Vec<Pair> = match body {
            Some(body) => serde_json::from_slice(&body).map_err(|_| {
                wrong("what answers there is not Consul: check the address").at(self.link.at())
            })?,
            None => Vec::new(),
        };
        let found = Found::sort(&self.keys, pairs);
        if found.is_no_table() {
            self.may_see(by).await?;
        }
        Ok(found)
    }

    /// Asks for one key by its whole name, which is refused where it is not allowed.
    ///
    /// # Errors
    /// What the servers say, `PermissionDenied` above all.
    pub(crate) async fn may_see(&self, by: Instant) -> Result<(), TableError> {
        self.link
            .keys(&Request::get(&self.keys.table()), by)
            .await
            .map(drop)
    }

    /// A snapshot out of what was found; it is remembered, so that its rows are decoded once.
    ///
    /// # Errors
    /// `Damaged` where rows are gone, or do not show to this token.
    pub(crate) fn snapshot(
        &self,
        row: VersionRow,
        found: &mut Found,
    ) -> Result<Snapshot, TableError> {
        found.complete(&row)?;
        let known = self.seen().map_or_else(Rows::new, |seen| seen.rows);
        let snapshot = Snapshot {
            token: codec::token(&row),
            version_row: Arc::new(row),
            rows: found.take_rows(&known),
        };
        self.remember(&snapshot);
        Ok(snapshot)
    }

    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let mut found = self.everything(self.link.deadline()).await?;
        let row = found.usable(request.known.as_ref(), Operation::Read)?;
        self.beats.learn(found.beaten_at());
        let snapshot = self.snapshot(row, &mut found)?;
        let heartbeats = request.heartbeats.then(|| found.heartbeats(&snapshot.rows));
        Ok(match &request.known {
            Some(known) if known.same_commit(&snapshot.token) => {
                ReadAnswer::Unchanged { heartbeats }
            }
            _ => ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            },
        })
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let by = self.link.deadline();
        let key = silo.row_key();
        let txn = Txn::default()
            .tree(self.keys.version())
            .tree(self.keys.silo(&key));
        let found = Found::sort(&self.keys, self.link.look(&txn, by).await?);
        if found.is_no_table() {
            self.may_see(by).await?;
        }
        let row = found.usable(known, Operation::ReadRow)?;
        self.beats.learn(found.beaten_at());
        let text = found.rows.iter().find(|(of, _)| *of == key);
        let heartbeat = text.and_then(|_| found.heartbeat_of(&key));
        Ok(RowRead {
            token: codec::token(&row),
            row: text.map(|(key, body)| Row::decode(key.clone(), body.clone())),
            heartbeat,
        })
    }
}
