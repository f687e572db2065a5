//! A member that tells of a past that the table never had: an older version, another commit, rows of
//! another path. Only the table can say that it was rolled back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use membership::{CauseOfDeath, ClusterView, Delta, SiloAddress};
use tokio::time::{interval, timeout};

use super::cluster::{Cluster, Member};
use super::forged;
use super::watch::Watch;
use crate::common::{PATIENCE, cause, is_dead};

/// Long enough for a slow machine: without lies it takes some 2 s.
const NOTICED: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_past_leaves_the_table_available() {
    let mut cluster = Cluster::start().await;
    let (liar, now) = (cluster.liar(), cluster.as_read());
    let changed = cluster.honest()[1].me();
    let watch = Watch::over(&cluster.table, cluster.honest());
    let lies = [
        forged::message(Delta::whole(&cluster.young)),
        forged::after_another_commit(&now, liar.me()),
        forged::of_another_path(&now, liar.me(), changed),
    ];
    liar.answer_with(lies.to_vec());
    for silo in cluster.honest() {
        liar.make_ask(silo.me()).await;
    }
    liar.answer_with(Vec::new());
    for silo in cluster.honest() {
        for lie in &lies {
            liar.say(silo.me(), lie.clone());
        }
        liar.caught_up(silo.me()).await;
    }
    // What could be the next version is announced, until the table makes another one of it.
    for silo in cluster.honest() {
        let fork = forged::next_with_a_note(&now, liar.me(), changed);
        liar.say(silo.me(), fork);
    }
    let version = cluster.change(changed);
    for silo in cluster.honest() {
        let view = silo.refresh(Some(version)).await.unwrap();
        assert!(view.version() >= version, "{view:?}");
    }
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);

    let victim = cluster.silos.remove(3);
    let survivors = &cluster.silos[..3];
    let watch = Watch::over(&cluster.table, survivors);
    let killed = victim.kill();
    let dead = killed.me();
    for silo in survivors {
        let view = silo.wait_for(|view| is_dead(view, &dead), PATIENCE).await;
        assert_eq!(cause(&view.unwrap(), &dead), Some(CauseOfDeath::Voted));
    }
    // Another silo may have written the votes.
    let accused = watch.end().await.accused;
    assert!(accused.is_subset(&[dead].into()), "{accused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_is_noticed_while_a_member_lies_without_a_pause() {
    let mut cluster = Cluster::start().await;
    let liar = cluster.liar();
    let victim = cluster.silos.remove(3);
    let survivors = &cluster.silos[..3];
    let watch = Watch::over(&cluster.table, survivors);
    let told: Vec<_> = survivors.iter().map(|silo| silo.me()).collect();
    // A read takes longer than it takes to announce another view, as in a store that is far away.
    cluster.reached.delay.store(200, Ordering::SeqCst);
    let lie = async {
        let mut ticks = interval(Duration::from_millis(5));
        for lie in forged::chain(&liar.view(), liar.me(), told[0]) {
            ticks.tick().await;
            for silo in &told {
                liar.say(*silo, lie.clone());
            }
        }
    };
    let noticed = async {
        let begun = Instant::now();
        let killed = victim.kill();
        liar.cover_for(killed.me());
        for silo in survivors {
            confirms_the_end_of(silo, killed.me()).await;
        }
        (killed, begun.elapsed())
    };
    let (killed, took) = tokio::select! {
        () = lie => unreachable!("it goes on"),
        noticed = timeout(NOTICED, noticed) => noticed.expect("the crash is noticed"),
    };
    println!("a crash is noticed after {took:?}, while a member lies");
    // Another silo may have written the votes.
    let accused = watch.end().await.accused;
    assert!(accused.is_subset(&[killed.me()].into()), "{accused:?}");
}

async fn confirms_the_end_of(silo: &Member, dead: SiloAddress) {
    let ended =
        |view: &ClusterView| view.is_confirmed() && cause(view, &dead) == Some(CauseOfDeath::Voted);
    // A view may be confirmed after it was published.
    while !ended(&silo.confirmed_view()) {
        let _ = silo.wait_for(ended, Duration::from_millis(50)).await;
    }
}
