//! The protocol through its interface: inputs and effects.
#![allow(clippy::unwrap_used, clippy::panic)]

mod announced;
mod fuzz;
mod pause;
mod reach;
mod recovered;
mod whole;

use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Effect, Header, Identity, Message, Notice, Setup};
use membership_core::{
    CauseOfDeath, ChangedKeys, ClusterKey, ClusterName, CommitId, CommitRecord, Config, Death,
    Evidence, InitializeRequest, InstanceId, MembershipEntry, MonoTime, Now, RECENT_COMMITS,
    Recency, Row, Rows, SharedSettings, SiloAddress, SiloInfo, SiloStatus, Snapshot, Suspicion,
    SuspicionReason, TableId, TableLimits, WallTime,
};

/// The wall-clock time at which every test begins.
const NOON: WallTime = WallTime::from_millis(1_795_000_000_000);
const LIMITS: TableLimits = TableLimits::new(100, 65_536, 1 << 20, 5_000);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The n-th silo; the tested silo is the first.
fn silo(n: u8) -> SiloAddress {
    SiloAddress::new([10, 0, 0, n].into(), 7100, 1)
}

fn instance(silo: SiloAddress) -> InstanceId {
    let std::net::IpAddr::V4(ip) = silo.ip() else {
        return InstanceId::new(0);
    };
    InstanceId::new(1_000 + u128::from(ip.octets()[3]))
}

fn setup() -> Setup {
    let cluster = ClusterName::new("default", "tests").unwrap();
    let mut info = SiloInfo::default();
    info.host_name = "host-1".to_owned();
    let identity = Identity::new(cluster, silo(1).endpoint(), instance(silo(1)), info);
    Setup::new(
        identity,
        Config::default(),
        LIMITS,
        7,
        ClusterKey::new([7; 32]),
    )
    .with_reads(Recency::Linearizable)
}

fn entry(silo: SiloAddress, status: SiloStatus) -> MembershipEntry {
    let mut entry = MembershipEntry::new(silo, instance(silo), NOON);
    entry.status = status;
    entry.info.host_name = format!("host-{silo}");
    entry.active_since =
        (status == SiloStatus::Active).then(|| u64::from(silo.port()) + silo.epoch());
    entry.death =
        (status == SiloStatus::Dead).then(|| Death::new(CauseOfDeath::Voted, NOON, None, 1));
    entry
}

fn actives(silos: impl IntoIterator<Item = u8>) -> Vec<MembershipEntry> {
    silos
        .into_iter()
        .map(|n| entry(silo(n), SiloStatus::Active))
        .collect()
}

fn commit_id(version: u64) -> CommitId {
    CommitId::new(u128::from(version) + 77)
}

/// The table at a version with these rows, all written at that version.
fn snapshot(version: u64, entries: Vec<MembershipEntry>) -> Snapshot {
    snapshot_with(version, entries, SharedSettings::default())
}

fn snapshot_with(
    version: u64,
    entries: Vec<MembershipEntry>,
    settings: SharedSettings,
) -> Snapshot {
    let key = ClusterKey::new([7; 32]);
    let mut row = InitializeRequest::new(TableId::new(1), settings, key).version_row();
    row.version = version;
    let oldest = version.saturating_sub(RECENT_COMMITS as u64 - 1).max(1);
    row.recent = (oldest..=version)
        .map(|v| CommitRecord::new(v, commit_id(v), None, ChangedKeys::Count(1)))
        .collect();
    row.row_count = entries.len() as u64;
    let mut rows = Rows::new();
    for mut entry in entries {
        entry.written_at = version;
        rows.insert(Row::encode(entry));
    }
    Snapshot::new(row.token(&[]), row, rows)
}

fn vote(accuser: u8, at: WallTime) -> Suspicion {
    Suspicion::new(
        silo(accuser),
        at,
        SuspicionReason::Silent,
        Evidence::default(),
    )
}

fn header(from: SiloAddress, instance: InstanceId, to: Option<SiloAddress>) -> Header {
    let mut header = Header::new(setup().identity.cluster.fingerprint(), from, instance);
    header.to = to;
    header
}
