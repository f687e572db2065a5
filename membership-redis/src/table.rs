//! The contract, as one script per operation.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Conflict, Discontinuity, Durability, Guarantees,
    HeartbeatWrite, HintStream, InitializeRequest, Judgement, MAX_CLUSTER_CELL_BYTES,
    MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, Row, RowChange, RowRead, Rows,
    SiloAddress, Snapshot, TableError, TableErrorKind, TableLimits, VersionRow, VersionToken,
    Yardstick, check_token, encoding::LAYOUT,
};
use redis::{Cmd, Value};

use crate::codec::{self, Pair};
use crate::config::{Keys, RedisConfig, Servers};
use crate::error::error;
use crate::hints::Hints;
use crate::link::{Answer, Link, Request};
use crate::scripts::{SCRIPTS, Script};
use crate::yardstick::RedisYardstick;
use crate::{STORE, config};

/// While a script runs, the server does nothing else: these keep the largest commit and the largest read within some hundred
/// milliseconds of its time. Redis itself would take more.
const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 10_000,
    bytes_per_row: 512 << 10,
    bytes_per_commit: 16 << 20,
    rows: 50_000,
};

/// The membership table of one cluster in Redis or Valkey. Clones share one connection, which is made when it is needed and made anew when
/// it has ended; a second one exists while somebody listens for [`hints`](MembershipTable::hints).
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct RedisTable(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    keys: Keys,
    cluster: ClusterName,
    config: RedisConfig,
    hints: Hints,
    /// The last snapshot this handle saw or made: its rows need not be decoded again.
    seen: Mutex<Option<Snapshot>>,
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for RedisTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTable")
            .field("servers", &self.0.config.shown())
            .field("cluster", &self.0.cluster)
            .field("prefix", &self.0.keys.version.split(':').next())
            .finish_non_exhaustive()
    }
}

impl RedisTable {
    /// Connects, and finds out whether the servers can be used at all. Changes nothing in them but their memory of scripts.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no server answers. Cancel safe.
    pub async fn connect(config: RedisConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let keys = config.keys(&cluster);
        let link = Arc::new(Link::new(&config, &keys.version)?);
        tokio::time::timeout(config.timeout(), link.connection())
            .await
            .map_err(|_| {
                error(
                    TableErrorKind::Unavailable,
                    format!("no answer within {:?}", config.timeout()),
                )
                .at(config.place())
            })??;
        if config.promised() == Durability::Kept {
            check_durability(&link)
                .await
                .map_err(|e| e.at(config.place()))?;
        }
        let hints = Hints::new(Arc::clone(&link), keys.channel.clone(), cluster.to_string());
        Ok(Self(Arc::new(Inner {
            link,
            keys,
            cluster,
            config,
            hints,
            seen: Mutex::default(),
        })))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &RedisConfig {
        &self.0.config
    }

    /// What EVALSHA calls, with these keys first.
    fn script(
        &self,
        operation: Operation,
        script: &'static Script,
        keys: &[&String],
        writes: bool,
    ) -> Request<'static> {
        let mut command = Cmd::with_capacity(16, 1024);
        command.arg("EVALSHA").arg(&script.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_str());
        }
        command.arg(LAYOUT);
        Request {
            operation,
            command,
            script: Some(script),
            writes,
            confirmed: false,
        }
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

    /// Whether as many replicas as were asked for have what was just written.
    fn confirmed(&self, answer: &Answer) -> Result<(), String> {
        match answer.replicas {
            Some(replicas) if replicas < self.0.link.replicas() => Err(format!(
                "{replicas} replicas have confirmed it in time, and {} were asked for",
                self.0.link.replicas()
            )),
            _ => Ok(()),
        }
    }

    /// What the server holds instead of what the commit was for.
    fn refused(
        &self,
        request: &CommitRequest,
        version: Vec<Pair>,
        rows: Vec<Pair>,
    ) -> Result<CommitOutcome, TableError> {
        let Some(row) = codec::version_row(&version)? else {
            return Err(gone());
        };
        match request.judge(&row) {
            Judgement::Refused(TableErrorKind::TableReplaced) => return Err(replaced()),
            _ if row.deleting => return Err(being_deleted()),
            Judgement::Refused(kind) => {
                return Err(error(
                    kind,
                    format!(
                        "the table is at version {}, which is not what the commit's token leads to",
                        row.version
                    ),
                ));
            }
            Judgement::OutcomeUnknown => {
                return Err(error(
                    TableErrorKind::OutcomeUnknown,
                    format!(
                        "the table has moved from version {} to {} since",
                        request.expected.version(),
                        row.version
                    ),
                ));
            }
            Judgement::AlreadyCommitted => {
                return Ok(CommitOutcome::Committed(request.next_token(&[])));
            }
            // Next in line and not taken: a row is there, or is not.
            Judgement::Conflict | Judgement::Apply => {}
        }
        all_there(&row, rows.len())?;
        let rows = codec::rows(rows, &self.known_rows());
        let snapshot = Snapshot {
            token: row.token(&[]),
            version_row: row,
            rows,
        };
        self.remember(&snapshot);
        let newest = snapshot.version_row.recent.last().cloned();
        Ok(CommitOutcome::Conflict(Conflict {
            newest,
            snapshot: Some(snapshot),
        }))
    }

    /// Says so where a full server throws keys away.
    async fn warn_of_eviction(&self) {
        let mut command = redis::cmd("INFO");
        command.arg("memory");
        let request = Request {
            operation: Operation::Initialize,
            command,
            script: None,
            writes: false,
            confirmed: false,
        };
        // A user who may not ask does without.
        let Ok(answer) = self.0.link.run(&request).await else {
            return;
        };
        let text = codec::text(answer.value).unwrap_or_default();
        let policy = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("maxmemory_policy:"));
        if let Some(policy) = policy.filter(|p| p.starts_with("allkeys")) {
            tracing::warn!(
                cluster = %self.0.cluster, policy,
                "this Redis throws away any key when its memory is full, and the membership table with it: set maxmemory-policy to noeviction"
            );
        }
    }
}

fn gone() -> TableError {
    error(
        TableErrorKind::TableReplaced,
        "the version row that was known is gone",
    )
}

fn replaced() -> TableError {
    error(
        TableErrorKind::TableReplaced,
        "the table has another id than the one that was known",
    )
}

fn being_deleted() -> TableError {
    error(TableErrorKind::BeingDeleted, "the cluster is being deleted")
}

fn rows_without_version(key: Option<String>) -> TableError {
    let e = error(
        TableErrorKind::Damaged,
        "the cluster has rows but no version row",
    );
    match key {
        Some(key) => e.with_key(key),
        None => e,
    }
}

fn nonsense(operation: Operation, value: &Value) -> TableError {
    let what = match value {
        Value::Nil => "nothing",
        Value::Array(_) => "a list that is not one of its answers",
        _ => "what is not one of its answers",
    };
    error(
        TableErrorKind::Configuration,
        format!("the script was answered with {what}: is this Redis or Valkey?"),
    )
    .during(operation)
}

/// A row count above the number of rows means that a key was evicted, expired or removed by hand.
fn all_there(row: &VersionRow, rows: usize) -> Result<(), TableError> {
    if (rows as u64) < row.row_count {
        return Err(error(
            TableErrorKind::Damaged,
            format!(
                "{} of {} rows are gone: were they evicted (maxmemory-policy) or removed by hand? restore a backup, or `membership delete` \
                 the cluster and restart all silos",
                row.row_count - rows as u64,
                row.row_count
            ),
        ));
    }
    Ok(())
}

/// The version row of a table that may be used, and that `known` can be of. Clauses T12 and T16.
fn current(
    fields: &[Pair],
    known: Option<&VersionToken>,
    rows: usize,
    orphan: Option<String>,
) -> Result<Arc<VersionRow>, TableError> {
    let Some(row) = codec::version_row(fields)? else {
        return Err(match known {
            Some(_) => gone(),
            None if rows > 0 => rows_without_version(orphan),
            None => error(TableErrorKind::NotInitialized, "there is no such cluster"),
        });
    };
    let continuity = known.map_or(Ok(()), |known| check_token(known, &row));
    if continuity == Err(Discontinuity::Replaced) {
        return Err(replaced());
    }
    if row.deleting {
        return Err(being_deleted());
    }
    if continuity.is_err() {
        return Err(error(
            TableErrorKind::TableRolledBack,
            format!("the table is at version {}", row.version),
        ));
    }
    all_there(&row, rows)?;
    Ok(row)
}

/// The known token as a script compares it.
fn name(command: &mut Cmd, known: Option<&VersionToken>) {
    match known {
        Some(known) => command
            .arg(known.table_id().to_string())
            .arg(known.version())
            .arg(known.commit().to_string()),
        None => command.arg("").arg("").arg(""),
    };
}

const fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

/// The parts of an answer; those that are missing are nil.
fn parts<const N: usize>(value: Value) -> Result<(i64, [Value; N]), Value> {
    let Value::Array(list) = value else {
        return Err(value);
    };
    let mut list = list.into_iter();
    let Some(Value::Int(first)) = list.next() else {
        return Err(Value::Array(Vec::new()));
    };
    Ok((
        first,
        std::array::from_fn(|_| list.next().unwrap_or(Value::Nil)),
    ))
}

/// How many of something, as a script counts.
fn number(value: &Value) -> usize {
    match value {
        Value::Int(n) => usize::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

async fn check_durability(link: &Link) -> Result<(), TableError> {
    for (setting, needed) in [("appendonly", "yes"), ("appendfsync", "always")] {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(setting);
        let request = Request {
            operation: Operation::Connect,
            command,
            script: None,
            writes: false,
            confirmed: false,
        };
        match link.run(&request).await {
            Ok(answer) => match codec::pairs(answer.value).first() {
                Some((_, value)) if value != needed => {
                    return Err(config::wrong(format!(
                        "durability=kept needs `{setting} {needed}` on the server, which has `{value}`"
                    )));
                }
                _ => {}
            },
            Err(e) if e.kind() == TableErrorKind::PermissionDenied => {
                tracing::debug!(
                    "the user may not read {setting}: durability=kept is taken on trust"
                );
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl RedisTable {
    /// A commit that is within the limits.
    ///
    /// # Errors
    /// Of this sending alone.
    async fn sent(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let during = Operation::Commit;
        let (keys, expected) = (&self.0.keys, &request.expected);
        let mut call = self.script(
            during,
            &SCRIPTS.commit,
            &[&keys.version, &keys.rows, &keys.heartbeats],
            true,
        );
        call.confirmed = true;
        let (mut inserts, mut updates, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        for change in &request.changes {
            match change {
                RowChange::Insert(row) => inserts.push(row),
                RowChange::Update(row) => updates.push(row),
                RowChange::Remove(key) => removes.push(key),
            }
        }
        let settings = request
            .settings
            .as_ref()
            .map(codec::json)
            .transpose()?
            .unwrap_or_default();
        let core = request
            .core
            .as_ref()
            .map(|core| format!("={core}"))
            .unwrap_or_default();
        // Within the limits both fit.
        let adds = i64::try_from(inserts.len()).unwrap_or(i64::MAX)
            - i64::try_from(removes.len()).unwrap_or(i64::MAX);
        name(&mut call.command, Some(expected));
        call.command
            .arg(request.makes())
            .arg(request.id.to_string())
            .arg(codec::record_field(request.makes()))
            .arg(codec::record(request)?)
            .arg(adds)
            .arg(LIMITS.rows)
            .arg(settings)
            .arg(core)
            .arg(&keys.channel)
            .arg(flag(self.0.link.replicas() > 0))
            .arg(inserts.len())
            .arg(updates.len())
            .arg(removes.len());
        for row in inserts.iter().chain(&updates) {
            call.command.arg(row.key()).arg(row.body());
        }
        for key in removes {
            call.command.arg(key);
        }
        let answer = self.0.link.run(&call).await?;
        let confirmed = self.confirmed(&answer);
        match answer.value {
            Value::Int(1 | 2) => {
                confirmed.map_err(|why| {
                    error(
                        TableErrorKind::OutcomeUnknown,
                        format!("the master has the commit, but {why}"),
                    )
                    .during(during)
                })?;
                let token = request.next_token(&[]);
                if let Some(seen) = self.seen().filter(|seen| seen.token.same_commit(expected)) {
                    self.remember(&request.apply_to(&seen, token.clone()));
                }
                Ok(CommitOutcome::Committed(token))
            }
            Value::Int(3) => Err(error(
                TableErrorKind::LimitExceeded,
                format!("the table would have more than {} rows", LIMITS.rows),
            )
            .during(during)),
            other => match parts::<2>(other) {
                Ok((0, [version, rows])) => self
                    .refused(request, codec::pairs(version), codec::pairs(rows))
                    .map_err(|e| e.during(during).at(self.0.config.place())),
                Ok((_, [other, _])) | Err(other) => Err(nonsense(during, &other)),
            },
        }
    }
}

#[async_trait]
impl MembershipTable for RedisTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let during = Operation::Initialize;
        let keys = &self.0.keys;
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&SCRIPTS.initialize.hash)
            .arg(4)
            .arg(&keys.version)
            .arg(&keys.rows)
            .arg(&keys.heartbeats)
            .arg(&keys.cell);
        for (field, value) in codec::initial(&VersionRow::initial(
            request.table_id,
            request.settings.clone(),
        ))? {
            command.arg(field).arg(value);
        }
        let call = Request {
            operation: during,
            command,
            script: Some(&SCRIPTS.initialize),
            writes: true,
            confirmed: true,
        };
        let answer = self.0.link.run(&call).await?;
        let confirmed = self.confirmed(&answer);
        match parts::<2>(answer.value) {
            Ok((0, [version, rows])) => {
                current(&codec::pairs(version), None, number(&rows), None)
                    .map_err(|e| e.during(during).at(self.0.config.place()))?;
            }
            Ok((1, _)) => {
                confirmed.map_err(|why| {
                    error(
                        TableErrorKind::OutcomeUnknown,
                        format!("the table is made, but {why}"),
                    )
                    .during(during)
                })?;
                tracing::info!(cluster = %self.0.cluster, table_id = %request.table_id, "membership table created");
            }
            Ok((2, [key, _])) => return Err(rows_without_version(codec::text(key)).during(during)),
            Ok((_, [other, _])) | Err(other) => return Err(nonsense(during, &other)),
        }
        self.warn_of_eviction().await;
        Ok(())
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let during = Operation::Read;
        let (keys, known) = (&self.0.keys, request.known.as_ref());
        let seen = self.seen();
        let shown = seen
            .as_ref()
            .filter(|seen| known.is_some_and(|known| known.same_commit(&seen.token)));
        let barrier = request.barrier && self.0.link.replicas() > 0;
        let mut call = self.script(
            during,
            &SCRIPTS.read,
            &[&keys.version, &keys.rows, &keys.heartbeats, &keys.cell],
            false,
        );
        name(&mut call.command, known);
        call.command
            .arg(flag(request.heartbeats))
            .arg(flag(shown.is_none()))
            .arg(flag(barrier));
        call.confirmed = barrier;
        let answer = self.0.link.run(&call).await?;
        if let (true, Err(why)) = (barrier, self.confirmed(&answer)) {
            return Err(error(
                TableErrorKind::Unavailable,
                format!("whether this is still the master is not sure: {why}"),
            )
            .during(during));
        }
        let heartbeats = |beats: Value, cell: Value, rows: Option<&Rows>| {
            request
                .heartbeats
                .then(|| codec::heartbeats(codec::pairs(beats), codec::text(cell), rows))
        };
        match parts::<4>(answer.value) {
            Ok((1, [beats, cell, ..])) => Ok(ReadAnswer::Unchanged {
                heartbeats: heartbeats(beats, cell, shown.map(|seen| &seen.rows)),
            }),
            Ok((0, [version, rows, beats, cell])) => {
                let rows = codec::pairs(rows);
                let row = current(
                    &codec::pairs(version),
                    known,
                    rows.len(),
                    rows.first().map(|(key, _)| key.clone()),
                )
                .map_err(|e| e.during(during).at(self.0.config.place()))?;
                let rows = codec::rows(rows, &seen.map(|seen| seen.rows).unwrap_or_default());
                let snapshot = Snapshot {
                    token: row.token(&[]),
                    version_row: row,
                    rows,
                };
                self.remember(&snapshot);
                let heartbeats = heartbeats(beats, cell, Some(&snapshot.rows));
                Ok(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats,
                })
            }
            Ok((_, [other, ..])) | Err(other) => Err(nonsense(during, &other)),
        }
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let during = Operation::ReadRow;
        let (keys, key) = (&self.0.keys, silo.row_key());
        let mut call = self.script(
            during,
            &SCRIPTS.read_row,
            &[&keys.version, &keys.rows, &keys.heartbeats],
            false,
        );
        name(&mut call.command, known);
        call.command.arg(&key);
        let answer = self.0.link.run(&call).await?;
        let (token, body, beat) = match (parts::<5>(answer.value), known) {
            (Ok((1, [body, beat, ..])), Some(known)) => (
                VersionToken::new(known.table_id(), known.version(), known.commit(), &[]),
                body,
                beat,
            ),
            (Ok((0, [version, rows, orphan, body, beat])), _) => {
                let row = current(
                    &codec::pairs(version),
                    known,
                    number(&rows),
                    codec::text(orphan),
                )
                .map_err(|e| e.during(during).at(self.0.config.place()))?;
                (row.token(&[]), body, beat)
            }
            (Ok((_, [other, ..])) | Err(other), _) => return Err(nonsense(during, &other)),
        };
        let Some(body) = codec::text(body) else {
            return Ok(RowRead {
                token,
                row: None,
                heartbeat: None,
            });
        };
        let row = match self.known_rows().by_key(&key) {
            Some(row) if row.body() == body => row.clone(),
            _ => Row::decode(key, body),
        };
        Ok(RowRead {
            token,
            row: Some(row),
            heartbeat: codec::text(beat).map(|text| codec::heartbeat(&text)),
        })
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.sent(request)
            .await
            .map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        let keys = &self.0.keys;
        let (call, key) = match write {
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => {
                let message = format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes");
                return Err(error(TableErrorKind::LimitExceeded, message).during(during));
            }
            HeartbeatWrite::Cluster { text } => {
                let mut call = self.script(
                    during,
                    &SCRIPTS.cell,
                    &[&keys.version, &keys.rows, &keys.cell],
                    true,
                );
                call.command.arg(text);
                (call, None)
            }
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let key = silo.row_key();
                let mut call = self.script(
                    during,
                    &SCRIPTS.heartbeat,
                    &[&keys.version, &keys.rows, &keys.heartbeats],
                    true,
                );
                call.command
                    .arg(&key)
                    .arg(heartbeat.counter)
                    .arg(heartbeat.to_string());
                (call, Some(key))
            }
        };
        let answer = self.0.link.run(&call).await?;
        match answer.value {
            Value::Int(1) => Ok(()),
            other => match parts::<2>(other) {
                Ok((0, [version, rows])) => {
                    let version = codec::pairs(version);
                    current(&version, None, number(&rows), None)
                        .map_err(|e| e.during(during).at(self.0.config.place()))?;
                    let e = error(TableErrorKind::NoSuchRow, "the silo has no row").during(during);
                    Err(match key {
                        Some(key) => e.with_key(key),
                        None => e,
                    })
                }
                Ok((_, [other, _])) | Err(other) => Err(nonsense(during, &other)),
            },
        }
    }

    async fn delete(&self) -> Result<(), TableError> {
        let during = Operation::Delete;
        let keys = &self.0.keys;
        let mut call = self.script(
            during,
            &SCRIPTS.delete,
            &[&keys.version, &keys.rows, &keys.heartbeats, &keys.cell],
            true,
        );
        call.confirmed = true;
        let answer = self.0.link.run(&call).await?;
        let confirmed = self.confirmed(&answer);
        match answer.value {
            Value::Int(1) => {
                confirmed.map_err(|why| {
                    error(
                        TableErrorKind::OutcomeUnknown,
                        format!("the table is deleted, but {why}"),
                    )
                    .during(during)
                })?;
                tracing::info!(cluster = %self.0.cluster, "membership table deleted");
                Ok(())
            }
            other => match parts::<1>(other) {
                Ok((0, [version])) => Err(match codec::version_row(&codec::pairs(version)) {
                    Err(e) => e.during(during),
                    Ok(_) => error(TableErrorKind::Busy, "the version row changed meanwhile")
                        .during(during),
                }),
                Ok((_, [other])) | Err(other) => Err(nonsense(during, &other)),
            },
        }
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        // Where a master can be replaced, one that does not know it yet answers with what it had.
        let reads = match self.0.config.servers() {
            Servers::Single(_) | Servers::Client(_) => Recency::Linearizable,
            Servers::Sentinel { .. } | Servers::Cluster(_) => Recency::MonotonicPerClient,
        };
        Guarantees {
            reads,
            durability: self.0.config.promised(),
        }
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(RedisYardstick::new(
            Arc::clone(&self.0.link),
            self.0.keys.yardstick.clone(),
        )))
    }
}
