//! What a silo answers to a roll call.

mod doubtful;

use std::collections::BTreeSet;

use super::super::LinkId;
use super::super::answerer::{Answerer, Judge};
use super::super::message::{Consent, Finding};
use super::super::prober::Prober;
use super::super::timers::Timer;
use super::*;

const WELL: Judge = Judge {
    score: 0,
    local: 0,
    multiplier: 1,
};

type Caller = Option<(LinkId, SiloAddress)>;

/// An answer: the call, the findings by the number of the silo, and the missed silos.
type Answer = (u64, Vec<(SiloAddress, Finding)>, Vec<SiloAddress>);

/// Silo 2, by its connection.
fn other() -> Caller {
    Some((LinkId(4), silo(2)))
}

struct Answering {
    ctx: Ctx,
    prober: Prober,
    answerer: Answerer,
    judge: Judge,
}

impl Answering {
    /// Silo 2 calls; silos 3 and 4 are Active, silo 5 is Joining, silo 6 is Dead.
    fn new() -> Self {
        let mut ctx = ctx();
        let mut rows = actives(1..=4);
        rows.push(entry(silo(5), SiloStatus::Joining));
        rows.push(entry(silo(6), SiloStatus::Dead));
        believe(&mut ctx, snapshot(5, rows));
        Self {
            ctx,
            prober: Prober::default(),
            answerer: Answerer::default(),
            judge: WELL,
        }
    }

    /// Silo 2 asks about suspects that it has not heard for a long time.
    fn call(&mut self, call: u64, suspects: impl IntoIterator<Item = u8>) {
        let suspects = suspects.into_iter().map(|n| (silo(n), 7_000));
        self.ask(other(), call, suspects.collect());
    }

    fn ask(&mut self, caller: Caller, call: u64, suspects: Vec<(SiloAddress, u64)>) {
        let (ctx, prober) = (&mut self.ctx, &self.prober);
        self.answerer
            .on_call(ctx, prober, caller, call, &suspects, self.judge);
    }

    /// What was sent: probes with their nonces, and answers to silo 2.
    fn sent(&mut self) -> (Vec<(SiloAddress, u64)>, Vec<Answer>) {
        let (mut probes, mut answers) = (Vec::new(), Vec::new());
        for (to, message) in sent(&mut self.ctx) {
            match message {
                Message::Probe { nonce } => probes.push((to.unwrap(), nonce)),
                Message::RollAnswer {
                    call,
                    findings,
                    missed,
                } => {
                    assert_eq!(to, Some(silo(2)));
                    answers.push((call, findings, missed));
                }
                other => panic!("{other:?}"),
            }
        }
        (probes, answers)
    }

    /// The findings of all answers since the last call.
    fn findings(&mut self) -> Vec<(SiloAddress, Finding)> {
        let answers = self.sent().1;
        answers.into_iter().flat_map(|(_, all, _)| all).collect()
    }

    /// Lets time pass; the answerer is woken when it wants to be.
    fn run(&mut self, by: Duration) {
        let end = self.ctx.now.mono + by;
        loop {
            let next = self.ctx.timers.next().unwrap_or(end).min(end);
            let by = next.since(self.ctx.now.mono);
            pass_time(&mut self.ctx, by);
            match self.ctx.timers.pop_due(next) {
                Some(Timer::Answers) => {
                    self.answerer
                        .on_timer(&mut self.ctx, &self.prober, self.judge);
                }
                Some(Timer::Probe(silo)) => self.prober.on_timer(&mut self.ctx, silo, 1),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Silo `n` answers a question of the protocol that was sent at this time.
    fn hear(&mut self, n: u8) {
        self.prober.on_answer(&self.ctx, silo(n), self.ctx.now.mono);
        self.answerer.on_sign_of_life(&mut self.ctx, silo(n));
    }

    /// The only finding, which must be *failed*.
    fn failure(&mut self) -> (u64, Option<u64>, bool, Option<Consent>) {
        let findings = self.findings();
        let [
            (
                _,
                Finding::Failed {
                    silent_ms,
                    heard_ms,
                    refused,
                    consent,
                },
            ),
        ] = findings[..]
        else {
            panic!("{findings:?}")
        };
        (silent_ms, heard_ms, refused, consent)
    }
}

#[test]
fn an_unanswered_suspect_is_probed_twice_and_failed_after_one_timeout() {
    let mut a = Answering::new();
    a.call(8, [3]);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers.len()), (1, 0));
    a.run(ms(24));
    assert_eq!(
        a.sent().1,
        [(8, vec![], vec![])],
        "it says that it is here, a moment later"
    );
    a.run(ms(726));
    let (again, answers) = a.sent();
    assert_eq!((again.len(), answers.len()), (1, 0), "half a timeout later");
    assert_ne!(again, probes);
    a.run(ms(749));
    assert_eq!(a.sent().1.len(), 0);
    a.run(ms(1));
    let consent = Consent {
        misses: 2,
        timeout_ms: 1_500,
        last_answer_ms: None,
    };
    assert_eq!(a.failure(), (1_500, None, false, Some(consent)));
}

#[test]
fn a_suspect_that_was_heard_within_the_last_timeout_is_reached() {
    let mut a = Answering::new();
    a.hear(3);
    a.run(ms(1_500));
    a.call(8, [3]);
    assert_eq!(
        a.sent(),
        (vec![], vec![(8, vec![(silo(3), Finding::Reached)], vec![])])
    );
    // An older answer says nothing, and neither does one of its application.
    a.run(ms(1));
    a.prober.on_evidence(&a.ctx, silo(3), a.ctx.now.mono);
    a.call(9, [3]);
    a.run(ms(24));
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers), (1, vec![(9, vec![], vec![])]));
}

#[test]
fn what_is_found_within_a_moment_goes_along_with_the_first_answer() {
    let mut a = Answering::new();
    a.call(8, [3, 4]);
    a.run(ms(2));
    a.hear(3);
    a.run(ms(22));
    let reached = vec![(silo(3), Finding::Reached)];
    assert_eq!(a.sent().1, [(8, reached, vec![])]);
    a.run(ms(100));
    assert_eq!(a.sent().1, [], "it is told once");
}

#[test]
fn an_answer_that_is_older_than_the_silence_towards_the_caller_proves_nothing() {
    let mut a = Answering::new();
    a.hear(3);
    a.run(ms(1_000));
    a.ask(other(), 8, vec![(silo(3), 999)]);
    assert_eq!(
        a.sent().0.len(),
        1,
        "the caller heard it later than this silo"
    );
    a.hear(4);
    a.run(ms(400));
    a.ask(other(), 9, vec![(silo(4), 400)]);
    assert_eq!(a.findings(), [(silo(4), Finding::Reached)]);
}

#[test]
fn a_suspect_that_answers_the_probe_is_reached() {
    for answered in [0, 1] {
        let mut a = Answering::new();
        a.call(8, [3]);
        let began = a.ctx.now.mono;
        let mut probes = a.sent().0;
        a.run(ms(800));
        probes.append(&mut a.sent().0);
        let (to, nonce) = probes[answered];
        assert_eq!(to, silo(3));
        assert_eq!(a.answerer.on_ack(silo(4), nonce), None, "by another silo");
        assert_eq!(a.answerer.on_ack(silo(3), nonce), Some(began));
        a.hear(3);
        // Answers of a moment go together.
        a.run(ms(100));
        assert_eq!(a.findings(), [(silo(3), Finding::Reached)]);
        a.run(secs(10));
        assert_eq!(a.findings(), [], "it is told once");
    }
}

#[test]
fn a_late_answer_is_told_to_whoever_was_told_a_failure() {
    let mut a = Answering::new();
    a.call(8, [3]);
    let (_, nonce) = a.sent().0[0];
    a.run(ms(1_500));
    a.failure();
    a.call(9, [3]);
    a.failure();
    a.run(secs(2));
    assert!(a.answerer.on_ack(silo(3), nonce).is_some());
    a.hear(3);
    let reached = vec![(silo(3), Finding::Reached)];
    assert_eq!(
        a.sent().1,
        [(8, reached.clone(), vec![]), (9, reached, vec![])]
    );
}

#[test]
fn a_failure_is_remembered_for_one_timeout() {
    let mut a = Answering::new();
    a.call(8, [3]);
    a.run(ms(1_500));
    a.failure();
    a.run(ms(374));
    a.call(9, [3]);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers[0].1.len()), (0, 1), "no new probe");
    let (_, Finding::Failed { silent_ms, .. }) = answers[0].1[0] else {
        panic!()
    };
    assert_eq!(silent_ms, 1_874, "silent since the first probe");
    a.run(ms(1_127));
    a.call(10, [3]);
    a.run(ms(24));
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers), (1, vec![(10, vec![], vec![])]));
    a.run(ms(1_476));
    a.failure();
}

#[test]
fn a_suspect_is_probed_once_more_before_somebody_asks_again() {
    let mut a = Answering::new();
    a.call(8, [3]);
    a.run(ms(1_500));
    a.failure();
    a.run(ms(1_000));
    // Nothing is decided soon.
    for silent_ms in [2_249, 4_500] {
        a.ask(other(), 9, vec![(silo(3), silent_ms)]);
        assert_eq!(a.sent().0.len(), 0, "{silent_ms}");
    }
    a.ask(other(), 9, vec![(silo(3), 3_375)]);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers.len()), (1, 1), "said, and probed");
    let failed = |answer: &Answer| matches!(answer.1[..], [(_, Finding::Failed { .. })]);
    assert!(failed(&answers[0]));
    // What was found before is not too old yet.
    a.run(ms(500));
    a.call(10, [3]);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers.len()), (0, 1));
    assert!(failed(&answers[0]));
    // It is now, and the probe has not had half of its time: the word waits for the end of it.
    a.run(ms(1));
    a.call(11, [3]);
    assert_eq!(a.sent().1, [(11, vec![], vec![])]);
    a.run(ms(249));
    a.call(12, [3]);
    assert!(failed(&a.sent().1[0]));
    // All are told if it answers that one.
    a.hear(3);
    a.run(ms(100));
    let told: BTreeSet<u64> = a.sent().1.iter().map(|(call, ..)| *call).collect();
    assert_eq!(told, [8, 9, 10, 11, 12].into());
}

#[test]
fn where_many_answer_none_probes_once_more() {
    let mut a = Answering::new();
    let mut rows = actives(1..=5);
    rows.push(entry(silo(6), SiloStatus::Dead));
    rows.extend(actives(7..=18));
    believe(&mut a.ctx, snapshot(6, rows));
    a.call(8, [3]);
    a.run(ms(1_500));
    a.failure();
    a.run(ms(1_000));
    a.ask(other(), 10, vec![(silo(3), 4_000)]);
    a.run(ms(500));
    a.ask(other(), 11, vec![(silo(3), 4_500)]);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers.len()), (0, 2));
    let failed = |answer: &Answer| matches!(answer.1[..], [(_, Finding::Failed { .. })]);
    assert!(answers.iter().all(failed), "{answers:?}");
    a.run(ms(1));
    a.ask(other(), 12, vec![(silo(3), 4_500)]);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers), (1, vec![]), "it is too old");
}

#[test]
fn several_callers_cost_one_probe() {
    let mut a = Answering::new();
    a.call(8, [3]);
    a.sent();
    a.run(ms(100));
    a.call(9, [3]);
    a.call(9, [3]);
    assert_eq!(a.sent().0.len(), 0);
    a.ask(None, 10, vec![(silo(3), 60_000)]);
    a.run(ms(1_400));
    let (_, answers) = a.sent();
    let calls: Vec<u64> = answers.iter().map(|(call, ..)| *call).collect();
    assert_eq!(calls, [8, 9], "each caller is told once");
    let own = a.answerer.take_own();
    assert!(
        matches!(own[..], [(10, s, Finding::Failed { .. })] if s == silo(3)),
        "{own:?}"
    );
    assert_eq!(a.answerer.take_own().len(), 0);
}

#[test]
fn missed_probes_of_its_own_answer_at_once() {
    let mut a = Answering::new();
    a.prober
        .set_targets(&mut a.ctx, &BTreeSet::from([silo(3), silo(4)]));
    while a.prober.suspects(&a.ctx, 0).len() < 2 {
        let by = a.ctx.timers.next().unwrap().since(a.ctx.now.mono);
        a.run(by);
    }
    a.sent();
    a.call(8, [3]);
    let (probes, answers) = a.sent();
    assert_eq!(probes, []);
    let (_, findings, missed) = &answers[0];
    assert!(
        matches!(findings[..], [(s, Finding::Failed { silent_ms, .. })]
            if s == silo(3) && silent_ms >= 3_000),
        "{findings:?}"
    );
    assert_eq!(missed, &[silo(4)], "it names the other one itself");
    // An answer that comes now is told at once: the caller may be about to vote.
    a.hear(3);
    let corrected = a.sent().1;
    assert_eq!(corrected, [(8, vec![(silo(3), Finding::Reached)], vec![])]);
    // Neither a suspect that the call names nor the caller is named again.
    a.call(9, [3, 4]);
    assert_eq!(a.sent().1[0].2, []);
}

#[test]
fn a_refused_connection_fails_after_the_second_probe() {
    let mut a = Answering::new();
    a.call(8, [3]);
    a.sent();
    let refuse = |a: &mut Answering| {
        let to = silo(3).endpoint();
        a.answerer.on_refused(&mut a.ctx, &a.prober, to, a.judge);
    };
    refuse(&mut a);
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers.len()), (1, 0), "once more, at once");
    refuse(&mut a);
    // A moment is left to the findings about other suspects.
    a.run(ms(100));
    let (silent_ms, _, refused, consent) = a.failure();
    assert!(silent_ms <= 100, "{silent_ms}");
    assert_eq!((refused, consent.is_some()), (true, true));
    // One refusal and one silence are no refusal.
    let mut a = Answering::new();
    a.call(8, [3]);
    a.sent();
    refuse(&mut a);
    a.run(ms(1_500));
    assert!(!a.failure().2);
}

#[test]
fn a_silo_says_nothing_of_itself() {
    let mut a = Answering::new();
    a.call(8, [1]);
    assert_eq!(a.sent(), (vec![], vec![(8, vec![], vec![])]));
}

#[test]
fn it_probes_a_bounded_number_of_suspects() {
    let mut a = Answering::new();
    let many: Vec<SiloAddress> = (0..2_000)
        .map(|port| SiloAddress::new(silo(2).ip(), 8_000 + port, 1))
        .collect();
    let rows = many.iter().map(|s| entry(*s, SiloStatus::Active));
    let rows = actives([1, 2]).into_iter().chain(rows).collect();
    believe(&mut a.ctx, snapshot(6, rows));
    a.ask(other(), 8, many.iter().map(|s| (*s, 60_000)).collect());
    a.run(ms(24));
    let (probes, answers) = a.sent();
    assert_eq!((probes.len(), answers[0].1.len()), (1_024, 976));
    assert!(answers[0].1.iter().all(|(_, f)| *f == Finding::Unknown));
}

#[test]
fn against_who_writes_nothing_an_unwell_silo_consents_too() {
    let consents = |judge: Judge, expired: &[u8]| {
        let mut a = Answering::new();
        a.judge = judge;
        let stale: BTreeSet<SiloAddress> = expired.iter().map(|n| silo(*n)).collect();
        a.answerer.on_expired(&stale, &BTreeSet::new());
        a.call(1, [3]);
        a.run(secs(2));
        let failed = a.findings().into_iter().find_map(|(_, found)| match found {
            Finding::Failed { consent, .. } => Some(consent.is_some()),
            _ => None,
        });
        failed == Some(true)
    };
    let unwell = Judge { score: 2, ..WELL };
    assert!(consents(WELL, &[]));
    assert!(!consents(unwell, &[]));
    assert!(!consents(unwell, &[4]), "another one is stale");
    assert!(consents(unwell, &[3]));
    let late = Judge { local: 1, ..unwell };
    assert!(!consents(late, &[3]), "a local reason");
}
