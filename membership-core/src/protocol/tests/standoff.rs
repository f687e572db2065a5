//! When a silo asks again after a call without a majority. Invariant P15.

use std::collections::BTreeSet;

use super::super::roll_call::expiry;
use super::super::standoff::Standoff;
use super::super::timers::Timer;
use super::*;

type Silos = BTreeSet<SiloAddress>;

/// The tested silo could not vote out some of the silos 5 to 30.
struct Waiting {
    ctx: Ctx,
    standoff: Standoff,
    stale: Silos,
    challenged: Silos,
}

fn silos(numbers: impl IntoIterator<Item = u8>) -> Silos {
    numbers.into_iter().map(silo).collect()
}

impl Waiting {
    fn new() -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, actives(1..=30)));
        Self {
            ctx,
            standoff: Standoff::default(),
            stale: Silos::new(),
            challenged: Silos::new(),
        }
    }

    /// Silos 20 to 30 were kept, and most silos answered.
    fn kept() -> Self {
        let mut w = Self::new();
        assert_eq!(w.call(20..=30, true), Some(ms(4_500)));
        w
    }

    /// Silos 6 to 30 were kept: most silos did not answer.
    fn alone() -> Self {
        let mut w = Self::new();
        assert_eq!(w.call(6..=30, false), Some(ms(4_500)));
        w
    }

    /// A call ends that reached five silos, and that these were kept in.
    fn call(&mut self, kept: impl IntoIterator<Item = u8>, quorum: bool) -> Option<Duration> {
        let now = self.ctx.now.mono;
        let kept = silos(kept).into_iter().map(|s| (s, now)).collect();
        let (stale, challenged) = (&self.stale, &self.challenged);
        self.standoff
            .after_call(&mut self.ctx, &kept, 5, quorum, |s| {
                expiry(stale, challenged, s)
            })
    }

    fn covers(&self, n: u8) -> bool {
        let expiry = expiry(&self.stale, &self.challenged, &silo(n));
        self.standoff.covers(&self.ctx, &silo(n), expiry, false)
    }

    /// Lets the wait end; returns how long it was.
    fn wait(&mut self) -> Duration {
        let by = self.ctx.timers.next().unwrap().since(self.ctx.now.mono);
        pass_time(&mut self.ctx, by);
        let timer = self.ctx.timers.pop_due(self.ctx.now.mono);
        assert_eq!(timer, Some(Timer::Standoff));
        by
    }

    /// Probes the silent silos if that is due; returns whom, and the nonces.
    fn check(&mut self) -> Vec<(SiloAddress, u64)> {
        self.standoff.check(&mut self.ctx);
        let probe = |(to, message): (Option<SiloAddress>, Message)| match message {
            Message::Probe { nonce } => (to.unwrap(), nonce),
            other => panic!("{other:?}"),
        };
        sent(&mut self.ctx).into_iter().map(probe).collect()
    }

    fn told(&mut self, from: u8, suspects: impl IntoIterator<Item = u8>, reached: u32, wait: u64) {
        let suspects: Vec<_> = silos(suspects).into_iter().collect();
        self.standoff
            .on_result(&mut self.ctx, silo(from), &suspects, reached, secs(wait));
    }

    /// How long it is until silo `n` may be asked about.
    fn delay(&mut self, n: u8) -> Duration {
        let began = self.ctx.now.mono;
        while self.covers(n) {
            pass_time(&mut self.ctx, ms(10));
            assert!(self.ctx.now.mono.since(began) < secs(1_000));
        }
        self.ctx.now.mono.since(began)
    }
}

fn within(least: Duration, waited: Duration) {
    let range = least..=least * 3 / 2;
    assert!(range.contains(&waited), "{waited:?} is not in {range:?}");
}

#[test]
fn nothing_waits_before_a_call() {
    let w = Waiting::new();
    assert!(!w.covers(20) && w.ctx.timers.next().is_none());
}

#[test]
fn a_call_is_repeated_after_waits_that_double_up_to_a_minute() {
    let mut w = Waiting::kept();
    for least in [4_500, 9_000, 18_000, 36_000, 60_000, 60_000] {
        assert!(w.covers(20));
        within(ms(least), w.wait());
        assert!(!w.covers(20), "it is asked about again");
        let next = w.call(20..=30, true);
        assert_eq!(next, Some(ms(least * 2).min(secs(60))));
    }
}

#[test]
fn another_suspect_is_asked_about_at_once_while_most_silos_answer() {
    let w = Waiting::kept();
    assert!(w.covers(20) && !w.covers(7));
    // If most did not answer, nobody can be voted out, whoever it is.
    let w = Waiting::alone();
    assert!(w.covers(20) && w.covers(5));
}

#[test]
fn a_call_about_others_begins_with_the_shortest_wait() {
    let mut w = Waiting::kept();
    w.wait();
    assert_eq!(w.call(20..=30, true), Some(secs(9)));
    w.wait();
    assert_eq!(w.call([7], true), Some(ms(4_500)));
}

#[test]
fn without_a_quorum_ten_of_the_silent_are_probed_and_no_call_is_made() {
    let mut w = Waiting::alone();
    assert_eq!(w.check().len(), 0, "not yet");
    let mut checked = Vec::new();
    for least in [4_500, 9_000, 18_000, 36_000, 60_000, 60_000] {
        within(ms(least), w.wait());
        assert!(w.covers(20));
        let to: Silos = w.check().into_iter().map(|(to, _)| to).collect();
        assert_eq!(to.len(), 10);
        assert!(to.is_subset(&silos(6..=30)));
        assert_eq!(w.check().len(), 0, "once");
        checked.push(to);
    }
    let all: Silos = checked.iter().flatten().copied().collect();
    assert!(all.len() > 20, "others each time: {} of 25", all.len());
}

#[test]
fn few_silent_silos_are_all_probed() {
    let mut w = Waiting::new();
    w.call([6, 7], false);
    w.wait();
    assert_eq!(w.check().len(), 2);
    // One that died meanwhile is not.
    let mut rows = actives((1..=6).chain(8..=30));
    rows.push(entry(silo(7), SiloStatus::Dead));
    w.ctx.timers.clear(Timer::Standoff);
    let mut w = Waiting {
        ctx: w.ctx,
        ..Waiting::new()
    };
    w.call([6, 7], false);
    believe(&mut w.ctx, snapshot(6, rows));
    w.wait();
    let to: Silos = w.check().into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, silos([6]));
}

#[test]
fn an_answer_of_a_silent_silo_makes_a_full_call_again() {
    let mut w = Waiting::alone();
    w.wait();
    let (to, nonce) = w.check()[0];
    assert!(!w.standoff.on_ack(silo(1), nonce), "by somebody else");
    assert!(w.standoff.on_ack(to, nonce));
    w.standoff.on_sign_of_life(&silo(3));
    assert!(w.covers(20), "silo 3 was not silent");
    w.standoff.on_sign_of_life(&to);
    // Calls are a failure window apart all the same.
    let other = (6..=30).find(|n| silo(*n) != to).unwrap();
    assert!(w.covers(other));
    assert!(w.delay(other) <= ms(4_500));
    assert_eq!(w.call(6..=30, false), Some(ms(4_500)), "waits begin anew");
}

#[test]
fn a_new_view_makes_a_full_call_again() {
    for mut w in [Waiting::kept(), Waiting::alone()] {
        w.wait();
        w.check();
        let waits = w.call(20..=30, false);
        assert_eq!(waits.map(|w| w >= secs(9)), Some(true));
        assert!(w.covers(20));
        believe(&mut w.ctx, snapshot(6, actives(1..=30)));
        assert!(!w.covers(19), "nothing is known of it");
        assert!(w.delay(20) <= ms(4_500));
        assert_eq!(w.call(20..=30, true), Some(ms(4_500)));
    }
}

#[test]
fn a_joining_silo_that_knew_nothing_and_asks_itself_makes_a_full_call_again() {
    let mut w = Waiting::kept();
    w.wait();
    w.call(20..=30, true);
    w.standoff.are_unsure(silos([40]));
    let about = |n: u8| [(silo(n), 3_000)];
    assert!(!w.standoff.on_call_of_joiner(&silo(41), &about(20)));
    assert!(!w.standoff.on_call_of_joiner(&silo(40), &about(19)));
    assert!(w.covers(20) && !w.standoff.has_news_of(&silo(20)));
    assert!(w.standoff.on_call_of_joiner(&silo(40), &about(20)));
    assert!(w.standoff.has_news_of(&silo(20)) && !w.standoff.has_news_of(&silo(19)));
    assert!(
        w.covers(20),
        "calls are a failure window apart all the same"
    );
    // Its result delays nothing.
    w.told(40, [20], 5, 30);
    assert!(w.delay(20) <= ms(4_500));
    w.call(20..=30, true);
    assert!(!w.standoff.has_news_of(&silo(20)));
    assert!(!w.standoff.on_call_of_joiner(&silo(40), &about(20)), "once");
    assert!(w.covers(20));
}

#[test]
fn a_result_without_this_silo_is_one_for_the_last_question_of_its_caller() {
    let mut w = Waiting::kept();
    let standoff = &mut w.standoff;
    standoff.is_asked(silo(40), false);
    standoff.is_asked(silo(41), true);
    assert!(!standoff.took_no_part(&silo(41)) && !standoff.took_no_part(&silo(42)));
    assert!(standoff.took_no_part(&silo(40)));
    assert!(!standoff.took_no_part(&silo(40)), "once");
    // It was well when it was asked again.
    standoff.is_asked(silo(40), false);
    standoff.is_asked(silo(40), true);
    assert!(!standoff.took_no_part(&silo(40)));
}

#[test]
fn a_suspect_that_has_become_stale_is_asked_about_at_once() {
    for mut w in [Waiting::kept(), Waiting::alone()] {
        w.stale = silos([20]);
        assert!(!w.covers(20) && w.covers(21));
        // One that was stale in the last call, too, waits.
        w.call(20..=30, false);
        assert!(w.covers(20));
    }
}

#[test]
fn a_challenged_suspect_that_becomes_stale_is_asked_about_again() {
    for mut w in [Waiting::kept(), Waiting::alone()] {
        w.challenged = silos([20]);
        assert!(!w.covers(20), "it has written no heartbeats since");
        w.call(20..=30, false);
        assert!(w.covers(20));
        w.stale = silos([20]);
        assert!(
            !w.covers(20),
            "now it counts neither for majorities nor for votes"
        );
        w.call(20..=30, false);
        assert!(w.covers(20));
    }
}

#[test]
fn nobody_is_waited_for_when_nobody_is_suspected() {
    let mut w = Waiting::kept();
    w.standoff.settle(&mut w.ctx);
    assert!(!w.covers(20) && w.ctx.timers.next().is_none());
    let mut w = Waiting::kept();
    assert_eq!(w.call([], true), None);
    assert!(!w.covers(20) && w.ctx.timers.next().is_none());
}

#[test]
fn the_result_of_another_silo_delays_the_first_call() {
    let mut w = Waiting::new();
    w.told(3, [20], 5, 9);
    assert!(w.covers(20) && !w.covers(21));
    assert_eq!(w.delay(20), secs(9));
}

#[test]
fn each_other_silo_delays_the_next_call_once() {
    let mut w = Waiting::kept();
    w.told(3, [20, 77], 5, 30);
    within(secs(30), w.delay(20));
    let mut w = Waiting::kept();
    for _ in 0..10 {
        pass_time(&mut w.ctx, secs(1));
        w.told(3, [20], 5, 30);
    }
    let delay = w.delay(20);
    within(secs(30), delay + secs(9));
    // After a call of its own it does so again.
    w.call(20..=30, true);
    w.told(3, [20], 5, 30);
    within(secs(30), w.delay(20));
}

#[test]
fn silos_that_reach_fewer_delay_nobody() {
    let mut w = Waiting::kept();
    w.told(3, [20], 4, 30);
    within(ms(4_500), w.delay(20));
    let mut w = Waiting::kept();
    w.told(3, [20], 5, 30);
    within(secs(30), w.delay(20));
}

#[test]
fn no_result_delays_a_call_for_longer_than_a_minute() {
    let mut w = Waiting::kept();
    w.told(3, [20], u32::MAX, u64::MAX);
    within(secs(60), w.delay(20));
}

#[test]
fn a_result_delays_neither_stale_suspects_nor_a_new_view() {
    let mut w = Waiting::new();
    w.told(3, [20], 9, 60);
    w.stale = silos([20]);
    assert!(!w.covers(20));
    w.stale.clear();
    assert!(w.covers(20));
    believe(&mut w.ctx, snapshot(6, actives(1..=30)));
    assert!(!w.covers(20));
}

#[test]
fn a_result_about_a_silo_that_answers_is_forgotten() {
    let mut w = Waiting::new();
    w.told(3, [20], 9, 60);
    w.standoff.on_sign_of_life(&silo(20));
    assert!(!w.covers(20));
}

#[test]
fn the_wait_is_told_to_others_without_the_random_part() {
    let (mut one, mut two) = (Waiting::kept(), Waiting::kept());
    two.ctx.random();
    two.call([7], true);
    assert_ne!(one.wait(), two.wait(), "of several silos one is the first");
}
