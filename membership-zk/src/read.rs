//! `read` and `read_row`. Clauses T6, T12, T16.

use std::sync::Arc;

use membership_core::{
    Operation, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress, Snapshot, TableError,
    TableErrorKind as Kind, VersionRow, VersionToken, usable_version_row,
};

use crate::STORE;
use crate::client::{Inner, Session};
use crate::error::error;
use crate::snapshot_read::{Query, SnapshotRead, observe, queries};

/// How often a table that changes while it is read is observed. Each turn reads what the one before
/// it lacked, and takes less time than a commit.
const TURNS: usize = 24;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let session = match request.new_connection {
            true => self.client.new_session().await?,
            false => self.client.session().await?,
        };
        let mut barrier = request.barrier || !session.is_caught_up();
        loop {
            if barrier {
                session.barrier(self.paths.cluster()).await?;
            }
            match self.read_once(&session, request).await {
                Err(e) if !barrier && may_be_stale(&e) => barrier = true,
                answer => return answer.map_err(TableError::of_a_read),
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
        let session = self.client.session().await?;
        let mut barrier = !session.is_caught_up();
        loop {
            if barrier {
                session.barrier(self.paths.cluster()).await?;
            }
            match self.read_row_once(&session, silo, known).await {
                Err(e) if !barrier && may_be_stale(&e) => barrier = true,
                answer => return answer.map_err(TableError::of_a_read),
            }
        }
    }

    async fn read_once(
        &self,
        session: &Session<'_>,
        request: &ReadRequest,
    ) -> Result<ReadAnswer, TableError> {
        let (known, heartbeats) = (request.known.as_ref(), request.heartbeats);
        let base = known.and_then(|known| {
            let base = self.base();
            base.filter(|seen| seen.snapshot.token.same_commit(known))
        });
        // The second observation usually completes a new version. A barrier has taken a round trip.
        let usual = if request.barrier { 1 } else { 2 };
        let seen = self.cache.rows();
        let mut read = match &base {
            Some(base) => SnapshotRead::of(&base.snapshot),
            None => SnapshotRead::default(),
        };
        // Where the version is known, its heartbeats alone are read first.
        let guess = match base.is_some() && !heartbeats {
            true => Vec::new(),
            false => seen.iter().map(|row| row.key().to_owned()).collect(),
        };
        let mut wanted = queries(&self.paths, guess, base.is_none(), heartbeats, &seen);
        if heartbeats && let Some(first) = wanted.first_mut() {
            first.cell = true;
        }
        for turn in 1..=TURNS {
            let mut last = None;
            for query in wanted {
                let mut found = observe(session, &self.paths, query).await?;
                let row = self.usable(found.text(), found.any_key(), known)?;
                read.add(&row, &mut found, &seen);
                last = Some((row, found));
            }
            let Some((row, found)) = last else { break };
            if let Some(base) = &base
                && base.snapshot.token.same_commit(&row.token(&[]))
            {
                let heartbeats = heartbeats.then(|| read.heartbeats(&base.snapshot.rows));
                return Ok(ReadAnswer::Unchanged { heartbeats });
            }
            read.add_version(row, found.znode.unwrap_or_default(), &found.children);
            if let Some((version, rows)) = read.complete() {
                check_count(&version.row, &rows)?;
                let heartbeats = heartbeats.then(|| read.heartbeats(&rows));
                let snapshot =
                    Snapshot::new(version.row.token(&[]), Arc::new(version.row.clone()), rows);
                self.remember(snapshot.clone(), version.data_version, base.is_none());
                return Ok(ReadAnswer::new(known, snapshot, heartbeats));
            }
            // A table that changes all the time is read as a whole once: unless it is large, one
            // request shows all of it.
            let keys = match turn == usual {
                true => read.keys(),
                false => read.unknown_keys(),
            };
            wanted = queries(&self.paths, keys, true, heartbeats, &seen);
        }
        let message = format!("the table changed each of the {TURNS} times that it was read");
        Err(error(Kind::Busy, message))
    }

    async fn read_row_once(
        &self,
        session: &Session<'_>,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let key = silo.row_key();
        let query = Query {
            children: self.cache.latest().is_none(),
            rows: vec![key.clone()],
            heartbeats: vec![key.clone()],
            cell: false,
        };
        let mut found = observe(session, &self.paths, query).await?;
        let body = found.rows.pop().and_then(|(_, body)| body);
        let any_key = found.any_key().or(body.as_ref().map(|_| key.as_str()));
        let version = self.usable(found.text(), any_key, known)?;
        let row = body.map(|body| Row::decode(key, body));
        let heartbeat = found.heartbeats.pop().map(|(_, heartbeat)| heartbeat);
        Ok(RowRead::new(version.token(&[]), row, heartbeat).with_version_row(version))
    }

    /// The version row of a table that may be used and that `known` may be from. Clauses T12, T16.
    ///
    /// # Errors
    /// As [`usable_version_row`].
    pub(crate) fn usable(
        &self,
        text: Option<&str>,
        any_key: Option<&str>,
        known: Option<&VersionToken>,
    ) -> Result<VersionRow, TableError> {
        usable_version_row(text, any_key, known, Operation::Read, STORE)
    }
}

/// Requires as many rows as the version row counts: both are from the same version.
fn check_count(row: &VersionRow, rows: &Rows) -> Result<(), TableError> {
    let (found, counted) = (rows.len() as u64, row.row_count);
    if found >= counted {
        return Ok(());
    }
    let message = format!(
        "{} of {counted} rows are gone: were their znodes removed by hand? restore a backup, or `membership delete` \
         the cluster and restart all silos",
        counted - found
    );
    Err(error(Kind::Damaged, message))
}

/// Whether a server that is behind the others could say the same of an intact table.
fn may_be_stale(e: &TableError) -> bool {
    matches!(
        e.kind(),
        Kind::NotInitialized
            | Kind::TableReplaced
            | Kind::TableRolledBack
            | Kind::Damaged
            | Kind::BeingDeleted
    )
}
