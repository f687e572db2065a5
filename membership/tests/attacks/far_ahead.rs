//! A member that tells of versions far ahead. A version orders writes, so no message may move one.

use std::time::Duration;

use membership::protocol::Message;
use membership::{EventKind, Events, MAX_SAFE_INTEGER};
use tokio::time::timeout;

use super::cluster::{Cluster, Member};
use super::forged;
use super::watch::Watch;
use crate::common::PATIENCE;

/// The largest leap that is published before the table is read.
const LEAP: u64 = 1000;

async fn withdrawn(events: &mut Events) -> (u64, u64) {
    let found = async {
        while let Some(event) = events.next().await {
            if let EventKind::ViewWithdrawn { announced } = event.kind {
                return (announced, event.version);
            }
        }
        panic!("the silo ended")
    };
    timeout(PATIENCE, found).await.expect("withdrawn")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_far_ahead_moves_no_token() {
    let cluster = Cluster::start().await;
    let (liar, now) = (cluster.liar(), cluster.as_read());
    let watch = Watch::over(&cluster.table, cluster.honest());
    let tokens = || -> Vec<_> { cluster.honest().iter().map(|s| s.fencing_token()).collect() };
    let before = tokens();
    let victim = &cluster.honest()[0];
    let mut events = victim.events();
    let say = |version| liar.say(victim.me(), forged::at_version(&now, liar.me(), version));

    for version in [
        now.version() + LEAP + 1,
        1 << 50,
        MAX_SAFE_INTEGER - 1,
        MAX_SAFE_INTEGER,
    ] {
        say(version);
        liar.caught_up(victim.me()).await;
    }
    // No table has a larger one: this is no message.
    let garbage = victim.stats().closed_garbage;
    say(MAX_SAFE_INTEGER + 1);
    victim.until(|s| s.closed_garbage == garbage + 1).await;
    for version in [MAX_SAFE_INTEGER, u64::MAX - 1, u64::MAX] {
        let mut header = liar.header(victim.me());
        header.version = version;
        liar.say_with(&header, victim.me().endpoint(), Message::Probe { nonce: 1 });
        liar.answered_by(victim.me()).await;
    }
    assert_eq!(tokens(), before);

    let claimed = now.version() + LEAP;
    say(claimed);
    assert_eq!(withdrawn(&mut events).await, (claimed, now.version()));
    let published = victim.wait_for(|view| view.version() <= now.version(), PATIENCE);
    assert_eq!(published.await.unwrap(), now);
    assert_eq!(tokens(), before);

    // The next version of the table is adopted as ever.
    let version = cluster.change(victim.me());
    let moved = |silo: &Member| (silo.fencing_token().version, silo.view().version());
    for silo in cluster.honest() {
        let adopted = silo.wait_for(|view| view.version() >= version, Duration::from_secs(20));
        adopted.await.unwrap();
        silo.refresh(Some(version)).await.unwrap();
        assert_eq!(moved(silo), (version, version));
    }
    let seen = watch.end().await;
    assert_eq!(seen.withdrawn, [(victim.me(), vec![claimed])].into());
    for (silo, highest) in &seen.published {
        let expected = if *silo == victim.me() {
            claimed
        } else {
            version
        };
        assert_eq!(*highest, expected, "{silo}");
    }
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
}
