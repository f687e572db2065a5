//! Names of partitions, entities and properties.
//!
//! A cluster is one partition. In the order of row keys: `!cell` (the cluster's cell), `!version`
//! (the version row), `!~heartbeat:` with the names of silos, and the rows under these names. So a
//! read without rows is one range, which the service reads without looking at the rest.

use membership_core::ClusterName;

/// The row key of the version row.
pub(crate) const VERSION: &str = "!version";
/// The row key of the cluster's cell.
pub(crate) const CELL: &str = "!cell";
/// The prefix of heartbeats, before the row key of their row.
pub(crate) const HEARTBEAT: &str = "!~heartbeat:";
/// Cell, version row and heartbeats come before this, and all rows that this crate writes after it.
pub(crate) const AFTER_HEARTBEATS: &str = "!~heartbeat;";
/// All rows come before this: row keys of rows that begin with `~` continue with a hexadecimal
/// digit.
pub(crate) const AFTER_ROWS: &str = "~h";

/// The part of a filter that leaves out heartbeats, and foreign entities behind the rows.
pub(crate) const ROWS_ONLY: &str =
    " and (RowKey lt '!~heartbeat:' or RowKey ge '!~heartbeat;') and RowKey lt '~h'";

/// The property with the version at which a row was written, as text of one length, so that filters
/// can compare it.
pub(crate) const WRITTEN_AT: &str = "WrittenAt";
/// The property with the text of a heartbeat.
pub(crate) const HEARTBEAT_TEXT: &str = "Heartbeat";
/// The property with the text of the cluster's cell.
pub(crate) const TEXT: &str = "Text";
/// The property with the text of a row; further parts of a long text are `Body1` and so on.
pub(crate) const BODY: &str = "Body";

/// A partition key takes 1 KiB of UTF-16.
const MAX_PARTITION_KEY: usize = 512;

/// The partition of a cluster. A name that is too long for one ends in a hash of it.
pub(crate) fn partition(cluster: &ClusterName) -> String {
    let key = cluster.store_key();
    if key.len() <= MAX_PARTITION_KEY {
        return key;
    }
    // The key is empty: only the hash is needed. 256 bits do not collide.
    let hash = azure_core::hmac::hmac_sha256(&key, &azure_core::credentials::Secret::new("AA=="))
        .unwrap_or_default();
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_string(),
        false => format!("-{:x}", u32::from(c)),
    };
    let hash: String = hash.chars().map(plain).collect();
    // No other partition has `~~`: a `~` is followed by a hyphen or a hexadecimal digit.
    format!("{}~~{hash}", key.get(..300).unwrap_or_default())
}

/// A version as text, as in [`WRITTEN_AT`]: 2^53 has 16 digits.
pub(crate) fn written_at(version: u64) -> String {
    format!("{version:016}")
}

/// Whether an entity with this row key is a row.
pub(crate) fn is_row(row_key: &str) -> bool {
    let is_heartbeat = row_key.starts_with(HEARTBEAT);
    row_key != VERSION && row_key != CELL && !is_heartbeat && row_key < AFTER_ROWS
}

/// The row key of a row's heartbeat.
pub(crate) fn heartbeat(row_key: &str) -> String {
    format!("{HEARTBEAT}{row_key}")
}

/// The prefix of keys whose row keys this crate would not write.
const RAW: &str = "rowkey:";

/// The row key of the row with this key in the contract. Every key has one, and no two have the
/// same.
pub(crate) fn row_key(key: &str) -> String {
    match key.strip_prefix(RAW) {
        Some(raw) if own_name(raw).is_none() => raw.to_owned(),
        _ => plain(key),
    }
}

/// The key in the contract of the row with this row key: the reverse of [`row_key`].
pub(crate) fn row_name(stored: &str) -> String {
    own_name(stored).unwrap_or_else(|| format!("{RAW}{stored}"))
}

/// The key of a row key that this crate writes.
fn own_name(stored: &str) -> Option<String> {
    let name = unescape(stored).filter(|name| plain(name) == stored)?;
    let taken = name
        .strip_prefix(RAW)
        .is_some_and(|raw| own_name(raw).is_none());
    (!taken).then_some(name)
}

/// Escaped, also a first letter that would make it a raw key.
fn plain(key: &str) -> String {
    let escaped = escape(key);
    if key.starts_with(RAW) {
        escaped.replacen('r', "~72", 1)
    } else {
        escaped
    }
}

/// Letters, digits and the characters of addresses remain; every other byte becomes `~hh`. Row keys
/// must not contain `/`, `\`, `#`, `?` or control characters.
fn escape(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:@[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("~{byte:02x}"));
        }
    }
    out
}

fn unescape(stored: &str) -> Option<String> {
    let mut out = Vec::with_capacity(stored.len());
    let mut bytes = stored.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'~' {
            let mut digit = || {
                let digit = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(digit).ok()
            };
            out.push(digit()? << 4 | digit()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_valid_row_key_and_is_read_back() {
        let keys = [
            "10.0.0.1:7100@1763000000000",
            "[2001:db8::1]:65535@1",
            "no silo's key",
            "a/b\\c#d?e",
            "ü☃😀",
            "",
            "~",
            "~41",
            "!version",
            "!cell",
            "!~heartbeat:x",
            "rowkey:",
            "rowkey:a",
            "rowkey:~",
            "rowkey:a b",
            "rowkey:rowkey:a b",
            "a%2Fb",
            "\u{7f}\u{80}\t\n",
        ];
        assert!(ROWS_ONLY.contains(HEARTBEAT) && ROWS_ONLY.contains(AFTER_HEARTBEATS));
        let mut stored = std::collections::BTreeSet::new();
        for key in keys {
            let row = row_key(key);
            assert_eq!(row_name(&row), key, "{row}");
            assert!(stored.insert(row.clone()), "{key} collides");
            if !key.starts_with(RAW) {
                assert!(
                    row.bytes()
                        .all(|b| b.is_ascii_graphic() && !b"/\\#?%'!".contains(&b)),
                    "{row}"
                );
                let is_among_rows = (AFTER_HEARTBEATS..AFTER_ROWS).contains(&row.as_str());
                assert!(
                    row.is_empty() || is_among_rows,
                    "{row} is not among the rows"
                );
            }
        }
        assert_eq!(
            row_key("10.0.0.1:7100@17"),
            "10.0.0.1:7100@17",
            "silos keep their names"
        );
    }

    #[test]
    fn foreign_row_keys_have_keys() {
        for stored in [
            "a b",
            "it's",
            "~zz",
            "~4",
            "10-0-0-1",
            "rowkey:a",
            "rowkey:a b",
            "~72owkey:~zz",
            "~72owkey:~7ezz",
            "ü",
            "~FF",
            "~41",
        ] {
            let name = row_name(stored);
            assert_eq!(row_key(&name), stored, "{name}");
        }
    }

    #[test]
    fn partitions_differ_and_fit() {
        let long = "☃".repeat(150);
        let mut all = std::collections::BTreeSet::new();
        for (service, cluster) in [
            ("a", "b"),
            ("a", "b2"),
            ("it's", "/#?"),
            (long.as_str(), "a"),
            (long.as_str(), "b"),
            ("a", long.as_str()),
        ] {
            let key = partition(&ClusterName::new(service, cluster).unwrap());
            assert!(
                key.len() <= MAX_PARTITION_KEY
                    && key
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b)),
                "{key}"
            );
            assert!(all.insert(key));
        }
    }
}
