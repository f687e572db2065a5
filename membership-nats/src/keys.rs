//! The names of keys in the bucket, and revisions.
//!
//! A key of NATS holds letters, digits, `-`, `_`, `/`, `=` and dots between them, so the two other
//! characters of [`ClusterName::store_key`] and of silos are replaced.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use membership_core::{ClusterName, Revision, SiloAddress, TableError, TableErrorKind};

use crate::error::error;

/// The key of the cluster's own cell, beside those of silos: no silo has this name.
pub(crate) const CLUSTER_CELL: &str = "cluster";
/// The key that a read with a barrier writes.
const BARRIER: &str = "barrier";

/// The keys of one cluster, as subjects of the bucket's stream.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) stream: String,
    /// All documents of the cluster: at most one exists.
    pub(crate) documents: String,
    /// All cells.
    pub(crate) cells: String,
    pub(crate) barrier: String,
    /// Both without their wildcards.
    document: String,
    cell: String,
}

impl Keys {
    pub(crate) fn new(bucket: &str, cluster: &ClusterName) -> Self {
        // `~` and `.` occur in a store key, `=` and `/` do not: different keys stay different.
        let cluster = cluster.store_key().replace('~', "=").replace('.', "/");
        let document = format!("$KV.{bucket}.d.{cluster}.");
        let cell = format!("$KV.{bucket}.h.{cluster}.");
        Self {
            stream: stream(bucket),
            documents: format!("{document}*"),
            cells: format!("{cell}>"),
            barrier: format!("{cell}{BARRIER}"),
            document,
            cell,
        }
    }

    /// The subject of the document with this identity.
    pub(crate) fn document(&self, identity: Identity) -> String {
        format!("{}{:016x}", self.document, identity.0)
    }

    /// Another name for the subject of the document, or of all documents. A server compares the
    /// sequence of a name once at a time, so reads that compare it under other names hinder neither
    /// commits nor, mostly, each other. All names mean the same in the bucket's stream.
    pub(crate) fn another_name(&self, document: Option<&str>) -> Result<String, TableError> {
        let random = getrandom::u32().map_err(|e| {
            let message = "this machine has no random numbers";
            error(TableErrorKind::Unavailable, message).with_source(e)
        })?;
        let mut tokens: Vec<&str> = document.unwrap_or(&self.documents).split('.').collect();
        let last = tokens.len() - 1;
        // No other key has the same identity. Without one, the cluster's part is needed.
        let (free, names) = match document {
            Some(_) => (last, (1 << last) - 1),
            None => (2, 3),
        };
        let stars = 1 + random % names;
        for (n, token) in tokens.iter_mut().enumerate().take(free) {
            if stars & (1 << n) != 0 {
                *token = "*";
            }
        }
        if document.is_none() && random & (1 << 31) != 0 {
            tokens[last] = ">";
        }
        Ok(tokens.join("."))
    }

    /// The identity of the document with this subject.
    pub(crate) fn identity(&self, subject: &str) -> Result<Identity, TableError> {
        let digits = subject.strip_prefix(&self.document);
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map(Identity).ok_or_else(|| {
            let message = "a key of the cluster's document does not end with 16 hexadecimal digits";
            error(TableErrorKind::Damaged, message).with_key(subject)
        })
    }

    /// The subject of the cell with this name.
    pub(crate) fn cell(&self, name: &str) -> String {
        format!("{}{name}", self.cell)
    }

    /// The name of the cell with this subject. `None` for the barrier's.
    pub(crate) fn cell_name<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let name = subject.strip_prefix(&self.cell)?;
        (name != BARRIER).then_some(name)
    }
}

/// The stream of a bucket.
pub(crate) fn stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// The name of a silo's cell: address, port and epoch with dots between them, IPv6 with hyphens.
pub(crate) fn silo_cell(silo: &SiloAddress) -> String {
    let ip = silo.ip().to_string().replace(':', "-");
    format!("{ip}.{}.{}", silo.port(), silo.epoch())
}

/// The silo of a cell; `None` if the name is none of a silo.
pub(crate) fn silo_of_cell(name: &str) -> Option<SiloAddress> {
    let (rest, epoch) = name.rsplit_once('.')?;
    let (ip, port) = rest.rsplit_once('.')?;
    let ip: IpAddr = ip.replace('-', ":").parse().ok()?;
    format!(
        "{}@{epoch}",
        std::net::SocketAddr::new(ip, port.parse().ok()?)
    )
    .parse()
    .ok()
}

/// A number that each document has of its own, from its creation to its removal: sequences of a
/// stream begin anew when the bucket is made anew. It is in the document's key, so a condition on
/// that key's last sequence is a condition on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64);

impl Identity {
    /// A new one.
    pub(crate) fn random() -> Result<Self, TableError> {
        let number = getrandom::u64().map_err(|e| {
            let message = "this machine has no random numbers";
            error(TableErrorKind::Unavailable, message).with_source(e)
        })?;
        Ok(Self(number))
    }
}

/// One stored state of a document, and the connection over which it was seen.
///
/// Identity and sequence are not enough: an older copy of a server's data has the same identity, and
/// the same sequences come again with other commits. But data goes back only while the server is
/// away, and so while the connection is lost, unless it is one to another server. The content tells
/// readers then; a server does not compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) sequence: u64,
    pub(crate) over: Connection,
    pub(crate) content: Content,
}

/// Tells the texts of documents from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content(u64);

impl Content {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Names a connection between this client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection(u64);

impl Connection {
    /// Of the process of a server, and of its number for the client: both are new with each process.
    pub(crate) fn new(server: &str, client: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        (server, client).hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl From<State> for Revision {
    fn from(state: State) -> Self {
        let parts = [
            state.identity.0,
            state.sequence,
            state.over.0,
            state.content.0,
        ];
        Self(parts.map(u64::to_be_bytes).concat())
    }
}

impl State {
    /// The state that a revision was made from; `None` for a revision of another store.
    pub(crate) fn of(revision: &Revision) -> Option<Self> {
        let (parts, rest) = revision.0.as_chunks::<8>();
        let [identity, sequence, over, content] = <[[u8; 8]; 4]>::try_from(parts).ok()?;
        rest.is_empty().then(|| Self {
            identity: Identity(u64::from_be_bytes(identity)),
            sequence: u64::from_be_bytes(sequence),
            over: Connection(u64::from_be_bytes(over)),
            content: Content(u64::from_be_bytes(content)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_legal_and_different() {
        let mut seen = Vec::new();
        for name in ["a/b", "a.b/c", "a/b.c", "a~b/c", ".../...", "ü*>$/ x"] {
            let cluster: ClusterName = name.parse().unwrap();
            let keys = Keys::new("membership", &cluster);
            let key = keys.document(Identity(7));
            let key = key.strip_prefix("$KV.membership.").unwrap();
            let legal = |c: char| c.is_ascii_alphanumeric() || "-_/=.".contains(c);
            assert!(key.chars().all(legal) && !key.contains(".."), "{key}");
            assert_eq!(key.split('.').count(), 3, "{key}");
            assert!(!seen.contains(&key.to_owned()));
            assert_eq!(
                keys.identity(&keys.document(Identity(7))).unwrap(),
                Identity(7)
            );
            assert_eq!(keys.cell_name(&keys.barrier), None);
            seen.push(key.to_owned());
        }
    }

    #[test]
    fn other_names_of_the_document_are_none_of_those_that_commits_use() {
        let keys = Keys::new("membership", &"a/b".parse().unwrap());
        let document = keys.document(Identity(7));
        for _ in 0..100 {
            for of in [None, Some(document.as_str())] {
                let name = keys.another_name(of).unwrap();
                assert!(name != keys.documents && name != document, "{name}");
                match of {
                    None => assert!(name.contains(".d.a=-b."), "{name}"),
                    Some(_) => assert!(name.ends_with(".0000000000000007"), "{name}"),
                }
            }
        }
    }

    #[test]
    fn cells_name_their_silos() {
        for text in [
            "10.0.0.1:7100@17",
            "[2001:db8::1]:0@0",
            "[::ffff:1.2.3.4]:65535@9007199254740992",
        ] {
            let silo: SiloAddress = text.parse().unwrap();
            let name = silo_cell(&silo);
            assert_eq!(silo_of_cell(&name), Some(silo), "{name}");
        }
        for name in [CLUSTER_CELL, BARRIER, "a.b.c", "10.0.0.1.7100", ""] {
            assert_eq!(silo_of_cell(name), None, "{name}");
        }
    }

    /// Otherwise a commit of before lands in a bucket made anew, whose sequences begin again.
    #[test]
    fn no_identity_is_drawn_twice() {
        let drawn = (0..100).map(|_| Identity::random().unwrap().0);
        let different: std::collections::BTreeSet<u64> = drawn.collect();
        assert_eq!(different.len(), 100, "{different:?}");
    }

    #[test]
    fn a_revision_is_the_identity_the_sequence_the_connection_and_the_content() {
        let state = |over| State {
            identity: Identity(u64::MAX),
            sequence: 3,
            over,
            content: Content::of(b"a"),
        };
        let one = state(Connection::new("NA", 1));
        assert_eq!(State::of(&Revision::from(one)), Some(one));
        for (server, client) in [("NA", 2), ("NB", 1)] {
            let other = state(Connection::new(server, client));
            assert_ne!(State::of(&Revision::from(other)), Some(one));
        }
        let other = State {
            content: Content::of(b"b"),
            ..one
        };
        assert_ne!(State::of(&Revision::from(other)), Some(one));
        assert_eq!(State::of(&Revision::from(3)), None);
        let mut longer = Revision::from(one);
        longer.0.push(0);
        assert_eq!(State::of(&longer), None);
    }
}
