//! The contract, as one transaction per operation, and what a handle remembers.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, Row, RowRead,
    Rows, SiloAddress, Snapshot, TableError, TableErrorKind, TableLimits, VersionRow, VersionToken,
    Yardstick,
};
use tokio::time::Instant;

use crate::STORE;
use crate::beat::Beats;
use crate::codec::{self, Gathered};
use crate::commit::LIMITS;
use crate::config::EtcdConfig;
use crate::error::{BROKE_OFF, error, unanswered};
use crate::hints::Hints;
use crate::keys::Keys;
use crate::link::{Link, Purpose};
use crate::wire::{Compare, Done, Op, RANGE, Range, TXN, Txn, TxnAnswer};
use crate::yardstick::EtcdYardstick;

/// How often a deletion begins anew because somebody committed meanwhile.
const DELETIONS: usize = 16;

/// The membership table of one cluster in etcd. Clones share connections and what they have seen; one connection more exists while somebody
/// listens for [`hints`](MembershipTable::hints).
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct EtcdTable(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) keys: Keys,
    cluster: ClusterName,
    config: EtcdConfig,
    hints: Hints,
    pub(crate) beats: Beats,
    /// The last snapshot this handle saw or made.
    seen: Mutex<Option<Seen>>,
}

/// A snapshot, and the text that `table/version` had.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) snapshot: Snapshot,
    pub(crate) raw: String,
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for EtcdTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTable")
            .field("config", &self.0.config)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl EtcdTable {
    /// Connects, authenticates where a user is named, and finds out whether etcd can be used at all. Changes nothing. One member that is
    /// there is enough, whether it has a majority or not.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no member answers. Cancel safe.
    pub async fn connect(config: EtcdConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let inner = Inner::unconnected(config, cluster)?;
        let look = Range {
            serializable: true,
            keys_only: true,
            ..Range::one(inner.keys.version())
        };
        inner
            .link
            .call::<Done>(RANGE, &look, Purpose::Read, inner.link.deadline())
            .await
            .map_err(|e| inner.unsuited(e))?;
        Ok(Self(Arc::new(inner)))
    }

    /// How it was opened. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &EtcdConfig {
        &self.0.config
    }
}

impl Inner {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// `Configuration`
    pub(crate) fn unconnected(
        config: EtcdConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        let link = Arc::new(Link::new(&config)?);
        let keys = Keys::new(config.key_prefix(), &cluster);
        let hints = Hints::new(Arc::clone(&link), keys.version(), cluster.to_string());
        Ok(Self {
            link,
            keys,
            cluster,
            config,
            hints,
            beats: Beats::default(),
            seen: Mutex::default(),
        })
    }

    /// What goes wrong at the first word is said with what is mostly the reason.
    fn unsuited(&self, e: TableError) -> TableError {
        // Who speaks only TLS hangs up on anybody who does not; so does who goes down in that moment.
        if self.config.scheme() == "https"
            || e.kind() != TableErrorKind::Unavailable
            || !e.message().contains(BROKE_OFF)
        {
            return e;
        }
        let advised = error(
            e.kind(),
            format!(
                "{}: does it take nothing but TLS? then use etcd+https://",
                e.message()
            ),
        );
        advised.at(e.place().map_or_else(|| self.link.place(), str::to_owned))
    }

    pub(crate) fn seen(&self) -> Option<Seen> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn remember(&self, snapshot: &Snapshot, raw: &str) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen {
            snapshot: snapshot.clone(),
            raw: raw.to_owned(),
        });
    }

    /// The whole table of what was found, kept in mind.
    ///
    /// # Errors
    /// `Damaged` where rows are gone.
    pub(crate) fn snapshot(
        &self,
        found: &Gathered,
        row: VersionRow,
    ) -> Result<Snapshot, TableError> {
        found.complete(&row)?;
        let snapshot = found.snapshot(
            row,
            &self
                .seen()
                .map(|seen| seen.snapshot.rows)
                .unwrap_or_default(),
        );
        if let Some(stored) = &found.version {
            self.remember(&snapshot, &stored.raw);
        }
        Ok(snapshot)
    }

    /// Sends a transaction; whether its comparisons held, and what was found.
    ///
    /// # Errors
    /// What the members say, or that they say nothing by then.
    pub(crate) async fn ask(
        &self,
        txn: &Txn,
        purpose: Purpose,
        by: Instant,
    ) -> Result<(bool, Gathered), TableError> {
        let answer: TxnAnswer = self.link.call(TXN, txn, purpose, by).await?;
        let (held, revision) = (answer.succeeded, answer.header.revision);
        let expected = if held {
            txn.success.len()
        } else {
            txn.failure.len()
        };
        // Without a comparison none can have failed.
        if answer.answers() != expected || (txn.compare.is_empty() && !held) {
            return Err(unanswered(
                purpose == Purpose::Write,
                "it answers with what is no answer of etcd",
            ));
        }
        let mut found = Gathered::new(&self.keys, answer.ranges());
        found.revision = revision;
        Ok((held, found))
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let during = Operation::Initialize;
        let (keys, row) = (
            &self.keys,
            VersionRow::initial(request.table_id, request.settings.clone()),
        );
        let txn = Txn {
            compare: vec![
                Compare::is_absent(keys.version()),
                Compare::are_absent(keys.rows()),
            ],
            // What an older life of the cluster left behind goes.
            success: vec![
                Op::delete_all(keys.recent_commits()),
                Op::delete(keys.core()),
                Op::delete_all(keys.heartbeats()),
                Op::put(keys.version(), codec::version_text(&row)?),
                Op::put(keys.settings(), codec::json(&row.settings)?),
            ],
            failure: vec![Op::range(keys.table()), Op::first(keys.rows())],
        };
        let (made, found) = self.ask(&txn, Purpose::Write, self.link.deadline()).await?;
        if made {
            tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
            return Ok(());
        }
        found.usable(None, during).map(drop)
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let known = request.known.as_ref();
        let shown = self
            .seen()
            .filter(|seen| known.is_some_and(|known| known.same_commit(&seen.snapshot.token)));
        let beats = || {
            request
                .heartbeats
                .then(|| Op::range(self.keys.heartbeats()))
        };
        let everything: Vec<Op> = [Op::range(self.keys.table()), Op::range(self.keys.rows())]
            .into_iter()
            .chain(beats())
            .collect();
        let txn = match &shown {
            Some(seen) => Txn {
                compare: vec![Compare::is(self.keys.version(), seen.raw.as_str().into())],
                success: beats().into_iter().collect(),
                failure: everything,
            },
            None => Txn {
                success: everything,
                ..Txn::default()
            },
        };
        let (held, found) = self.ask(&txn, Purpose::Read, self.link.deadline()).await?;
        self.beats.learn(found.beaten());
        let heartbeats = |rows: &Rows| request.heartbeats.then(|| found.heartbeats(rows));
        match shown {
            Some(seen) if held => Ok(ReadAnswer::Unchanged {
                heartbeats: heartbeats(&seen.snapshot.rows),
            }),
            _ => {
                let row = found.usable(known, Operation::Read)?;
                let snapshot = self.snapshot(&found, row)?;
                let heartbeats = heartbeats(&snapshot.rows);
                Ok(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats,
                })
            }
        }
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (keys, key) = (&self.keys, silo.row_key());
        let ops = vec![
            Op::range(keys.table()),
            Op::get(keys.row(&key)),
            Op::get(keys.heartbeat(&key)),
            Op::first(keys.rows()),
        ];
        let (_, found) = self
            .ask(
                &Txn {
                    success: ops,
                    ..Txn::default()
                },
                Purpose::Read,
                self.link.deadline(),
            )
            .await?;
        self.beats.learn(found.beaten());
        let token = codec::token(&found.usable(known, Operation::ReadRow)?);
        // It is found before any row's bare key, which is asked for to tell a damaged table from none.
        let Some(body) = found.row(&key) else {
            return Ok(RowRead {
                token,
                row: None,
                heartbeat: None,
            });
        };
        let row = match self
            .seen()
            .and_then(|seen| seen.snapshot.rows.by_key(&key).cloned())
        {
            Some(row) if row.body() == body => row,
            _ => Row::decode(&key, body),
        };
        Ok(RowRead {
            token,
            row: Some(row),
            heartbeat: found.heartbeat_of(&key),
        })
    }

    async fn delete(&self) -> Result<(), TableError> {
        let keys = &self.keys;
        let look = Txn {
            success: vec![Op::range(keys.table())],
            ..Txn::default()
        };
        let by = self.link.deadline();
        for _ in 0..DELETIONS {
            let (_, found) = self.ask(&look, Purpose::Read, by).await?;
            let revision = match &found.version {
                // One that cannot be read is no reason to keep it, as long as it is ours.
                Some(stored) => match stored.any() {
                    Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
                    _ => stored.revision,
                },
                None => 0,
            };
            // All at once: nobody ever sees a half-deleted cluster, and no mark is needed.
            let txn = Txn {
                compare: vec![Compare::is_of(keys.version(), revision)],
                success: [keys.table(), keys.rows(), keys.heartbeats()]
                    .map(Op::delete_all)
                    .into(),
                failure: vec![],
            };
            if self.ask(&txn, Purpose::Write, by).await?.0 {
                if revision > 0 {
                    tracing::info!(cluster = %self.cluster, "membership table deleted");
                }
                return Ok(());
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "somebody writes what is being deleted",
        ))
    }
}

#[async_trait]
impl MembershipTable for EtcdTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.0
            .initialize(request)
            .await
            .map_err(|e| self.explained(e, Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.0
            .read(request)
            .await
            .map_err(|e| self.explained(e, Operation::Read))
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.0
            .read_row(silo, known)
            .await
            .map_err(|e| self.explained(e, Operation::ReadRow))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.0
            .commit(request)
            .await
            .map_err(|e| self.explained(e, Operation::Commit))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.0
            .beat(write)
            .await
            .map_err(|e| self.explained(e, Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0
            .delete()
            .await
            .map_err(|e| self.explained(e, Operation::Delete))
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

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        let name = self.0.cluster.store_key();
        Some(Box::new(EtcdYardstick::new(
            Arc::clone(&self.0.link),
            &self.0.keys,
            &name,
        )))
    }
}

impl EtcdTable {
    /// The error with the operation's name, and with a server's, unless one that was closer gave another.
    fn explained(&self, e: TableError, during: Operation) -> TableError {
        let e = e.during(during);
        // Nobody was asked.
        if matches!(
            e.kind(),
            TableErrorKind::InvalidRequest | TableErrorKind::LimitExceeded
        ) {
            e
        } else {
            e.at(self.0.link.place())
        }
    }
}
