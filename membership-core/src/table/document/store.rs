//! The operations that a store must provide for a document table.

use async_trait::async_trait;

use crate::table::{Guarantees, HintStream, TableError, TableLimits};
use crate::{Heartbeat, Heartbeats, SiloAddress};

/// Identifies one stored state of a document: opaque bytes that are never reused, also not after
/// the document is removed and created again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub Vec<u8>);

/// For stores whose revisions are numbers.
impl From<u64> for Revision {
    fn from(number: u64) -> Self {
        Self(number.to_be_bytes().to_vec())
    }
}

impl Revision {
    /// The number that the revision was made from; `None` when it was not made from a number.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.0.as_slice().try_into().ok()?))
    }
}

/// The result of loading a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There is no document.
    None,
    /// The document still has the revision that the caller knows.
    Unchanged,
    /// The document.
    Document {
        /// Its revision.
        revision: Revision,
        /// Its text.
        text: String,
    },
}

impl Stored {
    /// Creates a document with this revision and this text.
    #[must_use]
    pub fn document(revision: impl Into<Revision>, text: impl Into<String>) -> Self {
        Self::Document {
            revision: revision.into(),
            text: text.into(),
        }
    }
}

/// The answer to a load.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentRead {
    /// The document.
    pub document: Stored,
    /// All stored heartbeats and the cluster's own cell, including heartbeats without a row;
    /// present when they were requested.
    pub heartbeats: Option<Heartbeats>,
}

impl DocumentRead {
    /// Creates an answer from a document and, if they were requested, the heartbeats.
    #[must_use]
    pub const fn new(document: Stored, heartbeats: Option<Heartbeats>) -> Self {
        Self {
            document,
            heartbeats,
        }
    }
}

/// The place of one cluster in a store that can compare-and-swap one document.
///
/// Errors have the matching kind of [`TableError`]; the table sets their operation. Every future
/// may be dropped at any time. Heartbeats are stored beside the document: writing one must not
/// change its revision (clauses T4 and T7).
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// Name of the store, in one word.
    fn store(&self) -> &'static str;

    /// Creates what the store needs (a collection, a bucket). Must be idempotent. The default does
    /// nothing.
    ///
    /// # Errors
    /// The errors of the store.
    async fn prepare(&self) -> Result<(), TableError> {
        Ok(())
    }

    /// From now on requests take a new connection, to an address resolved anew
    /// ([`ReadRequest::new_connection`](crate::ReadRequest::new_connection)). Requests under way
    /// keep theirs, which is closed after them. The default does nothing, for a store without
    /// connections.
    ///
    /// # Errors
    /// The errors of the store.
    async fn reconnect(&self) -> Result<(), TableError> {
        Ok(())
    }

    /// Loads the document, with all heartbeats if requested. When its revision is `known`, the
    /// store may answer [`Stored::Unchanged`]. With `barrier` the load is linearizable.
    ///
    /// # Errors
    /// The errors of the store; a missing document is not an error. `OutcomeUnknown` is treated as
    /// `Unavailable`, because a load has no outcome. A store can therefore convert the errors of
    /// loads and writes by one function.
    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        barrier: bool,
    ) -> Result<DocumentRead, TableError>;

    /// Stores `text` if the document still has the revision `expected` (`None`: if there is no
    /// document), and returns the new revision. `None` means that the revision was another one and
    /// nothing was written.
    ///
    /// # Errors
    /// The errors of the store; `OutcomeUnknown` when the text may have been stored.
    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError>;

    /// Removes the document if it still has the revision `expected`; returns whether it did. False
    /// means that the revision was another one, or that there was no document, and nothing was
    /// removed.
    ///
    /// A client library that sends the removal twice returns false although the first one removed
    /// the document. That is no loss: the table loads again after false, and finds no document.
    ///
    /// # Errors
    /// The errors of the store; `OutcomeUnknown` when the document may have been removed.
    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError>;

    /// Overwrites one heartbeat. Does not create a document.
    ///
    /// # Errors
    /// `NoSuchRow` if the store can detect it without a second round trip; otherwise the errors of
    /// the store.
    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError>;

    /// Overwrites the cluster's own cell.
    ///
    /// # Errors
    /// The errors of the store.
    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError>;

    /// Removes these heartbeats, or with `None` all heartbeats and the cluster's own cell. Missing
    /// heartbeats are not an error.
    ///
    /// # Errors
    /// The errors of the store.
    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError>;

    /// Maximum size of a document in bytes.
    fn document_bytes(&self) -> usize;

    /// Limits of the table; `rows` and `bytes_per_commit` must not exceed what a document allows.
    fn limits(&self) -> TableLimits;

    /// Guarantees of loads and acknowledged writes.
    fn guarantees(&self) -> Guarantees;

    /// A stream of hints that the document may have changed, if the store can provide one.
    fn hints(&self) -> Option<HintStream> {
        None
    }
}
