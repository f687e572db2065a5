//! Contacts that others name with their activations: which of them this silo counts.

use super::super::forward::{OwnChange, Standing};
use super::super::io::LinkId;
use super::super::words::Words;
use super::super::writer::{Outcome, Writer};
use super::*;
use crate::intent::{Answer, Observed, Refusal};
use crate::{IntentId, RowChange};

/// This silo and silos 2 and 3 are Active; silos 8 and 9 are Joining.
struct Scribe {
    ctx: Ctx,
    writer: Writer,
    asks: u128,
}

type Question = (SiloAddress, u64, Vec<(SiloAddress, u64)>);

impl Scribe {
    fn new() -> Self {
        let mut ctx = ctx();
        ctx.variant.scribe = true;
        let mut rows = actives([1, 2, 3]);
        rows.extend([8, 9].map(|n| entry(silo(n), SiloStatus::Joining)));
        believe(&mut ctx, snapshot(5, rows));
        Self {
            ctx,
            writer: Writer::default(),
            asks: 0,
        }
    }

    /// The word of this silo for another one.
    fn word(&self, n: u8) -> (SiloAddress, u64) {
        (silo(1), self.ctx.words.for_silo(&silo(n)))
    }

    /// Asks for the activation of a silo.
    fn hears(&mut self, n: u8, contacted: Vec<(SiloAddress, u64)>) -> Standing {
        sent(&mut self.ctx);
        self.asks += 1;
        let change = OwnChange::BecomeActive { contacted };
        let changes = [(IntentId::new(self.asks), change)];
        let from = (LinkId(7), silo(n));
        let proven = Some(instance(silo(n)));
        self.writer
            .on_forward(&mut self.ctx, from, proven, &changes, true);
        let said = sent(&mut self.ctx);
        let [(_, Message::Receipt { changes, .. })] = &said[..] else {
            panic!("{said:?}")
        };
        changes[0].1
    }

    /// What it asks others after a moment.
    fn asks(&mut self) -> Vec<Question> {
        pass_time(&mut self.ctx, ms(10));
        self.writer.on_vouching_timer(&mut self.ctx);
        let all = sent(&mut self.ctx).into_iter();
        all.map(|(to, message)| match message {
            Message::AskVouched { nonce, words } => (to.unwrap(), nonce, words),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    fn vouched(&mut self, from: SiloAddress, nonce: u64, silos: &[SiloAddress]) {
        self.writer.on_vouched(&mut self.ctx, from, nonce, silos);
    }

    /// Writes what is in the queue; returns what is refused, and whom the refused ones did not meet.
    fn writes(&mut self) -> Vec<(IntentId, Vec<SiloAddress>)> {
        pass_time(&mut self.ctx, ms(150));
        let observed = Observed::default();
        let outcomes = self.writer.pump(&mut self.ctx, Vec::new(), &observed);
        let mut refused = Vec::new();
        for outcome in outcomes {
            if let Outcome::Answered(intent, answer) = outcome {
                self.writer.answer_others(&mut self.ctx, intent.id, &answer);
                if let Answer::Refused(Refusal::NotContacted(missing)) = answer {
                    refused.push((intent.id, missing));
                }
            }
        }
        refused
    }

    /// The commit that was just sent activates these.
    fn activates(&mut self) -> Vec<SiloAddress> {
        let effects = std::mem::take(&mut self.ctx.out);
        let changes = effects.into_iter().filter_map(|e| match e {
            Effect::Commit { request, .. } => Some(request.changes),
            _ => None,
        });
        let entries = changes.flatten().filter_map(|change| match change {
            RowChange::Update(row) => row.entry().cloned(),
            _ => None,
        });
        entries.map(|e| e.address).collect()
    }
}

#[test]
fn a_contact_counts_if_it_says_that_the_word_is_its_own() {
    let mut s = Scribe::new();
    let words = vec![s.word(9), (silo(2), 22), (silo(3), 33)];
    assert_eq!(s.hears(9, words), Standing::Waiting);
    let asked = s.asks();
    let [(two, first, ref words), (three, second, _)] = asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!((two, three), (silo(2), silo(3)));
    assert_eq!(words[..], [(silo(9), 22)]);
    // Neither another silo nor an answer to no question vouches for it.
    s.vouched(silo(3), first, &[silo(9)]);
    s.vouched(silo(2), first ^ 1, &[silo(9)]);
    assert_eq!(s.writer.waiting(), 0);
    s.vouched(silo(2), first, &[silo(9)]);
    assert_eq!(s.writer.waiting(), 0, "silo 3 has said nothing");
    s.vouched(silo(3), second, &[silo(9)]);
    assert_eq!(s.writer.waiting(), 1);
    assert!(s.writes().is_empty());
    assert_eq!(s.activates(), [silo(9)]);
}

#[test]
fn whoever_claims_a_contact_that_it_never_had_is_refused() {
    let mut s = Scribe::new();
    let words = vec![s.word(9), (silo(2), 22), (silo(3), 33)];
    s.hears(9, words.clone());
    let asked = s.asks();
    s.vouched(silo(2), asked[0].1, &[silo(9)]);
    s.vouched(silo(3), asked[1].1, &[]);
    assert_eq!(s.writes(), [(IntentId::new(1), vec![silo(3)])]);
    assert!(s.activates().is_empty());
    // For a while nobody is asked for it.
    assert_eq!(s.hears(9, words.clone()), Standing::Elsewhere);
    pass_time(&mut s.ctx, secs(6));
    assert_eq!(s.hears(9, words), Standing::Waiting);
}

#[test]
fn the_own_word_is_known_without_a_question() {
    let mut s = Scribe::new();
    let of_another_life = s
        .ctx
        .words
        .for_silo(&SiloAddress::at(silo(9).endpoint(), 2));
    for wrong in [s.word(8).1, of_another_life] {
        let mut s = Scribe::new();
        assert_eq!(s.hears(9, vec![(silo(1), wrong)]), Standing::Elsewhere);
        assert!(s.asks().is_empty());
    }
    // Nobody else is named: it is refused for that.
    let own = vec![s.word(9)];
    assert_eq!(s.hears(9, own), Standing::Waiting);
    assert!(s.asks().is_empty());
    assert_eq!(s.writes(), [(IntentId::new(1), vec![silo(2), silo(3)])]);
}

#[test]
fn a_contact_that_is_silent_delays_an_activation_by_a_second() {
    let mut s = Scribe::new();
    let words = vec![s.word(9), (silo(2), 22), (silo(3), 33)];
    s.hears(9, words.clone());
    let asked = s.asks();
    s.vouched(silo(2), asked[0].1, &[silo(9)]);
    pass_time(&mut s.ctx, ms(970));
    assert!(s.asks().is_empty());
    assert_eq!(s.writer.waiting(), 0);
    assert!(s.asks().is_empty());
    assert_eq!(s.writes(), [(IntentId::new(1), vec![silo(3)])]);
    // What was proven is remembered.
    assert_eq!(s.hears(9, words), Standing::Waiting);
    let again = s.asks();
    assert_eq!(again.iter().map(|q| q.0).collect::<Vec<_>>(), [silo(3)]);
    s.vouched(silo(3), again[0].1, &[silo(9)]);
    assert!(s.writes().is_empty());
    assert_eq!(s.activates(), [silo(9)]);
}

#[test]
fn one_question_to_each_contact_is_for_many() {
    let mut s = Scribe::new();
    for n in [8, 9] {
        let words = vec![s.word(n), (silo(2), n.into()), (silo(3), n.into())];
        s.hears(n, words);
    }
    let asked = s.asks();
    assert_eq!(asked.len(), 2);
    for (of, nonce, words) in asked {
        assert_eq!(words[..], [(silo(8), 8), (silo(9), 9)]);
        s.vouched(of, nonce, &[silo(8), silo(9)]);
    }
    assert!(s.writes().is_empty());
    // They have not met each other: the second waits for the next commit.
    assert_eq!(s.activates().len(), 1);
}

#[test]
fn who_is_not_joining_makes_nobody_ask() {
    let mut s = Scribe::new();
    assert_eq!(s.hears(2, vec![(silo(3), 3)]), Standing::Waiting);
    assert!(s.asks().is_empty());
    s.writes();
    assert!(s.activates().is_empty(), "it is Active");
    // Nor does a contact that is gone.
    assert_eq!(s.hears(9, vec![(silo(7), 7)]), Standing::Waiting);
    assert!(s.asks().is_empty());
}

#[test]
fn activations_that_wait_for_answers_are_given_back() {
    let mut s = Scribe::new();
    s.hears(9, vec![(silo(2), 22)]);
    let asked = s.asks();
    s.writer.hand_back(&mut s.ctx);
    let back = Message::Receipt {
        changes: vec![(IntentId::new(1), Standing::Elsewhere)],
        waiting: 0,
    };
    let said = sent(&mut s.ctx);
    assert_eq!((said.len(), &said[0].1), (1, &back));
    s.vouched(silo(2), asked[0].1, &[silo(9)]);
    assert_eq!(s.writer.waiting(), 0);
}

#[test]
fn words_are_for_one_life_of_one_silo_and_of_one_author() {
    let (words, mut other) = (Words::new(&setup()), setup());
    other.seed += 1;
    let other = Words::new(&other);
    let word = words.for_silo(&silo(2));
    assert_eq!(word, Words::new(&setup()).for_silo(&silo(2)));
    assert_ne!(word, words.for_silo(&silo(3)));
    assert_ne!(word, other.for_silo(&silo(2)));
    assert_ne!(
        word,
        words.for_silo(&SiloAddress::at(silo(2).endpoint(), 2))
    );
    let shown = [(silo(2), word), (silo(3), word), (silo(4), 0)];
    assert_eq!(words.told(&shown), [silo(2)]);
    assert!(!format!("{words:?}").contains(char::is_numeric));
}

#[test]
fn an_activation_waits_for_the_row_of_its_silo() {
    let mut s = Scribe::new();
    assert_eq!(s.hears(7, vec![(silo(2), 4)]), Standing::Waiting);
    assert!(s.asks().is_empty(), "nothing is asked for a stranger");
    let mut rows = actives([1, 2, 3]);
    rows.extend([7, 8, 9].map(|n| entry(silo(n), SiloStatus::Joining)));
    believe(&mut s.ctx, snapshot(6, rows));
    s.writer.take_early(&mut s.ctx);
    let asked = s.asks();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].0, &asked[0].2[..]),
        (silo(2), &[(silo(7), 4)][..])
    );
    // The row does not come.
    assert_eq!(s.hears(6, vec![(silo(2), 4)]), Standing::Waiting);
    pass_time(&mut s.ctx, secs(1));
    s.writer.on_desk_timer(&mut s.ctx);
    let said = sent(&mut s.ctx);
    let is_sent_away = |m: &Message| match m {
        Message::Receipt { changes, .. } => {
            changes[..] == [(IntentId::new(s.asks), Standing::Elsewhere)]
        }
        _ => false,
    };
    assert_eq!(said.iter().filter(|(_, m)| is_sent_away(m)).count(), 1);
}
