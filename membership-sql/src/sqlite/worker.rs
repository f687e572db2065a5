//! The table's thread: it owns the connection, so that dropping a future never leaves a transaction open (clause T14), and it takes one
//! operation after the other. It ends when the last handle is gone.
//!
//! An operation is *queued*, *running*, or *committing*. The timer ends the first two with "certainly not applied": the thread asks
//! directly before COMMIT whether that has happened, and rolls back. Only what is ended while committing has an unknown outcome.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use membership_core::{Operation, TableError, TableErrorKind};
use tokio::sync::oneshot;

use super::STORE;
use super::read;
use super::session::{Gate, Session};
use super::timer::{self, Expire};
use crate::bell::{Bell, Listener};

/// How often the file is looked at while somebody listens: a read of shared memory, without a system call to the disk.
const PERIOD: Duration = Duration::from_millis(200);

enum Job {
    Run(Box<dyn FnOnce(&mut Session) + Send>),
    /// Somebody listens for hints now.
    Listen,
    /// Close the file, say so, and end.
    Close(oneshot::Sender<()>),
}

/// The sending side.
pub(super) struct Worker {
    jobs: Sender<Job>,
    timeout: Duration,
    bell: Arc<Bell>,
}

enum Phase {
    Queued,
    Running,
    Committing,
    Over,
}

/// Where the answer goes, until it has been given.
type Reply<T> = Option<oneshot::Sender<Result<T, TableError>>>;

/// An operation that somebody waits for.
struct Call<T> {
    operation: Operation,
    state: Mutex<(Phase, Reply<T>)>,
}

impl<T> Call<T> {
    fn with<R>(&self, f: impl FnOnce(&mut Phase, &mut Reply<T>) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (phase, reply) = &mut *state;
        f(phase, reply)
    }

    /// False when nobody waits any more.
    fn begin(&self) -> bool {
        self.with(|phase, reply| {
            let go =
                matches!(phase, Phase::Queued) && reply.as_ref().is_some_and(|r| !r.is_closed());
            *phase = if go { Phase::Running } else { Phase::Over };
            go
        })
    }

    fn finish(&self, result: Result<T, TableError>) {
        self.end(|_| Some(result));
    }

    /// Ends it with an error that depends on how far it has come; nothing happens to what is over.
    fn fail(&self, why: impl FnOnce(&Phase) -> (TableErrorKind, &'static str)) {
        self.end(|phase| {
            let (kind, message) = why(phase);
            (!matches!(phase, Phase::Over))
                .then(|| Err(TableError::new(kind, self.operation, STORE, message)))
        });
    }

    fn end(&self, answer: impl FnOnce(&Phase) -> Option<Result<T, TableError>>) {
        self.with(|phase, reply| {
            let answer = answer(phase);
            *phase = Phase::Over;
            if let (Some(answer), Some(reply)) = (answer, reply.take()) {
                // Whoever dropped the future does not want to know.
                drop(reply.send(answer));
            }
        });
    }
}

impl<T: Send> Gate for Call<T> {
    fn may_commit(&self) -> bool {
        self.with(|phase, _| match phase {
            Phase::Running | Phase::Committing => {
                *phase = Phase::Committing;
                true
            }
            Phase::Queued | Phase::Over => false,
        })
    }
}

impl<T: Send> Expire for Call<T> {
    fn expire(&self) {
        self.fail(|phase| match phase {
            Phase::Queued => (
                TableErrorKind::Busy,
                "other operations of this client took the whole time",
            ),
            Phase::Running => (
                TableErrorKind::Unavailable,
                "the disk did not answer in time",
            ),
            Phase::Committing | Phase::Over => (
                TableErrorKind::OutcomeUnknown,
                "the disk did not confirm the commit in time",
            ),
        });
    }
}

/// The thread's side of a call. Whatever becomes of the thread, dropping it answers.
struct Ticket<T>(Arc<Call<T>>);

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        self.0.fail(|phase| match phase {
            Phase::Queued | Phase::Running => (TableErrorKind::Unavailable, "the table is closed"),
            Phase::Committing | Phase::Over => (
                TableErrorKind::OutcomeUnknown,
                "the table's thread ended in the middle of a commit",
            ),
        });
    }
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(session: Session, timeout: Duration) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let bell = Arc::new(Bell::default());
        let rings = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("membership-sqlite".to_owned())
            .spawn(move || {
                run(session, &queue, &rings);
                rings.close();
            })?;
        Ok(Self {
            jobs,
            timeout,
            bell,
        })
    }

    /// Has `work` done on the thread.
    ///
    /// # Errors
    /// What `work` says, or that the time is over.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut Session, &dyn Gate) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, TableError> {
        let fail = |kind, message: &str| TableError::new(kind, operation, STORE, message);
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + self.timeout;
        // A lock that is waited for to the end is still answered in time.
        let patience = deadline - (self.timeout / 10).min(Duration::from_millis(250));
        let call = Arc::new(Call {
            operation,
            state: Mutex::new((Phase::Queued, Some(reply))),
        });
        let watch = timer::watch(deadline, Arc::clone(&call) as Arc<dyn Expire>).map_err(|e| {
            fail(
                TableErrorKind::Unavailable,
                "the system gives no thread for the timer",
            )
            .with_source(e)
        })?;
        let ticket = Ticket(call);
        let job = Box::new(move |session: &mut Session| {
            let call = &ticket.0;
            if call.begin() {
                session.wait_until(patience);
                let result = work(session, &**call);
                call.finish(result.map_err(|e| e.during(operation)));
            }
        });
        // A job that cannot be sent is dropped, and that answers too.
        drop(self.jobs.send(Job::Run(job)));
        let result = answer.await;
        drop(watch);
        result.unwrap_or_else(|_| {
            Err(fail(
                TableErrorKind::OutcomeUnknown,
                "the operation ended without an answer",
            ))
        })
    }

    /// A stream that is rung when the version moves.
    pub(super) fn listen(&self) -> Listener {
        let listener = self.bell.listen();
        if self.jobs.send(Job::Listen).is_err() {
            self.bell.close();
        }
        listener
    }

    /// Closes the file after everything that is queued; returns when it is closed.
    pub(super) async fn close(&self) {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(Job::Close(reply)).is_ok() {
            // An error means that the thread is gone, and the file with it.
            drop(answer.await);
        }
    }
}

fn run(mut session: Session, queue: &Receiver<Job>, bell: &Bell) {
    let mut seen = None;
    loop {
        let heard = bell.is_heard();
        let job = if heard {
            queue.recv_timeout(PERIOD)
        } else {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match job {
            Ok(Job::Run(work)) => work(&mut session),
            Ok(Job::Listen) if !heard => seen = look(&mut session),
            Ok(Job::Listen) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Job::Close(reply)) => {
                drop(session);
                // An error means that nobody waits for it.
                let _nobody_waits = reply.send(());
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if heard {
            let now = look(&mut session);
            if now != seen {
                seen = now;
                bell.ring();
            }
        }
    }
}

fn look(session: &mut Session) -> Option<u64> {
    session.wait_until(Instant::now());
    read::version_number(session)
}

#[cfg(test)]
mod tests {
    use super::super::error::error;
    use super::*;
    use std::sync::mpsc;

    fn worker(timeout: u64) -> Worker {
        let session = Session::new("/nowhere/m.db".into(), false, "c".into(), "c".into());
        Worker::start(session, Duration::from_millis(timeout)).unwrap()
    }

    /// An operation that hangs, before or after it has asked whether it may commit.
    struct Hang {
        go: mpsc::Sender<()>,
        told: mpsc::Receiver<bool>,
    }

    impl Hang {
        fn new(
            after_asking: bool,
        ) -> (
            Self,
            impl FnOnce(&mut Session, &dyn Gate) -> Result<(), TableError>,
        ) {
            let ((go, wait), (tell, told)) = (mpsc::channel(), mpsc::channel());
            let work = move |_: &mut Session, gate: &dyn Gate| {
                let early = after_asking && gate.may_commit();
                wait.recv().unwrap();
                tell.send(early || gate.may_commit()).unwrap();
                Ok(())
            };
            (Self { go, told }, work)
        }

        /// Lets it go on; says whether it would have committed.
        fn end(self) -> bool {
            self.go.send(()).unwrap();
            self.told.recv().unwrap()
        }
    }

    #[tokio::test]
    async fn what_is_ended_before_commit_does_not_commit() {
        let worker = worker(50);
        let (hang, work) = Hang::new(false);
        let (running, queued) = (
            worker.call(Operation::Commit, work),
            worker.call(Operation::Commit, |_, _| Ok(())),
        );
        let (running, queued) = tokio::join!(running, queued);
        assert_eq!(running.unwrap_err().kind(), TableErrorKind::Unavailable);
        assert_eq!(queued.unwrap_err().kind(), TableErrorKind::Busy);
        assert!(!hang.end(), "nobody waits for it any more");
        // The thread is free again.
        worker.call(Operation::Read, |_, _| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_ended_while_committing_is_unknown() {
        let worker = worker(50);
        let (hang, work) = Hang::new(true);
        assert_eq!(
            worker
                .call(Operation::Commit, work)
                .await
                .unwrap_err()
                .kind(),
            TableErrorKind::OutcomeUnknown
        );
        assert!(hang.end());
    }

    #[tokio::test]
    async fn errors_bear_the_name_of_their_operation() {
        let worker = worker(10_000);
        let error = worker
            .call(Operation::Delete, |_, _| {
                Err::<(), _>(error(TableErrorKind::Damaged, "x"))
            })
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.operation()),
            (TableErrorKind::Damaged, Operation::Delete)
        );
    }

    #[tokio::test]
    async fn a_closed_table_and_a_dead_thread_answer_at_once() {
        let dead = worker(60_000);
        let die = |_: &mut Session, gate: &dyn Gate| -> Result<(), TableError> {
            assert!(gate.may_commit());
            panic!("staged");
        };
        assert_eq!(
            dead.call(Operation::Commit, die).await.unwrap_err().kind(),
            TableErrorKind::OutcomeUnknown
        );
        assert_eq!(
            dead.call(Operation::Read, |_, _| Ok(()))
                .await
                .unwrap_err()
                .kind(),
            TableErrorKind::Unavailable
        );
        let closed = worker(60_000);
        closed.close().await;
        assert_eq!(
            closed
                .call(Operation::Read, |_, _| Ok(()))
                .await
                .unwrap_err()
                .kind(),
            TableErrorKind::Unavailable
        );
    }
}
