//! Indirect probes on the request of another silo, and when they give a vote.

use super::super::intermediary::{Intermediary, Request};
use super::super::message::IndirectOutcome;
use super::super::{LinkId, TableState, message};
use super::*;
use crate::Discontinuity;

const LINK: LinkId = LinkId(4);

fn asked(timeout: Duration) -> (Ctx, Intermediary) {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    let mut machine = Intermediary::default();
    machine.on_request(
        &mut ctx,
        LINK,
        silo(2),
        &Request {
            round: 8,
            suspect: silo(3),
            timeout,
        },
        true,
    );
    (ctx, machine)
}

/// Lets both probes time out and returns the reply.
fn silence(
    ctx: &mut Ctx,
    machine: &mut Intermediary,
    score: u8,
    local: u8,
) -> Option<IndirectOutcome> {
    for least in [
        ctx.config.min_probe_timeout / 2,
        ctx.config.min_probe_timeout,
    ] {
        let by = ctx.timers.next().unwrap().since(ctx.now.mono);
        assert!(
            by >= least,
            "each of the two has a whole timeout to be answered"
        );
        pass_time(ctx, by);
        let Some(super::super::timers::Timer::Round(key)) = ctx.timers.pop_due(ctx.now.mono) else {
            panic!("no round")
        };
        machine.on_timer(ctx, key, None, score, local);
    }
    outcome(ctx)
}

fn outcome(ctx: &mut Ctx) -> Option<IndirectOutcome> {
    sent(ctx).into_iter().find_map(|(_, m)| match m {
        Message::IndirectReply { outcome, round: 8 } => Some(outcome),
        _ => None,
    })
}

#[test]
fn two_failed_probes_and_good_health_give_a_vote() {
    let (mut ctx, mut machine) = asked(secs(5));
    let Some(IndirectOutcome::No {
        consent: Some(vote),
    }) = silence(&mut ctx, &mut machine, 0, 0)
    else {
        panic!("no consent")
    };
    assert_eq!(
        (vote.accuser, vote.evidence.via, vote.evidence.misses),
        (silo(1), Some(silo(2)), 2)
    );
}

#[test]
fn network_trouble_gives_a_no_without_a_vote_and_local_trouble_unknown() {
    let (mut ctx, mut machine) = asked(secs(5));
    assert_eq!(
        silence(&mut ctx, &mut machine, 1, 0),
        Some(IndirectOutcome::No { consent: None })
    );
    let (mut ctx, mut machine) = asked(secs(5));
    assert_eq!(
        silence(&mut ctx, &mut machine, 1, 1),
        Some(IndirectOutcome::Unknown)
    );
}

/// In the table of the other silos, the suspect's address may belong to another silo.
#[test]
fn an_intermediary_with_another_table_answers_unknown() {
    let (mut ctx, mut machine) = asked(secs(5));
    ctx.set_table_state(TableState::Changed(Discontinuity::RolledBack));
    assert_eq!(
        silence(&mut ctx, &mut machine, 0, 0),
        Some(IndirectOutcome::Unknown)
    );
    machine.on_request(
        &mut ctx,
        LINK,
        silo(2),
        &Request {
            round: 8,
            suspect: silo(3),
            timeout: secs(5),
        },
        true,
    );
    assert_eq!(outcome(&mut ctx), Some(IndirectOutcome::Unknown));
}

#[test]
fn a_request_with_a_zero_timeout_gets_a_real_probe() {
    for timeout in [Duration::ZERO, Duration::MAX] {
        let (mut ctx, mut machine) = asked(timeout);
        let second = ctx.timers.next().unwrap().since(ctx.now.mono);
        assert!(
            (ctx.config.min_probe_timeout..=ctx.config.max_probe_timeout).contains(&(second * 2))
        );
        assert!(silence(&mut ctx, &mut machine, 0, 0).is_some());
    }
}

#[test]
fn an_answer_is_a_yes_and_a_pause_makes_it_unknown() {
    let (mut ctx, mut machine) = asked(secs(5));
    let Some((Some(to), Message::Probe { nonce })) = sent(&mut ctx).pop() else {
        panic!("no probe")
    };
    assert_eq!(to, silo(3));
    assert!(
        machine.on_ack(&mut ctx, silo(2), nonce).is_none(),
        "somebody else's answer"
    );
    assert!(machine.on_ack(&mut ctx, silo(3), nonce).is_some());
    assert_eq!(outcome(&mut ctx), Some(IndirectOutcome::Yes));
    let (mut ctx, mut machine) = asked(secs(5));
    machine.void(&mut ctx);
    assert_eq!(outcome(&mut ctx), Some(IndirectOutcome::Unknown));
}

#[test]
fn an_intermediary_that_does_not_know_the_epoch_answers_unknown() {
    let (mut ctx, mut machine) = asked(secs(5));
    let suspect = silo(3).with_epoch(9);
    sent(&mut ctx);
    machine.on_request(
        &mut ctx,
        LINK,
        silo(2),
        &Request {
            round: 8,
            suspect,
            timeout: secs(5),
        },
        true,
    );
    assert_eq!(outcome(&mut ctx), Some(IndirectOutcome::Unknown));
    let _ = message::PROTOCOL_VERSION;
}
