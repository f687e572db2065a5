//! The part of the version row that belongs to this crate: the cluster's keys, and the hash of the
//! rows.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::cluster_key::{ClusterKey, ClusterKeys, MAX_CLUSTER_KEYS};
use super::content_hash::ContentHash;

/// The field with the cluster's keys.
const KEYS: &str = "keys";
/// The field with the hash of the rows at this version.
const ROWS: &str = "rows";

/// Text of at most 1 KiB in the version row that belongs to this crate. It has the cluster's
/// secret: a provider stores [`stored`](Self::stored) and gives it back unchanged; it appears in no
/// message, log or `Debug` text, and [`Serialize`] leaves the secret out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CoreCell(String);

impl CoreCell {
    /// The cell of a new table.
    #[must_use]
    pub fn new(keys: &ClusterKeys) -> Self {
        Self::default().with_cluster_keys(keys)
    }

    /// The text as the store has it, with the secret: for the store alone.
    #[must_use]
    pub fn stored(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length of the stored text, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The cluster's keys. None if an older build made the table, if somebody changed them by hand,
    /// or if the row was not read from the table.
    #[must_use]
    pub fn cluster_keys(&self) -> ClusterKeys {
        let fields = self.fields();
        let keys = fields.get(KEYS).and_then(Value::as_array);
        keys.into_iter()
            .flatten()
            .take(MAX_CLUSTER_KEYS)
            .filter_map(|key| ClusterKey::from_stored(key.as_str()?).ok())
            .collect()
    }

    /// The cell with these keys instead. Its other fields stay; a text that is no JSON object is
    /// replaced.
    #[must_use]
    pub fn with_cluster_keys(&self, keys: &ClusterKeys) -> Self {
        let mut fields = self.fields();
        let keys = keys.iter().map(|key| Value::String(key.to_stored()));
        fields.insert(KEYS.to_owned(), Value::Array(keys.collect()));
        Self(Value::Object(fields).to_string())
    }

    /// The hash of the rows at this version. None if the cell has that of another one, because
    /// whoever made this version did not know all rows.
    pub(crate) fn content_hash(&self, version: u64) -> Option<ContentHash> {
        let fields = self.fields();
        let (at, hash) = fields.get(ROWS)?.as_str()?.split_once(' ')?;
        (at.parse() == Ok(version)).then(|| hash.parse().ok())?
    }

    /// The cell with this hash of the rows at this version instead. Its other fields stay; a text
    /// that is no JSON object stays as it is.
    pub(crate) fn with_content_hash(&self, version: u64, rows: ContentHash) -> Self {
        let mut fields = self.fields();
        if fields.is_empty() && !self.is_empty() {
            return self.clone();
        }
        let text = format!("{version} {rows}");
        fields.insert(ROWS.to_owned(), Value::String(text));
        Self(Value::Object(fields).to_string())
    }

    /// The cell without its secret.
    #[must_use]
    pub fn without_secret(&self) -> Self {
        let mut fields = self.fields();
        match fields.remove(KEYS) {
            None => self.clone(),
            Some(_) if fields.is_empty() => Self::default(),
            Some(_) => Self(Value::Object(fields).to_string()),
        }
    }

    fn fields(&self) -> Map<String, Value> {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl<T: Into<String>> From<T> for CoreCell {
    fn from(stored: T) -> Self {
        Self(stored.into())
    }
}

impl fmt::Debug for CoreCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoreCell({} bytes)", self.0.len())
    }
}

/// Without the secret.
impl Serialize for CoreCell {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.without_secret().0)
    }
}

impl<'de> Deserialize<'de> for CoreCell {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stored_text_has_the_secret() {
        let keys = ClusterKeys::from(ClusterKey::new([0xab; 32]));
        let cell = CoreCell::new(&keys);
        assert!(cell.stored().contains(&"ab".repeat(32)));
        assert_eq!(cell.cluster_keys(), keys);
        let shown = serde_json::to_string(&cell).unwrap();
        for text in [&shown, &format!("{cell:?}")] {
            assert!(!text.contains("abab"), "{text}");
        }
        let sent: CoreCell = serde_json::from_str(&shown).unwrap();
        assert!(sent.is_empty() && sent.cluster_keys().is_empty());
    }

    #[test]
    fn the_hash_of_the_rows_is_no_secret_and_ends_with_its_version() {
        let keys = ClusterKeys::from(ClusterKey::new([1; 32]));
        let cell = CoreCell::new(&keys);
        let hash = ContentHash::of_rows(std::iter::empty());
        let with = cell.with_content_hash(7, hash);
        assert_eq!(with.content_hash(7), Some(hash));
        assert_eq!(with.content_hash(8), None, "another version's");
        assert_eq!(with.cluster_keys(), keys);
        assert_eq!(with.without_secret().content_hash(7), Some(hash));
        let again = with.with_content_hash(8, hash);
        assert_eq!(again.content_hash(7), None);
        for other in ["plain text", "{\"rows\":7}", "{\"rows\":\"7\"}"] {
            assert_eq!(CoreCell::from(other).content_hash(7), None);
        }
        let other = CoreCell::from("plain text");
        assert_eq!(other.with_content_hash(7, hash), other);
    }

    #[test]
    fn what_this_build_does_not_know_stays() {
        let newer = CoreCell::from("{\"moon\":[1]}");
        let keys = ClusterKeys::from(ClusterKey::new([1; 32]));
        let with = newer.with_cluster_keys(&keys);
        assert!(with.stored().contains("\"moon\":[1]") && with.cluster_keys() == keys);
        assert_eq!(with.without_secret(), newer);
        for other in [
            "",
            "plain text",
            "[1]",
            "{\"keys\":7}",
            "{\"keys\":[\"é\",null]}",
        ] {
            assert!(CoreCell::from(other).cluster_keys().is_empty());
        }
    }
}
