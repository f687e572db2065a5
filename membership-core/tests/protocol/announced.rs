//! How what a member announces is confirmed: by the version row alone, or by all rows.

use super::whole::{World, reads};
use super::*;
use membership_core::protocol::{Input, LinkId, PeerIdentity};
use membership_core::{ClusterView, CommitRequest, RowRead};

/// A member commits that silo 3 joins, and announces that it has the status `told`. Returns the
/// effects of the answer to the read of the version row.
fn announced_and_read(w: &mut World, told: SiloStatus) -> Vec<Effect> {
    let base = w.table.clone();
    let next = |status| {
        let (token, id) = (base.token.clone(), CommitId::new(77));
        let joins = [entry(silo(3), status)];
        let commit = CommitRequest::new(token, id, Some(silo(2)), joins, [], []);
        let commit = commit.with_rows_of(&base);
        commit.apply_to(&base, commit.next_token(&[]))
    };
    w.table = next(SiloStatus::Joining);
    let delta = ClusterView::new(next(told)).delta_since(base.version());
    let header = w.probe_header();
    w.take(Input::Message {
        link: LinkId(3),
        peer: PeerIdentity::Proven(header.instance),
        header,
        body: Arc::new(Message::Delta(Box::new(delta.unwrap()))),
    });
    assert!(!w.protocol.view().unwrap().is_confirmed());
    for _ in 0..40 {
        w.wait(Duration::from_millis(250));
        let effects = w.take(Input::Wake);
        assert_eq!(reads(&effects), [], "no rows are read");
        let row_read = effects.iter().find_map(|e| match e {
            Effect::ReadRow { call, .. } => Some(*call),
            _ => None,
        });
        w.serve(effects);
        if let Some(call) = row_read {
            let row = w.table.version_row.clone();
            let read = RowRead::new(w.table.token.clone(), None, None).with_version_row(row);
            return w.take(Input::RowRead {
                call,
                result: Ok(read),
            });
        }
    }
    panic!("the version row is never read");
}

#[test]
fn the_version_row_alone_confirms_what_a_member_announced() {
    let mut w = World::new();
    let effects = announced_and_read(&mut w, SiloStatus::Joining);
    assert_eq!(reads(&effects), []);
    let view = w.protocol.confirmed_view().unwrap();
    assert_eq!(view.version(), w.table.version());
    assert!(w.protocol.view().unwrap().is_confirmed());
    assert!(view.get(&silo(3)).is_some());
}

#[test]
fn other_rows_than_the_version_row_names_are_read() {
    let mut w = World::new();
    let effects = announced_and_read(&mut w, SiloStatus::Active);
    assert_eq!(reads(&effects).len(), 1, "{effects:?}");
    w.serve(effects);
    let view = w.protocol.view().unwrap();
    assert!(view.is_confirmed());
    assert_eq!(view.status(&silo(3)), Some(SiloStatus::Joining));
}

#[test]
fn the_hash_of_an_older_version_confirms_nothing() {
    let base = World::new().table;
    let plain = CommitRequest::new(
        base.token.clone(),
        CommitId::new(77),
        None,
        [entry(silo(3), SiloStatus::Joining)],
        [],
        [],
    );
    // Its committer did not know all rows: the cell is still that of the version before.
    let next = plain.apply_to(&base, plain.next_token(&[]));
    assert_eq!(next.version_row.core, base.version_row.core);
    let mut w = World::new();
    w.table = next.clone();
    let delta = ClusterView::new(next).delta_since(base.version()).unwrap();
    let header = w.probe_header();
    w.take(Input::Message {
        link: LinkId(3),
        peer: PeerIdentity::Proven(header.instance),
        header,
        body: Arc::new(Message::Delta(Box::new(delta))),
    });
    w.wait(secs(5));
    let effects = w.take(Input::Wake);
    assert_eq!(reads(&effects).len(), 1, "{effects:?}");
}

/// A silo that passes no news on takes none: it adopts nothing of it, and asks for what the header
/// says there is.
#[test]
fn whoever_passes_no_news_on_asks_for_it() {
    let mut w = World::new();
    let base = w.table.clone();
    let joins = [entry(silo(3), SiloStatus::Joining)];
    let id = CommitId::new(77);
    let commit = CommitRequest::new(base.token.clone(), id, Some(silo(2)), joins, [], []);
    let next = commit.apply_to(&base, commit.next_token(&[]));
    let delta = ClusterView::new(next.clone()).delta_since(base.version());
    let news = Message::News(Box::new(delta.unwrap()));
    let announced = Message::Announce {
        version: next.version(),
        commit: id,
    };
    let known = w.protocol.view().cloned();
    for body in [news, announced] {
        for version in [base.version(), next.version()] {
            let mut header = w.probe_header();
            let mine = w.protocol.view().unwrap();
            header.table_id = Some(mine.table_id());
            (header.version, header.digest) = (version, mine.short_digest());
            let body = Arc::new(body.clone());
            let effects = w.take(Input::Message {
                link: LinkId(3),
                peer: PeerIdentity::Proven(header.instance),
                header,
                body: body.clone(),
            });
            assert_eq!(w.protocol.view().cloned(), known, "{body:?}");
            let asks = |e: &Effect| match e {
                Effect::Send { body, .. } => matches!(**body, Message::AskDelta { .. }),
                _ => false,
            };
            let asked = effects.iter().any(asks);
            // One question at a time.
            if version == base.version() {
                assert!(!asked, "{effects:?}");
            } else if matches!(*body, Message::News(_)) {
                assert!(asked, "{effects:?}");
            }
        }
    }
}
