//! What this silo says about suspects, and when. What it finds within a moment goes to each caller in
//! one message, and the first answer to a call waits for a shorter moment, so that it brings what is
//! found just now.

use super::super::context::Ctx;
use super::super::io::LinkId;
use super::super::message::{Finding, Message};
use crate::{MonoTime, SiloAddress};

/// Maximum number of first answers that wait for what is found within a moment.
const MAX_FIRST: usize = 256;

/// Who wants to know: none is this silo itself.
pub(super) type Caller = Option<(LinkId, SiloAddress)>;

/// Findings of this silo for its own call.
pub(crate) type Own = Vec<(u64, SiloAddress, Finding)>;

/// Whom it tells, in which call, of whom, and what.
type Told = (Caller, u64, SiloAddress, Finding);

/// What is known at once.
#[derive(Debug)]
pub(super) struct First {
    pub(super) to: (LinkId, SiloAddress),
    pub(super) call: u64,
    pub(super) findings: Vec<(SiloAddress, Finding)>,
    /// Other silos that this one has missed.
    pub(super) missed: Vec<SiloAddress>,
}

impl First {
    fn send(self, ctx: &mut Ctx) {
        reply(ctx, self.to, self.call, self.findings, self.missed);
    }
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    own: Own,
    /// Findings to send: those of a moment go to each caller in one message.
    findings: Vec<Told>,
    /// When they are sent.
    at: Option<MonoTime>,
    /// First answers to calls for which suspects are probed just now.
    first: Vec<First>,
    /// When the oldest of them is sent.
    first_at: Option<MonoTime>,
}

impl Outbox {
    /// What this silo found for its own calls since this was last taken.
    pub(super) fn take_own(&mut self) -> Own {
        std::mem::take(&mut self.own)
    }

    /// What is known at once, for a call of this silo.
    pub(super) fn begin_own(&mut self, call: u64, findings: Vec<(SiloAddress, Finding)>) {
        self.own
            .extend(findings.into_iter().map(|(s, f)| (call, s, f)));
    }

    /// What is known at once, for a call of another silo; it waits a moment if suspects are probed.
    pub(super) fn begin(&mut self, ctx: &mut Ctx, first: First, probes: bool) {
        if !probes || self.first.len() >= MAX_FIRST {
            return first.send(ctx);
        }
        self.first.push(first);
        let soon = ctx.mono() + ctx.probe_timeout() / 64;
        self.first_at.get_or_insert(soon);
    }

    /// Tells this caller within a moment.
    pub(super) fn add(&mut self, caller: Caller, call: u64, silo: SiloAddress, finding: Finding) {
        self.findings.push((caller, call, silo, finding));
    }

    /// Sends what is due; all of it, if that cannot wait.
    pub(super) fn on_timer(&mut self, ctx: &mut Ctx, all: bool) {
        let now = ctx.mono();
        if self.first_at.is_some_and(|at| at <= now) {
            self.send_first(ctx);
        }
        if all || self.at.is_some_and(|at| at <= now) {
            self.flush(ctx);
        }
    }

    /// When something is due.
    pub(super) fn next(&mut self, ctx: &Ctx) -> Option<MonoTime> {
        if !self.findings.is_empty() {
            let soon = ctx.mono() + ctx.probe_timeout() / 16;
            self.at.get_or_insert(soon);
        }
        self.at.into_iter().chain(self.first_at).min()
    }

    /// Sends the first answers, with what was found since.
    fn send_first(&mut self, ctx: &mut Ctx) {
        self.first_at = None;
        for mut first in std::mem::take(&mut self.first) {
            let same = |(caller, call, ..): &Told| (*caller, *call) == (Some(first.to), first.call);
            let (found, rest) = std::mem::take(&mut self.findings)
                .into_iter()
                .partition::<Vec<_>, _>(same);
            self.findings = rest;
            for (_, _, silo, finding) in found {
                first.findings.retain(|(named, _)| *named != silo);
                first.findings.push((silo, finding));
            }
            first.send(ctx);
        }
        if self.findings.is_empty() {
            self.at = None;
        }
    }

    /// Sends everything.
    pub(super) fn flush(&mut self, ctx: &mut Ctx) {
        self.send_first(ctx);
        self.at = None;
        let mut all = std::mem::take(&mut self.findings);
        while let Some((caller, call, ..)) = all.first().copied() {
            let of = |(c, n, ..): &Told| (*c, *n) == (caller, call);
            let (these, others) = all.into_iter().partition::<Vec<_>, _>(of);
            all = others;
            let findings = these
                .into_iter()
                .map(|(_, _, silo, finding)| (silo, finding));
            match caller {
                None => self.begin_own(call, findings.collect()),
                Some(to) => reply(ctx, to, call, findings.collect(), Vec::new()),
            }
        }
    }
}

fn reply(
    ctx: &mut Ctx,
    (link, to): (LinkId, SiloAddress),
    call: u64,
    findings: Vec<(SiloAddress, Finding)>,
    missed: Vec<SiloAddress>,
) {
    let answer = Message::RollAnswer {
        call,
        findings,
        missed,
    };
    ctx.reply(link, to, answer);
}
