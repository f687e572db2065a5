//! Servers with successors under five silos and eight writers: the leader is frozen until another
//! one leads, and then thawed with clients that are still connected to it.
//!
//! The writers work in a cluster of the suite's case `frozen_leaders_lose_nothing`, which stages the
//! failovers and compares all answers. The silos live in another cluster of the same servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::servers::Servers;
use conformance_tests::{Backend, Capability, Reason, Stop, Suite};
use membership::Connectors;
use membership_core::{
    ClusterName, Durability, Guarantees, MembershipTable, Operation, Recency, TableError,
    TableErrorKind,
};

use membership_testbed::suite::postgres::Pair;
use membership_testbed::suite::redis::Watched;
use membership_testbed::{Kind, ServerSet};

use crate::outages::goes_on;
use crate::scenarios::{SOON, join};
use crate::support::Place;

/// The case that stages the failovers.
const CASE: &str = "frozen_leaders_lose_nothing";
const WRITERS: usize = 8;
/// Commits of the writers between two failovers.
const COMMITS: usize = 150;

/// What clients of some servers may rely on.
#[derive(Clone, Copy)]
pub struct Promise(pub Recency, pub Durability);

/// Everything is kept, and reads are linearizable.
pub const STRONG: Promise = Promise(Recency::Linearizable, Durability::Kept);
/// Everything is kept; a read may be older than one of another client.
pub const MONOTONIC: Promise = Promise(Recency::MonotonicPerClient, Durability::Kept);
/// A failover may lose commits.
pub const WEAK: Promise = Promise(Recency::MonotonicPerClient, Durability::MayBeLost);

/// Three servers that elect a leader.
pub async fn three(kind: Kind) -> ServerSet {
    ServerSet::start(kind, 3, None).await.unwrap()
}

/// A master of Redis, a replica, and three sentinels in a hurry.
pub async fn watched() -> Watched {
    let mut watched = Watched::start(Kind::Redis, Duration::from_secs(5)).await;
    watched.add_sentinels(2).await;
    watched
}

/// A primary of PostgreSQL with a synchronous standby.
pub async fn pair() -> Pair {
    Pair::start("correct-horse-battery-staple").await.unwrap()
}

struct Writers {
    name: String,
    servers: Arc<dyn Servers>,
    promise: Promise,
}

#[async_trait]
impl Backend for Writers {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let (connectors, url) = (Connectors::default(), self.servers.url());
        let connected = connectors.connect(&url, cluster.clone()).await;
        connected.map_err(|error| match error {
            membership::ConnectError::Table(error) => error,
            other => TableError::new(
                TableErrorKind::Configuration,
                Operation::Connect,
                "table",
                other.to_string(),
            ),
        })
    }

    fn required_guarantees(&self) -> Guarantees {
        Guarantees::new(self.promise.0, self.promise.1)
    }

    fn not_applicable(&self) -> &[(Capability, Reason)] {
        &[(Capability::Proxy, Reason::NoProxy)]
    }

    async fn depose(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.servers.depose(cluster).await
    }

    async fn thaw(&self, _: &ClusterName) -> Result<(), Stop> {
        self.servers.thaw().await
    }

    async fn rejoined(&self, _: &ClusterName) -> Result<(), Stop> {
        self.servers.rejoined().await
    }
}

/// Freezes the current leader this many times in a row. Nothing of the writers is lost or invented,
/// or each loss is told; no silo is declared dead, or takes its table for another one.
pub fn the_leader_is_frozen<S: Servers>(
    name: &str,
    start: impl Future<Output = S>,
    promise: Promise,
    times: usize,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let servers: Arc<dyn Servers> = Arc::new(runtime.block_on(start));
    let mut cluster = join(Place::at(servers.url(), "stores/leader-frozen".to_owned()));
    let suite = Suite::new(Writers {
        name: name.to_owned(),
        servers: Arc::clone(&servers),
        promise,
    })
    .named(CASE)
    .on_progress(|line| eprintln!("{line}"))
    .effort(|effort| {
        effort.freezes = times;
        effort.clients = WRITERS;
        effort.commits = COMMITS * (times + 1);
        effort.case_timeout = Duration::from_secs(60) * (times as u32 + 2);
    });
    let report = runtime.block_on(suite.run());
    eprintln!("{report}");
    assert!(
        report.passed() && report.not_applicable().count() == 0,
        "{report}"
    );
    cluster.heartbeats_go_on(SOON);
    for silo in &cluster.silos {
        silo.has_table(SOON);
        silo.never_lost_its_table();
    }
    goes_on(&mut cluster);
    drop(servers);
}
