//! The contract, as work for the table's two connections.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableErrorKind, TableLimits, VersionToken, Yardstick,
};
use tokio::time::timeout;

use super::lane::{Doubt, Lane, Work};
use super::read::Cache;
use super::session::{Facts, Session};
use super::yardstick::MysqlYardstick;
use super::{MysqlConfig, STORE, admin, commit, read, sql};

/// What is tested; a server takes more, if its `max_allowed_packet` does.
const MOST: TableLimits = TableLimits {
    rows_per_commit: 1_000,
    bytes_per_row: 1 << 20,
    bytes_per_commit: 16 << 20,
    rows: 100_000,
};
/// Of a packet, for everything that is not the bytes of rows: a version row with 16 commits of 64 keys, as hexadecimal digits, and what
/// stands around 1,000 rows.
const AROUND: usize = 768 << 10;

/// The membership table of one cluster in MySQL 8.0 or MariaDB 10.6, or newer ones.
///
/// Cheap to clone; all clones share two connections, which end with the last clone, or with [`close`](Self::close). Needs a tokio runtime.
///
/// * Reads are linearizable: one statement, on the server that takes the writes. A read-only server is refused, also when it becomes so.
/// * A read, a heartbeat and a refused read are one round trip; a commit is two, or one where the stored procedure is there
///   ([`MysqlConfig::procedure_sql`]).
/// * Every operation ends within the configured time. A deadlock or a lock that could not be had is `Busy` and certainly not applied; a
///   commit whose answer was lost is `OutcomeUnknown`; everything else that ends by time was certainly not applied.
/// * What acknowledged commits are worth depends on the server's settings; [`guarantees`](MembershipTable::guarantees) says what they are.
///
/// Cancellation: dropping a future closes the connection that it used, so that no answer is ever taken for another question's. The server
/// rolls back what it had not begun to commit.
///
/// ```no_run
/// use membership_core::{InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId};
/// use membership_sql::{MysqlConfig, MysqlTable};
///
/// # async fn example() -> Result<(), membership_core::TableError> {
/// let config = MysqlConfig::new("db.example", "app").user("silo").password(std::env::var("DB_PASSWORD").unwrap_or_default());
/// let table = MysqlTable::open(config, "billing/blue".parse().expect("a cluster name")).await?;
/// table.initialize(&InitializeRequest { table_id: TableId::new(0x5eed), settings: SharedSettings::default() }).await?;
/// let answer = table.read(&ReadRequest::all()).await?;
/// # let _ = answer; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MysqlTable(Arc<Inner>);

pub(super) struct Inner {
    pub(super) place: Place,
    limits: TableLimits,
    /// Reads and heartbeats.
    look: Lane,
    /// Everything else.
    pub(super) write: Lane,
}

/// Where the cluster is, and what is known of it.
pub(super) struct Place {
    pub(super) config: MysqlConfig,
    pub(super) cluster: ClusterName,
    /// The value of the columns `cluster`, as it stands in a statement.
    pub(super) key: String,
    pub(super) cache: Cache,
    generation: AtomicU64,
    facts: Mutex<Facts>,
}

impl Place {
    /// A connection, checked.
    pub(super) async fn connect(&self) -> Result<Session, TableError> {
        let session = Session::connect(&self.config, self.generation()).await?;
        self.note(&session.facts);
        Ok(session)
    }

    fn note(&self, facts: &Facts) {
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != *facts {
            warn(facts, &self.config);
            known.clone_from(facts);
        }
    }

    /// The number of the times at which connections were found broken.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// One was.
    pub(super) fn connections_broke(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

fn warn(facts: &Facts, config: &MysqlConfig) {
    if let Some(why) = &facts.lossy {
        tracing::warn!(
            server = config.place(),
            why,
            "the server may lose acknowledged commits in a crash"
        );
    }
}

impl fmt::Debug for MysqlTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.0.place;
        f.debug_struct("MysqlTable")
            .field("cluster", &place.cluster.to_string())
            .field("config", &place.config)
            .finish_non_exhaustive()
    }
}

impl MysqlTable {
    /// Connects to the table of `cluster`, and refuses a server that cannot be used. Tables that do not exist yet are no error, and are not
    /// made: that is for `initialize`. Nothing is written.
    ///
    /// # Errors
    /// `Configuration` (an old server, no such database, a server that loses commits where that is refused), `PermissionDenied`,
    /// `Unavailable` (also a read-only server), `ForeignTable`, `NewerLayout`, `Damaged`.
    pub async fn open(config: MysqlConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let place = config.place();
        let during = |e: TableError| e.during(Operation::Connect).at(place.as_str());
        let session = match timeout(config.timeout(), Session::connect(&config, 0)).await {
            Ok(session) => session.map_err(during)?,
            Err(_) => {
                let message = format!("no answer within {:?}", config.timeout());
                return Err(during(TableError::new(
                    TableErrorKind::Unavailable,
                    Operation::Connect,
                    STORE,
                    message,
                )));
            }
        };
        let facts = session.facts.clone();
        warn(&facts, &config);
        let bytes_per_commit = MOST
            .bytes_per_commit
            .min(facts.packet.saturating_sub(AROUND) / 2);
        let limits = TableLimits {
            bytes_per_commit,
            bytes_per_row: MOST.bytes_per_row.min(bytes_per_commit),
            ..MOST
        };
        let place = Place {
            key: sql::cluster(&cluster),
            config,
            cluster,
            cache: Cache::default(),
            generation: AtomicU64::new(0),
            facts: Mutex::new(facts),
        };
        Ok(Self(Arc::new(Inner {
            place,
            limits,
            look: Lane::with(session),
            write: Lane::default(),
        })))
    }

    /// Closes both connections, after what is under way. A clone that is used afterwards opens them again.
    pub async fn close(self) {
        self.0.look.close().await;
        self.0.write.close().await;
    }

    /// How it was opened.
    #[must_use]
    pub fn config(&self) -> &MysqlConfig {
        &self.0.place.config
    }
}

struct Initialize<'a>(&'a InitializeRequest);
struct Read<'a>(&'a ReadRequest);
struct ReadRow<'a>(&'a SiloAddress, Option<&'a VersionToken>);
struct Commit<'a>(&'a CommitRequest, &'a TableLimits);
struct Beat<'a>(&'a HeartbeatWrite);
struct Delete;

#[async_trait]
impl Work for Initialize<'_> {
    type Answer = ();
    const OPERATION: Operation = Operation::Initialize;
    const IDEMPOTENT: bool = true;
    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        doubt: &Doubt,
    ) -> Result<(), TableError> {
        admin::initialize(session, place, self.0, doubt).await
    }
}

#[async_trait]
impl Work for Read<'_> {
    type Answer = ReadAnswer;
    const OPERATION: Operation = Operation::Read;
    const IDEMPOTENT: bool = true;
    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        _: &Doubt,
    ) -> Result<ReadAnswer, TableError> {
        read::read(session, place, self.0).await
    }
}

#[async_trait]
impl Work for ReadRow<'_> {
    type Answer = RowRead;
    const OPERATION: Operation = Operation::ReadRow;
    const IDEMPOTENT: bool = true;
    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        _: &Doubt,
    ) -> Result<RowRead, TableError> {
        read::read_row(session, place, self.0, self.1).await
    }
}

#[async_trait]
impl Work for Commit<'_> {
    type Answer = CommitOutcome;
    const OPERATION: Operation = Operation::Commit;
    const IDEMPOTENT: bool = false;
    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        doubt: &Doubt,
    ) -> Result<CommitOutcome, TableError> {
        commit::commit(session, place, self.0, self.1, doubt).await
    }
}

#[async_trait]
impl Work for Beat<'_> {
    type Answer = ();
    const OPERATION: Operation = Operation::UpdateIAmAlive;
    const IDEMPOTENT: bool = true;
    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        doubt: &Doubt,
    ) -> Result<(), TableError> {
        commit::update_i_am_alive(session, place, self.0, doubt).await
    }
}

#[async_trait]
impl Work for Delete {
    type Answer = ();
    const OPERATION: Operation = Operation::Delete;
    const IDEMPOTENT: bool = true;
    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        doubt: &Doubt,
    ) -> Result<(), TableError> {
        admin::delete(session, place, doubt).await
    }
}

#[async_trait]
impl MembershipTable for MysqlTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.place.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.0.write.run(&self.0.place, Initialize(request)).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.0.look.run(&self.0.place, Read(request)).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.0.look.run(&self.0.place, ReadRow(silo, known)).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&self.0.limits, STORE)?;
        self.0
            .write
            .run(&self.0.place, Commit(request, &self.0.limits))
            .await
            .map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.0.look.run(&self.0.place, Beat(write)).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0.write.run(&self.0.place, Delete).await
    }

    fn limits(&self) -> TableLimits {
        self.0.limits
    }

    fn guarantees(&self) -> Guarantees {
        let lossy = self
            .0
            .place
            .facts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lossy
            .is_some();
        let kept = !lossy && !self.0.place.config.loses_at_failover();
        Guarantees {
            reads: Recency::Linearizable,
            durability: if kept {
                Durability::Kept
            } else {
                Durability::MayBeLost
            },
        }
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(MysqlYardstick::new(Arc::clone(&self.0))))
    }
}
