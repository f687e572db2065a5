//! The owner of a key by rendezvous hashing (Thaler and Ravishankar, 1998): the end of a silo moves
//! only the keys of that silo.

use xxhash_rust::xxh3::xxh3_64;

use super::ClusterView;

use crate::{MembershipEntry, Row, SiloStatus};

/// The Active silos of one view, with a hash of each.
pub(super) struct Owners {
    hashes: Vec<u64>,
    /// In the same order.
    rows: Vec<Row>,
}

impl ClusterView {
    /// The Active silo that owns `key`: the one with the largest hash of (silo, key). The same on
    /// every silo with this view, and stable across builds. The first call on a view hashes every
    /// Active silo; each call then costs two multiplications for each of them. `None` when no silo
    /// is Active.
    ///
    /// Two silos with *different* views may both conclude that they own a key: fence their writes
    /// with [`ClusterView::fencing_token`].
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<&MembershipEntry> {
        let owners = self.owners.get_or_init(|| Owners::of(self));
        owners.of_key(xxh3_64(key.as_ref()))
    }

    /// The owner of `key` among the Active silos that `may_own` accepts, for example those of one role
    /// or zone. It changes only when such a silo comes or goes. `None` when none is accepted.
    ///
    /// ```
    /// # fn example(view: &membership_core::ClusterView) {
    /// let owner = view.owner_among("customer/42", |silo| silo.info.role == "worker");
    /// # }
    /// ```
    #[must_use]
    pub fn owner_among(
        &self,
        key: impl AsRef<[u8]>,
        may_own: impl Fn(&MembershipEntry) -> bool,
    ) -> Option<&MembershipEntry> {
        let key = xxh3_64(key.as_ref());
        let owners = self.owners.get_or_init(|| Owners::of(self));
        let accepted = owners.weighed(key).filter(|(_, _, silo)| may_own(silo));
        accepted
            .max_by_key(|(weight, index, _)| (*weight, *index))
            .map(|(_, _, silo)| silo)
    }

    /// The first `n` Active silos for `key`, the owner first: where to keep copies. When one of them
    /// ends, the others keep their order and the next one joins them. Fewer than `n` when fewer are
    /// Active. Costs a sort of all Active silos.
    #[must_use]
    pub fn owners(&self, key: impl AsRef<[u8]>, n: usize) -> Vec<&MembershipEntry> {
        let key = xxh3_64(key.as_ref());
        let owners = self.owners.get_or_init(|| Owners::of(self));
        let mut all: Vec<_> = owners.weighed(key).collect();
        all.sort_unstable_by_key(|(weight, index, _)| std::cmp::Reverse((*weight, *index)));
        all.into_iter().take(n).map(|(_, _, silo)| silo).collect()
    }
}

impl Owners {
    fn of(view: &ClusterView) -> Self {
        let is_active = |row: &&Row| row.entry().is_some_and(|e| e.status == SiloStatus::Active);
        let rows: Vec<Row> = view
            .snapshot
            .rows
            .iter()
            .filter(is_active)
            .cloned()
            .collect();
        let hashes = rows
            .iter()
            .map(|row| xxh3_64(row.key().as_bytes()))
            .collect();
        Self { hashes, rows }
    }

    /// All silos with their weight for a key and their place.
    fn weighed(&self, key: u64) -> impl Iterator<Item = (u64, usize, &MembershipEntry)> {
        let silos = self.hashes.iter().zip(&self.rows).enumerate();
        silos.filter_map(move |(at, (silo, row))| Some((weight(*silo, key), at, row.entry()?)))
    }

    fn of_key(&self, key: u64) -> Option<&MembershipEntry> {
        let mut best = (0, usize::MAX);
        for (index, silo) in self.hashes.iter().enumerate() {
            let weight = weight(*silo, key);
            // Of equal weights the silo with the largest address.
            if weight >= best.0 {
                best = (weight, index);
            }
        }
        self.rows.get(best.1)?.entry()
    }
}

/// Mixes two hashes: the last two steps of the finaliser of MurmurHash3, because both are mixed.
const fn weight(silo: u64, key: u64) -> u64 {
    let mixed = (silo ^ key).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}
