//! Tests of the single machines, one file each, in virtual time; and of the whole protocol with
//! random input.

mod answerer;
mod cleaner;
mod confirm;
mod courier;
mod desk;
mod flood;
mod gate;
mod joiner;
mod leaver;
mod meet;
mod monitor;
mod news;
mod prober;
mod pulse;
mod reach;
mod roll_call;
mod settings;
mod standoff;
mod survey;
mod targets;
mod voter;
mod vouching;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use super::context::Ctx;
use super::gate::{Hearing, Passage, Source, Witness, hear, pass};
use super::io::{Destination, Effect};
use super::message::Message;
use super::notice::Notice;
use super::observation::Observation;
use super::{Identity, Setup};
use crate::model::version::RECENT_COMMITS;
use crate::{
    ChangedKeys, ClusterKey, ClusterName, CommitId, CommitRecord, Config, Evidence, Extra,
    InitializeRequest, InstanceId, MembershipEntry, MonoTime, Now, Recency, Rows, SharedSettings,
    SiloAddress, SiloInfo, SiloStatus, Snapshot, Suspicion, SuspicionReason, TableId, TableLimits,
    WallTime,
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
    let info = SiloInfo {
        host_name: "host-1".to_owned(),
        ..SiloInfo::default()
    };
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

/// The tested silo: silo 1, Active, an hour after its start.
fn ctx() -> Ctx {
    let mut ctx = Ctx::new(setup());
    ctx.now = Now {
        mono: MonoTime::ZERO + secs(3600),
        wall: NOON,
    };
    ctx.me = silo(1);
    ctx.status = SiloStatus::Active;
    ctx
}

fn pass_time(ctx: &mut Ctx, by: Duration) {
    ctx.now = Now {
        mono: ctx.now.mono + by,
        wall: ctx.now.wall.plus(by),
    };
}

fn entry(silo: SiloAddress, status: SiloStatus) -> MembershipEntry {
    let mut entry = MembershipEntry::new(silo, instance(silo), NOON);
    entry.status = status;
    entry.info.host_name = format!("host-{silo}");
    entry.active_since =
        (status == SiloStatus::Active).then(|| u64::from(silo.port()) + silo.epoch());
    entry.death = (status == SiloStatus::Dead)
        .then(|| crate::Death::new(crate::CauseOfDeath::Voted, NOON, None, 1));
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
        rows.insert(crate::Row::encode(entry));
    }
    Snapshot::new(row.token(&[]), row, rows)
}

/// Adopts a snapshot as if it had just been read.
fn believe(ctx: &mut Ctx, snapshot: Snapshot) {
    let sent = ctx.now.mono;
    assert_eq!(
        pass(ctx, snapshot, Source::Read, Some(sent)),
        Passage::Adopted
    );
    ctx.contacted(sent);
}

/// A read of a store whose reads may be old.
fn read(ctx: &mut Ctx, snapshot: Snapshot) -> Passage {
    pass(ctx, snapshot, Source::Read, None)
}

/// Hears of a snapshot from a member, by a silo that has seen nothing itself.
fn announce(ctx: &mut Ctx, snapshot: Snapshot) -> Hearing {
    let none = std::collections::BTreeSet::new();
    let witness = Witness {
        stale: &none,
        heard: &|_| false,
    };
    hear(ctx, silo(2), snapshot, &witness)
}

fn vote(accuser: u8, at: WallTime) -> Suspicion {
    Suspicion::new(
        silo(accuser),
        at,
        SuspicionReason::Silent,
        Evidence::default(),
    )
}

/// The messages that were sent since the last call, each with its intended receiver.
fn sent(ctx: &mut Ctx) -> Vec<(Option<SiloAddress>, Message)> {
    let sends = |e| match e {
        Effect::Send { header, body, to } => {
            let listens = |s: &SiloAddress| {
                matches!(to, Destination::Link(_)) || to == Destination::Endpoint(s.endpoint())
            };
            assert!(
                header
                    .to
                    .iter()
                    .all(|s| listens(s) || matches!(to, Destination::Fresh(_)))
            );
            Some((header.to, (*body).clone()))
        }
        _ => None,
    };
    std::mem::take(&mut ctx.out)
        .into_iter()
        .filter_map(sends)
        .collect()
}

/// What was counted or measured since the messages or notices were last taken.
fn observed(ctx: &Ctx) -> Vec<Observation> {
    let all = ctx.out.iter().filter_map(|e| match e {
        Effect::Observe(observation) => Some(observation.clone()),
        _ => None,
    });
    all.collect()
}

fn told(ctx: &mut Ctx) -> Vec<Notice> {
    std::mem::take(&mut ctx.out)
        .into_iter()
        .filter_map(|e| {
            if let Effect::Tell(n) = e {
                Some(n)
            } else {
                None
            }
        })
        .collect()
}
