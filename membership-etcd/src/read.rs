//! `read` and `read_row`: one transaction each, and so one moment. Clauses T6, T12, T16.

use membership_core::{
    ReadAnswer, ReadRequest, RowRead, Rows, SiloAddress, Snapshot, TableError, VersionRow,
    VersionToken,
};
use membership_provider::counted_token;

use crate::client::{Cached, Inner, Purpose};
use crate::codec::Found;
use crate::wire::{Compare, Op, Txn};

impl Inner {
    /// The table as it was found; it is cached.
    ///
    /// # Errors
    /// `Damaged` where rows are missing.
    pub(crate) fn snapshot(&self, found: &Found, row: VersionRow) -> Result<Snapshot, TableError> {
        let snapshot = found.snapshot(row, &self.cache.rows())?;
        if let Some(stored) = &found.version {
            self.cache.store(Cached {
                snapshot: snapshot.clone(),
                raw: stored.raw.clone(),
            });
        }
        Ok(snapshot)
    }

    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            self.client.http.replace(self.config.http_client()?);
        }
        let (keys, known) = (&self.keys, request.known.as_ref());
        let cached = known.and_then(|known| self.cache.of(known));
        let heartbeats = request.heartbeats.then(|| Op::range(keys.heartbeats()));
        let table = [Op::range(keys.table()), Op::range(keys.rows())];
        let everything: Vec<Op> = table.into_iter().chain(heartbeats.clone()).collect();
        let txn = match &cached {
            Some(cached) => Txn {
                compare: vec![Compare::is(keys.version(), cached.raw.as_str().into())],
                success: heartbeats.into_iter().collect(),
                failure: everything,
            },
            None => Txn {
                success: everything,
                ..Txn::default()
            },
        };
        let by = self.client.deadline();
        let (held, found) = self.transact(&txn, Purpose::Read, by).await?;
        self.heartbeats.learn(found.revisions());
        let heartbeats = |rows: &Rows| request.heartbeats.then(|| found.heartbeats(rows));
        match cached {
            Some(cached) if held => Ok(ReadAnswer::Unchanged {
                heartbeats: heartbeats(&cached.snapshot.rows),
            }),
            _ => {
                let row = found.usable(known)?;
                let snapshot = self.snapshot(&found, row)?;
                let heartbeats = heartbeats(&snapshot.rows);
                Ok(ReadAnswer::new(known, snapshot, heartbeats))
            }
        }
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (keys, key) = (&self.keys, silo.row_key());
        let txn = Txn {
            success: vec![
                Op::range(keys.table()),
                // Before the key of any row, which distinguishes a damaged table from a missing
                // one.
                Op::get(keys.row(&key)),
                Op::get(keys.heartbeat(&key)),
                Op::first(keys.rows()),
            ],
            ..Txn::default()
        };
        let by = self.client.deadline();
        let (_, found) = self.transact(&txn, Purpose::Read, by).await?;
        self.heartbeats.learn(found.revisions());
        let version = found.usable(known)?;
        let body = found.row(&key);
        Ok(RowRead::new(
            counted_token(&version),
            body.map(|body| self.cache.row(&key, body)),
            body.and_then(|_| found.heartbeat(&key)),
        )
        .with_version_row(version))
    }
}
