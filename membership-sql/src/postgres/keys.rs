//! Names in the database: tables, channels, and how they are quoted.

use crate::shared::layout::TABLES;

/// The names of the tables, ready for a statement.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) schema: String,
    prefix: String,
}

/// A name in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in quotes, for the few statements without parameters. A backslash is literal only if it
/// is doubled in an `E''` text.
pub(super) fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!(" E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// The channel of a cluster: within the server's 63 bytes for names, and without quotes.
pub(super) fn channel(fingerprint: u64) -> String {
    format!("membership_{fingerprint:016x}")
}

impl Names {
    pub(super) fn new(schema: &str, prefix: &str) -> Self {
        Self {
            schema: schema.to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    /// `"schema"."prefix_name"`
    pub(super) fn table(&self, name: &str) -> String {
        let name = format!("{}{name}", self.prefix);
        format!("{}.{}", quoted(&self.schema), quoted(&name))
    }

    /// Replaces `{meta}`, `{version}`, `{silo}`, `{heartbeat}` and `{cell}` by the names.
    pub(super) fn put_into(&self, template: &str) -> String {
        TABLES.iter().fold(template.to_owned(), |sql, name| {
            sql.replace(&format!("{{{name}}}"), &self.table(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted() {
        let table = Names::new("a\"b'c", "x_").table("silo");
        assert_eq!(table, "\"a\"\"b'c\".\"x_silo\"");
        assert_eq!(literal(r"a\b'"), r" E'a\\b'''");
    }

    #[test]
    fn channels_are_plain_names_of_less_than_64_bytes() {
        let name = channel(u64::MAX);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        assert!(name.len() < 64 && name.bytes().all(plain), "{name}");
    }
}
