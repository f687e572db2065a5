//! Views as applications and messages use them: deltas, owners, leaders, changes.

use super::*;
use crate::{
    CauseOfDeath, CommitId, CommitRequest, Death, InstanceId, MAX_RECORDED_KEYS, RECENT_COMMITS,
    Row, Rows, SharedSettings, VersionRow, WallTime,
};

fn silo(port: u16) -> SiloAddress {
    SiloAddress::new([10, 0, 0, 1].into(), port, 1)
}

fn entry(address: SiloAddress, status: SiloStatus) -> MembershipEntry {
    let mut e = MembershipEntry::new(address, InstanceId::new(1), WallTime::from_millis(1));
    e.status = status;
    if status == SiloStatus::Dead {
        let (cause, at) = (CauseOfDeath::Left, WallTime::from_millis(2));
        e.death = Some(Death::new(cause, at, None, 1));
    }
    e
}

fn active(port: u16) -> MembershipEntry {
    entry(silo(port), SiloStatus::Active)
}

fn empty() -> ClusterView {
    let version_row = VersionRow::initial(TableId::new(1), SharedSettings::default());
    ClusterView::new(Snapshot::new(
        version_row.token(&[]),
        version_row,
        Rows::new(),
    ))
}

fn commit(
    view: &ClusterView,
    inserts: Vec<MembershipEntry>,
    updates: Vec<MembershipEntry>,
    removes: &[u16],
) -> ClusterView {
    let removes = removes.iter().map(|p| silo(*p).row_key());
    let id = CommitId::new(u128::from(view.version()) + 1);
    let commit = CommitRequest::new(view.token().clone(), id, None, inserts, updates, removes);
    ClusterView::new(commit.apply_to(view.snapshot(), commit.next_token(&[])))
}

/// Version 1 with silos 1 to `n`, all Active.
fn cluster(n: u16) -> ClusterView {
    commit(&empty(), (1..=n).map(active).collect(), vec![], &[])
}

fn sent(delta: &Delta) -> Delta {
    serde_json::from_str(&serde_json::to_string(delta).unwrap()).unwrap()
}

#[test]
fn a_delta_leads_from_any_remembered_version_to_this_one() {
    let mut views = vec![empty(), cluster(5)];
    for port in 6..=8 {
        views.push(commit(
            views.last().unwrap(),
            vec![active(port)],
            vec![],
            &[],
        ));
    }
    views.push(commit(
        views.last().unwrap(),
        vec![active(9)],
        vec![entry(silo(1), SiloStatus::Dead)],
        &[],
    ));
    views.push(commit(
        views.last().unwrap(),
        vec![],
        vec![entry(silo(2), SiloStatus::Stopping)],
        &[1, 9],
    ));
    let newest = views.last().unwrap();
    for old in &views {
        let delta = sent(&newest.delta_since(old.version()).unwrap());
        let new = old.apply(&delta).unwrap();
        assert_eq!(
            (&new, new.digest(), new.token()),
            (newest, newest.digest(), newest.token())
        );
    }
    let step = newest.delta_since(5).unwrap();
    assert_eq!(
        (step.from, step.to(), step.rows.len(), step.removed.len()),
        (Some(5), 6, 1, 2)
    );
    assert!(newest.delta_since(6).unwrap().rows.is_empty());
    assert_eq!(newest.delta_since(7), None);
    // Rows that came and went in between are only listed as removed.
    let far = newest.delta_since(4).unwrap();
    assert_eq!(far.removed, [silo(1).row_key(), silo(9).row_key()]);
}

#[test]
fn a_whole_view_applies_to_any_version() {
    let mut snapshot = cluster(3).snapshot().clone();
    snapshot.rows.insert(Row::decode("junk", "{"));
    let view = ClusterView::new(snapshot);
    let whole = sent(&Delta::whole(&view));
    assert_eq!(whole.resolve(None).unwrap(), *view.snapshot());
    assert_eq!(empty().apply(&whole).unwrap(), view);
    assert_eq!(
        cluster(50).apply(&whole).unwrap(),
        view,
        "what it does not bring is gone"
    );
    // Rows that the view already has stay the same objects.
    let again = view.apply(&whole).unwrap();
    assert!(
        view.snapshot()
            .rows
            .iter()
            .zip(again.snapshot().rows.iter())
            .all(|(a, b)| a.is_same(b))
    );
}

#[test]
fn versions_share_their_rows() {
    let old = cluster(9);
    let new = commit(
        &old,
        vec![],
        vec![entry(silo(4), SiloStatus::ShuttingDown)],
        &[],
    );
    let mine = old.apply(&sent(&new.delta_since(1).unwrap())).unwrap();
    let shared = old
        .snapshot()
        .rows
        .iter()
        .zip(mine.snapshot().rows.iter())
        .filter(|(a, b)| a.is_same(b))
        .count();
    assert_eq!(shared, 8);
}

#[test]
fn an_inconsistent_delta_changes_nothing() {
    let old = cluster(3);
    let new = commit(&old, vec![active(4)], vec![], &[3]);
    let good = new.delta_since(1).unwrap();
    assert_eq!(
        new.apply(&good),
        Err(DeltaError::OtherVersion { from: 1, at: 2 })
    );
    assert_eq!(
        good.resolve(None),
        Err(DeltaError::OtherVersion { from: 1, at: 0 })
    );
    for spoil in [
        |d: &mut Delta| d.rows.clear(),
        |d: &mut Delta| d.removed.clear(),
        |d: &mut Delta| d.digest ^= 1,
        |d: &mut Delta| d.rows.push(Row::decode("junk", "{")),
        |d: &mut Delta| d.rows = vec![Row::encode(active(4))],
    ] {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert_eq!(old.apply(&bad), Err(DeltaError::DigestMismatch));
    }
    let mut bad = good.clone();
    bad.token = old.token().clone();
    assert_eq!(old.apply(&bad), Err(DeltaError::TokenMismatch));
    let mut other = (*good.version_row).clone();
    other.table_id = TableId::new(2);
    let other = Delta {
        token: other.token(&[]),
        version_row: other.into(),
        ..good
    };
    assert_eq!(old.apply(&other), Err(DeltaError::OtherTable));
}

#[test]
fn rows_of_a_delta_are_set_after_its_removals_and_in_order() {
    let old = cluster(3);
    let new = commit(&old, vec![active(4)], vec![], &[]);
    let mut delta = new.delta_since(1).unwrap();
    let same = old.snapshot().rows.row(&silo(2)).unwrap().clone();
    delta.removed.push(same.key().to_owned());
    delta.rows.push(Row::decode(same.key(), "{"));
    delta.rows.push(same);
    assert_eq!(old.apply(&delta), Ok(new));
}

#[test]
fn without_commit_records_there_is_no_delta() {
    let start = cluster(3);
    let mut view = start.clone();
    for port in 100..100 + u16::try_from(RECENT_COMMITS).unwrap() {
        assert!(view.delta_since(1).is_some());
        view = commit(&view, vec![active(port)], vec![], &[]);
    }
    assert_eq!(start.apply(&view.delta_since(1).unwrap()).unwrap(), view);
    let later = commit(&view, vec![active(99)], vec![], &[]);
    assert_eq!(later.delta_since(1), None);
    assert!(later.delta_since(2).is_some());
    let many = commit(
        &later,
        (200..=200 + u16::try_from(MAX_RECORDED_KEYS).unwrap())
            .map(active)
            .collect(),
        vec![],
        &[],
    );
    assert_eq!(many.delta_since(later.version()), None);
}

#[test]
fn the_leader_became_active_first_whatever_its_address_and_clock() {
    let since = |port, version| MembershipEntry {
        active_since: version,
        ..active(port)
    };
    let view = |entries| commit(&empty(), entries, vec![], &[]);
    let leader = |v: &ClusterView| v.leader().map(|e| e.address.port());
    assert_eq!(leader(&empty()), None);
    assert_eq!(
        leader(&view(vec![
            since(1, Some(9)),
            since(2, Some(4)),
            since(3, Some(4)),
            since(4, None)
        ])),
        Some(2)
    );
    let mut first = since(1, Some(1));
    first.status = SiloStatus::ShuttingDown;
    assert_eq!(leader(&view(vec![first, since(2, Some(7))])), Some(2));
}

#[test]
fn an_older_epoch_without_a_row_is_dead() {
    let at = |epoch| silo(1).with_epoch(epoch);
    let view = commit(
        &empty(),
        vec![entry(at(5), SiloStatus::Joining)],
        vec![],
        &[],
    );
    assert_eq!(view.status(&at(5)), Some(SiloStatus::Joining));
    assert_eq!(view.status(&at(4)), Some(SiloStatus::Dead));
    assert_eq!(view.status(&at(6)), None);
    assert_eq!(view.status(&silo(2)), None);
}

#[test]
fn changes_list_each_changed_silo() {
    let old = cluster(5);
    let mut noted = active(3);
    noted.info.role = "db".into();
    let updates = vec![
        entry(silo(1), SiloStatus::Dead),
        entry(silo(2), SiloStatus::ShuttingDown),
        noted,
    ];
    let new = commit(
        &old,
        vec![
            entry(silo(6), SiloStatus::Joining),
            entry(silo(7), SiloStatus::Dead),
        ],
        updates,
        &[4],
    );
    let mut changes: Vec<_> = new
        .changes_since(&old)
        .into_iter()
        .map(|c| (c.entry.address.port(), c.kind))
        .collect();
    changes.sort_by_key(|(port, _)| *port);
    use ChangeKind::{Died, Joined, StatusChanged, Updated};
    assert_eq!(
        changes,
        [
            (1, Died),
            (2, StatusChanged),
            (3, Updated),
            (4, Died),
            (6, Joined),
            (7, Died)
        ]
    );
    assert!(new.changes_since(&new).is_empty());
    let cleaned = commit(&new, vec![], vec![], &[1, 7]);
    assert!(cleaned.changes_since(&new).is_empty());
}

#[test]
fn filters_take_active_silos_only() {
    let with = |port, status, gateway| {
        let mut entry = entry(silo(port), status);
        entry.info.role = "web".into();
        entry.info.zone = "a".into();
        entry.info.metadata = [("disk".to_owned(), "ssd".to_owned())].into();
        entry.info.gateway_port = gateway;
        entry
    };
    let rows = vec![
        with(1, SiloStatus::Active, 80),
        with(2, SiloStatus::Joining, 80),
        with(3, SiloStatus::Active, 0),
        active(4),
    ];
    let view = commit(&empty(), rows, vec![], &[]);
    let ports =
        |found: Vec<&MembershipEntry>| found.iter().map(|e| e.address.port()).collect::<Vec<_>>();
    assert_eq!(ports(view.active().collect()), [1, 3, 4]);
    assert_eq!(ports(view.gateways().collect()), [1]);
    for found in [
        view.role("web").collect(),
        view.zone("a").collect(),
        view.with("disk", "ssd").collect(),
    ] {
        assert_eq!(ports(found), [1, 3]);
    }
    assert_eq!(view.with("disk", "tape").count(), 0);
}

#[test]
fn a_confirmation_is_of_one_version_and_all_its_clones() {
    let old = ClusterView::confirmed(cluster(1).snapshot().clone(), Some(MonoTime::ZERO));
    let same = old.clone();
    let delta = commit(&cluster(1), vec![active(2)], vec![], &[])
        .delta_since(1)
        .unwrap();
    let new = old.apply(&delta).unwrap();
    assert_eq!(old.confirmed_at(), Some(MonoTime::ZERO));
    assert!(old.fencing_token().is_some());
    assert!(!new.is_confirmed());
    assert_eq!((new.confirmed_at(), new.fencing_token()), (None, None));

    new.confirm(None);
    assert!(new.is_confirmed());
    assert_eq!(new.confirmed_at(), None, "it may not have been the newest");
    assert_eq!(new.fencing_token().unwrap().version, 2);
    new.confirm(Some(MonoTime::from_nanos(9)));
    new.confirm(Some(MonoTime::from_nanos(7)));
    assert_eq!(new.confirmed_at(), Some(MonoTime::from_nanos(9)));
    assert_eq!(
        old.confirmed_at(),
        Some(MonoTime::ZERO),
        "a lease on a view that was replaced is not renewed"
    );
    same.confirm(Some(MonoTime::from_nanos(3)));
    assert_eq!(old.confirmed_at(), same.confirmed_at());
    assert_eq!(old, same);
    assert_ne!(old, new);
}

#[test]
fn owners_are_spread_and_move_only_with_their_silo() {
    let view = cluster(10);
    let owner = |v: &ClusterView, key: u32| v.owner(key.to_be_bytes()).map(|e| e.address);
    assert_eq!(owner(&empty(), 1), None);
    let mut counts = std::collections::BTreeMap::<_, u32>::new();
    for key in 0..10_000 {
        *counts.entry(owner(&view, key)).or_default() += 1;
    }
    assert!(
        counts.len() == 10 && counts.values().all(|n| (850..=1150).contains(n)),
        "{counts:?}"
    );
    let less = commit(
        &view,
        vec![],
        vec![entry(silo(3), SiloStatus::ShuttingDown)],
        &[],
    );
    for key in 0..10_000 {
        let before = owner(&view, key);
        if before == Some(silo(3)) {
            assert_ne!(owner(&less, key), before);
        } else {
            assert_eq!(owner(&less, key), before);
        }
    }
}

#[test]
fn further_owners_and_owners_among_some_follow_the_same_order() {
    let view = cluster(20);
    assert!(empty().owners("a", 3).is_empty() && empty().owner_among("a", |_| true).is_none());
    for key in 0..200_u32 {
        let key = key.to_be_bytes();
        let all: Vec<SiloAddress> = view.owners(key, 99).iter().map(|e| e.address).collect();
        assert_eq!(
            all.iter().collect::<std::collections::BTreeSet<_>>().len(),
            20
        );
        let of = |found: Option<&MembershipEntry>| found.map(|e| e.address);
        assert_eq!(of(view.owner(key)), Some(all[0]));
        assert_eq!(of(view.owner_among(key, |_| true)), Some(all[0]));
        assert_eq!(
            of(view.owner_among(key, |e| e.address != all[0])),
            Some(all[1])
        );
        assert_eq!(of(view.owner_among(key, |_| false)), None);
        assert_eq!(view.owners(key, 3).len(), 3);
        assert!(view.owners(key, 0).is_empty());
    }
}

/// Frozen: silos of different builds must agree on owners. Never change these values.
#[test]
fn owners_stay_the_same_over_builds() {
    let v6 = SiloAddress::new("2001:db8::1".parse().unwrap(), 7100, 1_763_000_000_000);
    let view = commit(
        &cluster(7),
        vec![entry(v6, SiloStatus::Active)],
        vec![],
        &[],
    );
    let owners: Vec<(&str, String)> = [
        "",
        "a",
        "b",
        "user/1",
        "user/2",
        "user/3",
        "ключ",
        "orders",
        "0",
        "shard-4711",
        "x",
    ]
    .iter()
    .filter_map(|key| Some((*key, view.owner(key)?.address.to_string())))
    .collect();
    let frozen = [
        ("", "[2001:db8::1]:7100@1763000000000"),
        ("a", "10.0.0.1:6@1"),
        ("b", "10.0.0.1:5@1"),
        ("user/1", "[2001:db8::1]:7100@1763000000000"),
        ("user/2", "10.0.0.1:1@1"),
        ("user/3", "10.0.0.1:1@1"),
        ("ключ", "10.0.0.1:4@1"),
        ("orders", "10.0.0.1:1@1"),
        ("0", "10.0.0.1:6@1"),
        ("shard-4711", "10.0.0.1:4@1"),
        ("x", "[2001:db8::1]:7100@1763000000000"),
    ];
    assert_eq!(owners, frozen.map(|(k, o)| (k, o.to_owned())));
}

/// Frozen like the owners: silos of different builds compare digests.
#[test]
fn a_view_without_rows_has_digest_zero_and_a_row_has_a_fixed_one() {
    assert_eq!(
        (empty().digest(), empty().len(), empty().is_empty()),
        (0, 0, true)
    );
    let rows: Rows = [Row::decode("k", "v")].into_iter().collect();
    assert_eq!(
        format!("{:032x}", rows.digest()),
        "b6b1449ac1cc434cc46cea8be54c65f3"
    );
}
