//! Silos of one process over one table: joining, agreeing, leaving, ending.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{CutTransport, PATIENCE, Process, builder, cause, is_dead, silos, table};
use futures_util::StreamExt;
use membership::intent::Refusal;
use membership::protocol::Termination;
use membership::{CauseOfDeath, ChangeKind, EventKind, RequestError, SiloStatus, WaitError};

#[tokio::test(flavor = "multi_thread")]
async fn three_silos_agree_on_members_leader_and_owners() {
    let [a, b, c] = silos::<3>(&table()).await;
    let version = a.view().version();
    for silo in [&b, &c] {
        let view = silo
            .wait_for(|view| view.version() >= version, PATIENCE)
            .await
            .unwrap();
        assert_eq!(view, a.view());
        assert_eq!(
            silo.leader().unwrap().address,
            a.me(),
            "the first that became active"
        );
        for key in 0..50 {
            assert_eq!(
                silo.owner(format!("key-{key}")).unwrap().address,
                a.owner(format!("key-{key}")).unwrap().address
            );
        }
        let (mine, first) = (silo.refresh(None).await, a.refresh(None).await);
        assert_eq!(mine.unwrap(), first.unwrap());
        assert_eq!(silo.fencing_token(), a.fencing_token());
    }
    let health = a.health();
    assert!(
        health.ready && health.live && !health.suspended,
        "{health:?}"
    );
    assert!(health.table_age < Duration::from_secs(10), "{health:?}");
    assert_eq!(a.get(&b.me()).unwrap().info.silo_name, "silo-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_is_announced_first_and_ends_as_left() {
    let [a, b, c] = silos::<3>(&table()).await;
    let before = a.view();
    let views = a.views();
    let guard = c.begin_leave().await;
    let announced = guard.version().expect("the table works");
    assert!(!c.health().ready);
    let view = b
        .wait_for(|view| view.version() >= announced, PATIENCE)
        .await
        .unwrap();
    assert_eq!(view.status(&c.me()), Some(SiloStatus::ShuttingDown));
    assert_eq!(guard.finish().await, Termination::Left { clean: true });
    let gone = a
        .wait_for(|view| is_dead(view, &c.me()), PATIENCE)
        .await
        .unwrap();
    assert_eq!(cause(&gone, &c.me()), Some(CauseOfDeath::Left));
    assert!(
        a.changes_since(&before)
            .iter()
            .any(|change| change.kind == ChangeKind::Died && change.entry.address == c.me())
    );
    assert!(!c.health().live);
    assert_eq!(
        c.leave().await,
        Termination::Left { clean: true },
        "leaving twice is harmless"
    );
    assert!(matches!(
        c.refresh(None).await,
        Err(RequestError::Stopped(_))
    ));

    a.leave().await;
    let versions: Vec<u64> = views.map(|view| view.version()).collect().await;
    assert!(
        versions.windows(2).all(|pair| pair[0] < pair[1]),
        "{versions:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_stops_the_silo() {
    let [a, b] = silos::<2>(&table()).await;
    let silo = b.me();
    let (clone, mut views) = (b.clone(), b.views());
    drop(b);
    assert!(clone.health().live);
    drop(clone);
    let view = a
        .wait_for(|view| is_dead(view, &silo), PATIENCE)
        .await
        .unwrap();
    assert_eq!(cause(&view, &silo), Some(CauseOfDeath::Left));
    while views.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_finishes_in_the_background() {
    let [a, b] = silos::<2>(&table()).await;
    drop(b.begin_leave().await);
    assert_eq!(b.terminated().await, Termination::Left { clean: true });
    a.wait_for(|view| is_dead(view, &b.me()), PATIENCE)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_silo_is_voted_out_with_evidence() {
    let table = table();
    let [a, b] = silos::<2>(&table).await;
    let victim = Process::start(builder(table)).await.unwrap();
    let address = victim.silo.me();
    for silo in [&a, &b] {
        silo.wait_for(|view| view.active().count() == 3, PATIENCE)
            .await
            .unwrap();
    }
    let dead = victim.kill();
    assert_eq!(
        dead.terminated().await,
        Termination::Left { clean: false },
        "the row is unmarked"
    );
    for silo in [&a, &b] {
        let view = silo
            .wait_for(|view| is_dead(view, &address), PATIENCE)
            .await
            .unwrap();
        assert_eq!(cause(&view, &address), Some(CauseOfDeath::Voted));
        let votes = &view.get(&address).unwrap().suspicions;
        assert!(
            !votes.is_empty()
                && votes
                    .iter()
                    .all(|vote| vote.evidence.misses > 0 || vote.evidence.via.is_some()),
            "{votes:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_silo_learns_by_whom_and_why() {
    let [a, b] = silos::<2>(&table()).await;
    let version = a.evict(b.me(), "its disk is full").await.unwrap();
    let Termination::DeclaredDead(end) = b.terminated().await else {
        panic!("it did not leave")
    };
    assert_eq!(
        (end.silo, end.cause(), end.version),
        (b.me(), "evicted", version.unwrap())
    );
    let Some(CauseOfDeath::Evicted { by, reason }) = end.death.map(|death| death.cause) else {
        panic!("no cause")
    };
    assert_eq!(
        (by, reason),
        (a.me().to_string(), "its disk is full".to_owned())
    );
    assert!(!b.health().live && !b.health().ready);

    let nobody = a.me().with_epoch(1);
    assert_eq!(
        a.evict(nobody, "never was").await,
        Err(RequestError::Refused(Refusal::NoSuchSilo(nobody)))
    );
    assert_eq!(
        a.evict(b.me(), "again").await,
        Ok(None),
        "it is Dead already"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_view_ends_in_time_or_with_the_silo() {
    let [a] = silos::<1>(&table()).await;
    let version = a.view().version();
    let waited = Duration::from_millis(50);
    assert_eq!(
        a.wait_for(|_| false, waited).await.unwrap_err(),
        WaitError::TimedOut { waited, version }
    );
    let waiting = tokio::spawn({
        let a = a.clone();
        async move { a.wait_for(|_| false, PATIENCE).await }
    });
    a.leave().await;
    assert_eq!(
        waiting.await.unwrap().unwrap_err(),
        WaitError::Stopped(Box::new(Termination::Left { clean: true }))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_reads_the_table() {
    let [a, b] = silos::<2>(&table()).await;
    let version = a.evict(b.me(), "test").await.unwrap().unwrap();
    assert!(a.refresh(Some(version)).await.unwrap().version() >= version);
    assert!(a.refresh(None).await.unwrap().version() >= version);
    a.heard_from(b.me(), Instant::now());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_start_leaves_no_row_behind() {
    let table = table();
    let [a] = silos::<1>(&table).await;
    for wait in [0, 1, 5, 20, 50] {
        let _ =
            tokio::time::timeout(Duration::from_millis(wait), builder(table.clone()).start()).await;
    }
    let alone = |view: &membership::ClusterView| {
        view.members()
            .all(|e| e.address == a.me() || e.status == SiloStatus::Dead)
    };
    // At this point the view has every row that a dropped start wrote, or a later start removes it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.refresh(None).await.unwrap();
    a.wait_for(alone, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_its_task_ends_a_silo_and_is_told_as_such() {
    let table = table();
    let [_other] = silos::<1>(&table).await;
    let transport = CutTransport::bind().await;
    let defective = transport.defective.clone();
    let silo = builder(table)
        .transport(Arc::new(transport))
        .start()
        .await
        .unwrap();
    let mut events = silo.events();
    defective.store(true, Ordering::SeqCst);
    let end = tokio::time::timeout(PATIENCE, silo.terminated())
        .await
        .unwrap();
    assert!(
        matches!(&end, Termination::Panicked { message } if message == "a staged defect"),
        "{end:?}"
    );
    assert!(!silo.health().live);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event.kind);
    }
    assert_eq!(last, Some(EventKind::Ended(Box::new(end))));
}
