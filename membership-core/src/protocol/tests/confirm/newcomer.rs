//! A newcomer's first view, without reading the rows from the table.

use std::net::SocketAddr;

use super::*;

#[test]
fn a_newcomer_takes_the_rows_of_a_member_if_the_table_names_their_hash() {
    let table = history();
    let mut it = Silo::newcomer();
    it.sees(&table[1]);
    let asked = it.asked().unwrap();
    assert_eq!((asked.0, asked.2), (silo(2), 0));
    it.answers(&table[..2], asked, 6);
    assert_eq!(it.versions(), (6, 6));
    assert!(it.0.ctx.view.as_ref().unwrap().is_confirmed());
}

#[test]
fn nobody_plants_rows_at_a_newcomer() {
    let table = history();
    let lies = [lie(&table[1]), lie(&table[0]), lie(&table[2])];
    for told in lies {
        let mut it = Silo::newcomer();
        it.sees(&table[1]);
        for _ in 0..20 {
            let Some(asked) = it.asked() else {
                let Some(timer) = it.0.ctx.timers.at(Timer::Fetch) else {
                    break;
                };
                let by = timer.since(it.0.ctx.mono());
                pass_time(&mut it.0.ctx, by);
                it.0.on_fetch_timer();
                continue;
            };
            // Somebody who was not asked gets nothing done.
            let (_, nonce, have) = asked;
            it.answers(&table[..2], (silo(3), nonce, have), 6);
            it.answers(std::slice::from_ref(&told), asked, told.version());
            if it.calls() == Some("version row") {
                it.0.writer = Writer::default();
                it.sees(&told_by_the_table(&table, &told));
            }
        }
        assert_eq!(it.versions(), (0, 0));
        assert!(it.0.ctx.view.is_none());
    }
}

/// The true table at the version of a lie.
fn told_by_the_table(table: &[Snapshot], told: &Snapshot) -> Snapshot {
    let same = table.iter().find(|t| t.version() == told.version());
    same.unwrap().clone()
}

#[test]
fn a_newcomer_that_gets_rows_of_a_later_version_looks_again_and_takes_the_changes() {
    let table = history();
    let mut it = Silo::newcomer();
    it.sees(&table[0]);
    let asked = it.asked().unwrap();
    it.answers(&table[2..3], asked, 5);
    assert_eq!(it.calls(), Some("version row"));
    it.0.writer = Writer::default();
    it.sees(&table[4]);
    let asked = it.asked().unwrap();
    assert_eq!((asked.0, asked.2), (silo(2), 7), "only what changed since");
    it.answers(&table[2..], asked, 9);
    assert_eq!(it.versions(), (9, 9));
    assert!(it.0.ctx.confirmed_entry(&silo(4)).is_none(), "removed");
}

#[test]
fn a_newcomer_whom_nobody_answers_reads_the_table() {
    let table = history();
    let mut it = Silo::newcomer();
    it.sees(&table[1]);
    for _ in 0..2 {
        assert!(it.asked().is_some() && it.0.writer.is_idle());
        it.waits();
    }
    let looks = it.reads_at_last(&table[1]);
    assert!(looks <= 8, "{looks}");
    // Few rows are read at once if nobody can be asked. Silo 2 wrote last.
    let few = next(&snapshot(4, actives([2])), vec![], actives([2]), &[]);
    let mut it = Silo::newcomer();
    it.sees(&few);
    assert_eq!(it.asked().map(|(to, _, _)| to), Some(silo(2)));
    let mut it = Silo::newcomer();
    it.sees(&snapshot(4, actives([2])));
    assert_eq!(it.calls(), Some("rows"));
}

#[test]
fn a_newcomer_does_not_wait_for_a_writer_that_is_gone() {
    let table = history();
    let there = silo(2).endpoint();
    let failed = |refused| Input::SendFailed {
        to: there,
        refused,
        reason: "failed".into(),
    };
    let ended = Input::Disconnected { peer: there };
    let inputs = [(failed(true), true), (ended, true), (failed(false), false)];
    for (input, is_gone) in inputs {
        let mut it = Silo::newcomer();
        it.sees(&table[1]);
        it.asked().unwrap();
        let (now, what) = (it.0.ctx.now, format!("{input:?}"));
        it.0.handle(now, input, &mut Vec::new());
        let gone: Vec<_> = it.0.fetch.gone().collect();
        assert_eq!(gone, if is_gone { vec![silo(2)] } else { vec![] }, "{what}");
    }
    let mut it = Silo::newcomer();
    it.sees(&table[1]);
    let (_, nonce, _) = it.asked().unwrap();
    let other = process(there, 9);
    let another_question = Message::NotMe { nonce: nonce + 1 };
    it.is_sent(&other, None, &another_question);
    assert_eq!(it.0.fetch.gone().next(), None);
    it.is_sent(&other, None, &Message::NotMe { nonce });
    assert_eq!(it.0.fetch.gone().collect::<Vec<_>>(), [silo(2)]);
    it.reads_at_last(&table[1]);
}

#[test]
fn another_process_at_the_address_says_so_at_once() {
    let table = history();
    let nonce = 17;
    let ask = ask_rows(nonce, 5);
    for mut it in [Silo::at(&table[0]), Silo::newcomer()] {
        let former = SiloAddress::at(silo(1).endpoint(), 7);
        let asker = process(silo(9).endpoint(), 0);
        let said = it.is_sent(&asker, Some(former), &ask);
        assert_eq!(said, [Message::NotMe { nonce }]);
    }
}

#[test]
fn a_newcomer_at_a_former_address_is_sent_rows() {
    let mut it = Silo::at(&history()[1]);
    // Its epoch is not decided, and silo 3 was at its address.
    let from = process(silo(3).endpoint(), 0);
    let said = it.is_sent(&from, None, &ask_rows(17, 6));
    let is_row = |m: &Message| matches!(m, Message::Rows { .. });
    assert!(!said.is_empty() && said.iter().all(is_row), "{said:?}");
}

#[test]
fn a_newcomer_with_a_view_takes_changes_only_when_the_table_has_shown_them() {
    let table = history();
    let mut it = Silo::newcomer();
    it.sees(&table[0]);
    let asked = it.asked().unwrap();
    it.answers(&table[..1], asked, 5);
    assert_eq!(it.versions(), (5, 5));
    it.0.writer = Writer::default();
    // Its first commit has met a conflict.
    it.0.row_is_in = false;
    let mut row = row_of(&table[2]);
    row.row = None;
    let sent = it.0.ctx.mono();
    it.0.on_shown(sent, it.0.ctx.me, row.clone());
    let asked = it.asked().unwrap();
    assert_eq!((asked.0, asked.2), (silo(2), 5), "what changed since");
    it.answers(&table[..3], asked, 7);
    assert_eq!(it.versions(), (5, 5));
    assert_eq!(it.calls(), Some("version row"));
    it.0.writer = Writer::default();
    it.0.on_shown(sent, it.0.ctx.me, row);
    assert_eq!(it.versions(), (7, 7));
}

/// In a start of many the table moves on all the time, and nobody has its last version for long enough.
#[test]
fn a_newcomer_may_take_rows_that_the_table_has_left() {
    let table = history();
    for takes_older in [false, true] {
        let mut it = Silo::newcomer();
        it.0.ctx.variant.takes_older = takes_older;
        it.sees(&table[0]);
        let asked = it.asked().unwrap();
        it.answers(&table[..1], asked, 5);
        it.0.writer = Writer::default();
        it.0.row_is_in = false;
        let shown = |table: &Snapshot| {
            let mut row = row_of(table);
            row.row = None;
            row
        };
        let sent = it.0.ctx.mono();
        it.0.on_shown(sent, it.0.ctx.me, shown(&table[2]));
        let asked = it.asked().unwrap();
        it.answers(&table[..3], asked, 7);
        assert_eq!((it.versions(), it.calls()), ((5, 5), Some("version row")));
        it.0.writer = Writer::default();
        it.0.on_shown(sent, it.0.ctx.me, shown(&table[4]));
        let taken = if takes_older { 7 } else { 5 };
        assert_eq!(it.versions().0, taken);
    }
}

#[test]
fn a_busy_writer_names_others_and_parts_are_small() {
    let table = history();
    let named = served(&table[1..2], (7, 0, 6), true);
    let [Message::AskThem { nonce: 7, silos }] = &named[..] else {
        panic!("{named:?}");
    };
    assert!(silos.len() == 4 && !silos.contains(&silo(1)));
    let mut it = Silo::newcomer();
    it.sees(&table[1]);
    let (by, nonce, _) = it.asked().unwrap();
    let silos = silos.clone();
    it.0.on_rows(by, &Message::AskThem { nonce, silos });
    let asked = it.asked().unwrap();
    assert_ne!(asked.0, silo(2));
    it.answers(&table[1..2], asked, 6);
    assert_eq!(it.versions(), (6, 6));

    let parts = served(&table[..3], (7, 0, 6), false);
    assert!(parts.len() > 2);
    for part in &parts {
        let Message::Rows {
            from: None,
            version: 6,
            rows,
            ..
        } = part
        else {
            panic!("{part:?}");
        };
        let size: usize = rows.iter().map(Row::size).sum();
        assert!(rows.len() == 1 || size <= 300);
    }
    let changes = served(&table[..3], (7, 6, 7), false);
    assert!(
        matches!(&changes[..], [Message::Rows { from: Some(6), version: 7, rows, .. }] if rows.len() == 1)
    );
}

#[test]
fn only_who_proves_its_instance_is_sent_rows() {
    let table = history();
    for is_proven in [true, false] {
        let mut it = Silo::at(&table[0]);
        let from = Sender {
            is_proven,
            ..process(silo(9).endpoint(), 0)
        };
        let said = it.is_sent(&from, Some(silo(1)), &ask_rows(1, 5));
        assert_eq!(!said.is_empty(), is_proven);
    }
}

/// A process that is in no view.
struct Sender {
    address: SiloAddress,
    instance: InstanceId,
    is_proven: bool,
}

/// One at this endpoint.
fn process(there: SocketAddr, epoch: u64) -> Sender {
    Sender {
        address: SiloAddress::at(there, epoch),
        instance: instance(silo(9)),
        is_proven: true,
    }
}

/// A newcomer's question about all rows.
fn ask_rows(nonce: u64, want: u64) -> Message {
    let have = 0;
    Message::AskRows { nonce, have, want }
}

impl Silo {
    /// Receives a message by another process; what this silo says to it.
    fn is_sent(&mut self, from: &Sender, to: Option<SiloAddress>, body: &Message) -> Vec<Message> {
        self.0.ctx.out.clear();
        let mut header = Header::new(self.0.ctx.fingerprint, from.address, from.instance);
        header.to = to;
        let peer = if from.is_proven {
            PeerIdentity::Proven(from.instance)
        } else {
            PeerIdentity::Unproven
        };
        self.0.receive(LINK, peer, &header, body);
        let said = sent(&mut self.0.ctx).into_iter();
        said.map(|(_, message)| message).collect()
    }

    /// Nobody answers: it looks at the version row again and again, and reads the rows at last. Returns
    /// how often it looked.
    fn reads_at_last(&mut self, table: &Snapshot) -> u32 {
        for looks in 0..100 {
            match self.calls() {
                Some("rows") => return looks,
                Some(_) => {
                    self.0.writer = Writer::default();
                    self.sees(table);
                }
                None => self.waits(),
            }
        }
        panic!("it does not read the rows");
    }
}

#[test]
fn whoever_has_nothing_gets_all_rows_also_from_the_founder() {
    let views = [snapshot(0, vec![]), snapshot(1, actives([1]))];
    let sent = served(&views, (7, 0, 1), false);
    let [
        Message::Rows {
            from,
            version,
            rows,
            ..
        },
    ] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!((*from, *version, rows.len()), (None, 1, 1));
}

/// A read that took long may bring a view while the rows of a member are on their way.
#[test]
fn a_newcomer_that_has_a_view_by_then_takes_no_rows_before_the_table_has_shown_them() {
    let table = history();
    let mut it = Silo::newcomer();
    it.sees(&table[2]);
    let asked = it.asked().unwrap();
    believe(&mut it.0.ctx, table[1].clone());
    it.answers(&table[..3], asked, 7);
    assert_eq!((it.versions(), it.calls()), ((6, 6), Some("version row")));
    it.0.row_is_in = false;
    let mut row = row_of(&table[2]);
    row.row = None;
    let sent = it.0.ctx.mono();
    it.0.on_shown(sent, it.0.ctx.me, row);
    assert_eq!(it.versions(), (7, 7));
}
