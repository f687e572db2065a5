//! The owner of a key by rendezvous hashing (Thaler and Ravishankar, 1998): the end of a silo moves
//! only the keys of that silo.

use xxhash_rust::xxh3::xxh3_64;

use super::ClusterView;

use crate::{MembershipEntry, Row, SiloStatus};

/// Weighs those who may own keys, each of them named by bytes, usually its address as text. The same
/// on every machine, and stable across builds: views with a table and without one use it.
///
/// ```
/// use membership_core::Rendezvous;
/// let silos = ["10.0.0.1:7100@1", "10.0.0.2:7100@1"];
/// let places = Rendezvous::of(silos);
/// let owner = places.owner("customer/42").map(|place| silos[place]);
/// let others = Rendezvous::of(silos.into_iter().filter(|silo| Some(*silo) == owner));
/// assert_eq!(others.owner("customer/42"), Some(0), "the owner stays while others go");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rendezvous {
    hashes: Vec<u64>,
}

impl Rendezvous {
    /// Hashes the names of all that may own something.
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let names = names.into_iter();
        let hashes = names.map(|name| xxh3_64(name.as_ref())).collect();
        Self { hashes }
    }

    /// The place of the owner of `key` among the names; none if there are none. Costs two
    /// multiplications for each name.
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<usize> {
        let weights = self.weights(key).enumerate();
        // Of equal weights the one with the later name.
        weights
            .max_by_key(|(place, weight)| (*weight, *place))
            .map(|(place, _)| place)
    }

    /// The weight of each name for `key`, in their order.
    pub fn weights(&self, key: impl AsRef<[u8]>) -> impl Iterator<Item = u64> {
        let key = xxh3_64(key.as_ref());
        self.hashes.iter().map(move |silo| weight(*silo, key))
    }
}

/// The Active silos of one view, with a hash of each.
pub(super) struct Owners {
    places: Rendezvous,
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
        let row = owners.rows.get(owners.places.owner(key)?)?;
        row.entry()
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
        let places = Rendezvous::of(rows.iter().map(Row::key));
        Self { places, rows }
    }

    /// All silos with their weight for a key and their place.
    fn weighed(
        &self,
        key: impl AsRef<[u8]>,
    ) -> impl Iterator<Item = (u64, usize, &MembershipEntry)> {
        let silos = self.places.weights(key).zip(&self.rows).enumerate();
        silos.filter_map(|(at, (weight, row))| Some((weight, at, row.entry()?)))
    }
}

/// Mixes two hashes: the last two steps of the finaliser of MurmurHash3, because both are mixed.
const fn weight(silo: u64, key: u64) -> u64 {
    let mixed = (silo ^ key).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}
