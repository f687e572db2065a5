//! Two connections, one for reads and heartbeats and one for the rest, so that a silo that waits
//! for a lock still writes heartbeats.
//!
//! Every operation ends within its time. An operation takes its connection out of the slot, and
//! puts it back only when it came to its end: if its future is dropped, the connection is closed
//! with it (clause T14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind as Kind};
use tokio::time::{Instant, timeout, timeout_at};

use super::Doubts;

/// A connection that was idle for longer is tested before a request that must not be sent twice.
/// Firewalls and proxies drop idle connections, and the outcome of a commit would be unknown for no
/// reason.
const IDLE: Duration = Duration::from_secs(60);

/// The connection of some operations while none of them uses it, and how often connections had been
/// found broken when it was opened.
pub(crate) type Slot<C> = tokio::sync::Mutex<Option<(u64, C)>>;

/// The connections of a table.
pub(crate) struct Pool<C> {
    /// For reads and heartbeats.
    pub(crate) reads: Slot<C>,
    /// For everything else.
    pub(crate) writes: Slot<C>,
    /// How often connections were found broken or are in doubt.
    generation: AtomicU64,
    doubts: Doubts,
}

impl<C> Pool<C> {
    /// With the connection that was opened first.
    pub(crate) fn new(connection: C) -> Self {
        Self {
            reads: Slot::new(Some((0, connection))),
            writes: Slot::new(None),
            generation: AtomicU64::new(0),
            doubts: Doubts::default(),
        }
    }

    /// Closes both connections after the operations under way.
    pub(crate) async fn close(&self) {
        drop(self.reads.lock().await.take());
        drop(self.writes.lock().await.take());
    }

    fn connections_broke(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection.
#[async_trait]
pub(crate) trait Link: Send {
    /// Whether it may be used again.
    fn is_usable(&self) -> bool;
    /// How long it has been idle.
    fn idle(&self) -> Duration;
    /// Whether the server answers.
    async fn answers(&mut self) -> bool;
    /// An operation begins. The connection sets the flag while something is sent whose outcome is
    /// unknown.
    fn begins(&mut self, in_doubt: Arc<AtomicBool>);
}

/// An operation of the clients `T`.
#[async_trait]
pub(crate) trait Work<T: Client>: Send + Sync {
    type Answer: Send;
    /// Its name.
    const OPERATION: Operation;
    /// Whether it may be executed twice.
    const REPEATABLE: bool = true;

    async fn run(
        &self,
        table: &T,
        connection: &mut T::Connection,
    ) -> Result<Self::Answer, TableError>;
}

/// What all clones of a table share.
#[async_trait]
pub(crate) trait Client: Sync + Sized {
    type Connection: Link;
    /// The name of the store in errors.
    const STORE: &'static str;

    fn pool(&self) -> &Pool<Self::Connection>;
    /// The time of one operation.
    fn limit(&self) -> Duration;
    /// How long a server may be silent to a read before another one is asked.
    fn share(&self) -> Duration {
        Duration::MAX
    }
    /// The servers, for errors.
    fn address(&self) -> String;
    /// Opens a connection and checks the server: `another` one if possible, because the last one is
    /// in doubt.
    async fn open(&self, another: bool) -> Result<Self::Connection, TableError>;

    /// Runs an operation within the configured time, and once more over a new connection when its
    /// answer is in doubt.
    ///
    /// # Errors
    /// The errors of the operation, with its name and the server.
    async fn run<W: Work<Self>>(
        &self,
        slot: &Slot<Self::Connection>,
        work: W,
    ) -> Result<W::Answer, TableError> {
        let deadline = Instant::now() + self.limit();
        let share = match W::OPERATION {
            Operation::Read | Operation::ReadRow => self.share(),
            _ => Duration::MAX,
        };
        let answer = timeout(share, run_until(self, deadline, slot, &work, false)).await;
        match answer {
            Err(_) => run_anew(self, deadline, &work).await,
            Ok(Err(e)) if self.pool().doubts.look_again(&e) => {
                run_anew(self, deadline, &work).await
            }
            Ok(answer) => answer,
        }
    }

    /// Runs a read over a new connection, which the next operations use, too.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    async fn run_anew<W: Work<Self>>(&self, work: W) -> Result<W::Answer, TableError> {
        let deadline = Instant::now() + self.limit();
        run_anew(self, deadline, &work).await
    }
}

async fn run_anew<T: Client, W: Work<T>>(
    table: &T,
    deadline: Instant,
    work: &W,
) -> Result<W::Answer, TableError> {
    // The operations under way keep their connections, and the next ones do not use those.
    table.pool().connections_broke();
    let slot = Slot::default();
    let answer = run_until(table, deadline, &slot, work, true).await;
    if let Ok(mut reads) = table.pool().reads.try_lock() {
        *reads = slot.into_inner();
    }
    answer
}

async fn run_until<T: Client, W: Work<T>>(
    table: &T,
    deadline: Instant,
    slot: &Slot<T::Connection>,
    work: &W,
    another: bool,
) -> Result<W::Answer, TableError> {
    let limit = table.limit();
    let (in_doubt, has_slot) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let late = |_| {
        let late = format!("no answer within {limit:?}");
        let (kind, message) = if in_doubt.load(Ordering::Relaxed) {
            (Kind::OutcomeUnknown, late)
        } else if has_slot.load(Ordering::Relaxed) {
            (Kind::Unavailable, late)
        } else {
            let message = "other operations of this client took all the time";
            (Kind::Busy, message.to_owned())
        };
        TableError::new(kind, W::OPERATION, T::STORE, message)
    };
    let run = async {
        let mut slot = slot.lock().await;
        has_slot.store(true, Ordering::Relaxed);
        run_over(table, &mut slot, work, &in_doubt, another).await
    };
    let answer = timeout_at(deadline, run).await;
    let answer = answer.map_err(late).and_then(|answer| answer);
    answer.map_err(|e| e.during(W::OPERATION).at(table.address()))
}

async fn run_over<T: Client, W: Work<T>>(
    table: &T,
    slot: &mut Option<(u64, T::Connection)>,
    work: &W,
    in_doubt: &Arc<AtomicBool>,
    another: bool,
) -> Result<W::Answer, TableError> {
    let pool = table.pool();
    let mut repeated = false;
    loop {
        let generation = pool.generation.load(Ordering::Relaxed);
        let old = slot.take().filter(|(opened, _)| *opened == generation);
        let reused = old.is_some();
        let mut connection = match old {
            Some((_, connection)) => connection,
            None => table.open(another).await?,
        };
        let untested = reused && !W::REPEATABLE && connection.idle() > IDLE;
        if untested && !connection.answers().await {
            pool.connections_broke();
            continue;
        }
        connection.begins(Arc::clone(in_doubt));
        let answer = work.run(table, &mut connection).await;
        // A server can answer and still be unusable: it shuts down, or no longer accepts writes. A
        // new connection may find another server.
        let unavailable = matches!(&answer, Err(e) if e.kind() == Kind::Unavailable);
        if connection.is_usable() && !unavailable {
            *slot = Some((generation, connection));
            return answer;
        }
        // The other connection is probably broken too: it is opened again before its next use.
        pool.connections_broke();
        match answer {
            // It was closed while idle, and nothing happened, or nothing that must not be repeated.
            Err(e) if reused && !repeated && may_repeat(&e, W::REPEATABLE) => {
                repeated = true;
                in_doubt.store(false, Ordering::Relaxed);
            }
            answer => return answer,
        }
    }
}

fn may_repeat(e: &TableError, repeatable: bool) -> bool {
    match e.kind() {
        Kind::Unavailable => true,
        Kind::OutcomeUnknown => repeatable,
        _ => false,
    }
}
