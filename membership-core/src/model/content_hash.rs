//! The collision-resistant hash of all rows of a version: by it, rows that anybody sends are known
//! to be those of the table.

use std::fmt;
use std::str::FromStr;

/// The BLAKE3 hash (256 bits) of a set of rows, as 64 hexadecimal digits in the version row. Unlike
/// [`Rows::digest`](crate::Rows::digest), nobody can find two sets with the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of one row.
    pub(crate) fn of_row(key: &str, body: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        let length = u64::try_from(key.len()).unwrap_or(u64::MAX);
        hasher.update(&length.to_be_bytes());
        hasher.update(key.as_bytes());
        hasher.update(body.as_bytes());
        Self(hasher.finalize().into())
    }

    /// The hash of the rows with these hashes, in any order.
    pub(crate) fn of_rows(rows: impl Iterator<Item = Self>) -> Self {
        let mut rows: Vec<[u8; 32]> = rows.map(|row| row.0).collect();
        rows.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for row in &rows {
            hasher.update(row);
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        blake3::Hash::from_bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

impl FromStr for ContentHash {
    type Err = blake3::HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text).map(|hash| Self(hash.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_names_keys_and_bodies_in_any_order() {
        let row = ContentHash::of_row;
        assert_ne!(row("ab", "c"), row("a", "bc"));
        let of = |rows: &[ContentHash]| ContentHash::of_rows(rows.iter().copied());
        let (one, two) = (row("a", "1"), row("b", "2"));
        assert_eq!(of(&[one, two]), of(&[two, one]));
        assert_ne!(of(&[one, two]), of(&[one]));
        let text = of(&[one]).to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse::<ContentHash>().unwrap(), of(&[one]));
        assert!("abc".parse::<ContentHash>().is_err());
    }
}
