//! Probes, misses, late answers, and evidence of life.

mod connections;

use std::collections::BTreeSet;

use super::super::prober::Prober;
use super::super::timers::Timer;
use super::*;

/// A silo that probes others. Nobody answers unless the test says so.
struct Probing {
    ctx: Ctx,
    prober: Prober,
}

impl Probing {
    /// It probes the silos 2 to n.
    fn new(n: u8) -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, actives(1..=n)));
        let mut prober = Prober::default();
        prober.set_targets(&mut ctx, &(2..=n).map(silo).collect());
        Self { ctx, prober }
    }

    /// Lets time pass until the next timer, and handles it.
    fn wake(&mut self) {
        let by = self.ctx.timers.next().unwrap().since(self.ctx.now.mono);
        pass_time(&mut self.ctx, by);
        let Some(Timer::Probe(target)) = self.ctx.timers.pop_due(self.ctx.now.mono) else {
            panic!("not a probe")
        };
        self.prober.on_timer(&mut self.ctx, target, 1);
    }

    /// The nonces of the probes that were sent to silo 2 since the last call.
    fn probes(&mut self) -> Vec<u64> {
        let to_silo_2 = |(to, message)| match message {
            Message::Probe { nonce } if to == Some(silo(2)) => Some(nonce),
            _ => None,
        };
        sent(&mut self.ctx)
            .into_iter()
            .filter_map(to_silo_2)
            .collect()
    }

    /// Lets time pass until silo 2 is probed, and returns the nonce.
    fn next_probe(&mut self) -> u64 {
        self.probes();
        for _ in 0..20 {
            self.wake();
            if let [nonce] = self.probes()[..] {
                return nonce;
            }
        }
        panic!("no probe")
    }

    fn ack(&mut self, nonce: u64) -> bool {
        self.prober.on_ack(&mut self.ctx, silo(2), nonce)
    }

    /// Lets silo 2 miss its probes until it is suspected.
    fn suspect(&mut self) {
        for _ in 0..20 {
            if !self.suspects().is_empty() {
                return;
            }
            self.wake();
        }
        panic!("no suspect")
    }

    fn suspects(&self) -> Vec<SiloAddress> {
        let suspects = self.prober.suspects(&self.ctx, 0);
        suspects.into_iter().map(|s| s.silo).collect()
    }

    /// No other silo is probed, unless a miss makes this silo look at all.
    fn only_silo_2(&mut self) {
        for n in 3..=11 {
            self.ctx.timers.clear(Timer::Probe(silo(n)));
        }
    }

    fn timeout(&self, n: u8) -> Duration {
        self.prober.timeout(&self.ctx, &silo(n), 1)
    }

    /// Silo 2 answers this number of probes, each after this time.
    fn answers_after(&mut self, probes: usize, round_trip: Duration) {
        for _ in 0..probes {
            let nonce = self.next_probe();
            pass_time(&mut self.ctx, round_trip);
            assert!(self.ack(nonce));
        }
    }
}

/// How many probes a silo sends to targets 2 to n within five minutes, each of which `answers` or not.
fn probes_within_five_minutes(
    p: &mut Probing,
    mut answers: impl FnMut(SiloAddress) -> bool,
) -> usize {
    let (end, mut probes) = (p.ctx.now.mono + secs(300), 0);
    while p.ctx.now.mono < end {
        p.wake();
        for (to, message) in sent(&mut p.ctx) {
            let Message::Probe { nonce } = message else {
                continue;
            };
            probes += 1;
            let to = to.unwrap();
            if answers(to) {
                p.prober.on_ack(&mut p.ctx, to, nonce);
            }
        }
    }
    probes
}

#[test]
fn accused_and_stale_silos_together_are_probed_no_more_often_than_the_usual_ones() {
    let mut p = Probing::new(31);
    p.prober.set_besides((12..=31).map(silo));
    let probes = probes_within_five_minutes(&mut p, |_| true);
    // Ten silos every five seconds, and twenty every ten.
    assert!((1_150..=1_230).contains(&probes), "{probes}");
}

/// Each second probe of each silo is lost.
#[test]
fn lost_probes_are_followed_at_once_only_so_often() {
    let mut p = Probing::new(11);
    let mut lost = BTreeSet::new();
    let probes =
        probes_within_five_minutes(&mut p, |silo| !lost.insert(silo) && lost.remove(&silo));
    // Ten silos every five seconds, a quarter more, and forty at once.
    assert!((600..=790).contains(&probes), "{probes}");
}

fn misses(ctx: &mut Ctx) -> Vec<(u32, bool)> {
    let missed = |e| match e {
        Effect::Observe(Observation::ProbeMissed {
            misses, refused, ..
        }) => Some((misses, refused)),
        _ => None,
    };
    std::mem::take(&mut ctx.out)
        .into_iter()
        .filter_map(missed)
        .collect()
}

#[test]
fn a_missed_probe_is_followed_by_another_at_once() {
    let mut p = Probing::new(2);
    p.next_probe();
    let first = p.ctx.now.mono;
    assert_eq!(p.timeout(2), ms(1_500));
    p.next_probe();
    assert_eq!(
        p.ctx.now.mono.since(first),
        ms(1_500),
        "the next one at once"
    );
    assert_eq!(p.suspects(), []);
    assert_eq!(p.prober.missed().collect::<Vec<_>>(), [silo(2)]);
    p.wake();
    assert_eq!(p.ctx.now.mono.since(first), secs(3));
    let silence = p.prober.silence(&silo(2)).unwrap();
    assert_eq!(
        (silence.misses, silence.since, silence.failed_at),
        (2, first, p.ctx.now.mono),
        "silent since the first of them was sent"
    );
    assert_eq!(p.suspects(), [silo(2)]);
}

#[test]
fn direct_probes_of_a_suspect_go_on_at_the_usual_pace() {
    let mut p = Probing::new(11);
    p.only_silo_2();
    p.suspect();
    p.only_silo_2();
    for misses in 2..6 {
        let missed = p.ctx.now.mono;
        p.next_probe();
        p.wake();
        assert_eq!(p.prober.silence(&silo(2)).unwrap().misses, misses + 1);
        assert_eq!(p.ctx.now.mono.since(missed), secs(5), "one each period");
    }
    let nonce = p.next_probe();
    assert!(p.ack(nonce));
    assert_eq!(p.suspects(), []);
    assert!(p.prober.silence(&silo(2)).is_none());
}

#[test]
fn a_miss_makes_it_look_at_all_targets_now() {
    let mut p = Probing::new(5);
    let probed = |p: &mut Probing| -> Vec<(SiloAddress, u64)> {
        let probe = |(to, message)| match message {
            Message::Probe { nonce } => Some((to?, nonce)),
            _ => None,
        };
        sent(&mut p.ctx).into_iter().filter_map(probe).collect()
    };
    let answer = |p: &mut Probing, all: Vec<(SiloAddress, u64)>| {
        for (from, nonce) in all {
            assert!(from == silo(2) || p.prober.on_ack(&mut p.ctx, from, nonce));
        }
    };
    // All but silo 2 answer.
    let mut missed = false;
    while !missed {
        p.wake();
        missed = p.prober.missed().next().is_some();
        if !missed {
            let all = probed(&mut p);
            answer(&mut p, all);
        }
    }
    let planned: Vec<_> = (3..=5)
        .map(|n| p.ctx.timers.at(Timer::Probe(silo(n))))
        .collect();
    let all = probed(&mut p);
    let silos: BTreeSet<SiloAddress> = all.iter().map(|(to, _)| *to).collect();
    assert_eq!(
        silos,
        (2..=5).map(silo).collect(),
        "silo 2 once more, and the others"
    );
    // Those timers are for answers; the next probes stay where they were: within a period.
    answer(&mut p, all);
    let now = p.ctx.now.mono;
    let mut next: Vec<_> = (3..=5)
        .map(|n| p.ctx.timers.at(Timer::Probe(silo(n))).unwrap())
        .collect();
    assert!(planned.iter().all(|at| *at == Some(now + ms(1_500))));
    assert!(next.iter().all(|at| *at > now && *at <= now + secs(2)));
    next.dedup();
    assert_eq!(next.len(), 3, "not all at one moment");
    // The second miss changes nothing.
    while p.suspects().is_empty() {
        let all = probed(&mut p);
        answer(&mut p, all);
        p.wake();
    }
    assert_eq!(
        probed(&mut p)
            .into_iter()
            .filter(|(to, _)| *to != silo(2))
            .count(),
        0
    );
}

#[test]
fn fewer_targets_are_probed_more_often() {
    for (silos, period) in [(2, 1_000), (3, 1_000), (5, 2_000), (11, 5_000), (31, 5_000)] {
        let mut p = Probing::new(silos);
        let first = p.ctx.timers.next().unwrap().since(p.ctx.now.mono);
        assert!(first <= ms(period), "{silos} silos: {first:?}");
        for n in 3..=silos {
            p.ctx.timers.clear(Timer::Probe(silo(n)));
        }
        p.answers_after(1, ms(10));
        let sent = p.ctx.now.mono.minus(ms(10));
        p.next_probe();
        assert_eq!(p.ctx.now.mono.since(sent), ms(period), "{silos} silos");
    }
}

#[test]
fn no_target_is_probed_more_often_than_a_short_period_says() {
    let mut p = Probing::new(2);
    p.ctx.config.probe_period = ms(500);
    p.answers_after(1, ms(10));
    let sent = p.ctx.now.mono.minus(ms(10));
    p.next_probe();
    assert_eq!(p.ctx.now.mono.since(sent), ms(500));
}

#[test]
fn a_late_answer_clears_the_suspicion_and_is_a_sample() {
    let mut p = Probing::new(2);
    let first = p.next_probe();
    p.suspect();
    pass_time(&mut p.ctx, ms(500));
    assert!(p.ack(first), "an answer to the first of the two");
    assert_eq!(p.suspects(), []);
    assert_eq!(p.prober.replied_at(&silo(2)), Some(p.ctx.now.mono));
    assert!(!p.ack(first), "it counts once");
    let observed = |e: &Effect| {
        matches!(e, Effect::Observe(Observation::ProbeAnswered { round_trip, .. })
            if *round_trip == ms(3_500))
    };
    assert!(p.ctx.out.iter().any(observed), "{:?}", p.ctx.out);
    // Four late answers make the timeout as long as round trips are.
    for _ in 0..3 {
        let nonce = p.next_probe();
        p.next_probe();
        pass_time(&mut p.ctx, ms(1_000));
        assert!(p.ack(nonce));
        pass_time(&mut p.ctx, ms(1_000));
    }
    assert!(p.timeout(2) > ms(2_500), "{:?}", p.timeout(2));
}

/// A silo that stood still answers all of its probes at one moment. It is not far away.
#[test]
fn answers_that_come_together_say_how_long_the_last_one_took() {
    let mut p = Probing::new(2);
    p.answers_after(8, ms(10));
    let nonces: Vec<u64> = (0..6).map(|_| p.next_probe()).collect();
    for nonce in nonces {
        pass_time(&mut p.ctx, ms(1));
        assert!(p.ack(nonce));
    }
    assert_eq!(p.timeout(2), ms(1_500));
    assert_eq!(p.timeout(9), ms(1_500), "nor is anybody else");
    p.answers_after(2, ms(10));
    // One by one, as they were sent, they are samples each.
    for _ in 0..4 {
        let nonce = p.next_probe();
        p.next_probe();
        pass_time(&mut p.ctx, ms(400));
        assert!(p.ack(nonce));
    }
    assert!(p.timeout(2) > ms(2_500), "{:?}", p.timeout(2));
}

#[test]
fn only_the_silo_itself_answers_its_probes() {
    let mut p = Probing::new(3);
    let nonce = p.next_probe();
    assert!(u32::try_from(nonce).is_ok(), "a short one");
    assert!(!p.prober.on_ack(&mut p.ctx, silo(3), nonce));
    assert!(!p.prober.on_ack(&mut p.ctx, silo(9), nonce));
    assert!(!p.ack(nonce ^ 1));
    assert!(p.ack(nonce));
}

#[test]
fn a_fresh_target_uses_the_round_trips_of_all() {
    let mut p = Probing::new(3);
    p.ctx.timers.clear(Timer::Probe(silo(3)));
    assert_eq!(p.timeout(3), ms(1_500), "nothing is known yet");
    p.answers_after(3, secs(1));
    assert_eq!(p.timeout(3), ms(1_500), "three are too few");
    // Of different lengths, so that the deviation counts.
    p.answers_after(3, ms(100));
    let timeout = p.timeout(3);
    assert!(timeout > ms(2_500), "{timeout:?}");
    assert_eq!(timeout, p.timeout(2));
    // Its own round trips count as soon as there are enough.
    for _ in 0..4 {
        let by = secs(1);
        p.ctx.set_timer(Timer::Probe(silo(3)), by);
        p.ctx.timers.clear(Timer::Probe(silo(2)));
        p.wake();
        let (_, probe) = sent(&mut p.ctx).pop().unwrap();
        let Message::Probe { nonce } = probe else {
            panic!()
        };
        assert!(p.prober.on_ack(&mut p.ctx, silo(3), nonce));
    }
    assert_eq!(p.timeout(3), ms(1_500));
    assert_eq!(p.timeout(2), timeout, "the other one keeps its own");
}

#[test]
fn the_timeout_has_bounds_and_grows_with_the_score() {
    let mut p = Probing::new(2);
    p.answers_after(4, ms(1));
    assert_eq!(p.prober.timeout(&p.ctx, &silo(2), 3), ms(4_500));
    assert_eq!(p.prober.timeout(&p.ctx, &silo(2), u32::MAX), secs(20));
}

#[test]
fn a_silo_that_is_probed_no_more_is_no_suspect() {
    let mut p = Probing::new(3);
    let nonce = p.next_probe();
    p.suspect();
    p.prober.set_targets(&mut p.ctx, &BTreeSet::from([silo(3)]));
    assert_eq!((p.suspects(), p.prober.targets()), (vec![], 1));
    // Its record is kept: a late answer still counts, and misses begin anew.
    assert!(p.ack(nonce));
    p.prober.set_targets(&mut p.ctx, &BTreeSet::from([silo(2)]));
    assert_eq!(p.suspects(), []);
    // The record of a silo that is not alive any more goes.
    believe(&mut p.ctx, snapshot(6, actives([1, 3])));
    p.prober.set_targets(&mut p.ctx, &BTreeSet::from([silo(3)]));
    assert_eq!(p.prober.replied_at(&silo(2)), None);
}

#[test]
fn probes_in_flight_are_void_after_a_pause() {
    let mut p = Probing::new(2);
    let nonce = p.next_probe();
    p.prober.void(&mut p.ctx);
    p.prober.forget_misses();
    pass_time(&mut p.ctx, secs(1));
    assert!(!p.ack(nonce), "its round trip would contain the pause");
    p.next_probe();
    assert!(p.prober.silence(&silo(2)).is_none());
}

#[test]
fn evidence_of_life_must_be_newer_than_the_failed_probe() {
    let mut p = Probing::new(2);
    p.suspect();
    let evidence = |p: &Probing| p.prober.suspects(&p.ctx, 0)[0].evidence_of_life;
    assert!(!evidence(&p));
    p.prober.on_evidence(&p.ctx, silo(2), MonoTime::ZERO);
    assert!(!evidence(&p), "an answer to an old question");
    let future = p.ctx.now.mono + secs(1 << 30);
    p.prober.on_evidence(&p.ctx, silo(2), future);
    assert!(evidence(&p));
    for _ in 0..4 {
        p.wake();
    }
    assert!(!evidence(&p), "nobody can ask in the future");
}

#[test]
fn evidence_holds_back_three_suspicions_in_a_row_and_no_more() {
    let mut p = Probing::new(2);
    for round in 0..4 {
        p.suspect();
        p.prober.on_evidence(&p.ctx, silo(2), p.ctx.now.mono);
        let suspect = p.prober.suspects(&p.ctx, 0).remove(0);
        assert_eq!(suspect.evidence_of_life, round < 3, "round {round}");
        if suspect.evidence_of_life {
            p.prober.suppressed(&silo(2));
            assert_eq!(p.suspects(), []);
        }
    }
}

#[test]
fn the_answer_to_a_question_of_the_protocol_clears_a_suspicion() {
    let mut p = Probing::new(3);
    p.suspect();
    p.prober.on_evidence(&p.ctx, silo(2), p.ctx.now.mono);
    assert_eq!(p.suspects(), [silo(2)], "its application answered");
    assert_eq!(p.prober.replied_at(&silo(2)), None);
    p.prober.on_answer(&p.ctx, silo(2), p.ctx.now.mono);
    assert_eq!(p.suspects(), []);
    assert_eq!(p.prober.replied_at(&silo(2)), Some(p.ctx.now.mono));
}

#[test]
fn very_long_settings_do_not_overflow() {
    let settings = SharedSettings {
        failure_window: Duration::MAX,
        ..SharedSettings::default()
    };
    let mut ctx = ctx();
    believe(&mut ctx, snapshot_with(5, actives([1, 2]), settings));
    let mut prober = Prober::default();
    prober.set_targets(&mut ctx, &BTreeSet::from([silo(2)]));
    let mut p = Probing { ctx, prober };
    p.next_probe();
    p.next_probe();
    p.prober.timeout(&p.ctx, &silo(2), u32::MAX);
    p.suspect();
}

#[test]
fn old_records_of_silos_that_it_does_not_probe_are_forgotten() {
    let other = |n: u16| SiloAddress::new([10, 1, 0, 1].into(), n, 1);
    let mut p = Probing::new(3);
    let mut rows = actives(1..=3);
    rows.extend((1..=1_000).map(|n| entry(other(n), SiloStatus::Active)));
    believe(&mut p.ctx, snapshot(6, rows));
    for n in 1..=1_000 {
        pass_time(&mut p.ctx, Duration::from_secs(1));
        let now = p.ctx.now.mono;
        p.prober.on_answer(&p.ctx, other(n), now);
    }
    let known = |n: u16| p.prober.answered_at(&other(n)).is_some();
    assert!((701..=1_000).all(known), "recent ones are kept");
    let all = (1..=1_000).filter(|n| known(*n)).count();
    assert!(all <= 650, "{all}");
}
