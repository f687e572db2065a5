//! Costs of a large cluster, as ratios of two operations measured in this run:
//! `cargo bench -p membership-core --bench scale`.
//!
//! Prints a table and fails if a ratio is above its limit. `a` and `b` are the minimum times of one
//! operation in many short rounds that alternate between the two, because other load on the machine
//! can only lengthen a round.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use membership_core::protocol::{Gate, Identity, Setup, successors};
use membership_core::{
    CauseOfDeath, ClusterKey, ClusterView, CommitId, CommitRequest, Config, Death, Delta, Evidence,
    InstanceId, MembershipEntry, Row, Rows, SharedSettings, SiloAddress, SiloInfo, SiloStatus,
    Snapshot, Suspicion, SuspicionReason, TableId, TableLimits, VersionRow, WallTime,
};

const SMALL: u32 = 1_000;
const LARGE: u32 = 10_000;

fn main() -> ExitCode {
    // `cargo test --all-targets` runs benchmarks without this argument; it is not the place to
    // measure time.
    if !std::env::args().any(|a| a == "--bench") {
        println!("not measured: run it with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    println!(
        "{:<66} {:>11} {:>11} {:>7} {:>6}  ok",
        "name", "a", "b", "ratio", "limit"
    );
    let mut good = true;
    for line in [
        changing_a_view(),
        committing(),
        adopting_fresh(),
        adopting_shared(),
        adopting_from_rows(),
        choosing_targets(),
        finding_owners(),
    ] {
        good &= line.print();
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One comparison: the ratio a / b and its limit. Without a limit the ratio is only printed.
struct Line {
    name: &'static str,
    a: Duration,
    b: Duration,
    limit: Option<f64>,
}

impl Line {
    fn print(&self) -> bool {
        let ratio = self.a.as_secs_f64() / self.b.as_secs_f64();
        let ok = self.limit.is_none_or(|limit| ratio <= limit);
        let limit = self
            .limit
            .map_or_else(|| "-".to_owned(), |l| format!("{l:.1}"));
        println!(
            "{:<66} {:>11} {:>11} {ratio:>7.2} {limit:>6}  {}",
            self.name,
            format!("{:.1?}", self.a),
            format!("{:.1?}", self.b),
            if ok { "yes" } else { "NO" }
        );
        ok
    }
}

/// The minimum times of two operations over `rounds`. Each operation prepares itself and returns
/// the time of its measured part.
fn alternate(
    rounds: usize,
    mut a: impl FnMut() -> Duration,
    mut b: impl FnMut() -> Duration,
) -> (Duration, Duration) {
    (0..rounds).fold((Duration::MAX, Duration::MAX), |(least_a, least_b), _| {
        (least_a.min(a()), least_b.min(b()))
    })
}

/// The mean time of `times` repetitions.
fn each(times: u32, mut what: impl FnMut(u32)) -> Duration {
    let begun = Instant::now();
    (0..times).for_each(&mut what);
    begun.elapsed() / times
}

/// The time until the result is complete; dropping it is not included.
fn once<T>(what: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    let result = black_box(what());
    let took = begun.elapsed();
    drop(result);
    took
}

fn silo(i: u32) -> SiloAddress {
    let [_, a, b, c] = i.to_be_bytes();
    SiloAddress::new(
        [10, a, b, c].into(),
        11_111,
        1_763_000_000_000 + u64::from(i % 977),
    )
}

/// A typical row: with names, a role, a zone and some metadata; one of 50 is Dead, one of 100 is
/// suspected.
fn entry(i: u32, version: u64) -> MembershipEntry {
    let mut e = MembershipEntry::new(
        silo(i),
        InstanceId::new(u128::from(i) << 64 | 7),
        WallTime::from_millis(1_763_000_000_000),
    );
    e.status = SiloStatus::Active;
    e.active_since = Some(u64::from(i));
    e.info.gateway_port = 30_000;
    e.info.host_name = format!("node-{i}.rack-{}.example.net", i % 40);
    e.info.silo_name = format!("orders-{i}");
    e.info.role = "orders".to_owned();
    e.info.zone = format!("zone-{}", i % 3);
    e.info.metadata = [
        ("build", format!("2026.11.{}", i % 28)),
        ("shard", (i % 64).to_string()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    e.written_at = version;
    if i % 100 == 99 {
        e.suspicions.push(Suspicion::new(
            silo(i / 2),
            WallTime::from_millis(1_763_000_060_000),
            SuspicionReason::Silent,
            Evidence::missed(3, 5000),
        ));
    }
    if i % 50 == 49 {
        e.status = SiloStatus::Dead;
        e.death = Some(Death::new(
            CauseOfDeath::Left,
            WallTime::from_millis(1_763_000_070_000),
            None,
            version,
        ));
    }
    e
}

/// A table of `n` rows after 20 commits, the last of one row.
fn table(n: u32) -> Snapshot {
    let mut version_row = VersionRow::initial(TableId::new(9), SharedSettings::default());
    version_row.version = 10;
    version_row.row_count = u64::from(n);
    let rows: Rows = (0..n)
        .map(|i| Row::encode(entry(i, u64::from(i % 10) + 1)))
        .collect();
    let mut snapshot = Snapshot::new(version_row.token(&[]), version_row, rows);
    for i in 0..10 {
        snapshot = then(&snapshot, i);
    }
    snapshot
}

fn commit(base: &Snapshot, i: u32) -> CommitRequest {
    let mut changed = entry(i, 0);
    changed
        .info
        .metadata
        .insert("load".to_owned(), base.version().to_string());
    let id = CommitId::new(u128::from(base.version()) << 64 | u128::from(i));
    CommitRequest::new(base.token.clone(), id, Some(silo(0)), [], [changed], [])
}

/// The table after one more commit.
fn then(base: &Snapshot, i: u32) -> Snapshot {
    let commit = commit(base, i);
    commit.apply_to(base, commit.next_token(&[]))
}

/// Number of one-row changes, spread over the table, in one round.
const CHANGES: u32 = 200;

fn changes(n: u32) -> (ClusterView, Vec<Delta>, Vec<CommitRequest>) {
    let base = table(n);
    let commits: Vec<CommitRequest> = (0..CHANGES)
        .map(|i| commit(&base, i * (n / CHANGES)))
        .collect();
    let next = |c: &CommitRequest| ClusterView::new(c.apply_to(&base, c.next_token(&[])));
    let deltas = commits
        .iter()
        .map(|c| next(c).delta_since(base.version()).expect("one commit"))
        .collect();
    (ClusterView::new(base), deltas, commits)
}

fn changing_a_view() -> Line {
    let ((large, deltas, _), (small, few, _)) = (changes(LARGE), changes(SMALL));
    let apply = |view: &ClusterView, deltas: &[Delta]| {
        each(CHANGES, |i| {
            drop(black_box(view.apply(&deltas[i as usize]).expect("applies")))
        })
    };
    let (a, b) = alternate(201, || apply(&large, &deltas), || apply(&small, &few));
    Line {
        name: "a view takes a delta of one row: 10,000 rows / 1,000 rows",
        a,
        b,
        limit: Some(3.0),
    }
}

fn committing() -> Line {
    let ((large, _, commits), (small, _, few)) = (changes(LARGE), changes(SMALL));
    let apply = |view: &ClusterView, commits: &[CommitRequest]| {
        each(CHANGES, |i| {
            let commit = &commits[i as usize];
            drop(black_box(
                commit.apply_to(view.snapshot(), commit.next_token(&[])),
            ));
        })
    };
    let (a, b) = alternate(201, || apply(&large, &commits), || apply(&small, &few));
    Line {
        name: "a snapshot takes a commit of one row: 10,000 rows / 1,000 rows",
        a,
        b,
        limit: Some(3.0),
    }
}

/// The same rows as new objects, as a store returns them: they share no memory with the known rows.
fn fresh(rows: &Rows) -> Vec<Row> {
    rows.iter()
        .map(|r| Row::decode(r.key(), r.body()))
        .collect()
}

fn deep_clone(rows: &Rows) -> Duration {
    once(|| rows.entries().cloned().collect::<Vec<MembershipEntry>>())
}

fn gate(known: Snapshot) -> Gate {
    let cluster = "bench".parse().expect("a name");
    let instance = InstanceId::new(1);
    let identity = Identity::new(cluster, silo(0).endpoint(), instance, SiloInfo::default());
    let limits = TableLimits::new(100, 1 << 20, 1 << 23, 100_000);
    let mut gate = Gate::new(Setup::new(
        identity,
        Config::default(),
        limits,
        1,
        ClusterKey::new([7; 32]),
    ));
    assert!(gate.adopt_read(known));
    gate
}

/// Adopts a snapshot that was read one commit later: checks it against the known view and installs
/// it.
fn adopting(
    name: &'static str,
    limit: Option<f64>,
    next: impl Fn(&Snapshot) -> Box<dyn FnOnce() -> Snapshot>,
) -> Line {
    let known = table(LARGE);
    let later = then(&known, 77);
    let adopt = || {
        let mut gate = gate(known.clone());
        let next = next(&later);
        once(|| {
            assert!(gate.adopt_read(next()));
            gate
        })
    };
    let (a, b) = alternate(31, adopt, || deep_clone(&later.rows));
    Line { name, a, b, limit }
}

fn adopting_fresh() -> Line {
    adopting(
        "adopting a read snapshot, no row shared / cloning its entries",
        Some(2.0),
        |later| {
            let mut snapshot = later.clone();
            snapshot.rows = fresh(&later.rows).into_iter().collect();
            Box::new(move || snapshot)
        },
    )
}

fn adopting_shared() -> Line {
    adopting(
        "adopting a read snapshot, all rows but one shared / the same",
        Some(2.0),
        |later| {
            let snapshot = later.clone();
            Box::new(move || snapshot)
        },
    )
}

/// Without a limit: the same, including the insertion of decoded rows one by one in order.
fn adopting_from_rows() -> Line {
    adopting(
        "adopting 10,000 decoded rows, putting them in order / the same",
        None,
        |later| {
            let (rows, later) = (fresh(&later.rows), later.clone());
            Box::new(move || {
                let mut snapshot = later;
                snapshot.rows = rows.into_iter().collect();
                snapshot
            })
        },
    )
}

fn choosing_targets() -> Line {
    let (large, small): (Vec<_>, Vec<_>) = (
        (0..LARGE).map(silo).collect(),
        (0..SMALL).map(silo).collect(),
    );
    let choose =
        |silos: &[SiloAddress]| each(2, |i| drop(black_box(successors(&silo(i * 3), silos, 10))));
    let (a, b) = alternate(201, || choose(&large), || choose(&small));
    Line {
        name: "choosing 10 probe targets: among 10,000 / among 1,000",
        a,
        b,
        limit: Some(12.0),
    }
}

/// Beside the largest of as many numbers, because both read as much memory.
fn finding_owners() -> Line {
    const KEYS: u32 = 1_000;
    let view = ClusterView::new(table(LARGE));
    let hashes: Vec<u64> = (0..u64::from(LARGE))
        .map(|i| i.wrapping_mul(0x9e37_79b9))
        .collect();
    let owner = |key: u32| {
        black_box(view.owner(key.to_be_bytes()));
    };
    owner(0);
    let (a, b) = alternate(
        31,
        || each(KEYS, owner),
        || {
            each(KEYS, |key| {
                let mixed = hashes.iter().map(|hash| hash ^ u64::from(key));
                black_box(mixed.max());
            })
        },
    );
    Line {
        name: "the owner of a key among 10,000 / the largest of as many numbers",
        a,
        b,
        limit: None,
    }
}
