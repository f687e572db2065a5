//! Liars are asked to write the changes of others, write none of them, and lie about that.

use std::time::Duration;

use membership_core::protocol::{Command, Message, RequestId, Standing};
use membership_core::{IntentId, MonoTime, SiloAddress, SiloStatus};
use membership_testing::{Cluster, ProcessId};

use super::liar::*;

/// What the liars say of each change, again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Waiting,
    /// That very many wait, and then nothing.
    WaitingOnce,
    /// That it waits; and somebody else makes one commit.
    WaitingAndOneCommit,
    /// By this many versions after the liar's own; the largest number is no version at all.
    Written(u64),
    Moot,
    Refused,
    Elsewhere,
    /// First that it waits, and shortly before that is no longer believed: that it is written.
    WaitingThenWritten,
}

/// How often they say so.
const AGAIN: Duration = Duration::from_millis(200);

/// Another commit of somebody, so that this one is asked to write next.
pub(crate) fn evict(c: &mut Cluster, silo: ProcessId, evicts: ProcessId) {
    let evict = Command::Evict {
        request: RequestId(1),
        silo: c.address(evicts).unwrap(),
        reason: "to make a commit".to_owned(),
    };
    c.command(silo, evict);
}

/// How long it takes until silos that start together are all Active. The first liar has made the last
/// commit. Each liar makes one more now and then.
fn join(n: usize, liars: &[usize], newcomers: usize, says: Says, seed: u64) -> (Duration, u32) {
    let mut asked: Vec<(usize, SiloAddress, IntentId, MonoTime)> = Vec::new();
    let lies = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = lies.clone();
    let mut s = scene(n, liars, seed, AGAIN, move |ctl| {
        let (which, now) = (ctl.which, ctl.now);
        let is_new = matches!(&ctl.heard, Some((_, m)) if matches!(**m, Message::Forward { .. }));
        if let Some((from, body)) = ctl.heard.clone()
            && let Message::Forward { changes } = &*body
        {
            asked.extend(changes.iter().map(|(id, _)| (which, from, *id, now)));
        }
        if !is_new && !ctl.tick {
            return;
        }
        for (_, to, id, at) in asked.iter().filter(|(of, ..)| *of == which) {
            let version = ctl.view.version();
            let standing = match says {
                Says::WaitingOnce if !is_new => continue,
                Says::Waiting | Says::WaitingOnce | Says::WaitingAndOneCommit => Standing::Waiting,
                Says::Written(after) => Standing::Written {
                    version: version.saturating_add(after),
                },
                Says::Moot => Standing::Moot,
                Says::Refused => Standing::Refused,
                Says::Elsewhere => Standing::Elsewhere,
                Says::WaitingThenWritten if now.since(*at) < MS(4_500) => Standing::Waiting,
                Says::WaitingThenWritten => Standing::Written { version: u64::MAX },
            };
            count.set(count.get() + 1);
            let (changes, waiting) = (vec![(*id, standing)], u32::MAX);
            ctl.say(*to, Message::Receipt { changes, waiting });
        }
    });
    let first = ProcessId(liars[0]);
    evict(&mut s.c, first, ProcessId(n - 1));
    s.c.run_for(S(30)).unwrap();
    let last = s.c.table().unwrap().version_row.recent.last().cloned();
    assert_eq!(last.unwrap().committer, s.c.address(first));
    s.start(&[]);
    s.plan.borrow_mut().unheard = Some(|m| matches!(m, Message::Forward { .. }));
    let began = s.c.now();
    let new = s.c.start(newcomers);
    let active = |c: &Cluster, silo: &ProcessId| {
        c.row(*silo).is_some_and(|e| e.status == SiloStatus::Active)
    };
    let all = |c: &Cluster| new.iter().all(|silo| active(c, silo));
    if says == Says::WaitingAndOneCommit {
        s.c.run_for(S(3)).unwrap();
        evict(&mut s.c, ProcessId(n - 3), ProcessId(n - 2));
    }
    let done = s.c.run_until(S(290), all).unwrap();
    let took = if done { s.c.now() - began } else { S(999) };
    let evicted = s.honest_dead(n, &[n - 1, n - 2]);
    assert_eq!(evicted, Vec::<usize>::new());
    (took, lies.get())
}

#[test]
fn lies_about_changes_hold_nobody_up_for_long() {
    let mut bad = Vec::new();
    let all = [
        Says::Waiting,
        Says::WaitingOnce,
        Says::WaitingAndOneCommit,
        Says::Written(0),
        Says::Written(1),
        Says::Written(u64::MAX),
        Says::Moot,
        Says::Refused,
        Says::Elsewhere,
        Says::WaitingThenWritten,
    ];
    for says in all {
        for (n, liars) in [(6, vec![0]), (11, vec![0, 1]), (13, vec![0, 1, 2])] {
            for newcomers in [1, 5] {
                let mut longest = Duration::ZERO;
                for seed in 1..=3 {
                    let (took, lies) = join(n, &liars, newcomers, says, seed);
                    assert!(lies > 0, "nobody was lied to");
                    longest = longest.max(took);
                    if took > S(20) {
                        bad.push((says, n, newcomers, seed, took));
                    }
                }
                println!(
                    "{n} silos, {} say {says:?}, {newcomers} join: {longest:.1?}",
                    liars.len()
                );
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
