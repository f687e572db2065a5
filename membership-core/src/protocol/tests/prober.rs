//! Misses, the indirect last probe, and evidence of life.

use std::collections::BTreeSet;

use super::super::message::IndirectOutcome;
use super::super::prober::Prober;
use super::super::timers::Timer;
use super::*;

fn probing(n: u8) -> (Ctx, Prober) {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives(1..=n)));
    let mut prober = Prober::default();
    let targets: BTreeSet<SiloAddress> = (2..=n).map(silo).collect();
    prober.set_targets(&mut ctx, &targets);
    (ctx, prober)
}

/// Lets time pass until the next probe of silo 2 and returns its message; the other silos answer at
/// once.
fn next_probe(ctx: &mut Ctx, prober: &mut Prober) -> Message {
    loop {
        let by = ctx.timers.next().unwrap().since(ctx.now.mono);
        pass_time(ctx, by);
        let target = match ctx.timers.pop_due(ctx.now.mono) {
            Some(Timer::Probe(target)) => target,
            Some(Timer::Doubt(_)) => continue,
            other => panic!("{other:?}"),
        };
        prober.on_timer(ctx, target, 1);
        let (to, message) = sent(ctx).pop().unwrap();
        if target == silo(2) {
            return message;
        }
        let (Some(to), Message::Probe { nonce }) = (to, message) else {
            panic!("not a probe")
        };
        assert!(prober.on_ack(ctx, to, nonce));
    }
}

#[test]
fn the_last_probe_is_indirect_and_may_bring_a_consent() {
    let (mut ctx, mut prober) = probing(4);
    for _ in 0..3 {
        assert!(
            matches!(next_probe(&mut ctx, &mut prober), Message::Probe { .. })
                || prober.suspects(&ctx, 0, 1).is_empty()
        );
        if let Some(t) = ctx.timers.next() {
            let _ = t;
        }
    }
    // Two direct misses so far: the third attempt went through silo 3 or 4.
    let Message::IndirectProbe {
        round,
        suspect,
        timeout,
    } = next_indirect(&mut ctx, &mut prober)
    else {
        panic!("not indirect")
    };
    assert_eq!(
        (suspect, timeout >= ctx.config.min_probe_timeout),
        (silo(2), true)
    );
    for via in [silo(3), silo(4)] {
        let mut own = vote(3, NOON.minus(secs(1 << 30)));
        own.accuser = via;
        prober.on_indirect(
            &mut ctx,
            via,
            round,
            &IndirectOutcome::No { consent: Some(own) },
            1,
        );
    }
    let suspects = prober.suspects(&ctx, 0, 1);
    let [s] = suspects.as_slice() else {
        panic!("{suspects:?}")
    };
    let consent = s.consent.as_ref().unwrap();
    assert_eq!(
        (s.silo, consent.evidence.via, consent.at),
        (silo(2), Some(silo(1)), ctx.now.wall),
        "its time is mine"
    );
    pass_time(&mut ctx, s.period * 2 + ms(1));
    assert!(
        prober.suspects(&ctx, 0, 1)[0].consent.is_none(),
        "an old consent is no consent"
    );
}

fn next_indirect(ctx: &mut Ctx, prober: &mut Prober) -> Message {
    for _ in 0..10 {
        let m = next_probe(ctx, prober);
        if matches!(m, Message::IndirectProbe { .. }) {
            return m;
        }
    }
    panic!("no indirect probe")
}

#[test]
fn a_silo_silent_for_half_the_last_probe_is_doubted() {
    let (mut ctx, mut prober) = probing(4);
    let Message::IndirectProbe { round, timeout, .. } = next_indirect(&mut ctx, &mut prober) else {
        panic!("not indirect")
    };
    assert_eq!(prober.doubted(&ctx).count(), 0);
    assert!(
        ctx.timers.next().unwrap().since(ctx.now.mono) <= timeout / 2,
        "it is looked at when that is over"
    );
    pass_time(&mut ctx, timeout / 2);
    assert_eq!(prober.doubted(&ctx).collect::<Vec<_>>(), [silo(2)]);
    for via in [silo(3), silo(4)] {
        prober.on_indirect(&mut ctx, via, round, &IndirectOutcome::Yes, 1);
    }
    assert_eq!(prober.doubted(&ctx).count(), 0);
}

#[test]
fn unknown_is_no_miss_and_without_an_intermediary_the_probe_is_direct() {
    let (mut ctx, mut prober) = probing(3);
    let Message::IndirectProbe { round, .. } = next_indirect(&mut ctx, &mut prober) else {
        panic!()
    };
    prober.on_indirect(&mut ctx, silo(3), round, &IndirectOutcome::Unknown, 1);
    assert!(prober.suspects(&ctx, 0, 1).is_empty());
    assert!(
        matches!(next_probe(&mut ctx, &mut prober), Message::Probe { .. }),
        "silo 3 is not asked again for two failure windows"
    );
    next_probe(&mut ctx, &mut prober);
    assert_eq!(prober.suspects(&ctx, 0, 1).len(), 1);
}

#[test]
fn a_forged_or_unhealthy_consent_is_ignored() {
    for spoil in [0, 1, 2] {
        let (mut ctx, mut prober) = probing(3);
        let Message::IndirectProbe { round, .. } = next_indirect(&mut ctx, &mut prober) else {
            panic!()
        };
        let mut own = vote(3, NOON);
        match spoil {
            0 => own.accuser = silo(4),
            1 => own.evidence.accuser_health = 1,
            _ => own.accuser = silo(2),
        }
        prober.on_indirect(
            &mut ctx,
            silo(3),
            round,
            &IndirectOutcome::No { consent: Some(own) },
            1,
        );
        assert!(prober.suspects(&ctx, 0, 1)[0].consent.is_none());
    }
}

#[test]
fn evidence_of_life_must_be_newer_than_the_failed_probe() {
    let (mut ctx, mut prober) = probing(2);
    for _ in 0..4 {
        next_probe(&mut ctx, &mut prober);
    }
    assert!(!prober.suspects(&ctx, 0, 1)[0].evidence_of_life);
    prober.on_evidence(&ctx, silo(2), MonoTime::ZERO);
    assert!(
        !prober.suspects(&ctx, 0, 1)[0].evidence_of_life,
        "an answer to an old question"
    );
    let future = ctx.now.mono + secs(1 << 30);
    prober.on_evidence(&ctx, silo(2), future);
    assert!(prober.suspects(&ctx, 0, 1)[0].evidence_of_life);
    for _ in 0..4 {
        next_probe(&mut ctx, &mut prober);
    }
    assert!(
        !prober.suspects(&ctx, 0, 1)[0].evidence_of_life,
        "nobody can ask in the future"
    );
}

#[test]
fn evidence_holds_back_three_votes_in_a_row_and_no_more() {
    let (mut ctx, mut prober) = probing(2);
    for round in 0..4 {
        for _ in 0..4 {
            next_probe(&mut ctx, &mut prober);
        }
        prober.on_evidence(&ctx, silo(2), ctx.now.mono);
        let suspect = prober.suspects(&ctx, 0, 1).remove(0);
        assert_eq!(suspect.evidence_of_life, round < 3, "round {round}");
        if suspect.evidence_of_life {
            prober.suppressed(&silo(2));
            assert!(prober.suspects(&ctx, 0, 1).is_empty());
        }
    }
}

#[test]
fn very_long_settings_do_not_overflow() {
    let settings = SharedSettings {
        failure_window: Duration::MAX,
        ..SharedSettings::default()
    };
    let mut ctx = ctx();
    believe(&mut ctx, snapshot_with(5, actives([1, 2, 3]), settings));
    let mut prober = Prober::default();
    prober.set_targets(&mut ctx, &BTreeSet::from([silo(2), silo(3)]));
    let Message::IndirectProbe { round, .. } = next_indirect(&mut ctx, &mut prober) else {
        panic!()
    };
    prober.on_indirect(
        &mut ctx,
        silo(3),
        round,
        &IndirectOutcome::Unknown,
        u32::MAX,
    );
    next_probe(&mut ctx, &mut prober);
}
