//! Valid values, from which inputs are made.

use std::path::Path;
use std::sync::LazyLock;

use membership::ClusterView;
use membership::protocol::Header;
use membership_core::{
    ChangedKeys, ClusterKey, ClusterKeys, CommitId, CommitRecord, CoreCell, Delta, Evidence, Extra,
    InstanceId, MembershipEntry, Row, Rows, SharedSettings, SiloAddress, SiloStatus, Snapshot,
    Suspicion, SuspicionReason, TableId, VersionRow, WallTime,
};

/// The silo that reads.
pub(crate) const ME: InstanceId = InstanceId::new(1);
/// A silo that has a row.
pub(crate) const MEMBER: InstanceId = InstanceId::new(2);
/// A silo that has no row.
pub(crate) const NEWCOMER: InstanceId = InstanceId::new(9);

const NOW: WallTime = WallTime::from_millis(1_763_000_000_000);

pub(crate) fn silo(number: u8) -> SiloAddress {
    SiloAddress::new([10, 0, 0, number].into(), 7100, 1_763_000_000_000)
}

pub(crate) fn keys() -> ClusterKeys {
    ClusterKeys::from(ClusterKey::new([7; 32]))
}

pub(crate) fn secret() -> ClusterKeys {
    ClusterKeys::from(ClusterKey::new([8; 32]))
}

/// Whether no row names this instance: nobody has the keys of those that rows name here.
pub(crate) fn is_no_member(instance: InstanceId) -> bool {
    let mut rows = BASE.snapshot().rows.entries();
    !rows.any(|entry| entry.instance_id == instance)
}

/// A row with something in each of its fields.
pub(crate) fn entry(number: u8) -> MembershipEntry {
    let instance = InstanceId::new(number.into());
    let mut entry = MembershipEntry::new(silo(number), instance, NOW);
    entry.status = SiloStatus::Active;
    entry.active_since = Some(3);
    entry.info.host_name = "höst".to_owned();
    entry.info.role = "worker".to_owned();
    entry
        .info
        .metadata
        .insert("k\"".to_owned(), "v\n".to_owned());
    let mut evidence = Evidence::missed(3, 5000);
    evidence.via = Some(silo(number.wrapping_add(1)));
    let accuser = silo(number.wrapping_add(2));
    entry.suspicions = vec![Suspicion::new(
        accuser,
        NOW,
        SuspicionReason::Silent,
        evidence,
    )];
    let unknown = serde_json::json!({ "deep": [1, -2.5e-7, null, "two"] });
    entry.extra = Extra([("newer".to_owned(), unknown)].into());
    entry
}

/// The version row of a version.
pub(crate) fn version_row(version: u64) -> VersionRow {
    let mut row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    row.version = version;
    row.core = CoreCell::new(&keys());
    let keys = |version| match version {
        4 => ChangedKeys::Count(100),
        _ => ChangedKeys::Keys(vec![silo(2).row_key()]),
    };
    row.recent = (4..=version)
        .map(|v| CommitRecord::new(v, CommitId::new(v.into()), Some(silo(2)), keys(v)))
        .collect();
    row.extra = Extra([("moon".to_owned(), serde_json::json!(1.5))].into());
    row
}

/// The table that deltas apply to.
pub(crate) static BASE: LazyLock<ClusterView> = LazyLock::new(|| {
    let mut rows = Rows::new();
    (1..=3).for_each(|number| rows.insert(Row::encode(entry(number))));
    let row = version_row(5);
    ClusterView::confirmed(Snapshot::new(row.token(b"etag"), row, rows), None)
});

/// A change of that table.
pub(crate) fn next() -> Delta {
    let mut rows = BASE.snapshot().rows.clone();
    let mut changed = entry(2);
    changed.status = SiloStatus::ShuttingDown;
    let changed = Row::encode(changed);
    rows.insert(changed.clone());
    rows.remove(&silo(3).row_key());
    let row = version_row(6).without_secret();
    let (token, removed) = (row.token(b"etag"), vec![silo(3).row_key()]);
    Delta::new(Some(5), row, token, rows.digest(), vec![changed], removed)
}

pub(crate) fn header() -> Header {
    let mut header = Header::new(0x0123_4567_89ab_cdef, silo(2), MEMBER);
    header.to = Some(silo(1));
    header.table_id = Some(TableId::new(7));
    header.version = 6;
    header
}

/// What this and earlier builds sent, as it is kept for the tests of the library.
pub(crate) fn frozen() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../membership/tests/corpus");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|file| Some(file.ok()?.path()))
        .collect();
    paths.sort();
    let contents: Vec<_> = paths
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .collect();
    assert!(!contents.is_empty(), "membership/tests/corpus is empty");
    contents
}
