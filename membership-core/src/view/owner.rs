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
