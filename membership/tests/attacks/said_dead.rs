//! A member that tells of the end of a silo that lives. Only the table ends anybody.

use std::time::Duration;

use membership::protocol::Message;
use membership::{CauseOfDeath, SiloStatus};

use super::cluster::Cluster;
use super::forged;
use super::watch::Watch;

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_that_is_said_to_have_ended_goes_on() {
    let cluster = Cluster::start().await;
    let (liar, now) = (cluster.liar(), cluster.as_read());
    let victim = cluster.honest()[0].me();
    let watch = Watch::over(&cluster.table, cluster.honest());
    let next = |entry| forged::next(&now, liar.me(), vec![entry], vec![]);
    let evicted = CauseOfDeath::Evicted {
        by: "somebody".to_owned(),
        reason: "a lie".to_owned(),
    };
    let mut newer = forged::with_status(&now, victim, SiloStatus::Active);
    newer.address = victim.with_epoch(victim.epoch() + 1);
    let ends = [
        forged::next(&now, liar.me(), vec![], vec![victim.row_key()]),
        next(forged::dead(&now, victim, CauseOfDeath::Left)),
        next(forged::dead(&now, victim, CauseOfDeath::Superseded)),
        next(forged::dead(&now, victim, evicted)),
        next(newer),
        next(forged::voted_out(&now, victim)),
        next(forged::with_status(&now, victim, SiloStatus::Stopping)),
        next(forged::with_status(&now, victim, SiloStatus::ShuttingDown)),
    ];
    // A silo that has been misled may not listen for a while: each of them hears another one first.
    for (i, silo) in cluster.honest().iter().enumerate() {
        for k in 0..ends.len() {
            let end = &ends[(k + 2 * i) % ends.len()];
            liar.say(silo.me(), end.clone());
            if let Message::Delta(delta) = end {
                let (version, delta) = (delta.to(), Some(delta.clone()));
                liar.say(silo.me(), Message::Farewell { version, delta });
            }
            let version = now.version() + 1;
            liar.say(silo.me(), Message::YouAreDead { version });
        }
        liar.caught_up(silo.me()).await;
        liar.answered_by(silo.me()).await;
    }

    let version = cluster.change(victim);
    for silo in cluster.honest() {
        silo.refresh(Some(version)).await.unwrap();
        let view = silo.wait_for(|view| view.version() == version, Duration::from_secs(20));
        let view = view.await.unwrap();
        assert_eq!((view.active().count(), view.is_confirmed()), (5, true));
        assert_eq!(silo.refresh(None).await.unwrap(), cluster.as_read());
    }
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
    println!("views withdrawn: {:?}", seen.withdrawn);
}
