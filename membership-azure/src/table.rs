//! The contract, over queries and entity group transactions of one partition.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Conflict, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, Judgement, MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation, ReadAnswer,
    ReadRequest, Recency, RowChange, RowRead, Rows, SiloAddress, Snapshot, TableError,
    TableErrorKind, TableLimits, VersionToken, Yardstick,
};
use tokio::time::Instant;

use crate::batch::{Action, Outcome, Step};
use crate::config::AzureTableConfig;
use crate::entity::{self, Base, CELL, HEARTBEAT, VERSION};
use crate::error::error;
use crate::link::{Deadline, Link, Single};
use crate::read::{Read, Reader, Since, Version};
use crate::yardstick::AzureYardstick;
use crate::{STORE, admin};

/// A transaction takes 100 operations. The version row is one, and a row that comes or goes is two: its heartbeat comes and goes with it. An
/// entity takes 1 MiB, counted in UTF-16; a request 4 MiB, in which quotes and what is not ASCII take up to three times their bytes.
pub(crate) const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 49,
    bytes_per_row: 256 << 10,
    bytes_per_commit: 1 << 20,
    rows: 20_000,
};

/// How often a commit is sent again within one call, after answers that were certainly no commits.
const COLLISIONS: usize = 8;
/// After this long everything is read again: what somebody changed by hand past the versions shows then at the latest.
const TRUSTED: Duration = Duration::from_secs(300);

/// The membership table of one cluster in Azure Table storage. Clones share their connections.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct AzureTable(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) partition: String,
    pub(crate) cluster: ClusterName,
    config: AzureTableConfig,
    /// The last snapshot this handle has read or made, and when everything was last read: what was not written since need not be read again.
    seen: Mutex<Option<(Read, Instant)>>,
}

/// Shows no secret (clause T15).
impl fmt::Debug for AzureTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureTable")
            .field("config", &self.0.config)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl AzureTable {
    /// The table of this cluster. Nothing is sent before the first operation.
    ///
    /// # Errors
    /// `Configuration`, with what to write instead.
    pub fn open(config: AzureTableConfig, cluster: ClusterName) -> Result<Self, TableError> {
        let link = Arc::new(Link::new(&config)?);
        let partition = entity::partition(&cluster);
        Ok(Self(Arc::new(Inner {
            link,
            partition,
            cluster,
            config,
            seen: Mutex::default(),
        })))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &AzureTableConfig {
        &self.0.config
    }

    fn seen(&self) -> Option<(Read, Instant)> {
        self.0
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn remember(&self, read: &Read, since: Instant) {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A read that took longer than another one brings nothing newer.
        let newer = |(held, _): &(Read, Instant)| {
            held.snapshot.table_id() == read.snapshot.table_id()
                && held.snapshot.version() > read.snapshot.version()
        };
        if !seen.as_ref().is_some_and(newer) {
            *seen = Some((read.clone(), since));
        }
    }

    fn forget(&self) {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn read_now(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let seen = self.seen();
        let none = Rows::new();
        let by = self.0.link.deadline();
        let reader = Reader {
            link: &self.0.link,
            partition: &self.0.partition,
            by,
            known: request.known.as_ref(),
            heartbeats: request.heartbeats,
            seen: seen.as_ref().map_or(&none, |(read, _)| &read.snapshot.rows),
        };
        let wanted = |heartbeats| request.heartbeats.then_some(heartbeats);
        let answer = |read: Read| ReadAnswer::Snapshot {
            heartbeats: request.heartbeats.then_some(read.heartbeats),
            snapshot: read.snapshot,
        };
        if let Some(known) = &request.known {
            // Who knows a version gets what has changed since, if this handle has that version too.
            let base = seen.as_ref().filter(|(read, since)| {
                known.same_commit(&read.snapshot.token) && since.elapsed() < TRUSTED
            });
            if let Some((base, since)) = base {
                match reader.since(base).await? {
                    Since::Unchanged(read) => {
                        return Ok(ReadAnswer::Unchanged {
                            heartbeats: wanted(read.heartbeats),
                        });
                    }
                    Since::Changed(read) => {
                        self.remember(&read, *since);
                        return Ok(answer(read));
                    }
                    Since::Unknown => {}
                }
            } else {
                let (version, heartbeats) = reader.version_and_heartbeats().await?;
                if version.row.version == known.version() {
                    return Ok(ReadAnswer::Unchanged {
                        heartbeats: wanted(heartbeats),
                    });
                }
            }
        }
        let since = Instant::now();
        let read = reader.whole().await?;
        self.remember(&read, since);
        Ok(answer(read))
    }

    async fn row_now(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let seen = self.seen();
        let none = Rows::new();
        let rows = seen.as_ref().map_or(&none, |(read, _)| &read.snapshot.rows);
        let reader = Reader {
            link: &self.0.link,
            partition: &self.0.partition,
            by: self.0.link.deadline(),
            known,
            heartbeats: true,
            seen: rows,
        };
        let (version, row, heartbeat) = reader.row(&silo.row_key()).await?;
        Ok(RowRead {
            token: version.token(),
            heartbeat: row.as_ref().and(heartbeat),
            row,
        })
    }

    async fn commit_now(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let by = self.0.link.deadline();
        // What a token carries is enough for a commit: the service compares the ETag. Without it the version row is read first.
        let mut base = Base::of(&request.expected);
        let mut bare = BTreeSet::new();
        let mut collisions = 0;
        while collisions < COLLISIONS {
            let on = match base.take() {
                Some(base) => base,
                None => match self.judge(request, by, None).await? {
                    Judged::Next(base) => base,
                    Judged::Told(outcome) => return Ok(outcome),
                },
            };
            let comes = request
                .changes
                .iter()
                .filter(|change| matches!(change, RowChange::Insert(_)))
                .count() as u64;
            let goes = request
                .changes
                .iter()
                .filter(|change| matches!(change, RowChange::Remove(_)))
                .count() as u64;
            let rows = (on.row_count + comes).saturating_sub(goes);
            if comes > goes && rows > LIMITS.rows as u64 {
                // Only if the token is still the newest one is that so.
                return match self.judge(request, by, None).await? {
                    Judged::Told(outcome) => Ok(outcome),
                    Judged::Next(_) => {
                        let message = format!(
                            "the table would have {rows} rows, the store takes {}",
                            LIMITS.rows
                        );
                        Err(error(TableErrorKind::LimitExceeded, message))
                    }
                };
            }
            let steps = steps(request, &on, &bare)?;
            match self.0.link.transaction(by, &self.0.partition, &steps).await {
                Ok(Outcome::Done(etags)) => {
                    let etag = etags
                        .last()
                        .cloned()
                        .flatten()
                        .filter(|etag| entity::usable(etag));
                    let next = etag.map(|etag| Base {
                        etag,
                        row_count: rows,
                        layout: on.layout.max(membership_core::encoding::LAYOUT),
                    });
                    let token =
                        request.next_token(&next.map(|next| next.to_bytes()).unwrap_or_default());
                    self.committed(request, &token);
                    return Ok(CommitOutcome::Committed(token));
                }
                Ok(Outcome::Refused(refusal)) => {
                    let step = refusal.step.and_then(|step| steps.get(step));
                    let heartbeat = step.and_then(|step| step.row_key.strip_prefix(HEARTBEAT));
                    if let (404, Some(name)) = (refusal.status, heartbeat) {
                        // Somebody removed it by hand. The row can go all the same; each that is missing is told once.
                        collisions += usize::from(!bare.insert(name.to_owned()));
                        base = Some(on);
                        continue;
                    }
                    collisions += 1;
                    let of_row = step.map_or(refusal.status != 412, |step| step.row_key != VERSION);
                    match self.judge(request, by, Some(of_row)).await? {
                        Judged::Told(outcome) => return Ok(outcome),
                        Judged::Next(fresh) => base = Some(fresh),
                    }
                }
                Ok(Outcome::Unclear(why)) => {
                    return Err(error(TableErrorKind::OutcomeUnknown, why));
                }
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    return Err(error(
                        TableErrorKind::TableReplaced,
                        "the table that was known is gone",
                    ));
                }
                Err(e) => return Err(e),
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the version row changed under every attempt",
        ))
    }

    /// What the version row says of a commit that was not sent, or certainly refused: for a row's sake, where that is known.
    async fn judge(
        &self,
        request: &CommitRequest,
        by: Deadline,
        of_row: Option<bool>,
    ) -> Result<Judged, TableError> {
        let known = Some(&request.expected);
        let (version, snapshot) = match self.look(request, by).await {
            Ok(found) => found,
            Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                return Err(crate::read::no_version_row(None, known));
            }
            Err(e) => return Err(e),
        };
        let Version { row, .. } = &version;
        let conflict = || {
            Judged::Told(CommitOutcome::Conflict(Conflict {
                newest: row.recent.last().cloned(),
                snapshot,
            }))
        };
        match request.judge(row) {
            Judgement::Apply if of_row == Some(true) => Ok(conflict()),
            Judgement::Apply => match version.base {
                Some(base) => Ok(Judged::Next(base)),
                None => Err(error(
                    TableErrorKind::Configuration,
                    "the service gives no ETag for the version row: is it a table service?",
                )),
            },
            Judgement::AlreadyCommitted => {
                let token = if row.version == request.makes() {
                    version.token()
                } else {
                    request.next_token(&[])
                };
                Ok(Judged::Told(CommitOutcome::Committed(token)))
            }
            Judgement::Conflict => Ok(conflict()),
            Judgement::OutcomeUnknown => {
                let message = format!(
                    "the table has moved from version {} to {} since",
                    request.expected.version(),
                    row.version
                );
                Err(error(TableErrorKind::OutcomeUnknown, message))
            }
            Judgement::Refused(kind) => Err(error(
                kind,
                format!(
                    "the table, at version {}, is not the one that the commit is for",
                    row.version
                ),
            )),
        }
    }

    /// The version row; and the whole table, where this handle has the version that the commit was made on: what was committed since comes with
    /// the same query. Whoever lost then starts over without a read.
    async fn look(
        &self,
        request: &CommitRequest,
        by: Deadline,
    ) -> Result<(Version, Option<Snapshot>), TableError> {
        let seen = self.seen().filter(|(read, since)| {
            read.snapshot.token.same_commit(&request.expected) && since.elapsed() < TRUSTED
        });
        let none = Rows::new();
        let rows = seen.as_ref().map_or(&none, |(read, _)| &read.snapshot.rows);
        let reader = Reader {
            link: &self.0.link,
            partition: &self.0.partition,
            by,
            known: None,
            heartbeats: false,
            seen: rows,
        };
        if let Some((base, since)) = &seen
            && let Since::Unchanged(read) | Since::Changed(read) = reader.since(base).await?
        {
            self.remember(&read, *since);
            let row = (*read.snapshot.version_row).clone();
            return Ok((
                Version {
                    row,
                    base: Base::of(&read.snapshot.token),
                },
                Some(read.snapshot),
            ));
        }
        Ok((reader.version_and_heartbeats().await?.0, None))
    }

    /// What this handle knows now without reading it.
    fn committed(&self, request: &CommitRequest, token: &VersionToken) {
        if let Some((read, since)) = self
            .seen()
            .filter(|(read, _)| read.snapshot.token.same_commit(&request.expected))
        {
            let snapshot: Snapshot = request.apply_to(&read.snapshot, token.clone());
            self.remember(&Read { snapshot, ..read }, since);
        }
    }

    async fn alive_now(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let by = self.0.link.deadline();
        let (row_key, properties) = match write {
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => {
                let message = format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes");
                return Err(error(TableErrorKind::LimitExceeded, message));
            }
            HeartbeatWrite::Cluster { text } => (CELL.to_owned(), entity::cell_properties(text)),
            HeartbeatWrite::Silo { silo, heartbeat } => (
                format!("{HEARTBEAT}{}", entity::row_key(&silo.row_key())),
                entity::heartbeat_properties(heartbeat),
            ),
        };
        let no_table = || error(TableErrorKind::NotInitialized, "there is no such table");
        match self
            .0
            .link
            .merge(by, &self.0.partition, &row_key, &properties, Some("*"))
            .await?
        {
            Single::Done(_) => return Ok(()),
            Single::NoTable => return Err(no_table()),
            Single::Missing | Single::Stale => {}
        }
        // It came with the row, and went with it, unless somebody removed it by hand.
        let HeartbeatWrite::Silo { silo, .. } = write else {
            return Err(error(
                TableErrorKind::NotInitialized,
                "there is no such cluster",
            ));
        };
        let no_row =
            || error(TableErrorKind::NoSuchRow, "the silo has no row").with_key(silo.row_key());
        if self.row_now(silo, None).await?.row.is_none() {
            return Err(no_row());
        }
        match self
            .0
            .link
            .merge(by, &self.0.partition, &row_key, &properties, None)
            .await?
        {
            Single::Done(_) => Ok(()),
            Single::NoTable => Err(no_table()),
            Single::Missing | Single::Stale => Err(no_row()),
        }
    }
}

/// What is to be done with a commit.
enum Judged {
    /// It is next, on this version row.
    Next(Base),
    /// This is its answer.
    Told(CommitOutcome),
}

/// The operations of a commit. The version row comes last, so that whatever sees half of a transaction sees rows of a later version, which it
/// can tell, and never a version whose rows are not there.
fn steps(
    request: &CommitRequest,
    on: &Base,
    bare: &BTreeSet<String>,
) -> Result<Vec<Step>, TableError> {
    let mut steps = Vec::with_capacity(request.changes.len() * 2 + 1);
    for change in &request.changes {
        let row_key = entity::row_key(change.key());
        let beat = format!("{HEARTBEAT}{row_key}");
        match change {
            RowChange::Insert(row) => {
                steps.push(Step {
                    row_key,
                    action: Action::Insert(entity::row_properties(row)),
                });
                // An orphan that stands there keeps its beat: no commit moves one back (clause T8).
                steps.push(Step {
                    row_key: beat,
                    action: Action::InsertOrMerge(crate::batch::Properties::new()),
                });
            }
            RowChange::Update(row) => steps.push(Step {
                row_key,
                action: Action::Replace(entity::row_properties(row)),
            }),
            RowChange::Remove(_) => {
                let has_beat = !bare.contains(&row_key);
                steps.push(Step {
                    row_key,
                    action: Action::Delete("*".to_owned()),
                });
                if has_beat {
                    steps.push(Step {
                        row_key: beat,
                        action: Action::Delete("*".to_owned()),
                    });
                }
            }
        }
    }
    let version = entity::commit_properties(request, on)?;
    steps.push(Step {
        row_key: VERSION.to_owned(),
        action: Action::Merge(version, on.etag.clone()),
    });
    Ok(steps)
}

#[async_trait]
impl MembershipTable for AzureTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        admin::initialize(&self.0, request)
            .await
            .map_err(|e| e.during(Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        // A read within one region is linearizable as it is: a barrier adds nothing.
        self.read_now(request)
            .await
            .map_err(|e| e.during(Operation::Read).of_a_read())
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.row_now(silo, known)
            .await
            .map_err(|e| e.during(Operation::ReadRow).of_a_read())
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.commit_now(request)
            .await
            .map_err(|e| e.during(Operation::Commit).of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.alive_now(write)
            .await
            .map_err(|e| e.during(Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.forget();
        admin::delete(&self.0)
            .await
            .map_err(|e| e.during(Operation::Delete))
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            reads: Recency::Linearizable,
            durability: Durability::Kept,
        }
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(AzureYardstick::new(Arc::clone(&self.0.link))))
    }
}
