//! `initialize` and `delete`. Clauses T1, T9, T12.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use membership_core::{
    InitializeRequest, Operation, TableError, TableErrorKind, VersionRow, VersionToken,
    encoding::VersionRowError, encoding::decode_version_row, encoding::encode_version_row,
    usable_version_row,
};
use tokio::time::Instant;
use zookeeper_client::{Client, Error, MultiWriteError};

use crate::STORE;
use crate::batch::Batch;
use crate::error::{error, failed};
use crate::gather::{Ask, Look, look};
use crate::link::Session;
use crate::place::{is_key, is_marked};
use crate::table::Inner;

/// How often it is tried while others are at it, too. Each turn that fails is one in which somebody else succeeded.
const TURNS: usize = 16;
/// How many znodes are removed at once.
const AT_ONCE: usize = 200;
/// How deep below a row somebody may have put znodes that are removed with it.
const DEEPEST: usize = 8;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        // A server that is behind may know a table that is gone, or none yet.
        self.link
            .barrier(&session, self.place.cluster(), deadline)
            .await?;
        for _ in 0..TURNS {
            let look = self.look_at_all(&session, deadline).await?;
            if look.text().is_some() {
                let row =
                    usable_version_row(look.text(), None, None, Operation::Initialize, STORE)?;
                return self.mark_again(&session, &row, &look, deadline).await;
            }
            if let Some(key) = look.stray() {
                return Err(usable_version_row(
                    None,
                    Some(key),
                    None,
                    Operation::Initialize,
                    STORE,
                )
                .err()
                .unwrap_or_else(changed));
            }
            if look.znode.is_none() {
                self.make_above(&session, deadline).await?;
            }
            if self.make(&session, request, &look, deadline).await? {
                return Ok(());
            }
        }
        Err(changed())
    }

    async fn look_at_all(&self, session: &Session, deadline: Instant) -> Result<Look, TableError> {
        look(
            &self.link,
            session,
            &self.place,
            Ask {
                children: true,
                ..Ask::default()
            },
            deadline,
        )
        .await
    }

    /// The znodes above the cluster's, which others may make at the same time.
    async fn make_above(&self, session: &Session, deadline: Instant) -> Result<(), TableError> {
        for path in self.place.above() {
            let options = self.link.persistent();
            // Whoever may not make it may find it there.
            let made = session.client.create(path, b"", &options);
            match self.link.answer(session, deadline, made).await?.map(drop) {
                Ok(()) | Err(Error::NodeExists) => {}
                Err(Error::NoAuth) => {
                    let there = session.client.check_stat(path);
                    if self
                        .link
                        .answer(session, deadline, there)
                        .await?
                        .map_err(failed)?
                        .is_none()
                    {
                        return Err(failed(Error::NoAuth).with_key(path));
                    }
                }
                Err(e) => return Err(failed(e).with_key(path)),
            }
        }
        Ok(())
    }

    /// Whether this call made the table; if not, somebody else changed something.
    async fn make(
        &self,
        session: &Session,
        request: &InitializeRequest,
        look: &Look,
        deadline: Instant,
    ) -> Result<bool, TableError> {
        let row = VersionRow::initial(request.table_id, request.settings.clone());
        let text = encode_version_row(&row);
        let mut batch = Batch::new(&self.link, session);
        match look.znode {
            None => batch.create(self.place.cluster(), text.as_bytes())?,
            // Empty, and without rows: marks and a cell of an earlier life go.
            Some(version) => {
                batch.set(self.place.cluster(), text.as_bytes(), Some(version))?;
                for name in &look.children {
                    batch.delete(&self.place.child(name), None)?;
                }
            }
        }
        batch.create(&self.place.mark(&row.token(&[])), b"")?;
        let mut writer = batch.writer()?;
        let sent = writer.commit();
        match self.link.answer(session, deadline, sent).await? {
            Ok(_) => {
                session.caught_up();
                tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
                Ok(true)
            }
            Err(MultiWriteError::OperationFailed {
                source: Error::NodeExists | Error::NoNode | Error::BadVersion,
                ..
            }) => Ok(false),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// The mark of the version, where whoever restored the znodes has left it away.
    async fn mark_again(
        &self,
        session: &Session,
        row: &VersionRow,
        look: &Look,
        deadline: Instant,
    ) -> Result<(), TableError> {
        if is_marked(&look.children, row) {
            return Ok(());
        }
        let token: VersionToken = row.token(&[]);
        let mut batch = Batch::new(&self.link, session);
        batch.check(self.place.cluster(), look.znode.unwrap_or_default())?;
        batch.create(&self.place.mark(&token), b"")?;
        let mut writer = batch.writer()?;
        let sent = writer.commit();
        match self.link.answer(session, deadline, sent).await? {
            // Somebody else did it, or has committed meanwhile: then it is there.
            Ok(_)
            | Err(MultiWriteError::OperationFailed {
                source: Error::NodeExists | Error::NoNode | Error::BadVersion,
                ..
            }) => Ok(()),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let mut turns = TURNS;
        loop {
            // Each turn of a large table has its own time.
            let deadline = self.link.deadline();
            let session = self.link.session(deadline).await?;
            self.link
                .barrier(&session, self.place.cluster(), deadline)
                .await?;
            let look = self.look_at_all(&session, deadline).await?;
            if look.znode.is_none() {
                return Ok(());
            }
            if !self.mark_deleting(&session, &look, deadline).await? {
                turns = turns.checked_sub(1).ok_or_else(changed)?;
                continue;
            }
            let mut rows: Vec<&String> = look.children.iter().filter(|name| is_key(name)).collect();
            rows.truncate(AT_ONCE);
            if !rows.is_empty() {
                let gone = rows
                    .iter()
                    .map(|name| remove(&session.client, self.place.child(name), DEEPEST));
                let gone = join_all(gone).map(|all| all.into_iter().collect::<Result<(), Error>>());
                self.link
                    .answer(&session, deadline, gone)
                    .await?
                    .map_err(failed)?;
                continue;
            }
            let mut batch = Batch::new(&self.link, &session);
            for name in &look.children {
                batch.delete(&self.place.child(name), None)?;
            }
            batch.delete(self.place.cluster(), None)?;
            let mut writer = batch.writer()?;
            let sent = writer.commit();
            match self.link.answer(&session, deadline, sent).await? {
                Ok(_) => {
                    session.caught_up();
                    tracing::info!(cluster = %self.cluster, "membership table deleted");
                    return Ok(());
                }
                // Somebody else removes it, too, or a last heartbeat of the cluster has come.
                Err(MultiWriteError::OperationFailed {
                    source: Error::NoNode | Error::NotEmpty,
                    ..
                }) => {
                    turns = turns.checked_sub(1).ok_or_else(changed)?;
                }
                Err(e) => return Err(failed(e.into())),
            }
        }
    }

    /// Whether the version row says that the cluster is being deleted; if not, somebody else changed it. One that cannot be read needs no mark:
    /// nobody commits over it.
    async fn mark_deleting(
        &self,
        session: &Session,
        look: &Look,
        deadline: Instant,
    ) -> Result<bool, TableError> {
        let (Some(text), Some(version)) = (look.text(), look.znode) else {
            return Ok(true);
        };
        let mut row = match decode_version_row(text) {
            Ok(row) if row.deleting => return Ok(true),
            Ok(row) => row,
            Err(VersionRowError::Damaged(_)) => return Ok(true),
            Err(VersionRowError::NewerLayout { .. } | VersionRowError::Foreign(_)) => {
                return usable_version_row(Some(text), None, None, Operation::Delete, STORE)
                    .map(|_| false);
            }
            Err(other) => return Err(error(TableErrorKind::Damaged, other.to_string())),
        };
        row.deleting = true;
        let text = encode_version_row(&row);
        let sent = session
            .client
            .set_data(self.place.cluster(), text.as_bytes(), Some(version));
        match self.link.answer(session, deadline, sent).await? {
            Ok(_) => {
                session.caught_up();
                Ok(true)
            }
            Err(Error::BadVersion | Error::NoNode) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }
}

/// Removes a znode and what is below it.
fn remove(client: &Client, path: String, depth: usize) -> BoxFuture<'_, Result<(), Error>> {
    Box::pin(async move {
        // A row has one child; both are asked for before either is answered.
        let alive = client.delete(&format!("{path}/alive"), None);
        let row = client.delete(&path, None);
        if let Err(e @ (Error::NoAuth | Error::ConnectionLoss | Error::UnexpectedError(_))) =
            alive.await
        {
            return Err(e);
        }
        match row.await {
            Ok(()) | Err(Error::NoNode) => return Ok(()),
            Err(Error::NotEmpty) if depth > 0 => {}
            Err(e) => return Err(e),
        }
        for name in client.list_children(&path).await.or_else(none_there)? {
            remove(client, format!("{path}/{name}"), depth - 1).await?;
        }
        match client.delete(&path, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(e) => Err(e),
        }
    })
}

fn none_there(e: Error) -> Result<Vec<String>, Error> {
    match e {
        Error::NoNode => Ok(Vec::new()),
        other => Err(other),
    }
}

fn changed() -> TableError {
    error(
        TableErrorKind::Busy,
        format!("others changed the cluster's znodes each of the {TURNS} times that it was tried"),
    )
}
