//! A liar cannot keep a silo that crashed in the view.

use std::time::Duration;

use membership_core::protocol::{Finding, Message};
use membership_core::{MonoTime, SiloAddress};

use super::liar::*;

/// Control: nobody lies.
#[test]
fn crashes_are_found_where_nobody_lies() {
    for (n, crashed) in [
        (3, vec![2]),
        (4, vec![3]),
        (5, vec![4]),
        (9, vec![8]),
        (9, vec![4, 5, 6, 7, 8]),
        (3, vec![1, 2]),
    ] {
        let mut s = scene(n, &[0], 1, MS(200), |_| {});
        s.crash(&crashed);
        let took = s.removed(&crashed, S(300));
        println!("{n} silos, {} crash: {took:?}", crashed.len());
        assert!(took.is_some());
    }
}

/// "I reach it" about a dead silo.
fn says_reached(n: usize, crashed: &[usize]) {
    let mut s = scene(n, &[0], 1, MS(200), |ctl| {
        answer_about_victims(ctl, Finding::Reached)
    });
    s.start(crashed);
    s.crash(crashed);
    let took = s.removed(crashed, S(600));
    println!(
        "{n} silos, {} crash, one liar says reached: {took:?}",
        crashed.len()
    );
    assert!(took.is_some_and(|t| t < S(120)), "not removed: {took:?}");
}

#[test]
fn one_that_reaches_two_of_five_does_not_keep_them() {
    says_reached(5, &[3, 4]);
}

#[test]
fn one_that_reaches_five_of_nine_does_not_keep_them() {
    says_reached(9, &[4, 5, 6, 7, 8]);
}

#[test]
fn one_that_reaches_one_of_four_does_not_keep_it() {
    says_reached(4, &[3]);
}

#[test]
fn one_that_reaches_one_of_many_does_not_keep_it() {
    says_reached(5, &[4]);
    says_reached(9, &[8]);
}

/// "it failed, and it answered me just now", again and again.
fn says_heard(n: usize, crashed: &[usize]) {
    let mut calls: Vec<(SiloAddress, u64, MonoTime)> = Vec::new();
    let mut s = scene(n, &[0], 1, MS(250), move |ctl| {
        ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
        if let Some((from, body)) = ctl.heard.clone()
            && let Message::RollCall { call, .. } = &*body
        {
            calls.retain(|(f, ..)| *f != from);
            calls.push((from, *call, ctl.now));
        }
        let now = ctl.now;
        calls.retain(|(.., at)| now.since(*at) < S(12));
        if ctl.tick || matches!(&ctl.heard, Some((_, m)) if matches!(**m, Message::RollCall { .. }))
        {
            for (to, call, _) in calls.clone() {
                let findings = ctl
                    .plan
                    .victims
                    .iter()
                    .map(|v| (*v, failed(0, Some(0))))
                    .collect();
                ctl.answer(to, call, findings, Vec::new());
            }
        }
    });
    s.start(crashed);
    s.crash(crashed);
    let took = s.removed(crashed, S(600));
    println!(
        "{n} silos, {} crash, one liar says it was just heard: {took:?}",
        crashed.len()
    );
    assert!(took.is_some_and(|t| t < S(120)), "not removed: {took:?}");
}

#[test]
fn one_that_has_just_heard_one_of_three_does_not_keep_it() {
    says_heard(3, &[2]);
}

#[test]
fn one_that_has_just_heard_one_of_five_does_not_keep_it() {
    says_heard(5, &[4]);
}

#[test]
fn one_that_has_just_heard_one_of_twenty_does_not_keep_it() {
    says_heard(20, &[19]);
}

/// Results of calls that never were, and two probes a second on the expense of each silo.
fn spends(n: usize, crashed: &[usize], every: Duration) {
    let mut s = scene(n, &[0], 1, every, move |ctl| {
        if !ctl.tick {
            return;
        }
        let others = ctl.others();
        let alive: Vec<_> = others
            .iter()
            .copied()
            .filter(|s| !ctl.plan.victims.contains(s))
            .collect();
        for (i, to) in alive.iter().enumerate() {
            ctl.say(
                *to,
                Message::RollResult {
                    suspects: vec![],
                    reached: 1000,
                    wait: S(60),
                },
            );
            let named: Vec<_> = (1..3).map(|k| (alive[(i + k) % alive.len()], 0)).collect();
            ctl.say(
                *to,
                Message::RollCall {
                    call: 7,
                    suspects: named,
                },
            );
        }
    });
    s.start(crashed);
    // The lies begin before the crash.
    s.c.run_for(S(120)).unwrap();
    s.c.measure_load();
    s.crash(crashed);
    let took = s.removed(crashed, S(900));
    println!(
        "{n} silos, {} crash, one liar spends, every {every:?}: {took:?}, load {:.1}",
        crashed.len(),
        s.c.peak_load()
    );
    assert!(took.is_some_and(|t| t < S(120)), "not removed: {took:?}");
}

#[test]
fn one_that_makes_five_pay_does_not_stop_calls() {
    spends(5, &[4], MS(300));
}

#[test]
fn one_that_makes_nine_pay_does_not_stop_calls() {
    spends(9, &[8], MS(300));
}

#[test]
fn one_that_makes_twenty_pay_does_not_stop_calls() {
    spends(20, &[19], MS(300));
}

/// Liars call all the time, about somebody who lives.
fn calls_all_the_time(
    n: usize,
    liars: &[usize],
    crashed: &[usize],
    every: Duration,
    turns: bool,
) -> Option<Duration> {
    let count = liars.len();
    let (mut turn, mut since) = (0, None);
    let mut s = scene(n, liars, 1, every, move |ctl| {
        ctl.withhold(|_, m| matches!(m, Message::RollCall { .. } | Message::RollAnswer { .. }));
        if turns && turn % count.max(3) != ctl.which || !ctl.tick {
            // The turns of liars that are not there.
            if turns && ctl.which == 0 && ctl.tick && turn % count.max(3) >= count {
                let began = *since.get_or_insert(ctl.now);
                if ctl.now.since(began) > MS(7_600) {
                    (turn, since) = (turn + 1, None);
                }
            }
            return;
        }
        let began = *since.get_or_insert(ctl.now);
        if ctl.now.since(began) > MS(7_600) {
            (turn, since) = (turn + 1, None);
        }
        for to in ctl.others() {
            ctl.say(
                to,
                Message::RollCall {
                    call: 9,
                    suspects: vec![],
                },
            );
        }
    });
    s.start(crashed);
    s.c.run_for(S(100)).unwrap();
    s.crash(crashed);
    s.removed(crashed, S(900))
}

#[test]
fn calls_in_turns_do_not_hold_all_others_for_ever() {
    let mut bad = Vec::new();
    for (n, liars) in [
        (5, vec![0]),
        (9, vec![0]),
        (9, vec![0, 1]),
        (9, vec![0, 1, 2]),
        (20, vec![0, 1, 2]),
        (20, vec![0, 1, 2, 3]),
    ] {
        let took = calls_all_the_time(n, &liars, &[n - 1], S(1), true);
        println!("{n} silos, {} liars call in turns: {took:?}", liars.len());
        if took.is_none_or(|t| t > S(120)) {
            bad.push((n, liars.len(), took));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// The liar answers probes only, and says nothing in roll calls: as a suspect and as a witness.
#[test]
fn one_that_answers_no_calls_is_waited_for_in_vain() {
    let mut bad = Vec::new();
    for (n, gone) in [(3, 1), (4, 1), (5, 1), (5, 2), (9, 1), (9, 5), (20, 1)] {
        let crashed: Vec<usize> = (n - gone..n).collect();
        let mut s = scene(n, &[0], 1, S(1), |ctl| {
            ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
        });
        s.start(&[]);
        s.crash(&crashed);
        let took = s.removed(&crashed, S(600));
        println!(
            "{n} silos, {gone} crash, one liar says nothing in calls: {took:?}, honest dead {:?}",
            s.honest_dead(n, &crashed)
        );
        if took.is_none_or(|t| t > S(120)) {
            bad.push((n, gone, took));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// The liar says "unknown" for ever.
#[test]
fn one_that_knows_nothing_does_not_hinder() {
    let mut bad = Vec::new();
    for (n, gone) in [(3, 1), (4, 1), (4, 2), (5, 2), (9, 1), (9, 5)] {
        let crashed: Vec<usize> = (n - gone..n).collect();
        let mut s = scene(n, &[0], 1, S(1), |ctl| {
            answer_about_victims(ctl, Finding::Unknown)
        });
        s.start(&crashed);
        s.crash(&crashed);
        let took = s.removed(&crashed, S(600));
        println!("{n} silos, {gone} crash, one liar says unknown: {took:?}");
        if took.is_none_or(|t| t > S(120)) {
            bad.push((n, gone, took));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// "It failed, and it answered me just now", and when the silence would soon be over: "I reach it after
/// all". What it says, true for *reached*, and how long after the question.
fn reaches_it_late(n: usize, says: &'static [(u64, bool)]) -> Option<Duration> {
    // Who asked, the call, when it was asked, and how many words have been said.
    let mut calls: Vec<(SiloAddress, u64, MonoTime, usize)> = Vec::new();
    let mut s = scene(n, &[0], 1, MS(50), move |ctl| {
        ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
        if let Some((from, body)) = ctl.heard.clone()
            && let Message::RollCall { call, .. } = &*body
            && !calls.iter().any(|(f, c, ..)| (f, c) == (&from, call))
        {
            calls.push((from, *call, ctl.now, 0));
        }
        let now = ctl.now;
        calls.retain(|(.., at, _)| now.since(*at) < S(12));
        let mut say = Vec::new();
        for (to, call, began, said) in &mut calls {
            while let Some((at, reached)) = says.get(*said)
                && now.since(*began) >= MS(*at)
            {
                *said += 1;
                let finding = match reached {
                    true => Finding::Reached,
                    false => failed(0, Some(0)),
                };
                say.push((*to, *call, finding));
            }
        }
        for (to, call, finding) in say {
            let findings = ctl.plan.victims.iter().map(|v| (*v, finding)).collect();
            let missed = Vec::new();
            ctl.answer(to, call, findings, missed);
        }
    });
    s.start(&[n - 1]);
    s.crash(&[n - 1]);
    let took = s.removed(&[n - 1], S(600));
    println!("{n} silos, 1 crashes, one liar says {says:?}: {took:?}");
    took
}

#[test]
fn one_that_reaches_it_late_does_not_keep_it() {
    let mut bad = Vec::new();
    let late: [&'static [(u64, bool)]; 7] = [
        &[(3_000, true)],
        &[(4_400, true)],
        &[(0, false), (4_450, true)],
        &[(1_000, false), (5_000, true)],
        &[(1_450, false), (5_900, true)],
        &[(2_000, false), (5_500, true)],
        &[(2_900, false), (6_500, true)],
    ];
    for n in [4, 5, 9, 20] {
        for says in late {
            let took = reaches_it_late(n, says);
            if took.is_none_or(|t| t > S(120)) {
                bad.push((n, says, took));
            }
        }
    }
    assert!(bad.is_empty(), "not removed: {bad:?}");
}

/// As soon as somebody crashes, liars tell everybody that their calls gave no majority against it, one
/// liar after the other, and that the next call is a minute away.
fn tells_no_majority(n: usize, liars: &[usize]) -> Option<Duration> {
    let mut began = None;
    let mut s = scene(n, liars, 1, MS(500), move |ctl| {
        if !ctl.tick {
            return;
        }
        let began = *began.get_or_insert(ctl.now);
        if ctl.now.since(began) < S(55) * u32::try_from(ctl.which).unwrap() {
            return;
        }
        for to in ctl.others() {
            let suspects = ctl.plan.victims.clone();
            ctl.say(
                to,
                Message::RollResult {
                    suspects,
                    reached: 1_000,
                    wait: S(3_600),
                },
            );
        }
    });
    s.start(&[n - 1]);
    s.crash(&[n - 1]);
    let took = s.removed(&[n - 1], S(900));
    println!(
        "{n} silos, 1 crashes, {} tell that there is no majority: {took:?}",
        liars.len()
    );
    took
}

#[test]
fn those_that_tell_of_no_majority_do_not_keep_it() {
    let mut bad = Vec::new();
    for (n, liars) in [
        (4, vec![0]),
        (5, vec![0]),
        (5, vec![0, 1]),
        (9, vec![0, 1, 2]),
        (20, vec![0]),
        (20, vec![0, 1, 2, 3]),
    ] {
        let took = tells_no_majority(n, &liars);
        if took.is_none_or(|t| t > S(120)) {
            bad.push((n, liars.len(), took));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}
