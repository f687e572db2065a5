//! Makes inputs from others.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes at which readers branch.
const EDGES: &[u8] = &[0, 1, 2, 0x20, 0x7f, 0x80, 0x81, 0xfe, 0xff];

/// Makes inputs from others, the same ones for the same seed.
#[derive(Debug)]
pub struct Mutator(Xoshiro256PlusPlus);

impl Mutator {
    /// A source of inputs.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `limit`; 0 if the limit is.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.next_u64() % limit.max(1) as u64).unwrap_or(0)
    }

    /// Changes `bytes` in one to eight places, with pieces of `other` and of `words`, and cuts what
    /// is longer than `longest`.
    pub fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8], words: &[&str], longest: usize) {
        for _ in 0..1_usize << self.below(4) {
            self.change_once(bytes, other, words);
        }
        bytes.truncate(longest);
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, other: &[u8], words: &[&str]) {
        let at = self.below(bytes.len() + 1);
        let end = (at + 1 + self.below(16)).min(bytes.len());
        match self.below(10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.insert(at, EDGES[self.below(EDGES.len())]),
            3 | 4 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            5 if at < bytes.len() => bytes[at] = EDGES[self.below(EDGES.len())],
            6 => {
                let piece = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            7 if !other.is_empty() => {
                let from = self.below(other.len());
                let to = (from + 1 + self.below(200)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            8 if !words.is_empty() => {
                let word = words[self.below(words.len())].bytes();
                // In the place of something, or between.
                let end = if self.below(2) == 0 { at } else { end };
                bytes.splice(at..end, word);
            }
            _ => {
                // A number, one up or down: lengths and versions.
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = byte.wrapping_add(if self.below(2) == 0 { 1 } else { 0xff });
                }
            }
        }
    }
}
