//! What client and server say to each other: one line of JSON each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The largest document in bytes.
pub(crate) const DOCUMENT_BYTES: usize = 16 << 20;
/// The largest cell in bytes.
pub(crate) const CELL_BYTES: usize = 64 << 10;
/// The longest line either side takes: a document whose every byte was escaped, and what stands around it.
pub(crate) const LINE_BYTES: usize = 6 * DOCUMENT_BYTES + (1 << 20);

/// The cells of a document, by name.
pub type Cells = BTreeMap<String, String>;

/// A document as a `get` found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Document {
    /// There is none.
    None,
    /// It has the revision that the caller knows.
    Unchanged,
    /// This one.
    Is {
        /// Its revision: a number that this server gives once.
        revision: u64,
        /// Its text.
        text: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Hello {
        password: String,
    },
    Get {
        document: String,
        known: Option<u64>,
        cells: bool,
    },
    Put {
        document: String,
        expected: Option<u64>,
        text: String,
    },
    Remove {
        document: String,
        expected: u64,
    },
    Set {
        document: String,
        cell: String,
        text: String,
    },
    Unset {
        document: String,
        cells: Option<Vec<String>>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Got {
        document: Document,
        cells: Cells,
    },
    /// None: the document had another revision, and nothing was written.
    Put {
        revision: Option<u64>,
    },
    Removed {
        yes: bool,
    },
    Denied,
    TooLarge,
    Failed {
        why: String,
    },
}
