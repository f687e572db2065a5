//! A backend over documents whose store ignores one condition of a conditional write on purpose, and the
//! cases that must catch it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use conformance_tests::{Backend, Capability, Effort, Reason, Stop, Suite};
use membership_core::{
    ClusterName, DocumentRead, DocumentStore, DocumentTable, Guarantees, Heartbeat,
    MembershipTable, MemoryDocumentStore, MemoryDocuments, Operation, Revision, SiloAddress,
    Stored, TableError, TableErrorKind, TableLimits,
};

use super::quick;

/// What the store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Nothing: its keys are short, and it refuses the name of a cluster that does not fit.
    RefusesLongNames,
    /// Revisions count from 1 again after the document was removed.
    BeginsAnew,
    /// Revisions count from 1 again after the store was made anew.
    BeginsAnewWithTheStore,
    /// A document is stored whatever its revision is.
    StoresOverAnyRevision,
    /// A document is stored where it should be created, and another one is there.
    CreatesOverADocument,
    /// The document is removed whatever its revision is.
    RemovesAnyRevision,
    /// The removal of a document that is not there is called a removal.
    RemovesWhatIsNotThere,
}

/// The longest name of a cluster that the store with short keys takes.
const SHORT_KEY: usize = 200;

/// Documents by cluster: how many writes there were, and the document with its revision.
type Documents = Arc<Mutex<BTreeMap<ClusterName, (u64, Option<(u64, String)>)>>>;

/// The backend: many clients of tables over one faulty store.
pub struct Faulty {
    fault: Fault,
    documents: Documents,
    heartbeats: MemoryDocuments,
}

impl Faulty {
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            documents: Arc::default(),
            heartbeats: MemoryDocuments::new(),
        }
    }

    fn document(&self, cluster: &ClusterName) -> Result<Document, TableError> {
        if self.fault == Fault::RefusesLongNames && cluster.store_key().len() > SHORT_KEY {
            let (kind, during) = (TableErrorKind::LimitExceeded, Operation::Connect);
            let error = TableError::new(kind, during, "faulty", "the cluster's name is too long");
            return Err(error);
        }
        Ok(Document {
            fault: self.fault,
            cluster: cluster.clone(),
            documents: self.documents.clone(),
            heartbeats: self.heartbeats.document(cluster),
        })
    }
}

#[async_trait]
impl Backend for Faulty {
    fn name(&self) -> String {
        format!("{:?}", self.fault)
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = DocumentTable::new(cluster.clone(), self.document(cluster)?);
        Ok(Arc::new(table))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Restart, Reason::InMemory),
            (Capability::Unavailable, Reason::InMemory),
            (Capability::Depose, Reason::InMemory),
            (Capability::Child, Reason::InMemory),
            (Capability::Reader, Reason::InMemory),
            (Capability::Secret, Reason::NoSecret),
            (Capability::Proxy, Reason::InMemory),
            (Capability::Hints, Reason::NoHints),
            (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
        ]
    }

    async fn recreate(&self) -> Result<(), Stop> {
        let mut clusters = Vec::new();
        for (cluster, (writes, document)) in self.documents.lock().unwrap().iter_mut() {
            *document = None;
            if self.fault == Fault::BeginsAnewWithTheStore {
                *writes = 0;
            }
            clusters.push(cluster.clone());
        }
        for cluster in clusters {
            let heartbeats = self.heartbeats.document(&cluster);
            heartbeats.remove_heartbeats(None).await?;
        }
        Ok(())
    }

    async fn documents(
        &self,
        cluster: &ClusterName,
    ) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        Ok(Some(Box::new(self.document(cluster)?)))
    }
}

/// One cluster's document. The heartbeats are those of a store without a fault.
struct Document {
    fault: Fault,
    cluster: ClusterName,
    documents: Documents,
    heartbeats: MemoryDocumentStore,
}

#[async_trait]
impl DocumentStore for Document {
    fn store(&self) -> &'static str {
        "faulty"
    }

    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        let mut read = self.heartbeats.load(None, heartbeats, barrier).await?;
        let mut documents = self.documents.lock().unwrap();
        let (_, document) = documents.entry(self.cluster.clone()).or_default();
        read.document = match document {
            None => Stored::None,
            Some((now, _)) if known == Some(&Revision::from(*now)) => Stored::Unchanged,
            Some((now, text)) => Stored::document(*now, text.as_str()),
        };
        Ok(read)
    }

    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let mut documents = self.documents.lock().unwrap();
        let (writes, document) = documents.entry(self.cluster.clone()).or_default();
        let now = document.as_ref().map(|(now, _)| Revision::from(*now));
        let ignored = match self.fault {
            Fault::StoresOverAnyRevision => expected.is_some() && now.is_some(),
            Fault::CreatesOverADocument => expected.is_none(),
            _ => false,
        };
        if now.as_ref() != expected && !ignored {
            return Ok(None);
        }
        *writes += 1;
        *document = Some((*writes, text.to_owned()));
        Ok(Some(Revision::from(*writes)))
    }

    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        let mut documents = self.documents.lock().unwrap();
        let (writes, document) = documents.entry(self.cluster.clone()).or_default();
        let Some((now, _)) = document else {
            return Ok(self.fault == Fault::RemovesWhatIsNotThere);
        };
        if Revision::from(*now) != *expected && self.fault != Fault::RemovesAnyRevision {
            return Ok(false);
        }
        *document = None;
        if self.fault == Fault::BeginsAnew {
            *writes = 0;
        }
        Ok(true)
    }

    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        self.heartbeats.put_heartbeat(silo, heartbeat).await
    }

    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        self.heartbeats.put_cluster_cell(text).await
    }

    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        self.heartbeats.remove_heartbeats(silos).await
    }

    fn document_bytes(&self) -> usize {
        self.heartbeats.document_bytes()
    }

    fn limits(&self) -> TableLimits {
        self.heartbeats.limits()
    }

    fn guarantees(&self) -> Guarantees {
        self.heartbeats.guarantees()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_store_without_a_fault_passes() {
    let report = quick(Suite::new(Faulty::new(Fault::None))).run().await;
    assert!(report.passed(), "{report}");
}

/// A name that the store refuses leaves nothing that the suite would have to remove.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_may_refuse_long_names() {
    let suite = quick(Suite::new(Faulty::new(Fault::RefusesLongNames)));
    let case = "clusters_with_the_longest_names_are_isolated";
    let report = suite.named(case).run().await;
    assert!(report.passed(), "{report}");
    assert!(report.to_string().contains("names are refused"), "{report}");
}

/// Each condition of a document store that can be ignored, a case that must catch it, and what that
/// case must name.
const CONDITIONS: &[(Fault, &str, &str)] = &[
    (
        Fault::BeginsAnew,
        "a_table_made_anew_is_reported",
        "landed as",
    ),
    (
        Fault::BeginsAnewWithTheStore,
        "a_store_made_anew_is_reported",
        "landed as",
    ),
    (
        Fault::StoresOverAnyRevision,
        "a_table_rolled_back_is_reported",
        "store_if_unchanged stored over a revision that is past",
    ),
    (
        Fault::CreatesOverADocument,
        "a_table_rolled_back_is_reported",
        "store_if_unchanged without a revision replaced a document",
    ),
    (
        Fault::RemovesAnyRevision,
        "a_table_rolled_back_is_reported",
        "remove_if_unchanged removed",
    ),
    (
        Fault::RemovesWhatIsNotThere,
        "a_wiped_table_is_reported",
        "remove_if_unchanged removed, or says so",
    ),
];

/// No case repeats less to find them: each is caught whatever the effort is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_ignored_condition_of_a_document_store_is_caught() {
    for (fault, case, named) in CONDITIONS {
        for effort in [Effort::quick(), Effort::default(), Effort::soak()] {
            let suite = Suite::new(Faulty::new(*fault))
                .named(*case)
                .on_result(|_| {});
            let report = suite.seed(4711).effort(|e| *e = effort).run().await;
            let text = report.to_string();
            assert!(
                report.failures().count() == 1 && text.contains(named),
                "{fault:?} was not caught by {case}: {text}"
            );
        }
    }
}
