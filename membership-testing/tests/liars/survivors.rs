//! However many crash, those that are left remove them. Nobody lies here.

use std::time::Duration;

use super::liar::*;

/// No lie at all: the only one left of `n` removes the others.
fn lone(n: usize, kill: bool) -> Vec<(u64, Option<Duration>)> {
    let mut all = Vec::new();
    for seed in 1..=5 {
        let mut s = scene(n, &[], seed, S(1), |_| {});
        let gone: Vec<usize> = (1..n).collect();
        for i in ids(&gone) {
            if kill {
                s.c.kill(i);
            } else {
                s.c.crash_machine(i);
            }
        }
        all.push((seed, s.removed(&gone, S(600))));
    }
    println!("{n} silos, all but one end (killed: {kill}): {all:?}");
    all
}

#[test]
fn the_only_one_left_removes_the_others() {
    let mut bad = 0;
    for n in [2, 3, 4, 5, 9] {
        for kill in [false, true] {
            bad += lone(n, kill)
                .iter()
                .filter(|(_, t)| t.is_none_or(|t| t > S(120)))
                .count();
        }
    }
    assert_eq!(bad, 0);
}

/// No lie: any number crash at once.
#[test]
fn any_number_left_removes_the_others() {
    let mut bad = Vec::new();
    for n in [3, 4, 5, 6, 7, 9] {
        for gone in 1..n {
            for seed in 1..=4 {
                let mut s = scene(n, &[], seed, S(1), |_| {});
                let crashed: Vec<usize> = (n - gone..n).collect();
                s.crash(&crashed);
                let took = s.removed(&crashed, S(600));
                if took.is_none_or(|t| t > S(120)) {
                    bad.push((n, gone, seed, took));
                }
            }
        }
    }
    println!("silos, crashed, seed, took: {bad:?}");
    assert!(bad.is_empty());
}
