//! Batches of intents as scenarios. Each silo is a port at one address; its epoch is 1 unless the
//! test names another.
#![allow(clippy::unwrap_used, clippy::panic)]

mod activation;
mod batches;
mod calls;
mod lives;
mod properties;
mod retention;
mod voting;

use std::time::Duration;

use membership_core::intent::{Action, Answer, Applied, Call, Intent, Observed, Refusal, apply};
use membership_core::{
    CauseOfDeath, CommitId, CommitRequest, Config, Death, Evidence, InstanceId, IntentId,
    MembershipEntry, MonoTime, Now, Row, Rows, SharedSettings, SiloAddress, SiloStatus, Snapshot,
    Suspicion, SuspicionReason, TableId, TableLimits, VersionRow, WallTime,
};

const LIMITS: TableLimits = TableLimits::new(100, 65_536, 4_000_000, 5_000);
/// One hour on both clocks, so that earlier times exist.
const NOW: Now = Now {
    mono: MonoTime::from_nanos(3_600_000_000_000),
    wall: WallTime::from_millis(1_763_000_000_000),
};

fn silo(port: u16) -> SiloAddress {
    silo_at(port, 1)
}

fn silo_at(port: u16, epoch: u64) -> SiloAddress {
    SiloAddress::new([10, 0, 0, 1].into(), port, epoch)
}

fn entry(address: SiloAddress, status: SiloStatus) -> MembershipEntry {
    let mut e = MembershipEntry::new(
        address,
        InstanceId::new(u128::from(address.port()) << 64 | u128::from(address.epoch())),
        NOW.wall,
    );
    e.status = status;
    e.active_since = (status == SiloStatus::Active).then_some(3);
    e.written_at = 3;
    e
}

fn died(address: SiloAddress, cause: CauseOfDeath, ago: Duration) -> MembershipEntry {
    let mut e = entry(address, SiloStatus::Dead);
    e.death = Some(Death::new(cause, NOW.wall.minus(ago), None, 3));
    e
}

/// A table at version 9.
fn table(entries: impl IntoIterator<Item = MembershipEntry>) -> Snapshot {
    let rows: Rows = entries.into_iter().map(Row::encode).collect();
    let mut version_row = VersionRow::initial(TableId::new(1), SharedSettings::default());
    version_row.version = 9;
    version_row.row_count = rows.len() as u64;
    Snapshot::new(version_row.token(&[]), version_row, rows)
}

fn actives(ports: impl IntoIterator<Item = u16>) -> Vec<MembershipEntry> {
    ports
        .into_iter()
        .map(|p| entry(silo(p), SiloStatus::Active))
        .collect()
}

fn vote(accuser: SiloAddress) -> Suspicion {
    vote_at(accuser, NOW.wall)
}

fn vote_at(accuser: SiloAddress, at: WallTime) -> Suspicion {
    let mut evidence = Evidence::default();
    evidence.misses = 3;
    evidence.timeout_ms = 5000;
    Suspicion::new(accuser, at, SuspicionReason::Silent, evidence)
}

fn intent(author: SiloAddress, action: Action) -> Intent {
    Intent::new(IntentId::new(1), Some(author), action)
}

/// A vote after a roll call in which every other silo failed to reach the suspect.
fn suspect(author: SiloAddress, suspect: SiloAddress) -> Intent {
    accuse(author, suspect, vec![vote(author)])
}

fn accuse(author: SiloAddress, suspect: SiloAddress, votes: Vec<Suspicion>) -> Intent {
    let others = (1..=20).map(silo).filter(|s| *s != suspect);
    called(author, suspect, votes, call(others))
}

fn called(author: SiloAddress, suspect: SiloAddress, votes: Vec<Suspicion>, call: Call) -> Intent {
    let call = Some(call);
    intent(
        author,
        Action::Suspect {
            suspect,
            votes,
            call,
        },
    )
}

/// A roll call in which these silos failed to reach the suspect, and nobody reached it.
fn call(failed: impl IntoIterator<Item = SiloAddress>) -> Call {
    Call {
        failed: failed.into_iter().collect(),
        reached: 0,
        sample: None,
    }
}

fn join(address: SiloAddress) -> Intent {
    intent(
        address,
        Action::Join(Box::new(entry(address, SiloStatus::Joining))),
    )
}

fn activate(address: SiloAddress, contacted: impl IntoIterator<Item = u16>) -> Intent {
    intent(
        address,
        Action::BecomeActive {
            silo: address,
            contacted: contacted.into_iter().map(silo).collect(),
        },
    )
}

fn leave(address: SiloAddress) -> Intent {
    intent(address, Action::Leave { silo: address })
}

fn evict(address: SiloAddress) -> Intent {
    let mut it = intent(
        address,
        Action::Evict {
            silo: address,
            by: "ops".into(),
            reason: "test".into(),
        },
    );
    it.author = None;
    it
}

fn run(snapshot: &Snapshot, intents: &[Intent]) -> Applied {
    run_seen(snapshot, &Observed::default(), intents)
}

fn run_seen(snapshot: &Snapshot, observed: &Observed, intents: &[Intent]) -> Applied {
    run_within(snapshot, observed, intents, &LIMITS)
}

fn run_within(
    snapshot: &Snapshot,
    observed: &Observed,
    intents: &[Intent],
    limits: &TableLimits,
) -> Applied {
    let applied = apply(snapshot, observed, intents, NOW, &Config::default(), limits);
    assert_eq!(
        applied.answers.len(),
        intents.len(),
        "every intent is answered"
    );
    assert_eq!(
        applied,
        apply(snapshot, observed, intents, NOW, &Config::default(), limits),
        "the same again"
    );
    applied
}

/// The table after the commit, which must be valid for a store.
fn after(snapshot: &Snapshot, applied: &Applied, limits: &TableLimits) -> Snapshot {
    if applied.is_empty() {
        return snapshot.clone();
    }
    let Applied {
        inserts,
        updates,
        removes,
        ..
    } = applied.clone();
    let id = CommitId::new(u128::from(snapshot.version()) + 1);
    let commit = CommitRequest::new(snapshot.token.clone(), id, None, inserts, updates, removes);
    commit.validate(limits, "test").unwrap();
    commit.apply_to(snapshot, commit.next_token(&[]))
}

fn cause(applied: &Applied, address: SiloAddress) -> Option<CauseOfDeath> {
    let e = applied.updates.iter().find(|e| e.address == address)?;
    e.death.as_ref().map(|d| d.cause.clone())
}

const DONE: Answer = Answer::Applied { version: 10 };

fn refused(refusal: Refusal) -> Answer {
    Answer::Refused(refusal)
}
