//! What holds back a call or a vote.

use super::*;

#[test]
fn the_smaller_side_one_of_two_or_a_deaf_silo_accuses_only_stale_silos() {
    let mut minority = World::new(actives([1, 2, 3, 4]));
    minority.silent.extend([silo(3), silo(4)]);
    let of_two = World::new(actives([1, 2]));
    let mut deaf = World::new(actives([1, 2, 3, 4]));
    deaf.deaf = true;
    for mut w in [minority, of_two, deaf] {
        assert_eq!(w.run(secs(60)), []);
        w.stale = w.silent.clone();
        w.votes_within(15);
    }
}

#[test]
fn a_silo_with_a_local_reason_calls_only_about_stale_silos() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.local = 1;
    assert_eq!(w.run(secs(30)), []);
    assert_eq!(w.calls, 0);
    w.stale = w.silent.clone();
    w.run(secs(10));
    assert!(w.calls > 0);
}

#[test]
fn a_verdict_is_dropped_when_the_silo_becomes_unwell() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    w.local = 1;
    assert_eq!(w.poll(), []);
    w.local = 0;
    w.deaf = true;
    assert_eq!(w.poll(), []);
    w.deaf = false;
    assert_eq!(w.poll(), [silo(2)]);
}

#[test]
fn only_an_active_silo_with_a_confirmed_view_accuses() {
    let spoils: [fn(&mut Ctx); 4] = [
        |ctx| ctx.status = SiloStatus::Joining,
        |ctx| ctx.status = SiloStatus::ShuttingDown,
        |ctx| ctx.suspended = true,
        |ctx| {
            let next = snapshot(6, actives([1, 2, 3, 4]));
            announce(ctx, next);
            assert!(ctx.is_announced());
        },
    ];
    for spoil in spoils {
        let mut w = World::new(actives([1, 2, 3, 4]));
        w.stale = w.silent.clone();
        spoil(&mut w.ctx);
        assert_eq!((w.run(secs(20)), w.calls), (vec![], 0));
        let mut w = World::new(actives([1, 2, 3, 4]));
        w.votes_within(10);
        spoil(&mut w.ctx);
        assert_eq!(w.poll(), []);
    }
}

#[test]
fn a_verdict_holds_until_the_suspect_answers_or_it_is_old() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    w.hears(silo(2), w.ctx.now.mono);
    assert_eq!(w.poll(), []);
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    pass_time(&mut w.ctx, secs(4));
    assert_eq!(w.poll(), [silo(2)]);
    pass_time(&mut w.ctx, ms(1_001));
    assert_eq!(w.poll(), [], "older than a probe period");
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    believe(&mut w.ctx, snapshot(6, actives([1, 3, 4])));
    w.voter.on_view(&w.ctx);
    assert_eq!(w.poll(), []);
}

#[test]
fn suspicions_from_before_the_table_recovered_do_not_count() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    pass_time(&mut w.ctx, ms(1));
    w.ctx.table.recovered_at = Some(w.ctx.now.mono);
    assert_eq!(w.poll(), []);
    w.votes_within(15);
}

#[test]
fn fresh_evidence_of_life_holds_a_call_back() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    for _ in 0..100 {
        w.run(ms(100));
        w.prober.on_evidence(&w.ctx, silo(2), w.ctx.now.mono);
        assert_eq!(w.calls, 0);
    }
    // Three times in a row, and no more: its protocol is silent.
    for _ in 0..60 {
        w.run(ms(100));
        w.prober.on_evidence(&w.ctx, silo(2), w.ctx.now.mono);
    }
    assert!(w.calls > 0);
}

/// A table that takes seconds to answer has not answered the call before it when a roll call ends.
#[test]
fn a_verdict_waits_for_a_busy_table_as_long_as_it_counts_and_then_as_long_again() {
    let took = World::new(actives([1, 2, 3, 4])).votes_within(10);
    let writes = |busy: bool, after: Duration| {
        let mut w = World::new(actives([1, 2, 3, 4]));
        w.busy = busy;
        w.run(took);
        // No later call finds a majority.
        w.silent.extend([silo(3), silo(4)]);
        w.run(after);
        w.busy = false;
        w.poll()
    };
    assert_eq!(writes(false, ms(4_800)), [silo(2)]);
    assert_eq!(writes(false, ms(5_200)), []);
    assert_eq!(writes(true, ms(9_800)), [silo(2)]);
    assert_eq!(writes(true, ms(10_200)), []);
}

#[test]
fn whoever_reaches_a_suspect_after_the_call_is_not_counted_against_it() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    let found = [(silo(2), Finding::Reached)];
    let call = w.call;
    let mut count = |by: SiloAddress, call: u64| {
        w.voter.on_answer(&by, call, &found);
        let Action::Suspect { votes, call, .. } = w.intents().remove(0).action else {
            panic!()
        };
        let call = call.unwrap();
        (call.failed.len(), call.reached, votes.len())
    };
    assert_eq!(count(silo(3), call + 1), (3, 0, 3), "said in another call");
    assert_eq!(count(silo(3), call), (2, 1, 2));
    assert_eq!(count(silo(3), call), (2, 1, 2), "said twice");
    assert_eq!(count(silo(4), call), (1, 2, 1));
}
