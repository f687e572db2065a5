//! The owner of a key by rendezvous hashing (Thaler and Ravishankar, 1998): the end of a silo moves
//! only the keys of that silo.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ClusterView;
use crate::MembershipEntry;

impl ClusterView {
    /// The Active silo that owns `key`: the one with the largest hash of (silo, key). The same on
    /// every silo with this view, and stable across builds. Costs one hash per Active silo; `None`
    /// when no silo is Active.
    ///
    /// Two silos with *different* views may both conclude that they own a key: fence their writes
    /// with [`ClusterView::fencing_token`].
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<&MembershipEntry> {
        let key = xxh3_64_with_seed(key.as_ref(), 0);
        self.active().max_by_key(|e| (weight(e, key), e.address))
    }
}

fn weight(entry: &MembershipEntry, key: u64) -> u64 {
    xxh3_64_with_seed(entry.address.row_key().as_bytes(), key)
}
