//! Probes a suspect on the request of another silo. It sends two probes, half a timeout apart, and
//! answers yes, no or unknown. A "no" carries this silo's own vote only if this silo is Active and
//! healthy, knows the suspect at that epoch, and has no sign of life from it. When the table is no
//! longer the one this silo knew, the answer is unknown, because another silo may have the
//! suspect's address.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Ctx;
use super::io::LinkId;
use super::message::{IndirectOutcome, Message};
use super::timers::Timer;
use crate::{Evidence, MonoTime, SiloAddress, SiloStatus, Suspicion, SuspicionReason, WallTime};

/// Maximum number of rounds at a time; further requests are answered `Unknown`.
const MAX_ROUNDS: usize = 64;
/// Maximum number of them for one silo.
const MAX_ROUNDS_FOR_ONE: usize = 16;

#[derive(Debug)]
struct Round {
    asker: SiloAddress,
    link: LinkId,
    asked: u64,
    suspect: SiloAddress,
    timeout: Duration,
    nonces: Vec<u64>,
    began: MonoTime,
}

/// A request for an indirect probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) round: u64,
    pub(crate) suspect: SiloAddress,
    pub(crate) timeout: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Intermediary {
    rounds: BTreeMap<u64, Round>,
}

impl Intermediary {
    /// Ends all rounds after a pause of this silo: their results prove nothing.
    pub(crate) fn void(&mut self, ctx: &mut Ctx) {
        for (key, round) in std::mem::take(&mut self.rounds) {
            ctx.timers.clear(Timer::Round(key));
            ctx.reply(
                round.link,
                round.asker,
                Message::IndirectReply {
                    round: round.asked,
                    outcome: IndirectOutcome::Unknown,
                },
            );
        }
    }

    /// The suspect of a round.
    pub(crate) fn suspect(&self, key: u64) -> Option<SiloAddress> {
        self.rounds.get(&key).map(|r| r.suspect)
    }

    /// Starts a round. `able` = no local reason prevents this silo from judging.
    pub(crate) fn on_request(
        &mut self,
        ctx: &mut Ctx,
        link: LinkId,
        asker: SiloAddress,
        request: &Request,
        able: bool,
    ) {
        let Request {
            round: asked,
            suspect,
            timeout,
        } = *request;
        let known = ctx
            .confirmed_entry(&suspect)
            .is_some_and(|e| e.status != SiloStatus::Dead);
        if !ctx.is_active()
            || !able
            || ctx.table_changed()
            || !known
            || suspect == ctx.me
            || self.rounds.len() >= MAX_ROUNDS
            || self.rounds.values().filter(|r| r.asker == asker).count() >= MAX_ROUNDS_FOR_ONE
        {
            ctx.reply(
                link,
                asker,
                Message::IndirectReply {
                    round: asked,
                    outcome: IndirectOutcome::Unknown,
                },
            );
            return;
        }
        // A request with a timeout near zero would obtain a vote without a real probe.
        let timeout = timeout.clamp(ctx.config.min_probe_timeout, ctx.config.max_probe_timeout);
        let key = ctx.random();
        let nonce = ctx.random();
        ctx.send_to(suspect, Message::Probe { nonce });
        ctx.set_timer(Timer::Round(key), timeout / 2);
        self.rounds.insert(
            key,
            Round {
                asker,
                link,
                asked,
                suspect,
                timeout,
                nonces: vec![nonce],
                began: ctx.mono(),
            },
        );
    }

    /// Handles the suspect's answer to a probe. Returns when its round began, if the probe was one
    /// of a round.
    pub(crate) fn on_ack(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        nonce: u64,
    ) -> Option<MonoTime> {
        let key = *self
            .rounds
            .iter()
            .find(|(_, r)| r.suspect == from && r.nonces.contains(&nonce))?
            .0;
        let round = self.rounds.remove(&key)?;
        ctx.timers.clear(Timer::Round(key));
        ctx.reply(
            round.link,
            round.asker,
            Message::IndirectReply {
                round: round.asked,
                outcome: IndirectOutcome::Yes,
            },
        );
        Some(round.began)
    }

    /// Sends the second probe or ends the round. `alive_since` is the suspect's last sign of life;
    /// `score` and `local` are this silo's health.
    pub(crate) fn on_timer(
        &mut self,
        ctx: &mut Ctx,
        key: u64,
        alive_since: Option<(MonoTime, WallTime)>,
        score: u8,
        local: u8,
    ) {
        let Some(mut round) = self.rounds.remove(&key) else {
            return;
        };
        if round.nonces.len() < 2 {
            let nonce = ctx.random();
            round.nonces.push(nonce);
            ctx.send_to(round.suspect, Message::Probe { nonce });
            ctx.set_timer(Timer::Round(key), round.timeout);
            self.rounds.insert(key, round);
            return;
        }
        let outcome = if local > 0 || ctx.suspended || ctx.table_changed() || !ctx.is_active() {
            IndirectOutcome::Unknown
        } else {
            let known = ctx
                .confirmed_entry(&round.suspect)
                .is_some_and(|e| e.status != SiloStatus::Dead);
            let alive = alive_since.is_some_and(|(t, _)| t >= round.began);
            let consents = score == 0 && known && !alive;
            let evidence = Evidence {
                misses: 2,
                timeout_ms: u64::try_from(round.timeout.as_millis()).unwrap_or(u64::MAX),
                last_answer: alive_since.map(|(_, w)| w),
                via: Some(round.asker),
                accuser_health: score,
                stale: false,
            };
            let vote = Suspicion {
                accuser: ctx.me,
                at: ctx.now.wall,
                reason: SuspicionReason::Silent,
                evidence,
                extra: crate::Extra::default(),
            };
            IndirectOutcome::No {
                consent: consents.then_some(vote),
            }
        };
        ctx.reply(
            round.link,
            round.asker,
            Message::IndirectReply {
                round: round.asked,
                outcome,
            },
        );
    }
}
