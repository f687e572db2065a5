//! An arbiter over any table: one row in a cluster of its own, replaced by compare-and-swap.
//!
//! The row says who was downed by all sides that got the lease, and which side got it last. A side
//! gets it if it *follows* them: everybody who was downed is down or gone in its state, or it is of
//! the last side itself and downs them now. So the other end of an earlier split never gets it,
//! however late it asks. No clock and no time-out is needed: the lease is never given back, and a
//! leader that crashes with it keeps nobody of its side from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    ClusterKey, CommitId, CommitRequest, InitializeRequest, InstanceId, MAX_SAFE_INTEGER,
    MembershipEntry, MembershipTable, ReadAnswer, ReadRequest, SharedSettings, SiloAddress,
    SiloStatus, Snapshot, TableId, WallTime,
};
use membership_gossip::downing::{Claim, Grants, Lease};

use super::arbiter::{Arbiter, ArbiterError};
use crate::admin::{Admin, ChangeError, Runtime, TokioRuntime};
use crate::words::LEASE;

/// The arbiter of `lease-majority` in a table. Open the table for a cluster of its own, for example
/// `billing/blue-lease`, which no silo joins; all members of one cluster need the same.
///
/// Every store can be it. What it guarantees is what the store guarantees of commits: one that loses
/// acknowledged commits in a failover may give the lease to both sides of a split.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use membership::MemoryTable;
/// use membership::gossip::{Config, Downing, Member, TableArbiter, downing::Strategy};
/// use membership::transport::Security;
///
/// let mut config = Config::default();
/// config.downing = Downing::new(Strategy::lease_majority());
/// let arbiter = TableArbiter::new(MemoryTable::new("blue-lease".parse()?));
/// let member = Member::builder("blue".parse()?)
///     .listen("127.0.0.1:0".parse()?)
///     .security(Security::none())
///     .config(config)
///     .arbiter(arbiter)
///     .start()
///     .await?;
/// # member.leave().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TableArbiter {
    table: Arc<dyn MembershipTable>,
}

impl TableArbiter {
    /// An arbiter in this table. Takes a table, or an `Arc` of one.
    pub fn new(table: impl MembershipTable) -> Self {
        Self {
            table: Arc::new(table),
        }
    }

    /// Makes the table, if it is not there.
    async fn begin(&self) -> Result<(), ArbiterError> {
        let mut runtime = TokioRuntime;
        let (table_id, key) = (runtime.commit_id().get(), runtime.commit_id().get());
        let mut cluster_key = [0; 32];
        cluster_key[..16].copy_from_slice(&key.to_ne_bytes());
        cluster_key[16..].copy_from_slice(&runtime.commit_id().get().to_ne_bytes());
        let first = InitializeRequest::new(
            TableId::new(table_id),
            SharedSettings::default(),
            ClusterKey::new(cluster_key),
        );
        let made = self.table.initialize(&first).await;
        made.map_err(|error| ArbiterError(error.into()))
    }
}

impl fmt::Debug for TableArbiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableArbiter")
            .field("cluster", self.table.cluster())
            .finish_non_exhaustive()
    }
}

/// The side does not follow those that had the lease before.
#[derive(Debug, thiserror::Error)]
#[error("another side has the lease")]
struct Refused(Lease);

#[async_trait]
impl Arbiter for TableArbiter {
    /// The table's id.
    async fn id(&self) -> Result<Option<String>, ArbiterError> {
        self.begin().await?;
        let request = ReadRequest::all().with_heartbeats(false);
        let read = self.table.read(&request).await;
        match read.map_err(|error| ArbiterError(error.into()))? {
            ReadAnswer::Snapshot { snapshot, .. } => Ok(Some(snapshot.table_id().to_string())),
            _ => Err(ArbiterError("its table was not read".into())),
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Lease, ArbiterError> {
        self.begin().await?;
        let mut runtime = TokioRuntime;
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| ArbiterError(error);
        // Names this claim, so that it is found after a commit whose outcome is unknown.
        let name = format!("{:032x}", runtime.commit_id().get());
        let now = runtime.now().unwrap_or_default();
        let mut admin = Admin::new(&*self.table, &mut runtime);
        let mut also_down = BTreeSet::new();
        let plan = |table: &Snapshot, id| {
            let place = place(claim);
            let row = table.rows.get(&place);
            let mut next = row.map(Row::of).transpose()?.unwrap_or_default();
            if next.name == name {
                return Ok(None);
            }
            match next.grants.answer(claim) {
                Lease::Granted { also_down: more } => also_down = more,
                refused => return Err(Refused(refused)),
            }
            next.name.clone_from(&name);
            Ok(Some(next.request(table, id, place, now, row.is_some())))
        };
        match admin.change(plan).await {
            Ok(_) => Ok(Lease::Granted { also_down }),
            Err(ChangeError::Refused(Refused(lease))) => Ok(lease),
            Err(error) => Err(failed(error.to_string().into())),
        }
    }

    /// There is nothing to give back: the next side that follows gets it.
    async fn release(&self, _: SiloAddress) -> Result<(), ArbiterError> {
        Ok(())
    }
}

/// The row of a founding. Nothing can listen there.
fn place(claim: &Claim) -> SiloAddress {
    let founding = claim.founding.map_or(0, |id| id.get());
    let epoch = u64::try_from(founding % u128::from(MAX_SAFE_INTEGER)).unwrap_or(0);
    SiloAddress::at(SocketAddr::from(([127, 0, 0, 1], 1)), epoch.max(1))
}

/// What the row says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// The claim that got it last.
    name: String,
    grants: Grants,
}

/// The names of what the row says.
const NAME: &str = LEASE[0];
const DOWNED: &str = LEASE[1];
const SIDE: &str = LEASE[2];

impl Row {
    /// A row that cannot be understood gives nobody the lease.
    fn of(row: &MembershipEntry) -> Result<Self, Refused> {
        let not_understood = || Refused(Lease::refused());
        let text = |name| row.info.metadata.get(name).ok_or_else(not_understood);
        let list = |name| {
            let items = text(name)?.split(' ').filter(|item| !item.is_empty());
            let items = items.map(|item| item.parse::<SiloAddress>().map_err(|_| not_understood()));
            items.collect::<Result<BTreeSet<_>, _>>()
        };
        let downed = list(DOWNED)?;
        Ok(Self {
            name: text(NAME)?.clone(),
            grants: Grants {
                downed: downed.iter().map(|d| (d.endpoint(), d.epoch())).collect(),
                side: list(SIDE)?,
            },
        })
    }

    fn request(
        self,
        table: &Snapshot,
        id: CommitId,
        place: SiloAddress,
        now: WallTime,
        exists: bool,
    ) -> CommitRequest {
        let listed = |all: &mut dyn Iterator<Item = SiloAddress>| {
            let all: Vec<String> = all.map(|silo| silo.to_string()).collect();
            all.join(" ")
        };
        let mut downed = self
            .grants
            .downed
            .iter()
            .map(|(at, epoch)| SiloAddress::at(*at, *epoch));
        let mut row = MembershipEntry::new(place, InstanceId::new(id.get()), now);
        row.status = SiloStatus::Joining;
        row.info.silo_name = NAME.to_owned();
        row.info.metadata = BTreeMap::from([
            (NAME.to_owned(), self.name),
            (DOWNED.to_owned(), listed(&mut downed)),
            (
                SIDE.to_owned(),
                listed(&mut self.grants.side.iter().copied()),
            ),
        ]);
        let (insert, update) = if exists {
            (None, Some(row))
        } else {
            (Some(row), None)
        };
        CommitRequest::new(table.token.clone(), id, None, insert, update, []).made_at(now)
    }
}
