//! The name of a cluster: a service id and a cluster id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::text::quoted;

/// The name of a cluster: service id and cluster id, the same on every store.
///
/// Written as `[service/]cluster`. The service is `default` when it is left out. A `/` or `%`
/// within a name is written as `%2F` or `%25`. Each part has 1 to 150 characters and no control
/// characters.
///
/// ```
/// use membership_core::ClusterName;
/// let name: ClusterName = "billing/blue".parse()?;
/// assert_eq!((name.service(), name.cluster()), ("billing", "blue"));
/// assert_eq!("blue".parse::<ClusterName>()?.to_string(), "default/blue");
/// # Ok::<(), membership_core::ParseClusterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName {
    service: String,
    cluster: String,
}

crate::debug_as_display!(ParseClusterError);

/// The error for a text that is not a cluster name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a cluster name ({why}): write [service/]cluster, each of 1 to 150 characters, a `/` within a name as %2F"
)]
pub struct ParseClusterError {
    text: String,
    why: &'static str,
}

/// The service id of a name without one.
pub const DEFAULT_SERVICE: &str = "default";
const MAX_NAME_CHARS: usize = 150;

impl ClusterName {
    /// Creates a name from its two parts; nothing is decoded.
    ///
    /// # Errors
    /// [`ParseClusterError`] when a part is empty, longer than 150 characters, or contains a
    /// control character.
    pub fn new(
        service: impl Into<String>,
        cluster: impl Into<String>,
    ) -> Result<Self, ParseClusterError> {
        let name = Self {
            service: service.into(),
            cluster: cluster.into(),
        };
        for part in [&name.service, &name.cluster] {
            let why = if part.is_empty() {
                "a part is empty"
            } else if part.chars().count() > MAX_NAME_CHARS {
                "a part is longer than 150 characters"
            } else if part.chars().any(char::is_control) {
                "it holds a control character"
            } else {
                continue;
            };
            return Err(ParseClusterError {
                text: quoted(&name.to_string(), 80),
                why,
            });
        }
        Ok(name)
    }

    /// The service id.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The cluster id.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The name as one key for a store: letters, digits, `-`, `_` and `.` unchanged, every other
    /// byte as `~hh`, the parts joined by `~-`. Different names give different keys. No key
    /// contains a separator, quote or wildcard of any store (clause T9). At most 2 × 150 × 12 + 2
    /// ASCII characters. One key may be a prefix of another: a store that reads by prefix must
    /// append a separator.
    #[must_use]
    pub fn store_key(&self) -> String {
        let mut key = String::with_capacity(self.service.len() + self.cluster.len() + 2);
        escape(&self.service, &mut key);
        key.push_str("~-");
        escape(&self.cluster, &mut key);
        key
    }

    /// A fixed 64-bit hash of the name. Every message carries it, so that clusters that share
    /// addresses never mix.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(self.store_key().as_bytes())
    }
}

fn escape(part: &str, into: &mut String) {
    for b in part.bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.') {
            into.push(char::from(b));
        } else {
            into.push('~');
            for nibble in [b >> 4, b & 15] {
                into.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |part: &str| part.replace('%', "%25").replace('/', "%2F");
        write!(f, "{}/{}", write(&self.service), write(&self.cluster))
    }
}

impl FromStr for ClusterName {
    type Err = ParseClusterError;

    fn from_str(text: &str) -> Result<Self, ParseClusterError> {
        let err = |why| ParseClusterError {
            text: quoted(text, 80),
            why,
        };
        let decode = |part: &str| -> Result<String, ParseClusterError> {
            let mut out = Vec::with_capacity(part.len());
            let mut bytes = part.bytes();
            while let Some(b) = bytes.next() {
                if b == b'%' {
                    let mut digit = || {
                        bytes
                            .next()
                            .and_then(|d| char::from(d).to_digit(16))
                            .ok_or_else(|| err("a % is not followed by two hexadecimal digits"))
                    };
                    let (high, low) = (digit()?, digit()?);
                    out.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                } else {
                    out.push(b);
                }
            }
            String::from_utf8(out).map_err(|_| err("its %-codes are not UTF-8"))
        };
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(cluster), None, _) => Self::new(DEFAULT_SERVICE, decode(cluster)?),
            (Some(service), Some(cluster), None) => Self::new(decode(service)?, decode(cluster)?),
            _ => Err(err("it has more than one `/`")),
        }
    }
}

impl Serialize for ClusterName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClusterName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_keys_differ() {
        let parts = [
            "a", "a~-b", "a/b", "a%2Fb", "ü☃", "a b", "'", "A", ".", "a*", "~",
        ];
        let mut keys = std::collections::BTreeSet::new();
        for s in parts {
            for c in parts {
                let name = ClusterName::new(s, c).unwrap();
                assert_eq!(name.to_string().parse::<ClusterName>().unwrap(), name);
                assert!(keys.insert(name.store_key()), "{name} collides");
            }
        }
    }

    #[test]
    fn refuses_nonsense() {
        for bad in ["", "/a", "a/", "a/b/c", "a%", "a%zz", "a\n"] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad:?}");
        }
    }
}
