//! Changes that others ask this silo to write: whose it takes, and what it says of them.

use super::super::forward::{OwnChange, Standing};
use super::super::io::LinkId;
use super::super::observation::Unwritten;
use super::super::writer::Writer;
use super::*;
use crate::intent::{Action, Answer, Observed};
use crate::{CommitOutcome, IntentId, Row};

struct Desk {
    ctx: Ctx,
    writer: Writer,
}

impl Desk {
    /// This silo and silo 2 are Active.
    fn new() -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, actives([1, 2])));
        Self {
            ctx,
            writer: Writer::default(),
        }
    }

    /// A process at a silo's address asks; returns the nonce of the question to its address, if it is
    /// dialled, and the answer.
    fn ask(
        &mut self,
        by: SiloAddress,
        proven: Option<InstanceId>,
        id: u128,
        change: OwnChange,
    ) -> (Option<u64>, Standing) {
        let changes = [(IntentId::new(id), change)];
        let from = (LinkId(7), by);
        self.writer
            .on_forward(&mut self.ctx, from, proven, &changes, true);
        let (mut nonce, mut standing) = (None, None);
        for (_, message) in sent(&mut self.ctx) {
            match message {
                Message::Identify { nonce: asked } => nonce = Some(asked),
                Message::Receipt { changes, .. } => standing = changes.first().map(|c| c.1),
                other => panic!("{other:?}"),
            }
        }
        (nonce, standing.unwrap())
    }

    fn waits(&self) -> usize {
        self.writer.waiting()
    }
}

/// The row of a newcomer.
fn row(n: u8) -> OwnChange {
    OwnChange::Join(Row::encode(entry(silo(n), SiloStatus::Joining)))
}

#[test]
fn only_the_proven_sender_speaks_for_itself() {
    let mut d = Desk::new();
    let two = Some(instance(silo(2)));
    assert_eq!(
        d.ask(silo(2), None, 1, OwnChange::Leave).1,
        Standing::Elsewhere
    );
    let stranger = Some(instance(silo(9)));
    assert_eq!(
        d.ask(silo(2), stranger, 2, OwnChange::Leave).1,
        Standing::Elsewhere
    );
    assert_eq!(
        d.ask(silo(2), two, 3, row(3)).1,
        Standing::Elsewhere,
        "the row of another silo"
    );
    assert_eq!(d.waits(), 0);
    assert_eq!(
        d.ask(silo(2), two, 4, OwnChange::Leave).1,
        Standing::Waiting
    );
    assert_eq!(
        d.ask(silo(2), two, 4, OwnChange::Leave).1,
        Standing::Waiting,
        "asked again"
    );
    assert_eq!(d.waits(), 1);
    let own = d.writer.has(|a| matches!(a, Action::Leave { .. }));
    assert!(!own, "it is not this silo's own");
}

#[test]
fn a_newcomer_is_dialled_once_and_must_be_there() {
    let mut d = Desk::new();
    let three = instance(silo(3));
    let (Some(nonce), standing) = d.ask(silo(3), Some(three), 1, row(3)) else {
        panic!("it is not dialled");
    };
    assert_eq!((standing, d.waits()), (Standing::Waiting, 0));
    let again = d.ask(silo(3), Some(three), 2, row(3));
    assert_eq!(again, (None, Standing::Elsewhere), "no second dial");
    assert!(!d.writer.on_identity(&mut d.ctx, nonce + 1, three));
    // Another process is at that address.
    assert!(d.writer.on_identity(&mut d.ctx, nonce, instance(silo(4))));
    assert_eq!(d.waits(), 0);
    let (Some(nonce), _) = d.ask(silo(3), Some(three), 3, row(3)) else {
        panic!("it is not dialled");
    };
    assert!(d.writer.on_identity(&mut d.ctx, nonce, three));
    assert_eq!(d.waits(), 1);
}

#[test]
fn what_finds_no_place_is_sent_elsewhere() {
    let mut d = Desk::new();
    d.ctx.variant.most_waiting = 1;
    believe(&mut d.ctx, snapshot(6, actives([1, 2, 3])));
    let leave = |d: &mut Desk, n: u8, id| {
        let proven = Some(instance(silo(n)));
        d.ask(silo(n), proven, id, OwnChange::Leave).1
    };
    assert_eq!(leave(&mut d, 2, 1), Standing::Waiting);
    assert_eq!(leave(&mut d, 3, 2), Standing::Elsewhere);
    assert_eq!(leave(&mut d, 2, 1), Standing::Waiting, "it still waits");
    assert_eq!(d.waits(), 1);
}

#[test]
fn what_waits_is_given_back() {
    let mut d = Desk::new();
    let two = Some(instance(silo(2)));
    assert_eq!(
        d.ask(silo(2), two, 1, OwnChange::Leave).1,
        Standing::Waiting
    );
    sent(&mut d.ctx);
    d.writer.hand_back(&mut d.ctx);
    let said = sent(&mut d.ctx);
    let back = Message::Receipt {
        changes: vec![(IntentId::new(1), Standing::Elsewhere)],
        waiting: 0,
    };
    assert_eq!((said.len(), &said[0].1, d.waits()), (1, &back, 0));
}

#[test]
fn a_join_over_a_row_of_its_own_machine_is_written() {
    for (host, heard, is_written) in [("a", false, true), ("b", false, false), ("a", true, false)] {
        let mut d = Desk::new();
        let mut former = entry(silo(3), SiloStatus::Active);
        former.info.host_name = "a".to_owned();
        let mut rows = actives([1, 2]);
        rows.push(former);
        believe(&mut d.ctx, snapshot(6, rows));
        let new = SiloAddress::at(silo(3).endpoint(), 9);
        let mut row = entry(new, SiloStatus::Joining);
        row.instance_id = instance(silo(9));
        row.info.host_name = host.to_owned();
        let join = OwnChange::Join(Row::encode(row));
        let (nonce, _) = d.ask(new, Some(instance(silo(9))), 1, join);
        assert!(
            d.writer
                .on_identity(&mut d.ctx, nonce.unwrap(), instance(silo(9)))
        );
        sent(&mut d.ctx);
        pass_time(&mut d.ctx, secs(1));
        let mut observed = Observed::default();
        if heard {
            observed.answered.insert(silo(3));
        }
        d.writer.pump(&mut d.ctx, Vec::new(), &observed);
        let commits = |e: &Effect| matches!(e, Effect::Commit { .. });
        assert_eq!(d.ctx.out.iter().any(commits), is_written, "{host} {heard}");
    }
}

/// A change of silo 2 is not written.
fn turned_away(why: Unwritten) -> Observation {
    Observation::ChangesTurnedAway {
        from: silo(2),
        changes: 1,
        why,
    }
}

#[test]
fn changes_of_others_are_counted_once_they_are_written_or_turned_away() {
    let mut d = Desk::new();
    d.ctx.variant.scribe = true;
    let changes = [(IntentId::new(1), OwnChange::Leave)];
    let (from, two) = ((LinkId(7), silo(2)), Some(instance(silo(2))));
    // The connection proves nothing.
    d.writer.on_forward(&mut d.ctx, from, None, &changes, true);
    assert_eq!(observed(&d.ctx), [turned_away(Unwritten::Elsewhere)]);
    d.ctx.out.clear();

    d.writer.on_forward(&mut d.ctx, from, two, &changes, true);
    let state = d.writer.state(&d.ctx, &Default::default());
    assert_eq!((state.scribe, state.waiting), (Some(silo(1)), 1));
    let own = Action::BeginShutdown {
        silo: silo(1),
        fast: false,
    };
    d.writer.submit(&mut d.ctx, own);
    d.writer.pump(&mut d.ctx, Vec::new(), &Observed::default());
    let commit = d.ctx.out.drain(..).find_map(|e| match e {
        Effect::Commit { call, request } => Some((call, request)),
        _ => None,
    });
    let (call, request) = commit.unwrap();
    let state = d.writer.state(&d.ctx, &Default::default());
    assert_eq!(state.waiting, 2, "in a commit that is under way");
    let done = Ok(CommitOutcome::Committed(request.next_token(&[])));
    d.writer.on_committed(&mut d.ctx, call, done);
    let committed = Observation::Committed { rows: 2 };
    let for_others = Observation::WrittenForOthers { changes: 1 };
    assert_eq!(observed(&d.ctx), [committed, for_others]);
}

#[test]
fn a_change_that_the_table_does_not_allow_is_turned_away_as_refused() {
    let mut d = Desk::new();
    let two = Some(instance(silo(2)));
    assert_eq!(
        d.ask(silo(2), two, 1, OwnChange::Leave).1,
        Standing::Waiting
    );
    let refused = Answer::Refused(crate::intent::Refusal::Abandoned);
    assert!(
        d.writer
            .answer_others(&mut d.ctx, IntentId::new(1), &refused)
    );
    assert_eq!(observed(&d.ctx), [turned_away(Unwritten::Refused)]);
}

#[test]
fn one_message_asks_for_few_changes_and_gets_one_answer() {
    let mut d = Desk::new();
    let from = (LinkId(7), silo(2));
    let id = |n| IntentId::new(n);
    let changes: Vec<_> = (1..=500).map(|n| (id(n), OwnChange::Leave)).collect();
    let proven = Some(entry(silo(2), SiloStatus::Active).instance_id);
    d.writer
        .on_forward(&mut d.ctx, from, proven, &changes, true);
    assert_eq!((sent(&mut d.ctx).len(), d.waits()), (1, 4));
    d.writer.on_desk_timer(&mut d.ctx);
    let said = sent(&mut d.ctx);
    let [(_, Message::Receipt { changes, .. })] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(changes.len(), 4);
}

#[test]
fn what_was_taken_long_ago_is_not_written() {
    for (age, is_written) in [(secs(59), true), (secs(61), false)] {
        let mut d = Desk::new();
        d.ask(
            silo(2),
            Some(entry(silo(2), SiloStatus::Active).instance_id),
            1,
            OwnChange::Leave,
        );
        assert_eq!(d.waits(), 1);
        pass_time(&mut d.ctx, age);
        d.writer.pump(&mut d.ctx, Vec::new(), &Observed::default());
        let writes = |e: &Effect| matches!(e, Effect::Commit { .. });
        assert_eq!(d.ctx.out.iter().any(writes), is_written, "{age:?}");
    }
}

/// Silo 1 is Active, and silos 2 to 1 + `joining` join.
fn with_joining(joining: u8) -> Desk {
    let mut d = Desk::new();
    let mut rows = actives([1]);
    rows.extend((2..2 + joining).map(|n| entry(silo(n), SiloStatus::Joining)));
    believe(&mut d.ctx, snapshot(6, rows));
    d.ctx.variant.scribe = true;
    d
}

impl Desk {
    /// A newcomer asks for a row, and its address leads to it.
    fn newcomer(&mut self, n: u8) {
        let proven = instance(silo(n));
        let (nonce, _) = self.ask(silo(n), Some(proven), u128::from(n), row(n));
        let taken = self
            .writer
            .on_identity(&mut self.ctx, nonce.unwrap(), proven);
        assert!(taken);
        self.ctx.out.clear();
    }

    /// A silo that joins, and has met the only Active one, asks to be Active.
    fn activation(&mut self, n: u8) {
        let word = self.ctx.words.for_silo(&silo(n));
        self.activation_of(n, vec![(silo(1), word)]);
    }

    fn activation_of(&mut self, n: u8, contacted: Vec<(SiloAddress, u64)>) {
        let change = OwnChange::BecomeActive { contacted };
        let id = u128::from(n);
        let (_, standing) = self.ask(silo(n), Some(instance(silo(n))), id, change);
        assert_eq!(standing, Standing::Waiting);
    }

    /// The keys of the rows that the commit changes which this silo sends at this time, if it sends one.
    fn writes(&mut self, after: Duration) -> Vec<String> {
        pass_time(&mut self.ctx, after);
        self.ctx.out.clear();
        self.writer
            .pump(&mut self.ctx, Vec::new(), &Observed::default());
        let mut rows = Vec::new();
        for effect in self.ctx.out.drain(..) {
            if let Effect::Commit { request, .. } = effect {
                rows.extend(request.changes.iter().map(|c| c.key().to_owned()));
            }
        }
        rows
    }
}

fn key(n: u8) -> String {
    let row = Row::encode(entry(silo(n), SiloStatus::Joining));
    row.key().to_owned()
}

#[test]
fn the_activation_of_the_only_silo_that_joins_waits_for_nobody() {
    let mut d = with_joining(1);
    d.activation(2);
    assert_eq!(d.writes(Duration::ZERO), [key(2)]);

    let mut d = with_joining(1);
    d.activation(2);
    d.newcomer(200);
    assert!(d.writes(ms(99)).is_empty(), "one more is about to join");
}

#[test]
fn rows_wait_for_a_tenth_of_a_second_and_activations_for_the_others_that_join() {
    let mut d = with_joining(40);
    d.ctx.limits.rows_per_commit = 100;
    d.activation(2);
    d.newcomer(200);
    assert!(d.writes(ms(99)).is_empty());
    assert_eq!(d.waits(), 2);
    assert_eq!(d.writes(ms(1)), [key(200)], "the activation still waits");
    assert_eq!(d.waits(), 1);
}

#[test]
fn activations_wait_longer_the_more_silos_join() {
    for (joining, full, wait) in [(3, 100, 114), (40, 100, 299), (100, 50, 599)] {
        let mut d = with_joining(joining);
        d.ctx.limits.rows_per_commit = full;
        d.activation(2);
        assert!(d.writes(ms(wait)).is_empty(), "{joining} of {full}");
        assert_eq!(d.writes(ms(2)), [key(2)], "{joining} of {full}");
    }
}

#[test]
fn a_full_commit_waits_for_nobody_and_neither_does_a_leave() {
    let mut d = with_joining(40);
    d.ctx.limits.rows_per_commit = 8;
    for n in 2..9 {
        d.activation(n);
    }
    assert!(d.writes(Duration::ZERO).is_empty(), "one more has room");
    d.activation(9);
    // The other seven have not met the one that becomes Active with this commit.
    assert_eq!(d.writes(Duration::ZERO), [key(2)]);

    let mut d = with_joining(1);
    d.ctx.limits.rows_per_commit = 3;
    for n in 200..203 {
        assert!(d.writes(Duration::ZERO).is_empty());
        d.newcomer(n);
    }
    assert_eq!(d.writes(Duration::ZERO).len(), 3);

    let mut d = with_joining(40);
    d.activation(2);
    let leave = d.ask(silo(3), Some(instance(silo(3))), 99, OwnChange::Leave);
    assert_eq!(leave.1, Standing::Waiting);
    let mut written = d.writes(Duration::ZERO);
    written.sort();
    assert_eq!(written, [key(2), key(3)], "and takes along what has come");
}

#[test]
fn a_commit_is_not_full_of_those_that_lack_contacts() {
    let mut d = with_joining(40);
    d.ctx.limits.rows_per_commit = 3;
    d.activation(2);
    d.activation_of(3, vec![]);
    d.activation_of(4, vec![]);
    assert!(d.writes(Duration::ZERO).is_empty());
    assert_eq!(d.waits(), 1, "the others were turned away");
    assert!(d.writes(ms(599)).is_empty());
    assert_eq!(d.writes(ms(1)), [key(2)], "nobody waits for ever");
}
