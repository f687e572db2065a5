//! `initialize` and `delete`. Clauses T1, T9, T12.

use futures_util::future::{BoxFuture, try_join_all};
use membership_core::encoding::{VersionRowError, decode_version_row, encode_version_row};
use membership_core::{InitializeRequest, TableError, TableErrorKind, VersionRow};
use zookeeper_client::{Client, Error};

use crate::client::{Inner, Refused, Session};
use crate::error::{error, failed};
use crate::keys::{is_key, is_marked};
use crate::snapshot_read::Observation;

/// How often an operation starts again after a concurrent change. Each time another client made
/// progress.
const ATTEMPTS: usize = 16;
/// How many znodes are removed at once.
const BATCH: usize = 200;
/// How many levels of foreign znodes below a row are removed with it.
const MAX_DEPTH: usize = 8;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let session = self.client.session().await?;
        // A server that is behind may know a table that is gone, or not know a new one.
        session.barrier(self.paths.cluster()).await?;
        for _ in 0..ATTEMPTS {
            let found = self.observe(&session).await?;
            if found.text().is_some() || found.any_key().is_some() {
                let row = self.usable(found.text(), found.any_key(), None)?;
                return self.restore_mark(&session, &row, &found).await;
            }
            if found.znode.is_none() {
                self.create_parents(&session).await?;
            }
            if self.create(&session, request, &found).await? {
                return Ok(());
            }
        }
        Err(changed_each_time())
    }

    /// Creates the znodes above the cluster's, which other clients may create at the same time.
    async fn create_parents(&self, session: &Session<'_>) -> Result<(), TableError> {
        for path in self.paths.above() {
            match session.create(path, b"").await? {
                Ok(()) | Err(Error::NodeExists) => {}
                // A user who may not create it may still find it.
                Err(Error::NoAuth) => {
                    let stat = session.answer(session.driver().check_stat(path)).await?;
                    if stat.map_err(failed)?.is_none() {
                        return Err(failed(Error::NoAuth).with_key(path));
                    }
                }
                Err(e) => return Err(failed(e).with_key(path)),
            }
        }
        Ok(())
    }

    /// Whether this call created the table; if not, another client changed something.
    async fn create(
        &self,
        session: &Session<'_>,
        request: &InitializeRequest,
        found: &Observation,
    ) -> Result<bool, TableError> {
        let row = request.version_row();
        let text = encode_version_row(&row);
        let mut batch = session.batch();
        match found.znode {
            None => batch.create(self.paths.cluster(), text.as_bytes())?,
            // Empty and without rows: the marks and the cell of an earlier table go.
            Some(version) => {
                batch.set(self.paths.cluster(), text.as_bytes(), Some(version))?;
                for name in &found.children {
                    batch.delete(&self.paths.child(name))?;
                }
            }
        }
        batch.create(&self.paths.mark(&row.token(&[])), b"")?;
        let created = unless_changed(session.send(batch).await?)?;
        if created {
            tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
        }
        Ok(created)
    }

    /// Creates the mark of the version if a restored backup lacks it.
    async fn restore_mark(
        &self,
        session: &Session<'_>,
        row: &VersionRow,
        found: &Observation,
    ) -> Result<(), TableError> {
        if is_marked(&found.children, row) {
            return Ok(());
        }
        let mut batch = session.batch();
        batch.check(self.paths.cluster(), found.znode.unwrap_or_default())?;
        batch.create(&self.paths.mark(&row.token(&[])), b"")?;
        // If another client created it or committed meanwhile, it is there.
        unless_changed(session.send(batch).await?).map(drop)
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let mut attempts = ATTEMPTS;
        loop {
            // Each step of a large table has the time of an operation.
            let session = self.client.session().await?;
            session.barrier(self.paths.cluster()).await?;
            let found = self.observe(&session).await?;
            if found.znode.is_none() {
                return Ok(());
            }
            if !self.mark_deleting(&session, &found).await? {
                attempts = attempts.checked_sub(1).ok_or_else(changed_each_time)?;
                continue;
            }
            let rows = found.children.iter().filter(|name| is_key(name));
            let rows: Vec<String> = rows
                .take(BATCH)
                .map(|name| self.paths.child(name))
                .collect();
            if !rows.is_empty() {
                let removed = rows
                    .into_iter()
                    .map(|path| remove(session.driver(), path, MAX_DEPTH));
                session
                    .answer(try_join_all(removed))
                    .await?
                    .map_err(failed)?;
                continue;
            }
            let mut batch = session.batch();
            for name in &found.children {
                batch.delete(&self.paths.child(name))?;
            }
            batch.delete(self.paths.cluster())?;
            match session.send(batch).await? {
                Ok(_) => {
                    tracing::info!(cluster = %self.cluster, "membership table deleted");
                    return Ok(());
                }
                // Another client removes it too, or the cluster's cell was just written.
                Err(Refused {
                    source: Error::NoNode | Error::NotEmpty,
                    ..
                }) => {
                    attempts = attempts.checked_sub(1).ok_or_else(changed_each_time)?;
                }
                Err(refused) => return Err(failed(refused.source)),
            }
        }
    }

    /// Whether the version row says that the cluster is being deleted; if not, another client
    /// changed it. An unreadable one needs no mark: no client commits over it.
    async fn mark_deleting(
        &self,
        session: &Session<'_>,
        found: &Observation,
    ) -> Result<bool, TableError> {
        let (Some(text), Some(version)) = (found.text(), found.znode) else {
            return Ok(true);
        };
        let mut row = match decode_version_row(text) {
            Ok(row) if row.deleting => return Ok(true),
            Ok(row) => row,
            Err(VersionRowError::Damaged(_)) => return Ok(true),
            Err(e) => return Err(error(e.kind(), e.to_string())),
        };
        row.deleting = true;
        let text = encode_version_row(&row);
        let path = self.paths.cluster();
        match session.set(path, text.as_bytes(), Some(version)).await? {
            Ok(()) => Ok(true),
            Err(Error::BadVersion | Error::NoNode) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }
}

/// Whether a `multi` was executed; `false` after a concurrent change.
fn unless_changed<T>(answer: Result<T, Refused>) -> Result<bool, TableError> {
    match answer.map_err(|refused| refused.source) {
        Ok(_) => Ok(true),
        Err(Error::NodeExists | Error::NoNode | Error::BadVersion) => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

/// Removes a znode and what is below it.
fn remove(driver: &Client, path: String, depth: usize) -> BoxFuture<'_, Result<(), Error>> {
    Box::pin(async move {
        // A row has one child. Both requests are sent before either is answered.
        let child = driver.delete(&format!("{path}/alive"), None);
        let row = driver.delete(&path, None);
        if let Err(e @ (Error::NoAuth | Error::ConnectionLoss | Error::UnexpectedError(_))) =
            child.await
        {
            return Err(e);
        }
        match row.await {
            Ok(()) | Err(Error::NoNode) => return Ok(()),
            Err(Error::NotEmpty) if depth > 0 => {}
            Err(e) => return Err(e),
        }
        let children = match driver.list_children(&path).await {
            Err(Error::NoNode) => Vec::new(),
            children => children?,
        };
        for name in children {
            remove(driver, format!("{path}/{name}"), depth - 1).await?;
        }
        match driver.delete(&path, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(e) => Err(e),
        }
    })
}

fn changed_each_time() -> TableError {
    let message = format!("other clients changed the cluster before each of {ATTEMPTS} attempts");
    error(TableErrorKind::Busy, message)
}
