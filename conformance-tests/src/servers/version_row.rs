//! Splits the text of a version row, for stores that keep it as several values.

use serde_json::{Map, Value};

use crate::Stop;

/// The fields of a version row's text, for a store that keeps each in its own place. The text may
/// be damaged: every field is optional.
#[derive(Clone, Debug, Default)]
pub struct VersionRowFields {
    fields: Map<String, Value>,
    recent: Option<Vec<Value>>,
}

impl VersionRowFields {
    /// Splits a text.
    ///
    /// # Errors
    /// The text is no JSON object.
    pub fn parse(text: &str) -> Result<Self, Stop> {
        let Value::Object(mut fields) = serde_json::from_str(text)? else {
            return Err(Stop::failed("the staged version row is no JSON object"));
        };
        let recent = match fields.remove("recent") {
            Some(Value::Array(records)) => Some(records),
            Some(other) => {
                fields.insert("recent".to_owned(), other);
                None
            }
            None => None,
        };
        Ok(Self { fields, recent })
    }

    /// Removes and returns a field.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name)
    }

    /// Removes a field and returns its text: a string as it is, another value as JSON.
    pub fn take_text(&mut self, name: &str) -> Option<String> {
        self.take(name).map(|value| text(&value))
    }

    /// Whether the text lists recent commits.
    #[must_use]
    pub fn has_recent(&self) -> bool {
        self.recent.is_some()
    }

    /// The records of recent commits as JSON, each with its place: the version modulo 16.
    pub fn recent(&self) -> impl Iterator<Item = (u64, String)> {
        self.recent.iter().flatten().map(|record| {
            (
                record["version"].as_u64().unwrap_or(0) % 16,
                record.to_string(),
            )
        })
    }

    /// The id of the newest recent commit; 32 zeros if there is none.
    #[must_use]
    pub fn last_commit(&self) -> String {
        let newest = self.recent.iter().flatten().last();
        newest.map_or_else(|| "0".repeat(32), |record| text(&record["id"]))
    }

    /// The fields that are left, as text.
    pub fn rest(&self) -> impl Iterator<Item = (&str, String)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), text(value)))
    }

    /// The fields that are left.
    #[must_use]
    pub fn into_rest(self) -> Map<String, Value> {
        self.fields
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
