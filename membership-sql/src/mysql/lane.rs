//! The two connections of a table: one for reads and heartbeats, one for commits, so that a silo that waits for a lock still beats.
//!
//! Every operation ends within its time. A connection is taken out of its lane while it is used and put back only when the operation came
//! to its end: one that was dropped in the middle is closed with the future that held it (clause T14).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::error::error;
use super::session::Session;
use super::table::Place;

/// Whether what was sent may be carried out although nobody has said so.
#[derive(Default)]
pub(super) struct Doubt(AtomicBool);

impl Doubt {
    /// It is sent.
    pub(super) fn begins(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// It is answered.
    pub(super) fn ends(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An operation.
#[async_trait]
pub(super) trait Work: Sync {
    type Answer: Send;
    /// Its name.
    const OPERATION: Operation;
    /// Whether carrying it out twice is carrying it out once.
    const IDEMPOTENT: bool;

    async fn run(
        &self,
        session: &mut Session,
        place: &Place,
        doubt: &Doubt,
    ) -> Result<Self::Answer, TableError>;
}

/// After this long a rest, a connection is asked whether it is still there before something is sent on it that must not be sent twice:
/// firewalls and proxies forget connections that rest, and the outcome of a commit would be unknown for nothing.
const REST: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Default)]
pub(super) struct Lane(Mutex<Option<Session>>);

impl Lane {
    /// A lane that has its connection already.
    pub(super) fn with(session: Session) -> Self {
        Self(Mutex::new(Some(session)))
    }

    /// Carries out an operation within the configured time.
    pub(super) async fn run<W: Work>(
        &self,
        place: &Place,
        work: W,
    ) -> Result<W::Answer, TableError> {
        let doubt = Doubt::default();
        let has_lane = AtomicBool::new(false);
        let deadline = Instant::now() + place.config.timeout();
        let answer =
            match timeout_at(deadline, self.carry_out(place, &work, &doubt, &has_lane)).await {
                Ok(answer) => answer,
                Err(_) if doubt.is() => Err(error(
                    TableErrorKind::OutcomeUnknown,
                    format!("no answer within {:?}", place.config.timeout()),
                )),
                Err(_) if has_lane.load(Ordering::Relaxed) => Err(error(
                    TableErrorKind::Unavailable,
                    format!("no answer within {:?}", place.config.timeout()),
                )),
                Err(_) => Err(error(
                    TableErrorKind::Busy,
                    "other operations of this client took all the time",
                )),
            };
        answer.map_err(|e| e.during(W::OPERATION).at(place.config.place()))
    }

    async fn carry_out<W: Work>(
        &self,
        place: &Place,
        work: &W,
        doubt: &Doubt,
        has_lane: &AtomicBool,
    ) -> Result<W::Answer, TableError> {
        let mut slot = self.0.lock().await;
        has_lane.store(true, Ordering::Relaxed);
        let mut tried = false;
        loop {
            let old = slot
                .take()
                .filter(|session| session.generation == place.generation());
            let reused = old.is_some();
            let mut session = match old {
                Some(session) => session,
                None => place.connect().await?,
            };
            if reused
                && !W::IDEMPOTENT
                && session.used.elapsed() > REST
                && session.flight("DO 0").await.is_err()
            {
                place.connections_broke();
                continue;
            }
            let answer = work.run(&mut session, place, doubt).await;
            // A server that answers, and cannot be used: shutting down, or no longer the one that takes writes. Another connection may find another.
            let usable = session.is_usable()
                && !matches!(&answer, Err(e) if e.kind() == TableErrorKind::Unavailable);
            if usable {
                *slot = Some(session);
            } else {
                // The other connection is most likely gone too: it is made anew before anything is sent on it.
                place.connections_broke();
            }
            match answer {
                // It had been closed while it rested, and nothing has happened, or nothing that must not happen again.
                Err(e) if reused && !usable && !tried && may_repeat(&e, W::IDEMPOTENT) => {
                    tried = true;
                    doubt.ends();
                }
                answer => return answer,
            }
        }
    }

    /// Closes the connection, when what is under way has ended.
    pub(super) async fn close(&self) {
        drop(self.0.lock().await.take());
    }
}

fn may_repeat(e: &TableError, idempotent: bool) -> bool {
    match e.kind() {
        TableErrorKind::Unavailable => true,
        TableErrorKind::OutcomeUnknown => idempotent,
        _ => false,
    }
}
