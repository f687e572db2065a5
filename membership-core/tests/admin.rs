//! Changes from outside the protocol over a table that fails: each ends as happened, did not
//! happen, or may have happened.
#![allow(clippy::unwrap_used, clippy::panic)]

use membership_core::ClusterKey;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::admin::{Admin, ChangeError, Runtime};
use membership_core::intent::Refusal;
use membership_core::*;

/// The fault of the next commit.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The commit happens, and its answer is lost.
    AnswerLost,
    /// The commit does not happen, and the caller cannot know.
    RequestLost,
    /// The commit does not happen, and the error says so.
    Busy,
    /// The store refuses the commit permanently.
    Denied,
    /// This number of other commits come first.
    Overtaken(u32),
    /// The same as `AnswerLost`, and then this number of other commits follow.
    LostAndOvertaken(u32),
    /// The same as `AnswerLost`, and reads fail from then on.
    AllLost,
}

#[derive(Debug)]
struct Failing {
    inner: MemoryTable,
    faults: Mutex<VecDeque<Fault>>,
    reads_fail: Mutex<bool>,
    sent: Mutex<Vec<CommitRequest>>,
}

fn error(kind: TableErrorKind) -> TableError {
    TableError::new(kind, Operation::Commit, "failing", "it went wrong")
}

impl Failing {
    /// Commits of another program.
    fn overtake(&self, times: u32) {
        for _ in 0..times {
            let (snapshot, _) = now(self.inner.read_all()).unwrap();
            let id = CommitId::new(1_000 + u128::from(snapshot.version()));
            let mut request = CommitRequest::new(snapshot.token, id, None, [], [], []);
            request.core = Some(String::new().into());
            self.inner.commit_sync(&request).unwrap();
        }
    }
}

#[async_trait]
impl MembershipTable for Failing {
    fn store(&self) -> &'static str {
        "failing"
    }
    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }
    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.inner.initialize(request).await
    }
    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if *self.reads_fail.lock().unwrap() {
            return Err(error(TableErrorKind::Unavailable).during(Operation::Read));
        }
        self.inner.read(request).await
    }
    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.inner.read_row(silo, known).await
    }
    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        self.sent.lock().unwrap().push(request.clone());
        let fault = self.faults.lock().unwrap().pop_front();
        let unknown = Err(error(TableErrorKind::OutcomeUnknown));
        match fault {
            None => self.inner.commit(request).await,
            Some(Fault::Busy) => Err(error(TableErrorKind::Busy)),
            Some(Fault::Denied) => Err(error(TableErrorKind::PermissionDenied)),
            Some(Fault::RequestLost) => unknown,
            Some(Fault::AnswerLost) => self.inner.commit(request).await.and(unknown),
            Some(Fault::AllLost) => {
                *self.reads_fail.lock().unwrap() = true;
                self.inner.commit(request).await.and(unknown)
            }
            Some(Fault::LostAndOvertaken(times)) => {
                self.inner.commit(request).await?;
                self.overtake(times);
                unknown
            }
            Some(Fault::Overtaken(times)) => {
                self.overtake(times);
                self.inner.commit(request).await
            }
        }
    }
    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.inner.update_i_am_alive(write).await
    }
    async fn delete(&self) -> Result<(), TableError> {
        self.inner.delete().await
    }
    fn limits(&self) -> TableLimits {
        self.inner.limits()
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
}

struct Ids(u128);

#[async_trait]
impl Runtime for Ids {
    fn commit_id(&mut self) -> CommitId {
        self.0 += 1;
        CommitId::new(self.0)
    }
    async fn pause(&mut self, at_most: Duration) {
        assert!(at_most <= Duration::from_secs(2));
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a table in memory does not wait"),
    }
}

fn silo(n: u8) -> SiloAddress {
    SiloAddress::new([10, 0, 0, n].into(), 7100, 1)
}

/// A table with silos 1 to 3 Joining, at version 1.
fn table(faults: impl IntoIterator<Item = Fault>) -> Failing {
    let inner = MemoryTable::new("tests".parse().unwrap());
    let (table_id, settings) = (TableId::new(1), SharedSettings::default());
    let request = InitializeRequest::new(table_id, settings, ClusterKey::new([7; 32]));
    inner.initialize_sync(&request).unwrap();
    let started = WallTime::from_millis(1);
    let rows = (1..=3).map(|n| MembershipEntry::new(silo(n), InstanceId::new(n.into()), started));
    let start = VersionRow::initial(TableId::new(1), SharedSettings::default());
    let join = CommitRequest::new(start.token(&[]), CommitId::new(999), None, rows, [], []);
    inner.commit_sync(&join).unwrap();
    Failing {
        inner,
        faults: Mutex::new(faults.into_iter().collect()),
        reads_fail: Mutex::new(false),
        sent: Mutex::default(),
    }
}

fn evict(table: &Failing, n: u8) -> Result<Option<u64>, ChangeError<Refusal>> {
    let mut ids = Ids(10 * u128::from(n));
    let at = WallTime::from_millis(7);
    now(Admin::new(table, &mut ids).evict(silo(n), "ops", "broken", at))
}

fn is_dead(table: &Failing, n: u8) -> bool {
    let (snapshot, _) = now(table.inner.read_all()).unwrap();
    snapshot.rows.get(&silo(n)).unwrap().status == SiloStatus::Dead
}

/// A policy that removes all Dead rows.
fn policy() -> CleanupPolicy {
    CleanupPolicy::new(WallTime::from_millis(1_000), Duration::from_millis(1), 0)
}

#[test]
fn a_commit_whose_answer_is_lost_is_found_in_the_table() {
    use Fault::*;
    for (faults, version, commits) in [
        (vec![], 2, 1),
        (vec![AnswerLost], 2, 1),
        (vec![RequestLost], 2, 2),
        (vec![RequestLost, AnswerLost], 2, 2),
        (vec![RequestLost, Busy], 2, 3),
        // A refusal of the second attempt says nothing about the first.
        (vec![RequestLost, Denied, Denied], 2, 4),
        (vec![Busy, Busy], 2, 3),
        (vec![Overtaken(2)], 4, 2),
        (vec![RequestLost, Overtaken(1)], 3, 3),
        (vec![LostAndOvertaken(15)], 2, 1),
        // Beyond the 16 commits that the version row keeps, the rows decide.
        (vec![LostAndOvertaken(16)], 18, 1),
    ] {
        let table = table(faults.clone());
        assert_eq!(evict(&table, 2), Ok(Some(version)), "{faults:?}");
        assert!(is_dead(&table, 2), "{faults:?}");
        let sent = table.sent.lock().unwrap();
        assert_eq!(sent.len(), commits, "{faults:?}");
        for pair in sent.windows(2) {
            let again = pair[1].attempt == Attempt::Again;
            assert_eq!(again, pair[1].id == pair[0].id, "{faults:?}");
            assert!(!again || pair[1].changes == pair[0].changes, "{faults:?}");
        }
    }
}

#[test]
fn errors_distinguish_not_done_from_may_have_happened() {
    let may_have = |table: &Failing| {
        let error = evict(table, 2).unwrap_err();
        assert!(matches!(error, ChangeError::MayHaveHappened(_)), "{error}");
    };
    let not_done = |table: &Failing| match evict(table, 2).unwrap_err() {
        ChangeError::NotDone(error) if !is_dead(table, 2) => error.kind(),
        other => panic!("{other}"),
    };
    let lost = table([Fault::RequestLost; 10]);
    may_have(&lost);
    assert!(!is_dead(&lost, 2));
    let unread = table([Fault::AllLost]);
    may_have(&unread);
    assert!(is_dead(&unread, 2));
    assert_eq!(not_done(&table([Fault::Busy; 10])), TableErrorKind::Busy);
    let denied = table([Fault::Denied]);
    assert_eq!(not_done(&denied), TableErrorKind::PermissionDenied);
    assert_eq!(
        denied.sent.lock().unwrap().len(),
        1,
        "it is not tried again"
    );
    let overtaken = table([Fault::Overtaken(1); 40]);
    assert_eq!(not_done(&overtaken), TableErrorKind::Busy);
    assert_eq!(overtaken.sent.lock().unwrap().len(), 31);
}

#[test]
fn a_change_is_refused_or_finds_nothing_to_do() {
    let table = table([]);
    let stranger = Refusal::NoSuchSilo(silo(9));
    assert_eq!(evict(&table, 9), Err(ChangeError::Refused(stranger)));
    assert_eq!(evict(&table, 2), Ok(Some(2)));
    assert_eq!(evict(&table, 2), Ok(None));
    let mut ids = Ids(0);
    let mut admin = Admin::new(&table, &mut ids);
    let whole = now(admin.remove_undecodable(&silo(1).row_key()));
    assert!(matches!(whole, Err(ChangeError::Refused(_))));
    assert_eq!(now(admin.remove_undecodable("no key")), Ok(false));
    assert_eq!(now(admin.cleanup(&policy())), Ok(vec![silo(2).row_key()]));
    assert_eq!(now(admin.cleanup(&policy())), Ok(vec![]));
}

#[test]
fn a_cleanup_returns_the_removed_keys_also_after_lost_answers() {
    let faults = [
        Fault::AnswerLost,
        Fault::RequestLost,
        Fault::Overtaken(3),
        Fault::LostAndOvertaken(16),
    ];
    for fault in faults {
        let table = table([]);
        for n in 1..=3 {
            evict(&table, n).unwrap();
        }
        table.faults.lock().unwrap().push_back(fault);
        let mut id = 500;
        let mut ids = || {
            id += 1;
            CommitId::new(id)
        };
        let removed = now(table.cleanup_defunct_silo_entries(&policy(), &mut ids)).unwrap();
        assert_eq!(removed, [1, 2, 3].map(|n| silo(n).row_key()), "{fault:?}");
    }
}
