//! Liars ask others to write, to send rows, and to fetch what is not there: that makes little work.

use membership_core::protocol::{Message, OwnChange};
use membership_core::{CommitId, IntentId};
use membership_testing::TableTraffic;

use super::liar::*;

/// What the liar sends to each silo, once per period.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sends {
    /// Changes of its own row, which it has already: hundreds in one message.
    ManyChanges,
    /// That it has a version that does not exist.
    NoSuchVersion,
    /// The same for the next version.
    NextVersion,
    /// The same in the header of a probe.
    FarAhead,
    /// A question for all rows, as if it knew some.
    AllRows,
    /// The question who was told a word.
    Words,
}

/// Messages per honest silo and second before and during the lies, and what the table served meanwhile.
fn load(n: usize, sends: Sends, every_ms: u64, seed: u64) -> (f64, f64, TableTraffic) {
    let mut said = 0_u64;
    let mut s = scene(n, &[0], seed, MS(every_ms), move |ctl| {
        if !ctl.tick {
            return;
        }
        for to in ctl.others() {
            said += 1;
            let version = ctl.view.version();
            let commit = CommitId::new(said.into());
            let body = match sends {
                Sends::ManyChanges => {
                    let change = OwnChange::BecomeActive { contacted: vec![] };
                    let id = |i: u64| IntentId::new(u128::from(said) << 64 | u128::from(i));
                    let changes = (0..512).map(|i| (id(i), change.clone())).collect();
                    Message::Forward { changes }
                }
                Sends::NoSuchVersion => Message::Announce {
                    version: u64::MAX,
                    commit,
                },
                Sends::NextVersion => Message::Announce {
                    version: version + 1,
                    commit,
                },
                Sends::FarAhead => {
                    ctl.header.version = u64::MAX;
                    Message::Probe { nonce: said }
                }
                Sends::AllRows => Message::AskRows {
                    nonce: said,
                    have: u64::MAX,
                    want: version,
                },
                Sends::Words => Message::AskVouched {
                    nonce: said,
                    words: vec![(ctl.me, said)],
                },
            };
            ctl.say(to, body);
        }
    });
    let sent = |s: &Scene| {
        let all = (1..n).map(|i| s.c.messages_sent(ids(&[i])[0]));
        all.sum::<u64>() as f64 / (n - 1) as f64
    };
    let a = sent(&s);
    s.c.run_for(S(60)).unwrap();
    let b = sent(&s);
    s.start(&[]);
    let before = s.c.table_traffic();
    s.c.run_for(S(60)).unwrap();
    let c = sent(&s);
    assert_eq!(s.honest_dead(n, &[]), Vec::<usize>::new());
    let traffic = s.c.table_traffic().since(&before);
    ((b - a) / 60.0, (c - b) / 60.0, traffic)
}

#[test]
fn questions_make_little_traffic() {
    let mut bad = Vec::new();
    for (sends, every) in [
        (Sends::ManyChanges, 1_000),
        (Sends::NoSuchVersion, 20),
        (Sends::NextVersion, 20),
        (Sends::FarAhead, 1_000),
        (Sends::AllRows, 20),
        (Sends::Words, 1_000),
    ] {
        // All rows are many messages.
        let most = if sends == Sends::AllRows { 9 } else { 30 };
        for n in [9, most] {
            let (quiet, load, table) = load(n, sends, every, 1);
            println!(
                "{n} silos, {sends:?} every {every} ms: {quiet:.1} -> {load:.1} messages per honest silo and second; {} reads of all, {} of the version row",
                table.reads, table.row_reads
            );
            if load > quiet * 3.0 {
                bad.push((n, sends, load / quiet));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}
