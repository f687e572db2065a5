//! The events of a silo, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::network::Network;
use common::{FaultyTable, PATIENCE, local, table};
use membership::protocol::{TableState, Termination};
use membership::{
    Event, EventKind, Events, MembershipTable, Silo, SiloAddress, SiloBuilder, TableErrorKind,
};

fn builder(table: impl MembershipTable, network: &Network, port: u16) -> SiloBuilder {
    Silo::builder(table)
        .transport(network.transport(port))
        .config(local())
        .seed(port.into())
}

/// The next event that `wanted` accepts; those before it are dropped.
async fn next(events: &mut Events, wanted: impl Fn(&EventKind) -> bool) -> Event {
    tokio::time::timeout(PATIENCE, async {
        loop {
            let event = events.next().await.expect("the silo runs");
            if wanted(&event.kind) {
                return event;
            }
        }
    })
    .await
    .expect("the event comes")
}

/// The events before the view in which only two silos are Active.
async fn until_two_are_active(events: &mut Events) -> Vec<EventKind> {
    let mut before = Vec::new();
    tokio::time::timeout(PATIENCE, async {
        loop {
            let kind = events.next().await.expect("the silo runs").kind;
            if matches!(kind, EventKind::ViewPublished { active: 2, .. }) {
                return;
            }
            before.push(kind);
        }
    })
    .await
    .expect("the silo that is cut off is declared dead");
    before
}

async fn rest(events: &mut Events) -> Vec<EventKind> {
    let mut rest = Vec::new();
    while let Some(event) = tokio::time::timeout(PATIENCE, events.next())
        .await
        .expect("the stream ends")
    {
        rest.push(event.kind);
    }
    rest
}

#[tokio::test(start_paused = true)]
async fn joining_and_leaving() {
    let network = Network::default();
    let builder = builder(table(), &network, 7001);
    let mut events = builder.events();
    let silo = builder.start().await.unwrap();
    let me = silo.me();

    let joining = events.next().await.unwrap();
    assert_eq!(joining.kind, EventKind::Joining { silo: me });
    let active = next(&mut events, |kind| matches!(kind, EventKind::Active { .. })).await;
    assert_eq!(active.kind, EventKind::Active { silo: me });
    assert_eq!(
        silo.view().get(&me).unwrap().active_since,
        Some(active.version)
    );
    assert!(active.mono >= joining.mono && active.version > joining.version);

    let mut later = silo.events();
    silo.leave().await;
    let last = rest(&mut events).await;
    let later = rest(&mut later).await;
    assert!(last.ends_with(&later), "{last:?} {later:?}");
    assert!(
        later.contains(&EventKind::Leaving { written: true }),
        "{later:?}"
    );
    assert_eq!(
        last.last(),
        Some(&EventKind::Ended(Box::new(Termination::Left {
            clean: true
        })))
    );
    assert_eq!(
        silo.events().next().await,
        None,
        "a stream made after the end"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_table_comes_with_its_cause_and_goes() {
    let network = Network::default();
    let table = FaultyTable::new(table());
    let silo = builder(table.clone(), &network, 7001)
        .start()
        .await
        .unwrap();
    let mut events = silo.events();
    let is_table = |kind: &EventKind| matches!(kind, EventKind::Table { .. });

    table.down.store(true, Ordering::SeqCst);
    let down = next(&mut events, is_table).await;
    let EventKind::Table { state, error } = down.kind else {
        unreachable!()
    };
    assert_eq!(state, TableState::Unavailable);
    let error = error.expect("the call that failed");
    assert_eq!(error.kind(), TableErrorKind::Unavailable);
    assert!(error.to_string().contains("staged"), "{error}");
    assert_eq!(down.version, silo.view().version());

    table.down.store(false, Ordering::SeqCst);
    let up = next(&mut events, is_table).await;
    let state = TableState::Available;
    assert_eq!(up.kind, EventKind::Table { state, error: None });
    assert!(up.mono > down.mono);
}

#[tokio::test(start_paused = true)]
async fn a_silo_that_is_cut_off_is_suspected_voted_against_and_declared_dead() {
    let (network, table) = (Network::default(), table());
    let cut_table = FaultyTable::new(table.clone());
    let a = builder(table.clone(), &network, 7001)
        .start()
        .await
        .unwrap();
    let b = builder(table.clone(), &network, 7002)
        .start()
        .await
        .unwrap();
    let c = builder(cut_table.clone(), &network, 7003)
        .start()
        .await
        .unwrap();
    for silo in [&a, &b, &c] {
        silo.wait_for(|view| view.active().count() == 3, PATIENCE)
            .await
            .unwrap();
    }
    let (mut of_a, mut of_b, mut of_c) = (a.events(), b.events(), c.events());
    // The silo cannot defend itself, nor vote against the others.
    cut_table.hangs.store(true, Ordering::SeqCst);
    network.cut(c.me().endpoint());

    let gone = c.me();
    let mut voters = 0;
    for (silo, events) in [(&a, &mut of_a), (&b, &mut of_b)] {
        let before = until_two_are_active(events).await;
        assert!(common::is_dead(&silo.view(), &gone));
        let at = |wanted: fn(&EventKind, SiloAddress) -> bool| {
            before.iter().position(|kind| wanted(kind, gone))
        };
        let suspected =
            at(|kind, gone| matches!(kind, EventKind::Suspected { peer, .. } if *peer == gone));
        let voted = at(|kind, gone| *kind == EventKind::VoteWritten { suspect: gone });
        // One silo may write the vote of another in the same commit.
        if let (Some(suspected), Some(voted)) = (suspected, voted) {
            assert!(suspected < voted, "{before:?}");
            voters += 1;
        }
    }
    assert!(voters >= 1);
    let outage = next(&mut of_c, |kind| matches!(kind, EventKind::Table { .. })).await;
    let EventKind::Table { error, .. } = outage.kind else {
        unreachable!()
    };
    assert!(error.unwrap().to_string().contains("no answer within"));

    cut_table.hangs.store(false, Ordering::SeqCst);
    let all = rest(&mut of_c).await;
    let Some(EventKind::Ended(end)) = all.last() else {
        panic!("{all:?}")
    };
    let Termination::DeclaredDead(dead) = &**end else {
        panic!("{end:?}")
    };
    assert_eq!((dead.silo, dead.cause()), (gone, "voted"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_never_reads_learns_how_much_it_missed() {
    let network = Network::default();
    let table = FaultyTable::new(table());
    let silo = builder(table.clone(), &network, 7001)
        .start()
        .await
        .unwrap();
    let mut events = silo.events();
    let began = silo.now();
    // Every outage is two events: together they are far more than the stream holds.
    let mut seen = silo.events();
    for down in (0..400).map(|i| i % 2 == 0) {
        table.down.store(down, Ordering::SeqCst);
        let _ = tokio::time::timeout(
            Duration::from_secs(300),
            next(&mut seen, |kind| matches!(kind, EventKind::Table { .. })),
        )
        .await
        .unwrap();
    }
    assert!(silo.health().live && silo.now() > began);
    let EventKind::Missed { events: missed } = events.next().await.unwrap().kind else {
        panic!("it missed nothing")
    };
    assert!(missed >= 400 - 256, "{missed}");
    let after = events.next().await.unwrap();
    assert!(!matches!(after.kind, EventKind::Missed { .. }), "{after:?}");
}
