//! A member that tells of other rows than the table has, of a version that the table has or will
//! have.

use std::collections::BTreeMap;

use membership::protocol::Message;
use membership::{CommitId, CommitOutcome, CommitRequest, Delta, SiloStatus};

use super::cluster::Cluster;
use super::forged;
use super::watch::Watch;
use crate::common::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn other_rows_of_a_version_are_never_confirmed() {
    let cluster = Cluster::start().await;
    let (liar, now) = (cluster.liar(), cluster.as_read());
    let [a, b, c, d] = cluster.honest() else {
        panic!("four silos do not lie")
    };
    let watch = Watch::over(&cluster.table, [a, b, c]);

    // This version, without a silo that lives.
    let mut fewer = now.snapshot().rows.clone();
    assert!(fewer.remove(&b.me().row_key()));
    let rows = fewer.iter().cloned().collect();
    let (row, token) = (now.snapshot().version_row.clone(), now.token().clone());
    let same_version = Delta::new(None, row, token, fewer.digest(), rows, vec![]);
    for silo in [a, b, c, d] {
        let mut header = liar.header(silo.me());
        header.digest ^= 1;
        let at = silo.me().endpoint();
        liar.say_with(&header, at, Message::Probe { nonce: 1 });
        liar.say_with(&header, at, forged::message(same_version.clone()));
        liar.answered_by(silo.me()).await;
        liar.caught_up(silo.me()).await;
        assert_eq!(silo.view(), now);
    }

    // The next version, by the commit that the table has, but with another row, or without a silo
    // that lives.
    let mut entry = now.get(&c.me()).unwrap().clone();
    let note = |text: &str| BTreeMap::from([("note".to_owned(), text.to_owned())]);
    entry.info.metadata = note("true");
    let commit = |entry| {
        let (token, id) = (now.token().clone(), CommitId::new(77));
        CommitRequest::new(token, id, None, [], [entry], [])
    };
    let truth = commit(entry.clone());
    entry.info.metadata = note("false");
    let another = forged::made_by(&now, &commit(entry));
    let Message::Delta(mut fewer) = forged::made_by(&now, &truth) else {
        panic!("a delta")
    };
    let mut rows = truth.apply_to(now.snapshot(), fewer.token.clone()).rows;
    assert!(rows.remove(&b.me().row_key()));
    fewer.digest = rows.digest();
    fewer.removed.push(b.me().row_key());
    let committed = cluster.table.commit_sync(&truth);
    let Ok(CommitOutcome::Committed(token)) = committed else {
        panic!("{committed:?}")
    };
    assert!(token.same_commit(&fewer.token));
    for silo in [a, c] {
        liar.say(silo.me(), another.clone());
    }
    liar.say(d.me(), Message::Delta(fewer));
    for silo in [a, c, d] {
        liar.caught_up(silo.me()).await;
    }
    for silo in [a, b, c, d] {
        let view = silo.refresh(Some(token.version())).await.unwrap();
        assert_eq!(
            (&view, silo.view()),
            (&cluster.as_read(), cluster.as_read())
        );
        assert_eq!(silo.fencing_token().version, token.version());
    }

    // The version after it, without that silo: what is then written is based on the table.
    let now = cluster.as_read();
    for silo in [a, c] {
        let lie = forged::next(&now, liar.me(), vec![], vec![b.me().row_key()]);
        liar.say(silo.me(), lie);
    }
    let evicted = a.evict(d.me(), "a commit").await.unwrap().unwrap();
    assert_eq!(evicted, token.version() + 1);
    let truth = cluster.as_read();
    for silo in [a, b, c] {
        let view = silo.refresh(Some(evicted)).await.unwrap();
        assert_eq!((&view, view.is_confirmed()), (&truth, true));
        let view = silo.wait_for(|v| v.is_confirmed(), PATIENCE).await.unwrap();
        assert_eq!(view, truth);
        assert_eq!(truth.status(&silo.me()), Some(SiloStatus::Active));
    }
    watch.end().await;
}
