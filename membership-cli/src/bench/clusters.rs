//! Clusters for one run: made, filled with rows, and removed with everything in them.

use std::sync::Arc;

use membership::Connectors;
use membership_core::{
    Baseline, ClusterName, CommitId, CommitOutcome, CommitRequest, Config, Heartbeat,
    HeartbeatWrite, InitializeRequest, InstanceId, MembershipEntry, MembershipTable, NextStep,
    Preset, SiloAddress, SiloStatus, Snapshot, TableExt, TableId,
};

use crate::clock;
use crate::exit::{Exit, Failure};

/// How many rows one commit has while a table is filled, if the store accepts that many: a size
/// that every server accepts.
const ROWS_PER_COMMIT: usize = 200;

/// Everything that this run puts into the store.
pub(crate) struct BenchClusters {
    connectors: Connectors,
    url: String,
    /// The service of all its clusters.
    service: String,
    made: Vec<ClusterName>,
    /// Only a baseline itself knows what it has written.
    baselines: Vec<Arc<dyn Baseline>>,
}

impl BenchClusters {
    pub fn new(connectors: Connectors, url: &str) -> Self {
        let service = format!("bench-{:012x}", clock::random() & 0xffff_ffff_ffff);
        Self {
            connectors,
            url: url.to_owned(),
            service,
            made: Vec::new(),
            baselines: Vec::new(),
        }
    }

    /// A cluster with this many silos in it, each with a heartbeat.
    pub async fn cluster(
        &mut self,
        name: &str,
        rows: usize,
    ) -> Result<Arc<dyn MembershipTable>, Failure> {
        let cluster = ClusterName::new(self.service.clone(), name)?;
        let table = self.connectors.connect(&self.url, cluster.clone()).await?;
        if rows > table.limits().rows {
            return Err(Failure::usage(format!(
                "--rows {rows}: this store takes {} rows",
                table.limits().rows
            )));
        }
        // From here on `clear` removes it.
        self.made.push(cluster);
        let settings = Config::preset(Preset::Lan).shared();
        if let Err(error) = table
            .initialize(&InitializeRequest::new(
                TableId::new(clock::random()),
                settings,
                clock::random_key(),
            ))
            .await
        {
            // The cluster was certainly not created: removing it would fail for the same reason.
            if error.next_step() != NextStep::FindOut {
                self.made.pop();
            }
            return Err(error.into());
        }
        fill(table.as_ref(), rows).await?;
        Ok(table)
    }

    /// Another client of a cluster.
    pub async fn client(
        &self,
        table: &dyn MembershipTable,
    ) -> Result<Arc<dyn MembershipTable>, Failure> {
        Ok(self
            .connectors
            .connect(&self.url, table.cluster().clone())
            .await?)
    }

    /// The store's own cheapest write and read for a client, if its provider has them.
    pub fn baseline(&mut self, table: &dyn MembershipTable) -> Option<Arc<dyn Baseline>> {
        let baseline: Arc<dyn Baseline> = table.baseline()?.into();
        self.baselines.push(baseline.clone());
        Some(baseline)
    }

    /// Removes everything; returns what could not be removed, with the reason.
    pub async fn clear(self) -> Vec<(String, String)> {
        let mut left = Vec::new();
        for baseline in &self.baselines {
            if let Err(why) = baseline.remove().await {
                left.push((
                    format!("what was written for \"{}\"", baseline.write_is()),
                    why.to_string(),
                ));
            }
        }
        for cluster in &self.made {
            let removed = async {
                let table = self
                    .connectors
                    .connect(&self.url, cluster.clone())
                    .await
                    .map_err(|e| e.to_string())?;
                table.delete().await.map_err(|e| e.to_string())
            };
            if let Err(why) = removed.await {
                left.push((format!("cluster {cluster}"), why));
            }
        }
        left
    }
}

async fn fill(table: &dyn MembershipTable, rows: usize) -> Result<(), Failure> {
    let entries: Vec<MembershipEntry> = (0..rows).map(entry).collect();
    let now = table.read_all().await?.0;
    let mut token = now.token;
    let at_once = ROWS_PER_COMMIT.min(table.limits().rows_per_commit).max(1);
    for some in entries.chunks(at_once) {
        let request = CommitRequest::new(
            token.clone(),
            CommitId::new(clock::random()),
            None,
            some.iter().cloned(),
            [],
            [],
        );
        token = match table.commit(&request).await? {
            CommitOutcome::Committed(token) => token,
            _ => return Err(disturbed()),
        };
    }
    for entry in &entries {
        table
            .update_i_am_alive(&heartbeat(entry.address, 1))
            .await?;
    }
    Ok(())
}

pub(crate) fn disturbed() -> Failure {
    Failure::new(
        Exit::Failed,
        "another client wrote into a cluster of this run, so its figures are useless; run it again",
    )
}

/// An Active silo with names of a usual length.
fn entry(number: usize) -> MembershipEntry {
    let n = u32::try_from(number).unwrap_or(u32::MAX);
    let [_, a, b, c] = n.to_be_bytes();
    let mut entry = MembershipEntry::new(
        SiloAddress::new([10, a, b, c].into(), 7100, 1_763_000_000_000),
        InstanceId::new(clock::random()),
        clock::wall(),
    );
    entry.status = SiloStatus::Active;
    entry.active_since = Some(1);
    entry.info.silo_name = format!("worker-{n}");
    entry.info.host_name = format!("node-{n}.example");
    entry.info.role = "worker".to_owned();
    entry.info.zone = "zone-a".to_owned();
    entry
}

pub(crate) fn heartbeat(silo: SiloAddress, counter: u64) -> HeartbeatWrite {
    HeartbeatWrite::Silo {
        silo,
        heartbeat: Heartbeat {
            counter,
            at: clock::wall(),
        },
    }
}

/// A commit that changes a single row: what most commits of a running cluster do.
pub(crate) fn change(now: &Snapshot, silo: &SiloAddress) -> Result<CommitRequest, Failure> {
    let Some(mut entry) = now.rows.get(silo).cloned() else {
        return Err(disturbed());
    };
    entry.info.role = format!("worker {}", now.version() % 10);
    Ok(CommitRequest::new(
        now.token.clone(),
        CommitId::new(clock::random()),
        None,
        [],
        [entry],
        [],
    ))
}
