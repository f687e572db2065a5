//! Proof of contact, where one silo writes the activations of many. A silo that dials a newcomer back
//! tells it a word, and tells it nowhere else: whoever has the word could be reached, by that silo, at
//! the address that its row names. The newcomer shows its words to the silo that writes for it, and
//! that one asks their authors whether they are theirs.
//!
//! A word follows from a secret of its author and from the newcomer's address. So the author need not
//! remember whom it dialled, and no number of newcomers takes its memory; and the word of another
//! silo, or for another life at the same address, is worth nothing.

use std::fmt;

use super::Setup;
use crate::SiloAddress;

/// The secret from which the words of this silo follow. It is in no message, log or `Debug` text.
pub(crate) struct Words([u8; 32]);

impl Words {
    /// A secret that nobody can know: of the bytes that are random in each process (where it does not
    /// create the table, the cluster's key is another one), and of the seed.
    pub(crate) fn new(setup: &Setup) -> Self {
        let (seed, instance) = (setup.seed, setup.identity.instance.get());
        Self(setup.cluster_key.derive(&[
            b"words told to newcomers",
            &seed.to_be_bytes(),
            &instance.to_be_bytes(),
        ]))
    }

    /// The word for the silo at this address.
    pub(crate) fn for_silo(&self, silo: &SiloAddress) -> u64 {
        let hash = blake3::keyed_hash(&self.0, silo.row_key().as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The silos of which the word is one of this silo.
    pub(crate) fn told(&self, words: &[(SiloAddress, u64)]) -> Vec<SiloAddress> {
        let is_mine = |(silo, word): &&(SiloAddress, u64)| self.for_silo(silo) == *word;
        words
            .iter()
            .filter(is_mine)
            .map(|(silo, _)| *silo)
            .collect()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Words(secret)")
    }
}
