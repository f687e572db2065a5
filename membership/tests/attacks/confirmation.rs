//! When a view was last confirmed. A lease rests on it, so it belongs to one view alone.

use std::time::Duration;

use futures_util::future::join_all;

use super::cluster::Cluster;
use super::forged;

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_view_is_never_confirmed_again() {
    let cluster = Cluster::start().await;
    let (liar, now) = (cluster.liar(), cluster.as_read());
    let before: Vec<_> = cluster
        .honest()
        .iter()
        .map(|s| s.confirmed_view())
        .collect();
    let changed = cluster.honest()[0].me();
    let announced = cluster.honest().iter().map(|silo| {
        let fork = forged::next_with_a_note(&now, liar.me(), changed);
        liar.say(silo.me(), fork);
        silo.wait_for(
            |view| view.version() > now.version(),
            Duration::from_secs(2),
        )
    });
    // A silo may withdraw it before this test sees it.
    let announced = join_all(announced).await.into_iter().flatten();
    let announced: Vec<_> = announced.collect();
    assert!(!announced.is_empty());

    let version = cluster.change(changed);
    for silo in cluster.honest() {
        silo.refresh(Some(version)).await.unwrap();
    }
    let replaced: Vec<_> = before.iter().map(|view| view.confirmed_at()).collect();
    for silo in cluster.honest() {
        let mut last = None;
        for _ in 0..3 {
            let asked = silo.now();
            let view = silo.refresh(None).await.unwrap();
            let confirmed = view.confirmed_at();
            assert!(confirmed >= Some(asked) && confirmed > last);
            assert_eq!(view.version(), version);
            last = confirmed;
        }
    }
    for (view, replaced) in before.iter().zip(replaced) {
        assert!(replaced.is_some(), "it was the newest once");
        assert_eq!(view.confirmed_at(), replaced);
    }
    for view in announced {
        assert!(!view.is_confirmed(), "{view:?}");
        assert_eq!((view.confirmed_at(), view.fencing_token()), (None, None));
    }
}
