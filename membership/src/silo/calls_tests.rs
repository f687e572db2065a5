use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, Guarantees, MemoryTable, ReadAnswer, RowRead,
    SharedSettings, SiloAddress, TableErrorKind, TableId, TableLimits, VersionRow, VersionToken,
};

use super::*;

/// A provider with a defect: it panics, or never answers.
#[derive(Debug)]
struct Broken {
    inner: MemoryTable,
    hangs: bool,
}

impl Broken {
    async fn fail(&self) {
        assert!(self.hangs, "staged");
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl MembershipTable for Broken {
    fn store(&self) -> &'static str {
        "broken"
    }
    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }
    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.fail().await;
        self.inner.initialize(request).await
    }
    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.fail().await;
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
        self.fail().await;
        self.inner.commit(request).await
    }
    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.fail().await;
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

fn calls(hangs: bool) -> Calls {
    let inner = MemoryTable::new("test".parse().unwrap());
    let table = TimedTable::new(Broken { inner, hangs }, Duration::from_millis(100));
    Calls::new(Arc::new(table), tracing::Span::none())
}

fn a_commit() -> Call {
    let token = VersionRow::initial(TableId::new(1), SharedSettings::default()).token(&[]);
    Call::Commit(CommitRequest::new(
        token,
        CommitId::new(1),
        None,
        [],
        [],
        ["x".to_owned()],
    ))
}

fn an_initialize() -> Call {
    Call::Initialize(InitializeRequest::new(
        TableId::new(1),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    ))
}

#[tokio::test]
async fn every_call_ends_once_whatever_the_provider_does() {
    for hangs in [false, true] {
        let mut calls = calls(hangs);
        calls.begin(CallId(1), a_commit());
        calls.begin(CallId(2), Call::Read(ReadRequest::all()));
        calls.begin(CallId(3), an_initialize());
        calls.begin(
            CallId(4),
            Call::Heartbeat(HeartbeatWrite::Cluster {
                text: String::new(),
            }),
        );
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(match calls.next().await {
                Input::Committed { call, result } => (call.0, "commit", result.unwrap_err().kind()),
                Input::Read { call, result } => (call.0, "read", result.unwrap_err().kind()),
                Input::Initialized { call, result } => {
                    (call.0, "initialize", result.unwrap_err().kind())
                }
                Input::HeartbeatWritten { call, result } => {
                    (call.0, "heartbeat", result.unwrap_err().kind())
                }
                other => panic!("{other:?}"),
            });
        }
        seen.sort_unstable_by_key(|seen| seen.0);
        let unknown = TableErrorKind::OutcomeUnknown;
        let expected = [
            (1, "commit", unknown),
            (2, "read", TableErrorKind::Unavailable),
            (3, "initialize", unknown),
            (4, "heartbeat", unknown),
        ];
        assert_eq!(seen, expected, "hangs: {hangs}");
        assert!(calls.names.is_empty());
        let more = tokio::time::timeout(Duration::from_millis(10), calls.next()).await;
        assert!(more.is_err(), "nothing is under way");
    }
}
