//! Views: what a silo knows of the cluster, as a sequence of immutable, totally ordered values.

mod changes;
mod delta;
mod members;
mod owner;

pub use changes::{Change, ChangeKind};
pub use delta::{Delta, DeltaError};
pub use members::{Members, Peer, Peers, SiloMembers};
pub use owner::Rendezvous;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use self::owner::Owners;
use crate::{MembershipEntry, MonoTime, SiloAddress, SiloStatus, Snapshot, TableId, VersionToken};

/// The members of a cluster as of one version of its table.
///
/// Immutable and cheap to clone; versions share their rows. A view is *confirmed* when this silo
/// read it from the table or wrote it, and *announced* when another silo told it. Within one table
/// id, equal versions are equal confirmed views on every silo (invariant P1), and one silo
/// publishes them in strictly increasing version order (P2). An announced view that the table
/// contradicts is withdrawn.
#[derive(Clone)]
pub struct ClusterView {
    snapshot: Snapshot,
    /// Shared by all clones of this view.
    confirmation: Arc<Confirmation>,
    /// Made when it is first asked for, and shared like the confirmation.
    owners: Arc<OnceLock<Owners>>,
}

/// What is known of a view by contact with the table.
#[derive(Debug, Default)]
struct Confirmation {
    confirmed: AtomicBool,
    /// When it was last found to be the newest version: nanoseconds of monotonic time and 1; 0 =
    /// never.
    newest_at: AtomicU64,
}

/// Orders writes of silos: (table id, version). A store that keeps the largest token it has seen
/// can refuse writes with a smaller one. Tokens of different table ids cannot be compared: the
/// table was created again between them.
///
/// ```
/// use membership_core::{FencingToken, TableId};
/// let older = FencingToken { table_id: TableId::new(1), version: 7 };
/// let newer = FencingToken { table_id: TableId::new(1), version: 8 };
/// assert!(older < newer);
/// assert_eq!(older.partial_cmp(&FencingToken { table_id: TableId::new(2), version: 8 }), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FencingToken {
    /// The id of the table's life.
    pub table_id: TableId,
    /// The version of the table.
    pub version: u64,
}

impl PartialOrd for FencingToken {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self.table_id == other.table_id).then(|| self.version.cmp(&other.version))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.table_id, self.version)
    }
}

impl ClusterView {
    /// Creates the view of a snapshot without any confirmation: an announced view.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            confirmation: Arc::default(),
            owners: Arc::default(),
        }
    }

    /// Creates the view of a snapshot that was read from the table. `newest_at` is when the read
    /// was sent, if it was linearizable.
    #[must_use]
    pub fn confirmed(snapshot: Snapshot, newest_at: Option<MonoTime>) -> Self {
        let view = Self::new(snapshot);
        view.confirm(newest_at);
        view
    }

    /// The same view as the table has it, with the confirmation of this one.
    pub(crate) fn as_read(&self, snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            confirmation: self.confirmation.clone(),
            owners: Arc::default(),
        }
    }

    /// Records that this version was found in the table, for this view and all its clones.
    pub(crate) fn confirm(&self, newest_at: Option<MonoTime>) {
        self.confirmation.confirmed.store(true, Ordering::Release);
        if let Some(at) = newest_at {
            let at = at.as_nanos().saturating_add(1);
            self.confirmation.newest_at.fetch_max(at, Ordering::AcqRel);
        }
    }

    /// Whether this version was read from the table or written to it by this silo, and not only
    /// announced by another silo. An announced view becomes confirmed, with all its clones, when
    /// the table shows it.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.confirmation.confirmed.load(Ordering::Acquire)
    }

    /// The table as of this version.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The id of the table's life.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.snapshot.table_id()
    }

    /// The version: 0 to 2^53.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.snapshot.version()
    }

    /// The token for a commit on this version.
    #[must_use]
    pub const fn token(&self) -> &VersionToken {
        &self.snapshot.token
    }

    /// Table id and version, to fence writes; `None` while the view is only announced, because no
    /// message of another silo may move a token.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.is_confirmed().then(|| FencingToken {
            table_id: self.table_id(),
            version: self.version(),
        })
    }

    /// A 128-bit digest of all rows: views with equal versions and digests have equal members.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.snapshot.rows.digest()
    }

    /// The lower half of the [digest](Self::digest), which is what messages carry in their headers. It
    /// makes a silo with other rows at the same version look at the table, and proves nothing: a
    /// delta is checked by the whole digest, and a view is confirmed by the table alone.
    #[must_use]
    pub const fn short_digest(&self) -> u64 {
        self.digest() as u64
    }

    /// When the table last had exactly this version as its newest one: the silo's own monotonic
    /// time when the linearizable read, or the commit, that showed it was sent. `None` if none has.
    /// Leases can be based on it. It advances while the version remains the newest, for this view
    /// and its clones, and never for a view that was replaced.
    #[must_use]
    pub fn confirmed_at(&self) -> Option<MonoTime> {
        let at = self.confirmation.newest_at.load(Ordering::Acquire);
        at.checked_sub(1).map(MonoTime::from_nanos)
    }

    /// All silos of the table, by address, including Dead ones.
    pub fn members(&self) -> impl Iterator<Item = &MembershipEntry> {
        self.snapshot.rows.entries()
    }

    /// Number of rows, including undecodable ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snapshot.rows.is_empty()
    }

    /// The entry of a silo, if its row exists and can be decoded.
    #[must_use]
    pub fn get(&self, silo: &SiloAddress) -> Option<&MembershipEntry> {
        self.snapshot.rows.get(silo)
    }

    /// The status of a silo. A silo without a row is Dead when a newer epoch of its endpoint has a
    /// row; otherwise `None`.
    #[must_use]
    pub fn status(&self, silo: &SiloAddress) -> Option<SiloStatus> {
        match self.get(silo) {
            Some(entry) => Some(entry.status),
            None => self
                .snapshot
                .rows
                .at_endpoint(silo.endpoint())
                .any(|e| e.address.epoch() > silo.epoch())
                .then_some(SiloStatus::Dead),
        }
    }

    /// The Active silos, by address.
    pub fn active(&self) -> impl Iterator<Item = &MembershipEntry> {
        self.members().filter(|e| e.status == SiloStatus::Active)
    }

    /// The Active silos with this role.
    pub fn role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a MembershipEntry> {
        self.active().filter(move |e| e.info.role == role)
    }

    /// The Active silos in this zone.
    pub fn zone<'a>(&'a self, zone: &'a str) -> impl Iterator<Item = &'a MembershipEntry> {
        self.active().filter(move |e| e.info.zone == zone)
    }

    /// The Active silos whose metadata has this value under this key.
    pub fn with<'a>(
        &'a self,
        key: &'a str,
        value: &'a str,
    ) -> impl Iterator<Item = &'a MembershipEntry> {
        self.active()
            .filter(move |e| e.info.metadata.get(key).is_some_and(|v| v == value))
    }

    /// The Active silos that serve clients.
    pub fn gateways(&self) -> impl Iterator<Item = &MembershipEntry> {
        self.members().filter(|e| e.is_gateway())
    }

    /// The Active silo that became Active at the lowest version, ties by address; clocks are not
    /// used.
    #[must_use]
    pub fn leader(&self) -> Option<&MembershipEntry> {
        self.active().min_by_key(|e| e.seniority())
    }
}

impl PartialEq for ClusterView {
    /// Same table, same version, same rows; confirmations are not compared.
    fn eq(&self, other: &Self) -> bool {
        self.table_id() == other.table_id()
            && self.version() == other.version()
            && self.snapshot.rows == other.snapshot.rows
    }
}
impl Eq for ClusterView {}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ClusterView(v{} of {}, {} rows, {} active)",
            self.version(),
            self.table_id(),
            self.len(),
            self.active().count()
        )
    }
}

#[cfg(test)]
mod tests;
