//! What a store must be able to do to carry a document table.

use async_trait::async_trait;

use crate::table::{Guarantees, HintStream, TableError, TableLimits};
use crate::{Heartbeat, Heartbeats, SiloAddress};

/// Names one stored state of a document: opaque bytes that never come back, also not when the document is removed and made anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub Vec<u8>);

/// For stores whose revisions are numbers.
impl From<u64> for Revision {
    fn from(number: u64) -> Self {
        Self(number.to_be_bytes().to_vec())
    }
}

impl Revision {
    /// The number it was made from; none when it was made from something else.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.0.as_slice().try_into().ok()?))
    }
}

/// A document as it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There is none.
    None,
    /// It still has the revision the caller knows.
    Unchanged,
    /// This one.
    Document {
        /// Its revision.
        revision: Revision,
        /// Its text.
        text: String,
    },
}

impl Stored {
    /// A document with this revision and this text.
    #[must_use]
    pub fn document(revision: impl Into<Revision>, text: impl Into<String>) -> Self {
        Self::Document {
            revision: revision.into(),
            text: text.into(),
        }
    }
}

/// What a load gave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentRead {
    /// The document.
    pub document: Stored,
    /// Every stored heartbeat and the cluster's cell, orphans included; present when asked for.
    pub heartbeats: Option<Heartbeats>,
}

impl DocumentRead {
    /// A document, with heartbeats where they were asked for.
    #[must_use]
    pub const fn new(document: Stored, heartbeats: Option<Heartbeats>) -> Self {
        Self {
            document,
            heartbeats,
        }
    }
}

/// One cluster's place in a store that can compare-and-swap one document.
///
/// Errors carry the kind of [`TableError`] that fits; the operation in them is filled in by the table. Every future may be dropped at any
/// time. Heartbeats live beside the document: writing one must not change its revision (clauses T4 and T7).
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// What store this is, in one word.
    fn store(&self) -> &'static str;

    /// Creates what the store needs (a collection, a bucket); idempotent. Nothing, unless said otherwise.
    ///
    /// # Errors
    /// What the store says.
    async fn prepare(&self) -> Result<(), TableError> {
        Ok(())
    }

    /// The document, with all heartbeats if asked for. Where the revision is `known`, the store may say unchanged. With `barrier` the
    /// load is linearizable.
    ///
    /// # Errors
    /// What the store says; a document that is not there is no error. An `OutcomeUnknown` is taken for `Unavailable`: a load has no
    /// outcome, and so one function may turn the errors of loads and of stores into this one.
    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        barrier: bool,
    ) -> Result<DocumentRead, TableError>;

    /// Stores `text` where the document still has revision `expected` (none: where there is no document), and gives the new revision.
    /// None means that it had another one and nothing was written.
    ///
    /// # Errors
    /// What the store says; `OutcomeUnknown` where it may have been stored.
    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError>;

    /// Removes the document where it still has revision `expected`; false means that it had another one.
    ///
    /// # Errors
    /// What the store says; `OutcomeUnknown` where it may have been removed.
    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError>;

    /// Overwrites one heartbeat. Creates no document.
    ///
    /// # Errors
    /// `NoSuchRow` where the store can tell without a second round trip; otherwise what it says.
    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError>;

    /// Overwrites the cluster's own cell.
    ///
    /// # Errors
    /// What the store says.
    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError>;

    /// Removes these heartbeats, or all of them and the cluster's cell; what is not there is removed already.
    ///
    /// # Errors
    /// What the store says.
    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError>;

    /// The largest document in bytes.
    fn document_bytes(&self) -> usize;

    /// How much fits; `rows` and `bytes_per_commit` no larger than a document allows.
    fn limits(&self) -> TableLimits;

    /// What its loads and acknowledged stores are worth.
    fn guarantees(&self) -> Guarantees;

    /// A stream that says that the document may have changed, where the store has such a thing.
    fn hints(&self) -> Option<HintStream> {
        None
    }
}
