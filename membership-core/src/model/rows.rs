//! Rows and the set of rows: immutable, shared between versions, with a digest that is updated by
//! each change.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use rpds::RedBlackTreeMapSync;
use xxhash_rust::xxh3::xxh3_128;

use super::address::{MAX_SAFE_INTEGER, SiloAddress};
use super::content_hash::ContentHash;
use super::entry::MembershipEntry;
use super::lineage::Lineage;
use crate::encoding;

/// One silo row as it is stored: its key, its bytes, and its decoded content. Cheap to clone.
#[derive(Clone)]
pub struct Row(Arc<Inner>);

struct Inner {
    key: String,
    body: String,
    hash: u128,
    /// Made when it is first asked for.
    content_hash: OnceLock<ContentHash>,
    /// Boxed, so that a row of a few bytes that says nothing takes little memory.
    content: Result<Box<MembershipEntry>, String>,
}

impl Row {
    /// Encodes an entry as a row.
    #[must_use]
    pub fn encode(entry: MembershipEntry) -> Self {
        let key = entry.address.row_key();
        let body = encoding::encode_entry(&entry);
        Self::assemble(key, body, Ok(Box::new(entry)))
    }

    /// Decodes the row that a store has under `key`. Never fails: text that cannot be decoded gives
    /// an undecodable row (clause T12).
    #[must_use]
    pub fn decode(key: impl Into<String>, body: impl Into<String>) -> Self {
        let (key, body) = (key.into(), body.into());
        let content = encoding::decode_entry(&key, &body);
        Self::assemble(key, body, content.map(Box::new))
    }

    fn assemble(key: String, body: String, content: Result<Box<MembershipEntry>, String>) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + 1 + body.len());
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(body.as_bytes());
        let hash = xxh3_128(&bytes);
        Self(Arc::new(Inner {
            key,
            body,
            hash,
            content_hash: OnceLock::new(),
            content,
        }))
    }

    /// The key: `ip:port@epoch`, or for an undecodable row the key in the store.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The stored text.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.0.body
    }

    /// The fixed hash of key and stored text; see [`Rows::digest`].
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.0.hash
    }

    fn content_hash(&self) -> ContentHash {
        let row = &self.0;
        *row.content_hash
            .get_or_init(|| ContentHash::of_row(&row.key, &row.body))
    }

    /// The decoded entry; `None` when the row cannot be decoded.
    #[must_use]
    pub fn entry(&self) -> Option<&MembershipEntry> {
        self.0.content.as_deref().ok()
    }

    /// The reason why the row cannot be decoded; `None` when it can.
    #[must_use]
    pub fn undecodable(&self) -> Option<&str> {
        self.0.content.as_ref().err().map(String::as_str)
    }

    /// Size of key and text together, in bytes; limits count this size.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.key.len() + self.0.body.len()
    }

    /// Whether both are the same object in memory, and therefore equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
            || (self.0.hash == other.0.hash
                && self.0.key == other.0.key
                && self.0.body == other.0.body)
    }
}
impl Eq for Row {}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.content {
            Ok(entry) => entry.fmt(f),
            Err(why) => write!(f, "undecodable row {:?}: {why}", self.0.key),
        }
    }
}

/// All silo rows of one version. Cloning takes constant time and a change logarithmic time, because
/// versions share their common rows.
#[derive(Clone, Default)]
pub struct Rows {
    silos: RedBlackTreeMapSync<SiloAddress, Row>,
    undecodable: RedBlackTreeMapSync<String, Row>,
    digest: u128,
    lineage: Lineage,
}

impl Rows {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows, including undecodable ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.silos.size() + self.undecodable.size()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sum modulo 2^128 of the hashes of the rows. Equal sets have equal digests, and one
    /// change costs one addition.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.digest
    }

    /// The collision-resistant hash of the rows. Equal sets have equal hashes; each row is hashed
    /// once in its life, and the first call for the rows of a version costs the hash of 32 bytes a
    /// row.
    #[must_use]
    pub fn content_hash(&self) -> ContentHash {
        let make = || ContentHash::of_rows(self.iter().map(Row::content_hash));
        self.lineage.hash(make)
    }

    /// These are all rows of a version: the next ones know what has changed since.
    pub(crate) fn seal(&mut self) {
        self.lineage.seal();
    }

    /// The silos whose rows may differ from those of an earlier version from which this one was made
    /// here, by address; `None` = unknown.
    pub(crate) fn changed_since(&self, earlier: &Self) -> Option<Vec<SiloAddress>> {
        self.lineage.since(&earlier.lineage)
    }

    /// Inserts a row; it replaces the row with the same key.
    pub fn insert(&mut self, row: Row) {
        match row.entry().map(|e| e.address) {
            Some(silo) => {
                // The key of a decodable row always belongs to its silo, so the texts need not be
                // compared.
                if let Some(old) = self.silos.get(&silo) {
                    self.digest = self.digest.wrapping_sub(old.hash());
                } else if !self.undecodable.is_empty() {
                    self.remove(row.key());
                }
                self.lineage.touch(silo);
                self.digest = self.digest.wrapping_add(row.hash());
                self.silos.insert_mut(silo, row);
            }
            None => {
                self.remove(row.key());
                self.lineage.forget();
                self.digest = self.digest.wrapping_add(row.hash());
                self.undecodable.insert_mut(row.key().to_owned(), row);
            }
        }
    }

    /// Removes the row with this key; returns whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        let Some(hash) = self.by_key(key).map(Row::hash) else {
            return false;
        };
        self.digest = self.digest.wrapping_sub(hash);
        if self.undecodable.remove_mut(key) {
            self.lineage.forget();
        } else if let Ok(silo) = key.parse() {
            self.lineage.touch(silo);
            self.silos.remove_mut(&silo);
        }
        true
    }

    /// The row with this key, decodable or not.
    #[must_use]
    pub fn by_key(&self, key: &str) -> Option<&Row> {
        // A different spelling of a silo's key (`1.2.3.4:5@06`) is the key of another row.
        self.undecodable.get(key).or_else(|| {
            self.silos
                .get(&key.parse().ok()?)
                .filter(|row| row.key() == key)
        })
    }

    /// The row of a silo, if it exists and can be decoded.
    #[must_use]
    pub fn row(&self, silo: &SiloAddress) -> Option<&Row> {
        self.silos.get(silo)
    }

    /// The entry of a silo, if its row exists and can be decoded.
    #[must_use]
    pub fn get(&self, silo: &SiloAddress) -> Option<&MembershipEntry> {
        self.silos.get(silo).and_then(Row::entry)
    }

    /// All entries, by address.
    pub fn entries(&self) -> impl Iterator<Item = &MembershipEntry> {
        self.silos.values().filter_map(Row::entry)
    }

    /// All rows, undecodable ones last.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.silos.values().chain(self.undecodable.values())
    }

    /// Every decodable row by address, paired with the row of `other` with the same key. One pass
    /// over both.
    pub(crate) fn beside<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a Row, Option<&'a Row>)> {
        let mut theirs = other.silos.iter().peekable();
        self.silos.iter().map(move |(silo, row)| {
            while theirs.next_if(|(s, _)| *s < silo).is_some() {}
            let twin = theirs.next_if(|(s, _)| *s == silo).map(|(_, twin)| twin);
            (row, twin.or_else(|| other.undecodable_twin(row)))
        })
    }

    /// The row here with the key of this row of `silo`, decodable or not.
    pub(crate) fn twin(&self, silo: &SiloAddress, row: &Row) -> Option<&Row> {
        self.row(silo).or_else(|| self.undecodable_twin(row))
    }

    fn undecodable_twin(&self, row: &Row) -> Option<&Row> {
        if self.undecodable.is_empty() {
            return None;
        }
        self.undecodable.get(row.key())
    }

    /// The rows that cannot be decoded.
    pub fn undecodable(&self) -> impl Iterator<Item = &Row> {
        self.undecodable.values()
    }

    /// All incarnations at one endpoint, oldest first.
    pub fn at_endpoint(
        &self,
        endpoint: SocketAddr,
    ) -> impl DoubleEndedIterator<Item = &MembershipEntry> {
        self.silos
            .range(incarnations(endpoint.ip(), endpoint.port()))
            .filter_map(|(_, row)| row.entry())
    }
}

fn incarnations(ip: IpAddr, port: u16) -> RangeInclusive<SiloAddress> {
    SiloAddress::new(ip, port, 0)..=SiloAddress::new(ip, port, MAX_SAFE_INTEGER)
}

impl FromIterator<Row> for Rows {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        let mut all = Self::new();
        for row in rows {
            all.insert(row);
        }
        all
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        if self.lineage.is_same(&other.lineage) {
            return true;
        }
        self.digest == other.digest
            && self.len() == other.len()
            && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}
impl Eq for Rows {}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InstanceId, WallTime};

    fn row(port: u16, epoch: u64, version: u64) -> Row {
        let mut e = MembershipEntry::new(
            SiloAddress::new([10, 0, 0, 1].into(), port, epoch),
            InstanceId::new(1),
            WallTime::from_millis(5),
        );
        e.written_at = version;
        Row::encode(e)
    }

    #[test]
    fn digest_depends_on_content_and_not_on_order() {
        let (a, b, c) = (row(1, 1, 1), row(2, 1, 1), Row::decode("junk", "{"));
        let x: Rows = [a.clone(), b.clone(), c.clone()].into_iter().collect();
        let mut y: Rows = [c, row(1, 1, 9), b].into_iter().collect();
        assert_ne!(x.digest(), y.digest());
        y.insert(a);
        assert_eq!(x, y);
        assert!(
            y.remove("junk")
                && y.remove("10.0.0.1:1@1")
                && y.remove("10.0.0.1:2@1")
                && !y.remove("junk")
        );
        assert_eq!((y.digest(), y.len()), (0, 0));
    }

    #[test]
    fn a_row_may_turn_undecodable_and_back() {
        let mut rows: Rows = [row(1, 1, 1)].into_iter().collect();
        rows.insert(Row::decode("10.0.0.1:1@1", "nonsense"));
        assert_eq!(
            (
                rows.len(),
                rows.entries().count(),
                rows.undecodable().count()
            ),
            (1, 0, 1)
        );
        rows.insert(row(1, 1, 2));
        assert_eq!((rows.len(), rows.entries().count()), (1, 1));
    }

    #[test]
    fn another_spelling_of_a_key_is_another_row() {
        let mut rows: Rows = [
            row(1, 1, 1),
            Row::decode("10.0.0.1:1@01", row(1, 1, 1).body()),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            (
                rows.len(),
                rows.entries().count(),
                rows.undecodable().count()
            ),
            (2, 1, 1)
        );
        assert!(rows.remove("10.0.0.1:1@01") && !rows.remove("10.0.0.1:1@001"));
        assert_eq!((rows.len(), rows.entries().count()), (1, 1));
    }

    #[test]
    fn incarnations_of_an_endpoint_are_adjacent() {
        let rows: Rows = [row(1, 3, 1), row(2, 1, 1), row(1, 7, 1)]
            .into_iter()
            .collect();
        let at: Vec<u64> = rows
            .at_endpoint("10.0.0.1:1".parse().unwrap())
            .map(|e| e.address.epoch())
            .collect();
        assert_eq!(at, [3, 7]);
    }
}
