//! The table's thread. It owns the connection, so that dropping a future never leaves a transaction
//! open (clause T14), and executes one operation at a time. It ends with the last clone of the
//! table.
//!
//! An operation is *queued*, *running* or *committing*. If the timer ends it before it commits, it
//! is certainly not applied: directly before COMMIT the thread checks for that, and rolls back.
//! Only an operation that ends while it commits has an unknown outcome.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use membership_core::{HintStream, Operation, TableError, TableErrorKind};
use membership_provider::Notifier;
use tokio::sync::oneshot;

use super::STORE;
use super::read;
use super::session::{Gate, Session};
use super::timer::{self, Expire};

/// How often the version is read while there are hints: a read of shared memory, without access to
/// the disk.
const PERIOD: Duration = Duration::from_millis(200);

enum Job {
    Run(Box<dyn FnOnce(&mut Session) + Send>),
    /// There is a new stream of hints.
    Listen,
    /// Close the file, answer, and end.
    Close(oneshot::Sender<()>),
}

/// The thread, as operations use it.
pub(super) struct Worker {
    jobs: Sender<Job>,
    timeout: Duration,
    notifier: SharedNotifier,
}

/// The notifier until the thread ends: streams end with it.
type SharedNotifier = Arc<Mutex<Option<Notifier>>>;

/// Ends the streams when the thread ends, in whatever way.
struct EndOfHints(SharedNotifier);

impl Drop for EndOfHints {
    fn drop(&mut self) {
        drop(lock(&self.0).take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Phase {
    Queued,
    Running,
    Committing,
    Over,
}

/// Where the answer goes, until it is sent.
type Reply<T> = Option<oneshot::Sender<Result<T, TableError>>>;

/// An operation with a caller.
struct Call<T> {
    operation: Operation,
    state: Mutex<(Phase, Reply<T>)>,
}

impl<T> Call<T> {
    fn with<R>(&self, f: impl FnOnce(&mut Phase, &mut Reply<T>) -> R) -> R {
        let mut state = lock(&self.state);
        let (phase, reply) = &mut *state;
        f(phase, reply)
    }

    /// False if the caller is gone.
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

    /// Ends it with the error of its phase, unless it is over.
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
                // The caller may have dropped the future.
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

/// The thread's side of a call: it is answered when this is dropped, also if the thread dies.
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
    /// The system gives no thread.
    pub(super) fn start(session: Session, timeout: Duration) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let notifier = Arc::new(Mutex::new(Some(Notifier::default())));
        let ends = EndOfHints(Arc::clone(&notifier));
        std::thread::Builder::new()
            .name("membership-sqlite".to_owned())
            .spawn(move || {
                let notifier = lock(&ends.0).clone().unwrap_or_default();
                run(session, &queue, &notifier);
            })?;
        Ok(Self {
            jobs,
            timeout,
            notifier,
        })
    }

    /// Executes `work` on the thread.
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
        // A wait for a lock ends in time for an answer.
        let lock_deadline = deadline - (self.timeout / 10).min(Duration::from_millis(250));
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
                session.wait_until(lock_deadline);
                let result = work(session, &**call);
                call.finish(result.map_err(|e| e.during(operation)));
            }
        });
        // A job that cannot be sent is dropped, which also answers.
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

    /// A stream of hints; it ends with the thread.
    pub(super) fn listen(&self) -> HintStream {
        let notifier = lock(&self.notifier);
        let stream = notifier.as_ref().map(Notifier::subscribe);
        drop(notifier);
        // Without a thread there is no notifier either.
        let _ = self.jobs.send(Job::Listen);
        stream.unwrap_or_else(|| Notifier::default().subscribe())
    }

    /// Closes the file after the queued operations; returns when it is closed.
    pub(super) async fn close(&self) {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(Job::Close(reply)).is_ok() {
            // An error means that the thread has ended, and the file is closed.
            drop(answer.await);
        }
    }
}

fn run(mut session: Session, queue: &Receiver<Job>, notifier: &Notifier) {
    let mut seen = None;
    loop {
        let listeners = notifier.has_listeners();
        let job = if listeners {
            queue.recv_timeout(PERIOD)
        } else {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match job {
            Ok(Job::Run(work)) => work(&mut session),
            Ok(Job::Listen) if !listeners => seen = version(&mut session),
            Ok(Job::Listen) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Job::Close(reply)) => {
                drop(session);
                let _caller_is_gone = reply.send(());
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if listeners {
            let now = version(&mut session);
            if now != seen {
                seen = now;
                notifier.notify();
            }
        }
    }
}

fn version(session: &mut Session) -> Option<u64> {
    session.wait_until(Instant::now());
    read::version_number(session)
}

#[cfg(test)]
#[path = "../../tests/unit/sqlite/worker.rs"]
mod tests;
