//! The contract, over one document per cluster.
//!
//! A commit is one update that matches only the version it is based on. Where it matches nothing, the document is read to find out why
//! (clauses T3, T4, T5): that read is linearizable, so that it is not older than what the update met.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Conflict, Decision, Durability, Guarantees,
    HeartbeatWrite, InitializeRequest, MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation,
    ReadAnswer, ReadRequest, Recency, RowChange, RowRead, Rows, SiloAddress, Snapshot, TableError,
    TableErrorKind, TableLimits, VersionRow, VersionToken, Yardstick, usable_version_row,
};
use mongodb::bson::{Bson, Document};

use crate::codec::{self, Table};
use crate::commands::{Concern, Place, Want};
use crate::config::MongoConfig;
use crate::error::{DUPLICATE_KEY, error};
use crate::link::{Deployment, Link};
use crate::{STORE, yardstick::MongoYardstick};

/// A document takes 16 MB: these rows fit into it if each has up to 1.5 KB, and their heartbeats into theirs. What a row takes more than
/// that leaves fewer of them; MongoDB itself refuses what would be larger, and nothing is written.
const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 1000,
    bytes_per_row: 256 << 10,
    bytes_per_commit: 8 << 20,
    rows: 10_000,
};

/// How often something that changed meanwhile is looked at anew. Each time somebody else made progress.
const COLLISIONS: u32 = 32;

/// The membership table of one cluster in MongoDB. Clones share one client.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct MongoTable(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    place: Place,
    cluster: ClusterName,
    config: MongoConfig,
    /// The last snapshot this handle saw or made: its rows need not be decoded again, nor read if they are current.
    seen: Mutex<Option<Snapshot>>,
}

/// What a read of the two documents gave.
struct Found {
    table: Option<Table>,
    beats: Option<Document>,
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for MongoTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MongoTable")
            .field("servers", &self.0.config.shown())
            .field("collection", &self.0.place.collection)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl MongoTable {
    /// Finds the primary, and finds out whether it can be used at all. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no primary answers. Cancel safe.
    pub async fn connect(config: MongoConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let link = Arc::new(Link::open(&config).await?);
        let place = config.place(&cluster);
        Ok(Self(Arc::new(Inner {
            link,
            place,
            cluster,
            config,
            seen: Mutex::default(),
        })))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &MongoConfig {
        &self.0.config
    }

    fn seen(&self) -> Option<Snapshot> {
        self.0
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn remember(&self, snapshot: &Snapshot) {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
    }

    fn known_rows(&self) -> Rows {
        self.seen().map(|seen| seen.rows).unwrap_or_default()
    }

    /// What reads are worth: a server that is alone has read concerns of no kind.
    fn concern(&self, barrier: bool) -> Concern {
        match (
            self.0.link.deployment(),
            Concern::from(self.0.config.recency()),
        ) {
            (Deployment::Standalone, _) => Concern::Local,
            (_, Concern::Majority(_)) if !barrier => Concern::Majority(self.0.link.newest()),
            _ => Concern::Linearizable,
        }
    }

    /// A primary that was replaced and does not know it answers with what it had: before anybody is told that a table is gone or went back in
    /// time, a majority is asked.
    fn is_false_alarm(&self, barrier: bool, error: &TableError) -> bool {
        use TableErrorKind::{
            BeingDeleted, Damaged, NotInitialized, TableReplaced, TableRolledBack,
        };
        let alarm = matches!(
            error.kind(),
            TableReplaced | TableRolledBack | NotInitialized | BeingDeleted | Damaged
        );
        alarm && matches!(self.concern(barrier), Concern::Majority(_))
    }

    async fn find(
        &self,
        want: Want<'_>,
        barrier: bool,
        during: Operation,
    ) -> Result<Found, TableError> {
        let (link, place) = (&self.0.link, &self.0.place);
        let concern = self.concern(barrier);
        let mut found = Found {
            table: None,
            beats: None,
        };
        let cursor = self.sort(
            link.read(place.read(want, concern), during).await?,
            &mut found,
            during,
        )?;
        if cursor != 0 {
            // Both are too large for one answer. The second one alone is not.
            let _ = link.read(place.forget_cursor(cursor), during).await;
            if found.beats.is_none() {
                self.sort(
                    link.read(place.read(Want::Beats, concern), during).await?,
                    &mut found,
                    during,
                )?;
            }
        }
        Ok(found)
    }

    /// Tells the documents of an answer apart; gives the cursor that it left.
    fn sort(
        &self,
        mut answer: Document,
        into: &mut Found,
        during: Operation,
    ) -> Result<i64, TableError> {
        let Some(Bson::Document(mut cursor)) = answer.remove("cursor") else {
            return Err(error(
                TableErrorKind::Configuration,
                "a read is answered with something else: is this MongoDB?",
            )
            .during(during));
        };
        let Some(Bson::Array(batch)) = cursor.remove("firstBatch") else {
            return Ok(0);
        };
        for document in batch {
            let Bson::Document(document) = document else {
                continue;
            };
            if document
                .get_str("_id")
                .is_ok_and(|id| id == self.0.place.beats)
            {
                codec::check_mark(&document)
                    .map_err(|e| e.during(during).with_key(&*self.0.place.beats))?;
                into.beats = Some(document);
            } else {
                into.table = Some(
                    Table::from(document)
                        .map_err(|e| e.during(during).with_key(&*self.0.place.table))?,
                );
            }
        }
        Ok(cursor.get_i64("id").unwrap_or(0))
    }

    /// The version row of a table that may be used, and that `known` can be of. Clauses T12 and T16.
    fn usable(
        &self,
        table: Option<&Table>,
        known: Option<&VersionToken>,
        during: Operation,
    ) -> Result<VersionRow, TableError> {
        let text = table.and_then(Table::version_text);
        // A document without version row is damaged, also if it has no rows.
        let stray = table.map(|table| table.stray().unwrap_or_else(|| self.0.place.table.clone()));
        usable_version_row(text.as_deref(), stray.as_deref(), known, during, STORE)
    }

    /// All rows of a table that was read with them.
    fn rows(&self, table: Option<Table>) -> Rows {
        table
            .and_then(|table| table.members)
            .map(|members| codec::rows(members, &self.known_rows()))
            .unwrap_or_default()
    }

    async fn read_with(
        &self,
        request: &ReadRequest,
        barrier: bool,
    ) -> Result<ReadAnswer, TableError> {
        let during = Operation::Read;
        let known = request.known.as_ref();
        let shown = self
            .seen()
            .filter(|seen| known.is_some_and(|known| known.same_commit(&seen.token)));
        let want = match known {
            // Whose heartbeat is an orphan's, only the rows tell.
            Some(token) if shown.is_some() || !request.heartbeats => Want::Since {
                token,
                heartbeats: request.heartbeats,
            },
            _ => Want::All {
                heartbeats: request.heartbeats,
            },
        };
        let Found { table, beats } = self.find(want, barrier, during).await?;
        let row = self.usable(table.as_ref(), known, during)?;
        let token = row.token(&[]);
        if known.is_some_and(|known| known.same_commit(&token)) {
            let heartbeats = request.heartbeats.then(|| match shown {
                Some(seen) => codec::heartbeats(beats.as_ref(), &seen.rows),
                None => codec::heartbeats(beats.as_ref(), &self.rows(table)),
            });
            return Ok(ReadAnswer::Unchanged { heartbeats });
        }
        let rows = self.rows(table);
        let heartbeats = request
            .heartbeats
            .then(|| codec::heartbeats(beats.as_ref(), &rows));
        let snapshot = Snapshot {
            token,
            version_row: Arc::new(row),
            rows,
        };
        self.remember(&snapshot);
        Ok(ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        })
    }

    async fn read_row_with(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
        barrier: bool,
    ) -> Result<RowRead, TableError> {
        let during = Operation::ReadRow;
        let key = silo.row_key();
        let mut found = self.find(Want::Row(&key), barrier, during).await?;
        if found
            .table
            .as_ref()
            .is_some_and(|table| table.version_row.is_none())
        {
            // What is wrong with it, the other rows tell.
            found = self
                .find(Want::All { heartbeats: false }, barrier, during)
                .await?;
        }
        let token = self.usable(found.table.as_ref(), known, during)?.token(&[]);
        let members = found
            .table
            .and_then(|table| table.members)
            .unwrap_or_default();
        let row = codec::rows(members, &Rows::new()).by_key(&key).cloned();
        let heartbeat = row
            .as_ref()
            .and_then(|_| codec::heartbeat_of(found.beats.as_ref(), silo));
        Ok(RowRead {
            token,
            row,
            heartbeat,
        })
    }

    /// What stands there instead of what a commit was for; none if it changed meanwhile and the commit may be tried again.
    async fn instead(&self, request: &CommitRequest) -> Result<Option<CommitOutcome>, TableError> {
        let during = Operation::Commit;
        let table = self
            .find(Want::All { heartbeats: false }, true, during)
            .await?
            .table;
        let text = table.as_ref().and_then(Table::version_text);
        let (row, free) = match request.decide(text.as_deref(), &LIMITS, STORE)? {
            Decision::Committed(token) => return Ok(Some(CommitOutcome::Committed(token))),
            Decision::Conflict(row) => (row, false),
            // Next in line, and nevertheless not taken.
            Decision::Write(_) => (
                Box::new(self.usable(table.as_ref(), Some(&request.expected), during)?),
                true,
            ),
        };
        let rows = self.rows(table);
        let fits = |change: &RowChange| {
            matches!(change, RowChange::Insert(_)) != rows.by_key(change.key()).is_some()
        };
        if free && request.changes.iter().all(fits) {
            return Ok(None);
        }
        let newest = row.recent.last().cloned();
        let snapshot = Snapshot {
            token: row.token(&[]),
            version_row: Arc::from(row),
            rows,
        };
        self.remember(&snapshot);
        Ok(Some(CommitOutcome::Conflict(Conflict {
            newest,
            snapshot: Some(snapshot),
        })))
    }

    /// Heartbeats of removed rows go too. Where that fails they stay as orphans, which is allowed, and go with the cluster.
    async fn forget_beats(&self, request: &CommitRequest) {
        let removed = || {
            request
                .changes
                .iter()
                .filter(|change| matches!(change, RowChange::Remove(_)))
                .map(RowChange::key)
        };
        if removed().next().is_some()
            && let Err(error) = self
                .0
                .link
                .write(self.0.place.forget_beats(removed()), Operation::Commit)
                .await
        {
            tracing::debug!(cluster = %self.0.cluster, %error, "heartbeats of removed rows stay as orphans");
        }
    }

    /// A write of one heartbeat; `born` is what the document is made with where it is missing.
    fn beat(&self, write: &HeartbeatWrite, born: Option<Document>) -> Document {
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                self.0
                    .place
                    .beat(&silo.row_key(), codec::beat(heartbeat), born)
            }
            HeartbeatWrite::Cluster { text } => self.0.place.cell(text, born),
        }
    }

    fn changed_too_often(during: Operation) -> TableError {
        error(
            TableErrorKind::Busy,
            "the cluster's document changed under every attempt",
        )
        .during(during)
    }
}

impl MongoTable {
    /// A commit that is within the limits.
    ///
    /// # Errors
    /// Of this sending alone.
    async fn sent(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let during = Operation::Commit;
        let command = self.0.place.commit(request, LIMITS.rows)?;
        // MongoDB knows no field without a name, and no row has an empty key.
        let possible = request
            .changes
            .iter()
            .all(|change| !change.key().is_empty());
        for _ in 0..COLLISIONS {
            if possible {
                let written = self.0.link.write(command.clone(), during).await?;
                if let Some((_, refusal)) = written.failed {
                    return Err(self.0.link.refused(refusal, during));
                }
                if written.met > 0 {
                    let token = request.next_token(&[]);
                    if let Some(seen) = self
                        .seen()
                        .filter(|seen| seen.token.same_commit(&request.expected))
                    {
                        self.remember(&request.apply_to(&seen, token.clone()));
                    }
                    self.forget_beats(request).await;
                    return Ok(CommitOutcome::Committed(token));
                }
            }
            if let Some(outcome) = self.instead(request).await? {
                return Ok(outcome);
            }
        }
        Err(Self::changed_too_often(during))
    }

    async fn initialize_now(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let during = Operation::Initialize;
        let (link, place) = (&self.0.link, &self.0.place);
        for _ in 0..COLLISIONS {
            let found = self
                .find(Want::All { heartbeats: false }, true, during)
                .await?;
            if let Some(table) = &found.table {
                return self.usable(Some(table), None, during).map(drop);
            }
            let stranger = link
                .read(place.stranger(self.concern(true)), during)
                .await?;
            if !stranger
                .get_document("cursor")
                .and_then(|cursor| cursor.get_array("firstBatch"))
                .is_ok_and(Vec::is_empty)
            {
                let text = format!(
                    "the collection `{}` holds documents that are not ours: use another one",
                    place.collection
                );
                return Err(error(TableErrorKind::ForeignTable, text).during(during));
            }
            let id = request.table_id.to_string();
            let row = VersionRow::initial(request.table_id, request.settings.clone());
            let beats = codec::new_beats(&place.beats, &id);
            let made = link
                .write(
                    place.insert(vec![codec::new_table(&place.table, &row)?, beats.clone()]),
                    during,
                )
                .await?;
            match made.failed {
                None => {}
                // Somebody else was first: whether that is a table to be used is looked at like any other.
                Some((0, refusal)) if refusal.code == DUPLICATE_KEY => continue,
                // Heartbeats of a table that is gone.
                Some((1, refusal)) if refusal.code == DUPLICATE_KEY => {
                    link.write(place.renew_beats(beats), during).await?;
                }
                Some((_, refusal)) => return Err(link.refused(refusal, during)),
            }
            tracing::info!(cluster = %self.0.cluster, table_id = %request.table_id, "membership table created");
            return Ok(());
        }
        Err(Self::changed_too_often(during))
    }

    async fn read_now(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        match self.read_with(request, request.barrier).await {
            Err(error) if self.is_false_alarm(request.barrier, &error) => {
                self.read_with(request, true).await
            }
            other => other,
        }
    }

    async fn read_row_now(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        match self.read_row_with(silo, known, false).await {
            Err(error) if self.is_false_alarm(false, &error) => {
                self.read_row_with(silo, known, true).await
            }
            other => other,
        }
    }

    async fn commit_now(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.sent(request)
            .await
            .map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive_now(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        if let HeartbeatWrite::Cluster { text } = write
            && text.len() > MAX_CLUSTER_CELL_BYTES
        {
            return Err(error(
                TableErrorKind::LimitExceeded,
                "the cluster's cell takes 4096 bytes",
            )
            .during(during));
        }
        for _ in 0..COLLISIONS {
            let written = self.0.link.write(self.beat(write, None), during).await?;
            if let Some((_, refusal)) = written.failed {
                return Err(self.0.link.refused(refusal, during));
            }
            if written.met > 0 {
                return Ok(());
            }
            // No document to write it into: there is no such table, or somebody removed it by hand.
            let table = self
                .find(Want::All { heartbeats: false }, true, during)
                .await?
                .table;
            let row = self.usable(table.as_ref(), None, during)?;
            let born = codec::marks(Some(&row.table_id.to_string()));
            let written = self
                .0
                .link
                .write(self.beat(write, Some(born)), during)
                .await?;
            match written.failed {
                None => return Ok(()),
                // Somebody else made it in the same moment.
                Some((_, refusal)) if refusal.code == DUPLICATE_KEY => {}
                Some((_, refusal)) => return Err(self.0.link.refused(refusal, during)),
            }
        }
        Err(Self::changed_too_often(during))
    }

    async fn delete_now(&self) -> Result<(), TableError> {
        let during = Operation::Delete;
        let (link, place) = (&self.0.link, &self.0.place);
        for _ in 0..COLLISIONS {
            let Found { table, beats } = self
                .find(Want::All { heartbeats: true }, true, during)
                .await?;
            let beats_of = beats.as_ref().and_then(|beats| beats.get("table_id"));
            let Some(table) = table else {
                if beats.is_some() {
                    let written = link.write(place.remove_beats(beats_of), during).await?;
                    written
                        .failed
                        .map_or(Ok(()), |(_, refusal)| Err(link.refused(refusal, during)))?;
                }
                return Ok(());
            };
            let mut version_row = table.version_row.clone();
            match self.usable(Some(&table), None, during) {
                Err(e)
                    if matches!(
                        e.kind(),
                        TableErrorKind::ForeignTable | TableErrorKind::NewerLayout
                    ) =>
                {
                    return Err(e);
                }
                // A version row that cannot be read, or none: there is nothing to mark, and nobody who could use the table.
                Err(_) => {}
                Ok(row) => {
                    let written = link.write(place.mark_deleting(&row), during).await?;
                    written
                        .failed
                        .map_or(Ok(()), |(_, refusal)| Err(link.refused(refusal, during)))?;
                    if written.met == 0 {
                        continue;
                    }
                    // As the server has it now: a new field comes last.
                    if let Some(Bson::Document(row)) = &mut version_row {
                        row.insert("deleting", true);
                    }
                }
            }
            let removed = link
                .write(place.remove(version_row.as_ref(), beats_of), during)
                .await?;
            removed
                .failed
                .map_or(Ok(()), |(_, refusal)| Err(link.refused(refusal, during)))?;
            if removed.met == 1 + i64::from(beats.is_some()) {
                tracing::info!(cluster = %self.0.cluster, "membership table deleted");
                return Ok(());
            }
        }
        Err(Self::changed_too_often(during))
    }
}

#[async_trait]
impl MembershipTable for MongoTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.0.link.within(self.initialize_now(request)).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.0.link.within(self.read_now(request)).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.0.link.within(self.read_row_now(silo, known)).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        self.0.link.within(self.commit_now(request)).await
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.0.link.within(self.update_i_am_alive_now(write)).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0.link.within(self.delete_now()).await
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        match self.0.link.deployment() {
            // What its journal did not have yet when it crashed, others may have read.
            Deployment::Standalone => Guarantees {
                reads: Recency::Linearizable,
                durability: Durability::MayBeLost,
            },
            Deployment::Set | Deployment::Sharded => Guarantees {
                reads: self.0.config.recency(),
                durability: Durability::Kept,
            },
        }
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(MongoYardstick::new(
            Arc::clone(&self.0.link),
            self.0.place.clone(),
            self.concern(false),
        )))
    }
}
