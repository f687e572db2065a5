//! The names of a cluster's documents and of the fields of its rows.

use membership_core::ClusterName;

/// The ids of the documents of one cluster. No cluster's key has a slash in it.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The document with the version row and the rows.
    pub(crate) table: String,
    /// The document with the heartbeats and the cluster's cell.
    pub(crate) heartbeats: String,
    /// The document that exists while a benchmark runs.
    pub(crate) baseline: String,
}

impl Keys {
    pub(crate) fn new(cluster: &ClusterName) -> Self {
        let table = cluster.store_key();
        Self {
            heartbeats: format!("{table}/heartbeats"),
            baseline: format!("{table}/baseline"),
            table,
        }
    }
}

/// The characters that a field name must not contain, and the codes that replace them.
const CODES: [(char, &str); 3] = [('.', "2E"), ('$', "24"), ('\0', "00")];
/// The code of the percent sign itself.
const PERCENT: &str = "25";

/// Whether a percent sign before this text would be read as the start of a code.
fn is_code(text: &str) -> bool {
    let rest = text.trim_start_matches(PERCENT);
    CODES.iter().any(|(_, code)| rest.starts_with(code))
}

/// The name of a row's field. Keys and the field names that MongoDB accepts correspond one to one.
pub(crate) fn name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + 8);
    for (at, c) in key.char_indices() {
        match CODES.iter().find(|(special, _)| *special == c) {
            Some((_, code)) => name.extend(["%", code]),
            None if c == '%' && is_code(&key[at + 1..]) => name.extend(["%", PERCENT]),
            None => name.push(c),
        }
    }
    name
}

/// The key of the row in a field.
pub(crate) fn key(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = after;
        if c != '%' {
            key.push(c);
        } else if let Some((special, code)) = CODES.iter().find(|(_, code)| after.starts_with(code))
        {
            key.push(*special);
            rest = &after[code.len()..];
        } else {
            key.push('%');
            if after.starts_with(PERCENT) && is_code(&after[PERCENT.len()..]) {
                rest = &after[PERCENT.len()..];
            }
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_field_names_correspond_one_to_one() {
        assert_eq!(name("10.0.0.1:7100@17"), "10%2E0%2E0%2E1:7100@17");
        assert_eq!(name("[fe80::1]:7100@17"), "[fe80::1]:7100@17");
        // Every text of up to five of the characters that matter, as a key and as a name.
        let letters = ['%', '2', '5', '4', 'E', '0', '.', '$', '\0'];
        let mut texts = vec![String::new()];
        let mut start = 0;
        for _ in 0..5 {
            let end = texts.len();
            for at in start..end {
                for letter in letters {
                    texts.push(format!("{}{letter}", texts[at]));
                }
            }
            start = end;
        }
        for text in &texts {
            let made = name(text);
            assert!(!made.contains(['.', '$', '\0']), "{text:?} as {made:?}");
            assert_eq!(&key(&made), text, "by way of {made:?}");
            if !text.contains(['.', '$', '\0']) {
                assert_eq!(&name(&key(text)), text, "by way of {:?}", key(text));
            }
        }
    }
}
