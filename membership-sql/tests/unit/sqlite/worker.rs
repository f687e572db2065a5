//! Unit tests of `src/sqlite/worker.rs`, which includes them.

use super::super::error::error;
use super::*;
use std::sync::mpsc;

fn worker(timeout: u64) -> Worker {
    let session = Session::new("/nowhere/m.db".into(), false, &"c".parse().unwrap());
    Worker::start(session, Duration::from_millis(timeout)).unwrap()
}

/// An operation that hangs, before or after it asked whether it may commit.
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

    /// Lets it continue; says whether it would have committed.
    fn end(self) -> bool {
        self.go.send(()).unwrap();
        self.told.recv().unwrap()
    }
}

#[tokio::test]
async fn an_operation_that_ends_before_commit_does_not_commit() {
    let worker = worker(50);
    let (hang, work) = Hang::new(false);
    let (running, queued) = (
        worker.call(Operation::Commit, work),
        worker.call(Operation::Commit, |_, _| Ok(())),
    );
    let (running, queued) = tokio::join!(running, queued);
    assert_eq!(running.unwrap_err().kind(), TableErrorKind::Unavailable);
    assert_eq!(queued.unwrap_err().kind(), TableErrorKind::Busy);
    assert!(!hang.end(), "the caller is gone");
    // The thread is free again.
    worker.call(Operation::Read, |_, _| Ok(())).await.unwrap();
}

#[tokio::test]
async fn an_operation_that_ends_while_committing_has_an_unknown_outcome() {
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
async fn errors_name_their_operation() {
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
