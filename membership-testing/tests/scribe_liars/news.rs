//! Liars invent news, alter what they pass on, and answer questions with something else.

use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Effect, Message, Notice};
use membership_core::{ClusterView, Delta, Row, SiloAddress, SiloStatus};
use membership_testing::{Cluster, ProcessId, TableTraffic};

use super::farewells::made_up;
use super::liar::*;
use super::standing::evict;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tells {
    /// The truth.
    Truth,
    /// One silo after the other is told of a commit that nobody made. Others pass it on.
    OneOfACommit,
    /// All are told so.
    AllOfACommit,
    /// All are told of many commits that nobody made, each with the end of somebody who lives.
    AllOfDeaths,
    /// What it passes on has other rows.
    OtherRows,
    /// Nothing: it passes nothing on, and answers no questions for rows and changes.
    Nothing,
    /// It answers questions with changes from another version.
    OtherFrom,
    /// Its digest is another one in each message.
    OtherDigest,
}

/// Commits that nobody made: `count` after the view, each with the end of one silo.
fn deaths(view: &ClusterView, silos: &[SiloAddress], count: usize, said: u128) -> Vec<Delta> {
    let mut view = view.clone();
    let mut all = Vec::new();
    for (silo, i) in silos.iter().rev().take(count).zip(0_u128..) {
        let id = said << 8 | i;
        let Some(delta) = made_up(&view, silo, SiloStatus::Dead, id) else {
            break;
        };
        view = view.apply(&delta).unwrap();
        all.push(Delta::whole(&view));
        all.push(delta);
    }
    all
}

/// The same with one row altered, and the version row of the table.
fn altered(delta: &Delta) -> Delta {
    let mut other = delta.clone();
    if let Some(mut entry) = other.rows.last().and_then(|row| row.entry().cloned()) {
        entry.info.zone = "elsewhere".to_owned();
        other.rows.pop();
        other.rows.push(Row::encode(entry));
    }
    other
}

fn alter(body: &Message, tells: Tells) -> Option<Message> {
    Some(match (body, tells) {
        (Message::News(delta), Tells::OtherRows) => Message::News(Box::new(altered(delta))),
        (Message::Delta(delta), Tells::OtherRows) => Message::Delta(Box::new(altered(delta))),
        (Message::Delta(delta), Tells::OtherFrom) => {
            let mut other = (**delta).clone();
            other.from = other.from.map_or(Some(1), |from| Some(from + 1));
            Message::Delta(Box::new(other))
        }
        (Message::Rows { .. }, Tells::OtherFrom | Tells::OtherRows) => {
            let mut other = body.clone();
            if let Message::Rows { from, rows, .. } = &mut other {
                if tells == Tells::OtherRows {
                    rows.pop();
                } else {
                    *from = from.map_or(Some(1), |_| None);
                }
            }
            other
        }
        _ => return None,
    })
}

fn tell(ctl: &mut Ctl<'_>, tells: Tells, said: &mut u128) {
    for effect in &mut ctl.effects {
        if let Effect::Send { body, header, .. } = effect {
            if let Some(other) = alter(body, tells) {
                *body = Arc::new(other);
            }
            if tells == Tells::OtherDigest {
                header.digest ^= 1;
            }
        }
    }
    if tells == Tells::Nothing {
        ctl.withhold(|_, m| {
            matches!(
                m,
                Message::News(_)
                    | Message::Announce { .. }
                    | Message::Delta(_)
                    | Message::Rows { .. }
                    | Message::AskThem { .. }
                    | Message::Vouched { .. }
            )
        });
    }
    if !ctl.tick {
        return;
    }
    *said += 1;
    let (others, view, me) = (ctl.others(), ctl.view.clone(), ctl.me);
    let id = *said << 32 | ctl.which as u128;
    match tells {
        Tells::OneOfACommit | Tells::AllOfACommit => {
            let Some(delta) = made_up(&view, &me, SiloStatus::Stopping, id) else {
                return;
            };
            let one = usize::try_from(*said).unwrap() % others.len();
            for (at, to) in others.into_iter().enumerate() {
                if tells == Tells::AllOfACommit || at == one {
                    ctl.say(to, Message::News(Box::new(delta.clone())));
                }
            }
        }
        Tells::AllOfDeaths => {
            for to in &others {
                for delta in deaths(&view, &others, 8, id) {
                    ctl.say(*to, Message::Delta(Box::new(delta)));
                }
            }
        }
        _ => {}
    }
}

/// What the lies did.
#[derive(Debug)]
struct Seen {
    /// How long it took until all had a commit of an honest silo, and until a newcomer was Active.
    commit: Duration,
    join: Duration,
    /// How many views were withdrawn by honest silos.
    withdrawn: usize,
    load: f64,
    table: TableTraffic,
    joined: TableTraffic,
}

/// Until all honest silos publish the table's members.
fn until_known(s: &mut Scene, n: usize) -> Duration {
    let from = s.c.now();
    let honest: Vec<ProcessId> = (0..n)
        .filter(|i| !s.liars.contains(i))
        .map(ProcessId)
        .collect();
    loop {
        let table = s.c.table().unwrap();
        let is_same = |silo: &ProcessId| {
            !s.c.is_running(*silo)
                || s.c.view(*silo).is_some_and(|view| {
                    view.version() == table.version() && view.snapshot().rows == table.rows
                })
        };
        if honest.iter().all(is_same) || s.c.now() - from > S(120) {
            return s.c.now() - from;
        }
        s.c.run_for(MS(5)).unwrap();
    }
}

fn run(n: usize, liars: &[usize], tells: Tells, seed: u64) -> Seen {
    let mut said = 0;
    let mut s = scene(n, liars, seed, S(2), move |ctl| tell(ctl, tells, &mut said));
    let honest = |s: &Scene| {
        let all = (liars.len()..n).map(|i| s.c.messages_sent(ProcessId(i)));
        all.sum::<u64>() as f64
    };
    let a = honest(&s);
    s.c.run_for(S(60)).unwrap();
    let b = honest(&s);
    s.start(&[]);
    let before = s.c.table_traffic();
    s.c.run_for(S(60)).unwrap();
    let table = s.c.table_traffic().since(&before);
    let load = (honest(&s) - b) / (b - a);
    let version = s.c.table().unwrap().version();
    evict(&mut s.c, ProcessId(n - 2), ProcessId(n - 1));
    while s.c.table().unwrap().version() == version {
        s.c.run_for(MS(1)).unwrap();
    }
    let commit = until_known(&mut s, n);
    s.c.run_for(S(30)).unwrap();
    let (began, before) = (s.c.now(), s.c.table_traffic());
    let joiner = s.c.start(1)[0];
    let active = |c: &Cluster| {
        let row = c.row(joiner);
        row.is_some_and(|e| e.status == SiloStatus::Active)
    };
    let done = s.c.run_until(S(290), active).unwrap();
    let join = if done { s.c.now() - began } else { S(999) };
    let joined = s.c.table_traffic().since(&before);
    assert_eq!(s.honest_dead(n, &[n - 1]), Vec::<usize>::new());
    s.plan.borrow_mut().on = false;
    s.c.run_for(S(120)).unwrap();
    assert!(until_known(&mut s, n) <= S(70), "{tells:?}");
    let withdrawn = |i: usize| {
        let notices = s.c.notices(ProcessId(i)).iter();
        notices
            .filter(|(_, n)| matches!(n, Notice::ViewWithdrawn { .. }))
            .count()
    };
    Seen {
        commit,
        join,
        withdrawn: (liars.len()..n).map(withdrawn).sum(),
        load,
        table,
        joined,
    }
}

#[test]
fn lies_about_commits_hold_nobody_up() {
    let mut bad = Vec::new();
    for tells in [
        Tells::Truth,
        Tells::OneOfACommit,
        Tells::AllOfACommit,
        Tells::AllOfDeaths,
        Tells::OtherRows,
        Tells::Nothing,
        Tells::OtherFrom,
        Tells::OtherDigest,
    ] {
        for (n, liars) in [(10, vec![0]), (12, vec![0, 1, 2]), (30, vec![0, 1])] {
            for seed in 1..=2 {
                let seen = run(n, &liars, tells, seed);
                println!(
                    "{n} silos, {} tell {tells:?}: commit known after {:.2?}, join {:.2?}, {} withdrawn, load {:.1}, reads of all {}, of a row {}; join: {} reads, {} rows",
                    liars.len(),
                    seen.commit,
                    seen.join,
                    seen.withdrawn,
                    seen.load,
                    seen.table.reads,
                    seen.table.row_reads,
                    seen.joined.reads,
                    seen.joined.rows_read
                );
                if seen.join > S(30) || seen.commit > S(10) || seen.load > 3.0 {
                    bad.push((n, tells, seed, seen));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
