//! A liar that says goodbye, for itself or for others, ends nobody and keeps nobody in the view.

use membership_core::protocol::{Message, Notice};
use membership_core::{
    CauseOfDeath, ClusterView, CommitId, CommitRequest, Death, Delta, MembershipEntry, SiloAddress,
    SiloStatus, WallTime,
};

use super::liar::*;

/// What the liar says again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// It has left, as its row says that it made up.
    HasLeft,
    /// It stops.
    Stops,
    /// Another silo has left.
    OtherHasLeft,
    /// It leaves, and could not write that; and all others are dead.
    NoRow,
}

/// A view with the next version, in which the row of this silo has this status.
pub(crate) fn made_up(
    view: &ClusterView,
    silo: &SiloAddress,
    status: SiloStatus,
    id: u128,
) -> Option<Delta> {
    let base = view.snapshot();
    let mut row: MembershipEntry = view.get(silo).cloned()?;
    row.status = status;
    if status == SiloStatus::Dead {
        let at = WallTime::from_millis(1_767_226_000_000);
        row.death = Some(Death::new(CauseOfDeath::Left, at, None, view.version() + 1));
    }
    let (id, rows) = (CommitId::new(id), vec![row]);
    let commit = CommitRequest::new(base.token.clone(), id, Some(*silo), vec![], rows, vec![]);
    let next = commit.apply_to(base, commit.next_token(&[]));
    ClusterView::new(next).delta_since(base.version())
}

/// The liar speaks, another silo crashes, and a third one joins.
fn says(n: usize, what: Says, seed: u64) -> Vec<String> {
    let mut said = 0;
    let mut s = scene(n, &[0], seed, MS(100), move |ctl| {
        if !ctl.tick {
            return;
        }
        said += 1;
        let (view, me, all) = (ctl.view.clone(), ctl.me, ctl.others());
        let Some(other) = all.last().copied() else {
            return;
        };
        let delta = match what {
            Says::HasLeft => made_up(&view, &me, SiloStatus::Dead, said),
            Says::Stops => made_up(&view, &me, SiloStatus::Stopping, said),
            Says::OtherHasLeft => made_up(&view, &other, SiloStatus::Dead, said),
            Says::NoRow => None,
        };
        for to in all {
            let version = delta.as_ref().map_or(0, Delta::to);
            let delta = delta.clone().map(Box::new);
            if said % 2 == 0 || delta.is_none() {
                ctl.say(to, Message::Farewell { version, delta });
            } else if let Some(delta) = delta {
                ctl.say(to, Message::Delta(delta));
            }
            if what == Says::NoRow {
                let version = view.version() + 1;
                ctl.say(to, Message::YouAreDead { version });
            }
        }
    });
    let sent = |s: &Scene| (1..n).map(|i| s.c.messages_sent(ids(&[i])[0])).sum::<u64>() as f64;
    let before = sent(&s);
    s.c.run_for(S(60)).unwrap();
    let quiet = sent(&s) - before;
    s.start(&[]);
    let before = sent(&s);
    s.c.run_for(S(60)).unwrap();
    let load = sent(&s) - before;
    s.c.run_for(S(60)).unwrap();
    let mut wrong = Vec::new();
    if load > quiet * 3.0 {
        wrong.push(format!("{:.1} times the quiet load", load / quiet));
    }
    if !s.honest_dead(n, &[]).is_empty() || s.is_dead(0) {
        wrong.push("somebody who lives is Dead".to_owned());
    }
    let withdrawn = |i: usize| {
        let notices = s.c.notices(ids(&[i])[0]).iter();
        let told = |n: &Notice| matches!(n, Notice::ViewWithdrawn { .. });
        notices.filter(|(_, n)| told(n)).count()
    };
    let withdrawn: usize = (1..n).map(withdrawn).sum();
    // Its words about itself are heard.
    if matches!(what, Says::HasLeft | Says::Stops) && withdrawn == 0 {
        wrong.push("no view was withdrawn".to_owned());
    }
    s.crash(&[n - 2]);
    let took = s.removed(&[n - 2], S(300));
    if took.is_none_or(|t| t > S(60)) {
        wrong.push(format!("the crashed one is Dead after {took:?}"));
    }
    let joiner = s.c.start(1)[0];
    let from = s.c.now();
    let active = |c: &membership_testing::Cluster| {
        c.row(joiner)
            .is_some_and(|e| e.status == SiloStatus::Active)
    };
    let joined = s.c.run_until(S(300), active).unwrap();
    let join = s.c.now() - from;
    if !joined || join > S(30) {
        wrong.push(format!("a silo joined: {joined}, after {join:.1?}"));
    }
    if !s.honest_dead(n, &[n - 2]).is_empty() {
        wrong.push("an honest silo died".to_owned());
    }
    println!(
        "{n} silos, seed {seed}, one says {what:?}: {withdrawn} withdrawn, load {:.1}, crash {took:?}, join {join:.1?}",
        load / quiet
    );
    wrong
}

#[test]
fn one_that_says_goodbye_ends_nobody() {
    let mut bad = Vec::new();
    for what in [Says::HasLeft, Says::Stops, Says::OtherHasLeft, Says::NoRow] {
        for n in [3, 4, 5, 9] {
            for seed in 1..=4 {
                let wrong = says(n, what, seed);
                if !wrong.is_empty() {
                    bad.push((n, what, seed, wrong));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
