//! A liar and one ordinary fault do not end a healthy silo.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::protocol::{Effect, Message};
use membership_core::{HeartbeatWrite, MonoTime, SiloAddress};
use membership_testing::ProcessId;

use super::liar::*;

/// The link between two honest silos is cut, and some others crash; the liar says that it reaches
/// nobody either. Returns the seeds with the healthy silos that died.
fn one_cut_link(n: usize, crashed: &[usize]) -> Vec<(u64, Vec<usize>)> {
    let mut killed = Vec::new();
    for seed in 1..=6 {
        let mut s = scene(n, &[0], seed, MS(200), |ctl| {
            if let Some((from, body)) = ctl.heard.clone()
                && let Message::RollCall { call, suspects } = &*body
            {
                ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
                let findings = suspects
                    .iter()
                    .map(|(s, _)| (*s, failed(9_000, Some(9_100))))
                    .collect();
                ctl.answer(from, *call, findings, Vec::new());
            }
        });
        s.start(&[]);
        s.c.block_both(ProcessId(1), ProcessId(2));
        s.crash(crashed);
        s.c.run_for(S(180)).unwrap();
        let dead = s.honest_dead(n, crashed);
        if !dead.is_empty() {
            killed.push((seed, dead));
        }
    }
    println!("{n} silos, one liar, one cut link: killed (seed, who) {killed:?}");
    killed
}

#[test]
fn one_and_a_cut_link_kill_nobody_of_four() {
    assert_eq!(one_cut_link(4, &[]), []);
}

#[test]
fn one_and_a_cut_link_kill_nobody_of_many() {
    assert_eq!(one_cut_link(5, &[]), []);
    assert_eq!(one_cut_link(9, &[]), []);
}

/// One honest silo pauses for less than the failure window; liars say that it has been silent
/// since just after it last answered the honest callers: they try many times.
fn short_pause(n: usize, liars: &[usize], pause: Duration) -> Vec<u64> {
    let mut killed = Vec::new();
    for seed in 1..=SEEDS {
        let mut calls: Vec<(SiloAddress, u64, MonoTime)> = Vec::new();
        let (mut sweep, mut began, mut called) = (0, None, BTreeSet::new());
        let mut s = scene(n, liars, seed, MS(20), move |ctl| {
            ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
            let victims = ctl.plan.victims.clone();
            let mut answer = ctl.tick;
            if let Some((from, body)) = ctl.heard.clone()
                && let Message::RollCall { call, .. } = &*body
            {
                calls.retain(|(f, ..)| *f != from);
                calls.push((from, *call, ctl.now));
                answer = true;
            }
            let now = ctl.now;
            let elapsed = now.since(*began.get_or_insert(now));
            calls.retain(|(.., at)| now.since(*at) < S(8));
            if answer {
                sweep = (sweep + 1) % 16;
                for (to, call, _) in calls.clone() {
                    // Silent since 6.0 s, 5.9 s, ... 4.5 s.
                    let silent = 6_000 - sweep * 100;
                    let findings = victims
                        .iter()
                        .map(|v| (*v, failed(silent, Some(silent + 9_900))))
                        .collect();
                    ctl.answer(to, call, findings, victims.clone());
                }
            }
            if n > 5 && elapsed >= S(1) && called.insert(ctl.which) {
                // So that all honest silos have just probed the victim in vain.
                for to in ctl.others() {
                    let named = victims.iter().map(|v| (*v, 0)).collect();
                    ctl.say(
                        to,
                        Message::RollCall {
                            call: 1,
                            suspects: named,
                        },
                    );
                }
            }
        });
        let victim = n - 1;
        s.c.run_for(MS(seed * 137)).unwrap();
        s.start(&[victim]);
        s.c.pause(ProcessId(victim), pause);
        s.c.run_for(S(20)).unwrap();
        if !s.honest_dead(n, &[]).is_empty() {
            killed.push(seed);
        }
    }
    println!(
        "{n} silos, {} liars, pause of {pause:?}: killed with {} of {SEEDS} seeds",
        liars.len(),
        killed.len()
    );
    killed
}

#[test]
fn one_and_a_short_pause_kill_nobody() {
    for n in [3, 4, 5, 9] {
        assert_eq!(short_pause(n, &[0], MS(4_300)), Vec::<u64>::new(), "{n}");
    }
}

#[test]
fn a_short_pause_kills_nobody() {
    for n in [5, 9] {
        assert_eq!(short_pause(n, &[], MS(4_300)), Vec::<u64>::new(), "{n}");
    }
}

#[test]
fn one_a_cut_link_and_a_crash_kill_nobody_of_five() {
    assert_eq!(one_cut_link(5, &[4]), []);
}

/// The counter of one silo's heartbeat starts again and again under the same epoch, so that all who do
/// not hear it take it for stale. Some of its links are cut, for good. It must live as long as most
/// reach it, and no longer.
fn a_counter_starts_again(n: usize, cut: usize) {
    let mut s = scene(n, &[0], 1, S(1), |ctl| {
        for effect in &mut ctl.effects {
            if let Effect::WriteHeartbeat { write, .. } = effect
                && let HeartbeatWrite::Silo { heartbeat, .. } = write
            {
                heartbeat.counter = 1 + heartbeat.counter % 3;
            }
        }
    });
    s.start(&[]);
    s.c.run_for(S(60)).unwrap();
    for other in 1..=cut {
        s.c.block_both(ProcessId(0), ProcessId(other));
    }
    s.c.run_for(S(300)).unwrap();
    let dead: Vec<usize> = (0..n).filter(|i| s.is_dead(*i)).collect();
    println!("{n} silos, {cut} do not reach one whose counter starts again: {dead:?} died");
    assert_eq!(dead, Vec::<usize>::new());
    s.crash(&[0]);
    let took = s.removed(&[0], S(120));
    assert!(took.is_some(), "{n} silos: it is not removed");
}

#[test]
fn a_counter_that_starts_again_ends_nobody() {
    for (n, cut) in [(3, 0), (3, 1), (4, 1), (5, 2), (9, 4), (20, 9)] {
        a_counter_starts_again(n, cut);
    }
}

/// As many honest silos as this pause at the same moment, for less than the failure window; a liar says
/// of all of them that they have been silent for longer, and that it misses them.
fn pause_together(n: usize, victims: usize, pause: Duration) -> Vec<(u64, Vec<usize>)> {
    let mut killed = Vec::new();
    for seed in 1..=SEEDS / 2 {
        let mut sweep = 0;
        let mut calls: Vec<(SiloAddress, u64, MonoTime)> = Vec::new();
        let mut s = scene(n, &[0], seed, MS(20), move |ctl| {
            ctl.withhold(|_, m| matches!(m, Message::RollAnswer { .. }));
            let victims = ctl.plan.victims.clone();
            if let Some((from, body)) = ctl.heard.clone()
                && let Message::RollCall { call, .. } = &*body
            {
                calls.retain(|(f, ..)| *f != from);
                calls.push((from, *call, ctl.now));
            } else if !ctl.tick {
                return;
            }
            let now = ctl.now;
            calls.retain(|(.., at)| now.since(*at) < S(8));
            sweep = (sweep + 1) % 16;
            let silent = 6_000 - sweep * 100;
            for (to, call, _) in calls.clone() {
                let about = |v: &SiloAddress| (*v, failed(silent, Some(silent + 9_900)));
                let findings = victims.iter().map(about).collect();
                let missed = victims.clone();
                ctl.answer(to, call, findings, missed);
            }
            if sweep == 0 {
                for to in ctl.others() {
                    let suspects = victims.iter().map(|v| (*v, 0)).collect();
                    ctl.say(to, Message::RollCall { call: 1, suspects });
                }
            }
        });
        let silos: Vec<usize> = (n - victims..n).collect();
        s.c.run_for(MS(seed * 137)).unwrap();
        s.start(&silos);
        for silo in ids(&silos) {
            s.c.pause(silo, pause);
        }
        s.c.run_for(S(30)).unwrap();
        let dead = s.honest_dead(n, &[]);
        if !dead.is_empty() {
            killed.push((seed, dead));
        }
    }
    println!("{n} silos, {victims} pause for {pause:?}: killed (seed, who) {killed:?}");
    killed
}

#[test]
fn one_and_short_pauses_of_many_kill_nobody() {
    let mut bad = Vec::new();
    for (n, victims) in [(4, 2), (5, 2), (5, 4), (7, 4), (9, 4), (9, 6)] {
        bad.extend(pause_together(n, victims, MS(4_200)));
    }
    assert!(bad.is_empty(), "{bad:?}");
}
