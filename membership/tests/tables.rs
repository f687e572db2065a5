//! Silos and their tables: outages, stores on disk, timeouts, and clients that only read.
#![allow(
    clippy::expect_used,
    reason = "helpers of tests are no tests themselves, but may give up all the same"
)]

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{FaultyTable, PATIENCE, builder, is_dead, local, silos, table};
use membership::protocol::{TableState, Termination};
use membership::{
    ClusterKey, CommitId, CommitRequest, Gateway, GatewayList, GatewayOptions, HeartbeatWrite,
    InitializeRequest, MembershipTable, ReadRequest, SharedSettings, SiloAddress, TableErrorKind,
    TableId, TimedTable, VersionRow,
};

/// Waits for a condition that no view shows.
async fn until(mut what: impl FnMut() -> bool) {
    tokio::time::timeout(PATIENCE, async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it did not come about");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_times_out_and_a_write_is_unknown() {
    let faulty = FaultyTable::new(table());
    faulty.hangs.store(true, Ordering::SeqCst);
    let timed = TimedTable::new(faulty, Duration::from_secs(7));
    let read = timed.read(&ReadRequest::all()).await.unwrap_err();
    assert_eq!(read.kind(), TableErrorKind::Unavailable);
    assert!(read.to_string().contains("no answer within 7s"), "{read}");
    let nobody = SiloAddress::new([127, 0, 0, 1].into(), 1, 1);
    assert_eq!(
        timed.read_row(&nobody, None).await.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    let token = VersionRow::initial(TableId::new(1), SharedSettings::default()).token(&[]);
    let commit = CommitRequest::new(token, CommitId::new(1), None, [], [], ["x".to_owned()]);
    assert_eq!(
        timed.commit(&commit).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    let request = InitializeRequest::new(
        TableId::new(1),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    );
    assert_eq!(
        timed.initialize(&request).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    let beat = HeartbeatWrite::Cluster {
        text: String::new(),
    };
    assert_eq!(
        timed.update_i_am_alive(&beat).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        timed.delete().await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn silos_keep_running_without_the_table() {
    let store = table();
    let faulty = FaultyTable::new(store.clone());
    let a = builder(faulty.clone()).start().await.unwrap();
    let b = builder(store).start().await.unwrap();
    a.wait_for(|view| view.active().count() == 2, PATIENCE)
        .await
        .unwrap();
    let version = a.view().version();
    for switch in [&faulty.down, &faulty.hangs] {
        switch.store(true, Ordering::SeqCst);
        until(|| a.health().table == TableState::Unavailable).await;
        let health = a.health();
        assert!(
            health.ready && health.live,
            "an outage of the table must not fail a probe: {health:?}"
        );
        assert!(a.refresh(None).await.is_err());
        switch.store(false, Ordering::SeqCst);
        until(|| a.health().table == TableState::Available).await;
    }
    assert_eq!(
        (a.view().version(), b.view().version()),
        (version, version),
        "nothing was declared"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_times_out_while_the_table_is_down() {
    let faulty = FaultyTable::new(table());
    let mut config = local();
    config.leave_timeout = Duration::from_secs(2);
    let silo = builder(faulty.clone())
        .config(config)
        .start()
        .await
        .unwrap();
    faulty.hangs.store(true, Ordering::SeqCst);
    let guard = tokio::time::timeout(PATIENCE, silo.begin_leave())
        .await
        .unwrap();
    assert_eq!(guard.version(), None);
    assert_eq!(
        tokio::time::timeout(PATIENCE, guard.finish())
            .await
            .unwrap(),
        Termination::Left { clean: false }
    );
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn silos_meet_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("membership.db").display());
    let open = || async { membership::connect(&url, common::cluster()).await.unwrap() };
    let a = builder(open().await).start().await.unwrap();
    let b = builder(open().await).start().await.unwrap();
    a.wait_for(|view| view.active().count() == 2, PATIENCE)
        .await
        .unwrap();
    assert_eq!(b.leave().await, Termination::Left { clean: true });
    a.wait_for(|view| is_dead(view, &b.me()), PATIENCE)
        .await
        .unwrap();
}

fn often() -> GatewayOptions {
    GatewayOptions::default().with_refresh_period(Duration::from_millis(100))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_follow_the_gateways_and_keep_them_when_the_table_is_down() {
    let store = table();
    let a = builder(store.clone())
        .gateway_port(8001)
        .start()
        .await
        .unwrap();
    let b = builder(store.clone())
        .gateway_port(8002)
        .start()
        .await
        .unwrap();
    let _no_gateway = builder(store.clone()).start().await.unwrap();
    let faulty = FaultyTable::new(store);
    let gateways = GatewayList::start(faulty.clone(), often()).await.unwrap();
    // The order is by the silos' addresses; the ports are the gateway ports.
    let ports = |list: &[Gateway]| {
        list.iter()
            .map(|gateway| gateway.endpoint.port())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(ports(&gateways.current()), [8001, 8002].into());
    let turns: Vec<u16> = (0..4)
        .map(|_| gateways.next().unwrap().endpoint.port())
        .collect();
    assert!(
        turns == [8001, 8002, 8001, 8002] || turns == [8002, 8001, 8002, 8001],
        "{turns:?}"
    );

    let (first, second) = (gateways.current()[0].silo, gateways.current()[1].silo);
    let next = || gateways.next().map(|gateway| gateway.silo);
    gateways.mark_failed(first);
    assert!((0..4).all(|_| next() == Some(second)));
    gateways.mark_failed(second);
    assert_eq!(
        next(),
        Some(first),
        "all failed: the one that had the longest time to recover"
    );
    gateways.mark_good(&second);
    assert_eq!(next(), Some(second));

    faulty.down.store(true, Ordering::SeqCst);
    let mut updates = gateways.updates();
    assert_eq!(updates.next().await.map(|list| list.len()), Some(2));
    b.leave().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(gateways.current().len(), 2, "the last list stays");
    faulty.down.store(false, Ordering::SeqCst);
    assert_eq!(ports(&updates.next().await.unwrap()), [8001].into());
    a.leave().await;
    assert_eq!(updates.next().await.map(|list| list.len()), Some(0));
    assert_eq!(gateways.next(), None);
    drop(gateways);
    assert_eq!(updates.next().await, None);
}

#[tokio::test]
async fn a_gateway_list_needs_one_good_read_to_start() {
    let faulty = FaultyTable::new(table());
    faulty.down.store(true, Ordering::SeqCst);
    assert_eq!(
        GatewayList::start(faulty, often())
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::Unavailable
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_reads_again_when_it_is_alone() {
    let [a] = silos::<1>(&table()).await;
    assert_eq!(a.refresh(None).await.unwrap(), a.view());
}
