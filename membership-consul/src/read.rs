//! `read` and `read_row`: one request each, and so one moment. Clauses T6, T12, T16.

use membership_core::{
    ReadAnswer, ReadRequest, RowRead, SiloAddress, Snapshot, TableError, VersionRow, VersionToken,
};
use membership_provider::{counted_token, merge_rows};
use tokio::time::Instant;

use crate::client::{Inner, Request};
use crate::codec::{Found, Pair};
use crate::error::wrong;
use crate::txn::Txn;

impl Inner {
    /// Everything of the cluster, as of one moment.
    ///
    /// # Errors
    /// The error that the servers return. `PermissionDenied` too: they hide what a token may not
    /// see, and answer as if there were nothing.
    pub(crate) async fn read_all(&self, by: Instant) -> Result<Found, TableError> {
        let request = Request::tree(self.keys.root());
        let (body, _) = self.client.keys(&request, by).await?;
        let pairs: Vec<Pair> = match body {
            Some(body) => serde_json::from_slice(&body)
                .map_err(|_| wrong("the server is not Consul: check the address"))?,
            None => Vec::new(),
        };
        let found = Found::new(&self.keys, pairs);
        if found.is_no_table() {
            self.check_permission(by).await?;
        }
        Ok(found)
    }

    /// Asks for one key by its whole name, which servers refuse where the token may not read it.
    ///
    /// # Errors
    /// The error that the servers return, `PermissionDenied` above all.
    pub(crate) async fn check_permission(&self, by: Instant) -> Result<(), TableError> {
        let request = Request::get(&self.keys.table());
        self.client.keys(&request, by).await.map(drop)
    }

    /// The table as it was found; it is cached.
    ///
    /// # Errors
    /// `Damaged` where rows are missing, or hidden from this token.
    pub(crate) fn snapshot(&self, row: VersionRow, found: &Found) -> Result<Snapshot, TableError> {
        found.check_rows(&row)?;
        let snapshot = Snapshot::new(
            counted_token(&row),
            row,
            merge_rows(&found.rows, &self.cache.rows()),
        );
        self.cache.store(snapshot.clone());
        Ok(snapshot)
    }

    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            self.client.http.replace(self.config.http_client()?);
        }
        let by = self.client.deadline();
        // The mark exists while the table is at that version, and tells it without the rows.
        if let (Some(known), false) = (&request.known, request.heartbeats) {
            let mark = Request::get(&self.keys.mark_of(known));
            if self.client.keys(&mark, by).await?.0.is_some() {
                return Ok(ReadAnswer::Unchanged { heartbeats: None });
            }
        }
        let found = self.read_all(by).await?;
        let row = found.usable(request.known.as_ref())?;
        self.heartbeats.learn(found.indexes());
        let snapshot = self.snapshot(row, &found)?;
        let heartbeats = request.heartbeats.then(|| found.heartbeats(&snapshot.rows));
        let known = request.known.as_ref();
        Ok(ReadAnswer::new(known, snapshot, heartbeats))
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (by, key) = (self.client.deadline(), silo.row_key());
        let txn = Txn::default()
            .tree(self.keys.version())
            .tree(self.keys.silo(&key));
        let found = Found::new(&self.keys, self.client.read(&txn, by).await?);
        if found.is_no_table() {
            self.check_permission(by).await?;
        }
        let row = found.usable(known)?;
        self.heartbeats.learn(found.indexes());
        let body = found.rows.iter().find(|(of, _)| *of == key);
        Ok(RowRead::new(
            counted_token(&row),
            body.map(|(_, body)| self.cache.row(&key, body)),
            body.and_then(|_| found.heartbeat(&key)),
        )
        .with_version_row(row))
    }
}
