//! Rows as text: JSON that a person can read in the shell of any store. It has a layout number and
//! keeps every field that this build does not know. Clauses T10 and T12.

mod row;
mod version_row;
pub(crate) mod wire;

use crate::model::text::{LONGEST, quoted};

pub use row::{decode_entry, encode_entry};
pub use version_row::{VersionRowError, decode_version_row, encode_version_row};
pub(crate) use version_row::{decode_of_others, encode_for_others};
pub use wire::bounded_by;

/// The error of the JSON library, which may quote any text.
fn foreign(error: &serde_json::Error) -> String {
    quoted(&error.to_string(), LONGEST)
}

/// The layout that this build writes.
pub const LAYOUT: u32 = 1;
/// The smallest layout that can read the rows of this build.
pub const MIN_LAYOUT: u32 = 1;
