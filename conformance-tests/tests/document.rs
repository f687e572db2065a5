//! What a table over one document answers when answers of its document store are lost, or its client
//! library sends a request twice: clauses T5 and T12.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Mutex;

use async_trait::async_trait;
use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, DocumentRead, DocumentStore,
    DocumentTable, Guarantees, Heartbeat, InitializeRequest, InstanceId, MembershipEntry,
    MembershipTable, MemoryDocumentStore, MemoryDocuments, Operation, Revision, SharedSettings,
    SiloAddress, TableError, TableErrorKind, TableExt, TableId, TableLimits,
};

/// What happens to the next store of the document, once.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// The client library sends it twice, and returns the second answer.
    SentTwice,
    /// The document is stored, and the answer is lost.
    AnswerLost,
    /// Another client rewrites the document with the same content.
    Rewritten,
    /// The client library sends the removal twice, and returns the second answer. Another client
    /// makes the table anew between the two.
    MadeAnew,
}

struct Unlucky {
    inner: MemoryDocumentStore,
    next: Mutex<Option<Fate>>,
}

impl Unlucky {
    /// The next fate, if it is one of these.
    fn take(&self, one_of: impl FnOnce(Fate) -> bool) -> Option<Fate> {
        self.next.lock().unwrap().take_if(|fate| one_of(*fate))
    }
}

#[async_trait]
impl DocumentStore for Unlucky {
    fn store(&self) -> &'static str {
        "unlucky"
    }
    async fn prepare(&self) -> Result<(), TableError> {
        self.inner.prepare().await
    }
    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        self.inner.load(known, heartbeats, barrier).await
    }
    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let fate = self.take(|fate| fate != Fate::MadeAnew);
        if fate == Some(Fate::Rewritten) {
            self.inner.put_raw(self.inner.raw());
        }
        let stored = self.inner.store_if_unchanged(expected, text).await;
        match fate {
            Some(Fate::SentTwice) => self.inner.store_if_unchanged(expected, text).await,
            Some(Fate::AnswerLost) => Err(TableError::new(
                TableErrorKind::OutcomeUnknown,
                Operation::Read,
                "unlucky",
                "no answer",
            )),
            _ => stored,
        }
    }
    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        let removed = self.inner.remove_if_unchanged(expected).await;
        if self.take(|fate| fate == Fate::MadeAnew).is_none() {
            return removed;
        }
        let other = DocumentTable::new("blue".parse().unwrap(), self.inner.clone());
        other.initialize(&request(2)).await.unwrap();
        self.inner.remove_if_unchanged(expected).await
    }
    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        self.inner.put_heartbeat(silo, heartbeat).await
    }
    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        self.inner.put_cluster_cell(text).await
    }
    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        self.inner.remove_heartbeats(silos).await
    }
    fn document_bytes(&self) -> usize {
        3_000
    }
    fn limits(&self) -> TableLimits {
        self.inner.limits()
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
}

fn entry(port: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([10, 0, 0, 1].into(), port, 1),
        InstanceId::new(1),
        Default::default(),
    )
}

async fn table() -> DocumentTable<Unlucky> {
    let cluster: ClusterName = "blue".parse().unwrap();
    let inner = MemoryDocuments::new().document(&cluster);
    let table = DocumentTable::new(
        cluster,
        Unlucky {
            inner,
            next: Mutex::default(),
        },
    );
    table.initialize(&request(1)).await.unwrap();
    table
}

fn request(table: u128) -> InitializeRequest {
    let (settings, key) = (SharedSettings::default(), ClusterKey::new([7; 32]));
    InitializeRequest::new(TableId::new(table), settings, key)
}

async fn commit_with(
    table: &DocumentTable<Unlucky>,
    fate: Fate,
) -> (CommitRequest, Result<CommitOutcome, TableError>) {
    let token = table.read_all().await.unwrap().0.token;
    let request = CommitRequest::new(token, CommitId::new(7), None, [entry(1)], [], []);
    *table.documents().next.lock().unwrap() = Some(fate);
    let answer = table.commit(&request).await;
    (request, answer)
}

#[tokio::test]
async fn a_success_is_recognised_when_the_client_library_sent_it_twice() {
    let table = table().await;
    let (request, answer) = commit_with(&table, Fate::SentTwice).await;
    assert!(
        matches!(answer.unwrap(), CommitOutcome::Committed(token) if token.commit() == request.id)
    );
    assert_eq!(table.read_all().await.unwrap().0.version(), 1);
}

#[tokio::test]
async fn a_collision_without_a_commit_is_no_conflict() {
    let table = table().await;
    let (_, answer) = commit_with(&table, Fate::Rewritten).await;
    assert!(matches!(answer.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(table.read_all().await.unwrap().0.version(), 1);
}

#[tokio::test]
async fn a_lost_answer_is_an_unknown_outcome_and_can_be_settled() {
    let table = table().await;
    let (request, answer) = commit_with(&table, Fate::AnswerLost).await;
    let error = answer.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation()),
        (TableErrorKind::OutcomeUnknown, Operation::Commit)
    );
    assert!(matches!(
        table.commit(&request.again()).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    assert_eq!(table.read_all().await.unwrap().0.version(), 1);
}

#[tokio::test]
async fn a_document_that_would_be_too_large_is_not_sent() {
    let table = table().await;
    let token = table.read_all().await.unwrap().0.token;
    let mut large = entry(1);
    large.info.silo_name = "x".repeat(3_000);
    let error = table
        .insert_row(large, &token, CommitId::new(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::LimitExceeded);
    assert!(matches!(
        table
            .insert_row(entry(1), &token, CommitId::new(2))
            .await
            .unwrap(),
        CommitOutcome::Committed(_)
    ));
}

#[tokio::test]
async fn a_removal_that_was_sent_twice_leaves_the_table_made_in_between() {
    let table = table().await;
    *table.documents().next.lock().unwrap() = Some(Fate::MadeAnew);
    table.delete().await.unwrap();
    assert!(table.documents().next.lock().unwrap().is_none());
    let now = table.read_all().await.unwrap().0;
    assert_eq!(now.table_id(), TableId::new(2));
}

#[tokio::test]
async fn a_removal_says_whether_it_removed() {
    let documents = MemoryDocuments::new().document(&"blue".parse().unwrap());
    let first = documents.store_if_unchanged(None, "1").await.unwrap();
    let first = first.unwrap();
    let second = documents.store_if_unchanged(Some(&first), "2").await;
    let second = second.unwrap().unwrap();
    assert!(!documents.remove_if_unchanged(&first).await.unwrap());
    assert_eq!(documents.raw().as_deref(), Some("2"));
    assert!(documents.remove_if_unchanged(&second).await.unwrap());
    assert!(!documents.remove_if_unchanged(&second).await.unwrap());
}
