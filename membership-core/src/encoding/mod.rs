//! Rows as text: JSON that a person can read in any store's own shell, with a layout number, and with every field that this build does not
//! know kept as it was. Clauses T10 and T12.

mod row;
mod version_row;
pub(crate) mod wire;

pub use row::{decode_entry, encode_entry};
pub use version_row::{VersionRowError, decode_version_row, encode_version_row};

/// The layout this build writes.
pub const LAYOUT: u32 = 1;
/// The smallest layout that can read what this build writes.
pub const MIN_LAYOUT: u32 = 1;
