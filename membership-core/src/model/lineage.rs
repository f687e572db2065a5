//! Where a set of rows comes from: which rows were written or removed since earlier sets that it was
//! made from. By this the differences of two versions follow from the changes between them, also where
//! the version row names only their number, and equal sets are known without a look at each row.
//!
//! It only remembers what this process itself has done to the set, so nobody can forge it. What it does
//! not know has to be compared.

use std::sync::{Arc, OnceLock};

use super::address::SiloAddress;
use super::content_hash::ContentHash;
use super::version::RECENT_COMMITS;

/// How many earlier sets are remembered.
const STEPS: usize = 2 * RECENT_COMMITS;
/// How many changes are remembered since the last set that was sealed.
const CHANGES: usize = 4096;

/// Which set this is, or from which one it was made.
#[derive(Clone, Default)]
pub(super) struct Lineage {
    sealed: Option<Arc<Sealed>>,
    /// What has changed since that one; none = nothing. Boxed, because sets are in many values.
    since: Option<Box<Changes>>,
}

/// The silos whose rows have changed.
#[derive(Clone, Default)]
struct Changes(Vec<SiloAddress>);

/// A set that changes no more.
struct Sealed {
    /// What names it: nothing else has this address in memory while anybody remembers it.
    id: Arc<()>,
    /// The earlier sets, oldest first, each with the silos whose rows changed next.
    steps: Vec<(Arc<()>, Arc<[SiloAddress]>)>,
    /// Made when it is first asked for.
    hash: OnceLock<ContentHash>,
}

impl Lineage {
    /// The row of a silo is written or removed.
    pub(super) fn touch(&mut self, silo: SiloAddress) {
        if self.sealed.is_none() {
            return;
        }
        let since = self.since.get_or_insert_default();
        since.0.push(silo);
        if since.0.len() > CHANGES {
            self.forget();
        }
    }

    /// Something else has changed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Names the set as it is now.
    pub(super) fn seal(&mut self) {
        if self.named().is_some() {
            return;
        }
        let mut steps = Vec::new();
        if let Some(before) = self.sealed.take() {
            let known = before.steps.len().saturating_sub(STEPS - 1);
            steps.extend(before.steps.iter().skip(known).cloned());
            let since = self.since.take().map_or_else(Vec::new, |since| since.0);
            steps.push((before.id.clone(), since.into()));
        }
        self.sealed = Some(Arc::new(Sealed {
            id: Arc::default(),
            steps,
            hash: OnceLock::new(),
        }));
    }

    fn named(&self) -> Option<&Arc<Sealed>> {
        self.sealed.as_ref().filter(|_| self.since.is_none())
    }

    /// Whether both are certainly the same set.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.named()
            .zip(other.named())
            .is_some_and(|(mine, theirs)| Arc::ptr_eq(mine, theirs))
    }

    /// The silos whose rows may differ from those of an earlier set, by address; none = unknown.
    pub(super) fn since(&self, earlier: &Self) -> Option<Vec<SiloAddress>> {
        let (sealed, earlier) = (self.sealed.as_ref()?, earlier.named()?);
        let since = self.since.as_ref();
        let mut changed = since.map_or_else(Vec::new, |since| since.0.clone());
        if !Arc::ptr_eq(&sealed.id, &earlier.id) {
            let is_it = |(id, _): &(Arc<()>, _)| Arc::ptr_eq(id, &earlier.id);
            let at = sealed.steps.iter().rposition(is_it)?;
            let steps = sealed.steps.iter().skip(at);
            changed.extend(steps.flat_map(|(_, silos)| silos.iter().copied()));
        }
        changed.sort_unstable();
        changed.dedup();
        Some(changed)
    }

    /// The hash of the set: made once while it does not change.
    pub(super) fn hash(&self, make: impl FnOnce() -> ContentHash) -> ContentHash {
        match self.named() {
            Some(sealed) => *sealed.hash.get_or_init(make),
            None => make(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silo(n: u16) -> SiloAddress {
        SiloAddress::new([10, 0, 0, 1].into(), n + 1, 1)
    }

    #[test]
    fn the_changes_since_earlier_sets_are_known() {
        let mut now = Lineage::default();
        assert!(now.since(&now).is_none());
        now.touch(silo(1));
        now.seal();
        let first = now.clone();
        assert_eq!(now.since(&first), Some(Vec::new()));
        now.touch(silo(3));
        now.touch(silo(2));
        assert!(!now.is_same(&first));
        assert_eq!(now.since(&first), Some(vec![silo(2), silo(3)]));
        now.seal();
        let second = now.clone();
        now.touch(silo(2));
        now.touch(silo(4));
        now.seal();
        assert_eq!(now.since(&second), Some(vec![silo(2), silo(4)]));
        assert_eq!(now.since(&first), Some(vec![silo(2), silo(3), silo(4)]));
        assert_eq!(first.since(&now), None);
        let mut other = first.clone();
        other.touch(silo(9));
        other.seal();
        assert_eq!(now.since(&other), None);
        now.forget();
        now.seal();
        assert_eq!(now.since(&first), None);
    }

    #[test]
    fn little_is_remembered() {
        let mut now = Lineage::default();
        now.seal();
        let first = now.clone();
        for n in 0..STEPS {
            now.touch(silo(u16::try_from(n).unwrap()));
            now.seal();
        }
        assert_eq!(now.since(&first).map(|all| all.len()), Some(STEPS));
        now.touch(silo(0));
        now.seal();
        assert_eq!(now.since(&first), None);
        let before = now.clone();
        for _ in 0..=CHANGES {
            now.touch(silo(0));
        }
        assert_eq!(now.since(&before), None);
    }
}
