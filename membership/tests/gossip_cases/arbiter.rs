//! A table as the arbiter of splits: at most one side of each gets the lease, without any clock.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use membership::gossip::downing::{Claim, Lease};
use membership::gossip::states::{Edit, Gossip, MemberStatus, Profile};
use membership::gossip::{
    Arbiter, ArbiterAnswer, ArbiterError, Downing, EventKind, StartError, TableArbiter,
    Termination, downing::Strategy,
};
use membership::words::is_lease;
use membership::{
    FoundingId, InstanceId, MembershipTable as _, MemoryTable, ReadAnswer, ReadRequest,
    SiloAddress, SiloInfo,
};

fn member(n: u16) -> SiloAddress {
    let at = SocketAddr::from(([10, 0, 0, 1], 7000 + n));
    SiloAddress::at(at, 100)
}

/// A state in which these are up.
fn up(members: impl IntoIterator<Item = SiloAddress>) -> Gossip {
    let mut gossip = Gossip::default();
    for (place, address) in (1..).zip(members) {
        gossip.edit(address, |edit: &mut Edit<'_>| {
            let profile = Arc::new(Profile::new(SiloInfo::named("m")));
            edit.admit(
                address,
                InstanceId::new(u128::from(address.port())),
                profile,
            );
            edit.advance(&address, MemberStatus::Up, Some(place));
        });
    }
    gossip
}

fn all() -> Gossip {
    up((1..=5).map(member))
}

/// The same state after these were downed.
fn without(mut gossip: Gossip, downed: &[u16]) -> Gossip {
    gossip.edit(member(1), |edit: &mut Edit<'_>| {
        for n in downed {
            edit.advance(&member(*n), MemberStatus::Down, None);
        }
    });
    gossip
}

fn claim(by: u16, gossip: &Gossip, down: &[u16]) -> Claim {
    let down = down.iter().map(|n| member(*n)).collect();
    let founding = Some(FoundingId::new(7));
    Claim::new(member(by), founding, down, gossip.state().clone())
}

/// An arbiter that cannot be asked.
#[derive(Debug)]
struct Away {
    /// From the start.
    always: bool,
}

#[async_trait::async_trait]
impl Arbiter for Away {
    async fn id(&self) -> Result<Option<String>, ArbiterError> {
        match self.always {
            true => Err(ArbiterError("the store is away".into())),
            false => Ok(None),
        }
    }

    async fn acquire(&self, _: &Claim) -> Result<Lease, ArbiterError> {
        Err(ArbiterError("the store is away".into()))
    }

    async fn release(&self, _: SiloAddress) -> Result<(), ArbiterError> {
        Ok(())
    }
}

fn with_lease(at: SocketAddr) -> crate::MemberBuilder {
    let mut config = crate::quick();
    config.downing = Downing::new(Strategy::lease_majority());
    config.downing.stable_after = std::time::Duration::from_secs(1);
    crate::plain(at).config(config)
}

/// The other one crashes with its runtime.
#[tokio::test]
async fn a_decision_says_why_the_arbiter_was_not_asked() {
    let points = crate::free(2);
    let builder = with_lease(points[0]).arbiter(Away { always: false });
    let mut events = builder.events();
    let member = builder.start().await.unwrap();
    let other = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let all = points.clone();
    let joined = other.spawn(async move {
        let builder = with_lease(all[1]).arbiter(Away { always: false });
        let member = builder.start().await.unwrap();
        member.join(all).await.unwrap();
        member
    });
    member.join(points).await.unwrap();
    let crashing = joined.await.unwrap();
    let both =
        |view: &membership::gossip::GossipView| view.converged() && view.active().count() == 2;
    member.wait_for(both, crate::PATIENCE).await.unwrap();
    other.shutdown_background();
    drop(crashing);

    let end = tokio::time::timeout(crate::PATIENCE, member.terminated());
    assert_eq!(end.await.unwrap(), Termination::Downed);
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        if let EventKind::Decided(decided) = event.kind {
            told.push(decided);
        }
    }
    let decided = told.pop().expect("it has decided");
    assert_eq!(decided.strategy.name(), "lease-majority");
    let Some(ArbiterAnswer::Silent { reason }) = &decided.arbiter else {
        panic!("{decided:?}");
    };
    assert!(reason.contains("the store is away"), "{reason}");
    assert_eq!(
        (decided.decision.reached, decided.decision.unreached),
        (1, 1)
    );
}

#[tokio::test]
async fn a_member_does_not_start_with_an_arbiter_that_does_not_say_which_it_is() {
    let builder = with_lease(crate::free(1)[0]).arbiter(Away { always: true });
    let error = builder.start().await.unwrap_err();
    assert!(matches!(error, StartError::Arbiter(_)), "{error}");
    assert!(error.to_string().contains("the store is away"), "{error}");
}

#[tokio::test]
async fn arbiters_in_one_table_are_the_same_and_others_differ() {
    let table = MemoryTable::new("test-lease".parse().unwrap());
    let (one, same) = (TableArbiter::new(table.clone()), TableArbiter::new(table));
    let id = one.id().await.unwrap();
    assert!(id.is_some());
    assert_eq!(same.id().await.unwrap(), id);
    assert_ne!(arbiter().id().await.unwrap(), id);
    // The row does not change it.
    assert!(
        one.acquire(&claim(1, &all(), &[4, 5]))
            .await
            .unwrap()
            .is_granted()
    );
    assert_eq!(one.id().await.unwrap(), id);
}

fn arbiter() -> TableArbiter {
    TableArbiter::new(MemoryTable::new("test-lease".parse().unwrap()))
}

#[tokio::test]
async fn one_side_of_a_split_gets_the_lease_and_the_other_never() {
    let arbiter = arbiter();
    let (one, other) = (claim(1, &all(), &[4, 5]), claim(4, &all(), &[1, 2, 3]));
    assert!(arbiter.acquire(&one).await.unwrap().is_granted());
    assert!(
        arbiter.acquire(&one).await.unwrap().is_granted(),
        "it has it"
    );
    assert!(!arbiter.acquire(&other).await.unwrap().is_granted());
    // Also not after the winners gave it back, and however often it asks.
    arbiter.release(member(1)).await.unwrap();
    assert!(!arbiter.acquire(&other).await.unwrap().is_granted());
    let alone = claim(5, &all(), &[1, 2, 3, 4]);
    assert!(!arbiter.acquire(&alone).await.unwrap().is_granted());
}

/// Operators are told that the row is no silo's (`membership doctor`, `membership evict`).
#[tokio::test]
async fn its_row_is_known_for_what_it_is() {
    let table = Arc::new(MemoryTable::new("test-lease".parse().unwrap()));
    let arbiter = TableArbiter::new(Arc::clone(&table));
    let lease = arbiter.acquire(&claim(1, &all(), &[4, 5])).await.unwrap();
    assert!(lease.is_granted());
    let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await.unwrap()
    else {
        panic!("no rows");
    };
    let rows: Vec<_> = snapshot.rows.entries().collect();
    assert!(rows.len() == 1 && is_lease(rows[0]), "{rows:?}");
}

#[tokio::test]
async fn of_two_that_ask_at_once_one_gets_it() {
    for _ in 0..50 {
        let arbiter = arbiter();
        let (one, other) = (claim(1, &all(), &[4, 5]), claim(4, &all(), &[1, 2, 3]));
        let again = arbiter.clone();
        let one = tokio::spawn(async move { again.acquire(&one).await.unwrap() });
        let again = arbiter.clone();
        let other = tokio::spawn(async move { again.acquire(&other).await.unwrap() });
        let (one, other) = (one.await.unwrap(), other.await.unwrap());
        assert!(one.is_granted() != other.is_granted());
    }
}

#[tokio::test]
async fn a_leader_that_crashes_with_the_lease_keeps_nobody_of_its_side_from_it() {
    let arbiter = arbiter();
    assert!(
        arbiter
            .acquire(&claim(1, &all(), &[4, 5]))
            .await
            .unwrap()
            .is_granted()
    );
    // Nobody has heard of its decision. Who carries it on learns whom it downed.
    assert!(
        !arbiter
            .acquire(&claim(4, &all(), &[1, 2, 3]))
            .await
            .unwrap()
            .is_granted()
    );
    let lease = arbiter.acquire(&claim(2, &all(), &[1])).await.unwrap();
    let also_down = BTreeSet::from([member(4), member(5)]);
    assert_eq!(lease, Lease::Granted { also_down });
    assert!(
        !arbiter
            .acquire(&claim(1, &all(), &[2, 3, 4, 5]))
            .await
            .unwrap()
            .is_granted()
    );
}

#[tokio::test]
async fn the_winners_may_split_again() {
    let arbiter = arbiter();
    assert!(
        arbiter
            .acquire(&claim(1, &all(), &[4, 5]))
            .await
            .unwrap()
            .is_granted()
    );
    let later = without(all(), &[4, 5]);
    assert!(
        arbiter
            .acquire(&claim(2, &later, &[1]))
            .await
            .unwrap()
            .is_granted()
    );
    assert!(
        !arbiter
            .acquire(&claim(1, &later, &[2, 3]))
            .await
            .unwrap()
            .is_granted()
    );
    let last = without(later, &[1]);
    assert!(
        arbiter
            .acquire(&claim(3, &last, &[2]))
            .await
            .unwrap()
            .is_granted()
    );
    assert!(
        !arbiter
            .acquire(&claim(4, &all(), &[1, 2, 3]))
            .await
            .unwrap()
            .is_granted()
    );
}

/// It joined by one that crashed, and the winners have never heard of it.
#[tokio::test]
async fn a_newcomer_that_the_winners_do_not_know_does_not_get_it() {
    let arbiter = arbiter();
    assert!(
        arbiter
            .acquire(&claim(1, &all(), &[5]))
            .await
            .unwrap()
            .is_granted()
    );
    let newcomer = up((1..=6).map(member));
    let alone = claim(6, &newcomer, &[1, 2, 3, 4, 5]);
    assert!(!arbiter.acquire(&alone).await.unwrap().is_granted());
}

#[tokio::test]
async fn a_loser_that_was_started_again_may_lead() {
    let arbiter = arbiter();
    assert!(
        arbiter
            .acquire(&claim(2, &all(), &[1]))
            .await
            .unwrap()
            .is_granted()
    );
    let again = SiloAddress::at(member(1).endpoint(), 200);
    let members = (2..=5).map(member).chain([again]);
    let founding = Some(FoundingId::new(7));
    let state = up(members).state().clone();
    let claim = Claim::new(again, founding, [member(5)].into(), state);
    assert!(arbiter.acquire(&claim).await.unwrap().is_granted());
    let other = Some(FoundingId::new(8));
    let another = Claim::new(member(5), other, [again].into(), all().state().clone());
    assert!(
        arbiter.acquire(&another).await.unwrap().is_granted(),
        "another cluster"
    );
}
