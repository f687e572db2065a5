//! The spread of views, and limits on what unknown senders can cause.

use super::super::LinkId;
use super::super::callers::Callers;
use super::super::disseminator::{Call, Disseminator};
use super::super::gate;
use super::super::message::{Header, PROTOCOL_VERSION};
use super::*;
use crate::{ClusterView, Delta};

const LINK: LinkId = LinkId(4);

fn here() -> (Ctx, Disseminator) {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    (ctx, Disseminator::default())
}

fn header(version: u64, digest: u64) -> Header {
    let (from, table_id) = (silo(2), Some(TableId::new(1)));
    Header {
        cluster: 0,
        protocol: PROTOCOL_VERSION,
        from,
        instance: instance(from),
        to: None,
        table_id,
        version,
        digest,
    }
}

fn hears(machine: &mut Disseminator, ctx: &mut Ctx, delta: &Delta) -> Call {
    let none = std::collections::BTreeSet::new();
    let witness = Witness {
        stale: &none,
        heard: &|_| false,
    };
    machine.on_delta(ctx, silo(2), delta, &witness)
}

#[test]
fn a_silo_with_an_older_view_asks_at_a_limited_rate() {
    let (mut ctx, mut machine) = here();
    for _ in 0..100 {
        assert_eq!(
            machine.on_peer_version(&mut ctx, LINK, &header(u64::MAX, 0)),
            Call::Nothing
        );
    }
    assert_eq!(sent(&mut ctx).len(), 1);
    pass_time(&mut ctx, ms(500));
    assert_eq!(
        machine.on_peer_version(&mut ctx, LINK, &header(6, 0)),
        Call::Look,
        "it was asked in vain"
    );
    pass_time(&mut ctx, secs(5));
    machine.on_peer_version(&mut ctx, LINK, &header(6, 0));
    assert_eq!(sent(&mut ctx).len(), 1);
}

#[test]
fn a_silo_that_is_no_member_causes_a_read_and_is_not_asked() {
    let (mut ctx, mut machine) = here();
    let mut stranger = header(6, 0);
    stranger.from = silo(9);
    assert_eq!(
        machine.on_peer_version(&mut ctx, LINK, &stranger),
        Call::Hint
    );
    assert!(sent(&mut ctx).is_empty());
}

#[test]
fn an_announced_view_is_not_told_to_others() {
    let (mut ctx, mut machine) = here();
    announce(&mut ctx, snapshot(6, actives([1, 2, 3, 4])));
    machine.on_ask(&mut ctx, LINK, silo(2), Some(TableId::new(1)), 5);
    machine.on_ask(&mut ctx, LINK, silo(2), Some(TableId::new(1)), 4);
    machine.on_ask(&mut ctx, LINK, silo(2), None, 0);
    let deltas: Vec<_> = sent(&mut ctx)
        .into_iter()
        .map(|(_, message)| match message {
            Message::Delta(delta) => delta.to(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deltas, [5]);
}

#[test]
fn another_digest_for_the_same_version_causes_one_read() {
    let (mut ctx, mut machine) = here();
    assert_eq!(
        machine.on_peer_version(&mut ctx, LINK, &header(5, 1)),
        Call::ReadAll
    );
    assert_eq!(
        machine.on_peer_version(&mut ctx, LINK, &header(5, 1)),
        Call::Nothing
    );
    pass_time(&mut ctx, secs(5));
    assert_eq!(
        machine.on_peer_version(&mut ctx, LINK, &header(5, 1)),
        Call::ReadAll
    );
}

#[test]
fn a_delta_applies_on_exactly_its_from_and_only_with_its_digest() {
    let (mut ctx, mut machine) = here();
    let mut six = snapshot(5, actives([1, 2, 3]));
    let commit =
        crate::CommitRequest::new(six.token.clone(), commit_id(6), None, actives([4]), [], []);
    six = commit.apply_to(&six, commit.next_token(&[]));
    let good = ClusterView::new(six.clone()).delta_since(5).unwrap();
    assert_eq!(
        hears(
            &mut machine,
            &mut ctx,
            &Delta {
                from: Some(4),
                ..good.clone()
            }
        ),
        Call::Ask
    );
    assert_eq!(
        hears(
            &mut machine,
            &mut ctx,
            &Delta {
                digest: 1,
                ..good.clone()
            }
        ),
        Call::Read
    );
    assert_eq!(
        hears(&mut machine, &mut ctx, &good),
        Call::Hint,
        "for a minute its sender is not believed"
    );
    pass_time(&mut ctx, secs(60));
    ctx.suspended = true;
    assert_eq!(
        hears(&mut machine, &mut ctx, &good),
        Call::Nothing,
        "nothing is adopted while suspended"
    );
    ctx.suspended = false;
    assert_eq!(hears(&mut machine, &mut ctx, &good), Call::Adopted);
    assert_eq!(ctx.version(), 6);
    assert_eq!(hears(&mut machine, &mut ctx, &good), Call::Nothing);
}

#[test]
fn who_announced_what_the_table_contradicts_is_not_believed_for_a_minute() {
    let (mut ctx, mut machine) = here();
    announce(&mut ctx, snapshot(6, actives([1, 3])));
    assert_eq!(
        ctx.members.alive.len(),
        3,
        "a message makes this silo forget nobody"
    );
    let now = ctx.mono();
    assert_eq!(
        gate::confirm(&mut ctx, Some(now)),
        gate::Passage::Withdrawn(6)
    );
    let six = ClusterView::new(snapshot(6, actives([1, 2, 3, 4])));
    let whole = Delta::whole(&six);
    assert_eq!(hears(&mut machine, &mut ctx, &whole), Call::Hint);
    assert_eq!(
        machine.on_peer_version(&mut ctx, LINK, &header(6, 0)),
        Call::Hint
    );
    pass_time(&mut ctx, secs(60));
    assert_eq!(hears(&mut machine, &mut ctx, &whole), Call::Adopted);
}

#[test]
fn a_whole_view_is_sent_to_one_peer_at_a_limited_rate() {
    let (mut ctx, mut machine) = here();
    for _ in 0..100 {
        machine.on_ask(&mut ctx, LINK, silo(2), None, 0);
    }
    assert_eq!(sent(&mut ctx).len(), 1);
    for n in 0..5_000 {
        machine.on_ask(&mut ctx, LINK, silo(3).with_epoch(n + 2), None, 0);
    }
    assert!(sent(&mut ctx).len() <= 1024, "forged askers");
}

#[test]
fn a_dead_peer_is_told_at_a_limited_rate() {
    let (mut ctx, mut machine) = here();
    for _ in 0..10 {
        machine.on_dead_peer(&mut ctx, LINK, silo(9));
    }
    assert_eq!(
        sent(&mut ctx),
        [(Some(silo(9)), Message::YouAreDead { version: 5 })]
    );
    pass_time(&mut ctx, secs(5));
    machine.on_dead_peer(&mut ctx, LINK, silo(9));
    assert_eq!(sent(&mut ctx).len(), 1);
}

#[test]
fn a_commit_and_a_farewell_are_sent_once_to_each_alive_silo() {
    let (mut ctx, mut machine) = here();
    machine.on_commit(&mut ctx, None);
    let to: Vec<_> = sent(&mut ctx)
        .into_iter()
        .map(|(to, _)| to.unwrap())
        .collect();
    assert_eq!(to, [silo(2), silo(3)]);
    machine.farewell(&mut ctx, 5, None);
    assert_eq!(sent(&mut ctx).len(), 2);
}

#[test]
fn an_announced_row_may_be_dialled_only_while_the_table_is_away() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2])));
    let mut rows = actives([1, 2]);
    rows.push(entry(silo(3), SiloStatus::Joining));
    assert_eq!(announce(&mut ctx, snapshot(6, rows)), Hearing::Announced);
    let dialled = |ctx: &mut Ctx, caller: u8, process: u8| {
        let mut callers = Callers::default();
        callers.hold(ctx, silo(caller), instance(silo(process)), (9, None));
        callers.dial(ctx);
        sent(ctx).len()
    };
    assert_eq!(dialled(&mut ctx, 3, 3), 0);
    ctx.table.failing_since = Some(ctx.now.mono);
    assert_eq!(dialled(&mut ctx, 3, 3), 1);
    assert_eq!(dialled(&mut ctx, 3, 4), 0, "another process");
    assert_eq!(dialled(&mut ctx, 4, 4), 0, "no row");
    let mut callers = Callers::default();
    for _ in 0..300 {
        callers.hold(&ctx, silo(3), instance(silo(3)), (9, None));
        callers.dial(&mut ctx);
    }
    assert_eq!(sent(&mut ctx).len(), 256, "so many a second");
    pass_time(&mut ctx, secs(1));
    callers.dial(&mut ctx);
    assert_eq!(sent(&mut ctx).len(), 1);
}
