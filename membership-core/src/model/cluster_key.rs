//! The cluster's secret: who has read the table has it, and proves so to the other silos.

use std::fmt;
use std::sync::Arc;

/// Maximum number of cluster keys in a table: the newest, and those that a rotation has not removed
/// yet.
pub const MAX_CLUSTER_KEYS: usize = 4;

/// A secret of 256 random bits that is kept in the version row. It leaves this type only into the
/// stored version row: it is in no message, log or `Debug` text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// Creates a key from random bytes.
    #[must_use]
    pub const fn new(random: [u8; 32]) -> Self {
        Self(random)
    }

    /// The stored text: 64 hexadecimal digits.
    pub(crate) fn to_stored(self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Reads the stored text; the error does not contain it.
    pub(crate) fn from_stored(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "a cluster key is not 64 hexadecimal digits";
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(WRONG);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(WRONG);
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }

    /// Another secret, which follows from this one and from these parts.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.proof(parts).into()
    }

    fn proof(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(secret)")
    }
}

/// The keys of a cluster, the newest last: one, or several while a rotation is under way. They can
/// prove and check; nothing gives the keys themselves.
///
/// ```
/// use membership_core::{ClusterKey, ClusterKeys};
///
/// let ours = ClusterKeys::from(ClusterKey::new([7; 32]));
/// let proofs = ours.prove(&[b"this connection", b"this silo"]);
/// assert!(ours.accept(&proofs, &[b"this connection", b"this silo"]));
/// assert!(!ours.accept(&proofs, &[b"another connection", b"this silo"]));
/// let other = ClusterKeys::from(ClusterKey::new([8; 32]));
/// assert!(!other.accept(&proofs, &[b"this connection", b"this silo"]));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClusterKeys(Arc<[ClusterKey]>);

/// A key was to be added while [`MAX_CLUSTER_KEYS`] are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the table has {MAX_CLUSTER_KEYS} cluster keys, and no more are allowed: end the rotation first (`membership settings rotate-key --finish`)"
)]
pub struct TooManyClusterKeys;

/// Proof that somebody has a cluster key: a keyed BLAKE3 hash of what it is said about.
pub type ClusterProof = [u8; 32];

impl ClusterKeys {
    /// How many there are; 0 for a table that an older build made.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One proof with each key, so that those who know the older or the newer keys only accept
    /// one.
    #[must_use]
    pub fn prove(&self, parts: &[&[u8]]) -> Vec<ClusterProof> {
        self.0.iter().map(|key| key.proof(parts).into()).collect()
    }

    /// Whether one of the proofs (at most [`MAX_CLUSTER_KEYS`] are looked at) was made with one of
    /// these keys for the same parts. Takes the same time for every wrong proof.
    #[must_use]
    pub fn accept(&self, proofs: &[ClusterProof], parts: &[&[u8]]) -> bool {
        let mut accepted = false;
        for key in self.0.iter() {
            let expected = key.proof(parts);
            for proof in proofs.iter().take(MAX_CLUSTER_KEYS) {
                // The comparison of hashes takes constant time.
                accepted |= expected == *proof;
            }
        }
        accepted
    }

    /// The keys after a rotation has begun: with a new one.
    ///
    /// # Errors
    /// [`TooManyClusterKeys`]: there are [`MAX_CLUSTER_KEYS`] already. The oldest may be the only one
    /// that a silo knows, so that it is removed on request alone.
    pub fn with(&self, key: ClusterKey) -> Result<Self, TooManyClusterKeys> {
        if self.0.len() >= MAX_CLUSTER_KEYS {
            return Err(TooManyClusterKeys);
        }
        let keys = self.0.iter().copied();
        Ok(Self(keys.chain([key]).collect()))
    }

    /// Whether a rotation has begun and not ended: there are older keys besides the newest.
    #[must_use]
    pub fn are_in_rotation(&self) -> bool {
        self.0.len() > 1
    }

    /// The keys after a rotation: the newest alone.
    #[must_use]
    pub fn newest(&self) -> Self {
        Self(self.0.last().copied().into_iter().collect())
    }

    /// Whether this key is among them.
    #[must_use]
    pub fn contains(&self, key: &ClusterKey) -> bool {
        self.0.contains(key)
    }

    /// Whether all keys of `other` are among these.
    #[must_use]
    pub fn include(&self, other: &Self) -> bool {
        other.0.iter().all(|key| self.contains(key))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClusterKey> {
        self.0.iter()
    }
}

impl From<ClusterKey> for ClusterKeys {
    fn from(key: ClusterKey) -> Self {
        Self([key].into())
    }
}

impl FromIterator<ClusterKey> for ClusterKeys {
    fn from_iter<I: IntoIterator<Item = ClusterKey>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys({} secret)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_keeps_the_older_key_until_it_ends() {
        let (old, new) = (ClusterKey::new([1; 32]), ClusterKey::new([2; 32]));
        let before = ClusterKeys::from(old);
        let during = before.with(new).unwrap();
        let after = during.newest();
        let said: &[&[u8]] = &[b"hello"];
        assert!(before.accept(&during.prove(said), said));
        assert!(during.accept(&before.prove(said), said));
        assert!(during.accept(&after.prove(said), said));
        assert!(!after.accept(&before.prove(said), said));
        assert!(during.are_in_rotation() && !before.are_in_rotation());
        assert!(!after.are_in_rotation());
    }

    #[test]
    fn no_key_is_dropped_for_another() {
        let mut many = ClusterKeys::default();
        for i in 0..MAX_CLUSTER_KEYS {
            let key = ClusterKey::new([i as u8; 32]);
            many = many.with(key).unwrap();
        }
        let error = many.with(ClusterKey::new([9; 32])).unwrap_err();
        assert!(error.to_string().contains("--finish"), "{error}");
        many.newest().with(ClusterKey::new([9; 32])).unwrap();
    }

    #[test]
    fn parts_are_not_joined() {
        let keys = ClusterKeys::from(ClusterKey::new([1; 32]));
        assert_ne!(keys.prove(&[b"ab", b"c"]), keys.prove(&[b"a", b"bc"]));
    }

    #[test]
    fn nothing_but_the_stored_text_shows_a_key() {
        let key = ClusterKey::new([0xab; 32]);
        let keys = ClusterKeys::from(key);
        let text = format!("{key:?} {keys:?}").to_lowercase();
        assert!(!text.contains("abab") && !text.contains("171"), "{text}");
        assert_eq!(ClusterKey::from_stored(&key.to_stored()), Ok(key));
        for wrong in ["", "zz", &"g".repeat(64), &"é".repeat(32)] {
            assert!(ClusterKey::from_stored(wrong).is_err());
        }
    }
}
