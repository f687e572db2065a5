//! The part of the version row that belongs to this crate: the cluster's keys.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::cluster_key::{ClusterKey, ClusterKeys, MAX_CLUSTER_KEYS};

/// The field with the cluster's keys.
const KEYS: &str = "keys";

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
