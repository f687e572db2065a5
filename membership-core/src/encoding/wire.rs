//! Texts of the table inside binary messages. A row travels as its stored bytes, so that digests
//! agree and unknown fields are kept.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Row;

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (self.key(), self.body()).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let (key, body) = <(String, String)>::deserialize(d)?;
        if key.len() + body.len() > MAX_ROW_BYTES {
            let why = "a row longer than any table takes";
            return Err(serde::de::Error::custom(why));
        }
        Ok(Self::decode(key, body))
    }
}

/// Upper bound of the rows in one message; no cluster has more. A row takes far more room in memory
/// than its minimum of two bytes on the wire.
pub(crate) const MAX_ROWS: usize = 1 << 17;

/// Upper bound of the bytes of one row in a message; see
/// [`TableLimits::bytes_per_row`](crate::TableLimits).
const MAX_ROW_BYTES: usize = 1 << 20;

/// Upper bounds of the memory of the fields that this build does not know, in one row and in all
/// rows of a message. A value of two bytes on the wire takes 32 in memory.
const MAX_UNKNOWN_OF_A_ROW: usize = 1 << 20;
const MAX_UNKNOWN: usize = 16 << 20;

/// Deserializes the rows of a message; fails at the first one with which they take too much memory.
pub(crate) fn rows<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Row>, D::Error> {
    struct Counted;

    impl<'de> serde::de::Visitor<'de> for Counted {
        type Value = Vec<Row>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "at most {MAX_ROWS} rows with few unknown fields")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Row>, A::Error> {
            let (mut list, mut unknown) = (Vec::new(), 0);
            while let Some(row) = seq.next_element::<Row>()? {
                let more = row
                    .entry()
                    .map_or(0, crate::MembershipEntry::unknown_memory);
                unknown += more;
                if list.len() == MAX_ROWS || more > MAX_UNKNOWN_OF_A_ROW || unknown > MAX_UNKNOWN {
                    return Err(serde::de::Error::invalid_length(list.len() + 1, &self));
                }
                list.push(row);
            }
            Ok(list)
        }
    }

    d.deserialize_seq(Counted)
}

/// Deserializes a list of at most [`MAX_ROWS`] elements; fails at the first element beyond that.
pub(crate) fn bounded<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    bounded_by::<MAX_ROWS, T, D>(d)
}

/// Deserializes a list of at most `MOST` elements, for `#[serde(deserialize_with = "…")]`. No memory
/// is reserved for a length that the sender claims.
///
/// # Errors
/// Those of `d`, and one at the first element beyond `MOST`.
pub fn bounded_by<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<const MOST: usize, T>(std::marker::PhantomData<T>);

    impl<'de, const MOST: usize, T: Deserialize<'de>> serde::de::Visitor<'de> for Bounded<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {MOST} elements")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = seq.next_element()? {
                if list.len() == MOST {
                    return Err(serde::de::Error::invalid_length(MOST + 1, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    d.deserialize_seq(Bounded::<MOST, T>(std::marker::PhantomData))
}

/// Serializes a version row as its stored text without the cluster's keys.
pub(crate) mod version_row {
    use super::{Deserialize, Deserializer, Serializer};
    use crate::VersionRow;
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(row: &Arc<VersionRow>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&crate::encoding::encode_for_others(row))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Arc<VersionRow>, D::Error> {
        let text = String::deserialize(d)?;
        crate::encoding::decode_of_others(&text)
            .map(Arc::new)
            .map_err(serde::de::Error::custom)
    }
}
