//! Random 128-bit ids. The caller that has a source of randomness creates them; this crate only
//! compares them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::quoted;

crate::debug_as_display!(ParseIdError);

/// The error for a text that is not 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an identifier of 32 hexadecimal digits")]
pub struct ParseIdError(String);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Creates an id from a number that nobody else will choose.
            #[must_use]
            pub const fn new(value: u128) -> Self {
                Self(value)
            }

            /// The id as a number.
            #[must_use]
            pub const fn get(self) -> u128 {
                self.0
            }
        }

        /// 32 lower-case hexadecimal digits.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    if let Ok(value) = u128::from_str_radix(text, 16) {
                        return Ok(Self(value));
                    }
                }
                Err(ParseIdError(quoted(text, 40)))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() { s.collect_str(self) } else { s.serialize_u128(self.0) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                if d.is_human_readable() {
                    std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
                } else {
                    u128::deserialize(d).map(Self)
                }
            }
        }
    };
}

id! {
    /// Identifies one life of a membership table: created with the version row, gone when the table
    /// is deleted. A table that is deleted and created again has another id (clause T16).
    TableId
}
id! {
    /// Identifies one commit. The committer chooses it, so that a commit whose answer was lost can
    /// be recognised (clause T5).
    CommitId
}
id! {
    /// Identifies one process: random, created when the process starts. It distinguishes a silo
    /// that dialled its own address from another silo that answers there.
    InstanceId
}
id! {
    /// Identifies one intent and matches its answer.
    IntentId
}
id! {
    /// Identifies one founding of a cluster that has no table: random, created by the founder, and
    /// named by every message of its members. States of two foundings are never merged.
    FoundingId
}
