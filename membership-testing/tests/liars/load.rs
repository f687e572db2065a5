//! A liar cannot make the others send without bound.

use std::time::Duration;

use membership_core::protocol::Message;
use membership_testing::ProcessId;

use super::liar::*;

/// One question a second to each silo, about everybody, "silent for 0 ms".
fn asks(n: usize, every: Duration) {
    let mut s = scene(n, &[0], 1, every, |ctl| {
        if ctl.tick {
            let others = ctl.others();
            for to in &others {
                let suspects = others.iter().map(|s| (*s, 0)).collect();
                ctl.say(*to, Message::RollCall { call: 3, suspects });
            }
        }
    });
    let honest = |s: &Scene| {
        (1..n).map(|i| s.c.messages_sent(ProcessId(i))).sum::<u64>() as f64 / (n - 1) as f64
    };
    let a = honest(&s);
    s.c.run_for(S(60)).unwrap();
    let b = honest(&s);
    s.start(&[]);
    s.c.run_for(S(60)).unwrap();
    let c = honest(&s);
    let (quiet, load) = ((b - a) / 60.0, (c - b) / 60.0);
    println!(
        "{n} silos, a call every {every:?}: {quiet:.1} -> {load:.1} messages per honest silo and second"
    );
    assert!(
        load <= quiet * 3.0,
        "{:.1} times the quiet load",
        load / quiet
    );
}

#[test]
fn one_that_calls_all_the_time_makes_little_traffic() {
    asks(9, S(1));
}

#[test]
fn one_that_calls_as_fast_as_it_can_makes_little_traffic() {
    asks(9, MS(20));
}
