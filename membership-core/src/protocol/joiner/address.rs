//! Checks that the advertised address belongs to this silo: it leads to this process, and no other
//! silo writes heartbeats for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::quiet::Quiet;
use super::{Joiner, Stage, Step, retry_period};
use crate::protocol::context::Ctx;
use crate::protocol::message::Message;
use crate::protocol::notice::JoinError;
use crate::protocol::timers::Timer;
use crate::protocol::writer::Writer;
use crate::{InstanceId, MembershipEntry, SiloAddress, SiloStatus};

/// Maximum length that is kept of the host name in another silo's answer: the maximum length of a
/// DNS name.
const MAX_HOST_NAME: usize = 253;

/// How long the heartbeat of a silo is watched that writes in the usual period.
pub(super) fn long_enough(ctx: &Ctx) -> Duration {
    ctx.heartbeat_period() + ctx.probe_timeout()
}

impl Joiner {
    pub(super) fn meet_myself(&mut self, ctx: &mut Ctx) {
        let body = Message::Identify { nonce: self.nonce };
        ctx.dial_afresh(ctx.identity.advertise, None, body);
        let retry = retry_period(&ctx.config);
        ctx.set_timer(Timer::Join, retry);
    }

    /// This silo's own question arrived: the advertised address leads to this process.
    pub(crate) fn on_met_myself(&mut self, ctx: &mut Ctx, writer: &mut Writer, nonce: u64) {
        if nonce != self.nonce {
            return;
        }
        self.met_myself = Some(ctx.mono());
        if self.stage == Stage::MeetMyself {
            self.go_on(ctx, writer);
        }
    }

    fn go_on(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        if ctx.base.is_some() {
            self.stage = Stage::FirstRead;
            writer.want_read(false);
        } else {
            self.stage = Stage::Initialize;
            self.initialize(ctx);
        }
    }

    /// Another process answered at the advertised address.
    pub(crate) fn on_identity(
        &mut self,
        ctx: &mut Ctx,
        nonce: u64,
        instance: InstanceId,
        silo: Option<SiloAddress>,
        host: &str,
    ) -> Step {
        let mine = instance == ctx.identity.instance;
        let asking = matches!(
            self.stage,
            Stage::MeetMyself | Stage::Initialize | Stage::FirstRead | Stage::WatchAddress { .. }
        );
        if mine || !asking || nonce != self.nonce {
            return Step::Nothing;
        }
        let silo = silo.map_or_else(
            || "one that has not joined yet".to_owned(),
            |s| s.to_string(),
        );
        let host = host.chars().take(MAX_HOST_NAME).collect();
        self.fail(
            ctx,
            JoinError::AddressInUse {
                endpoint: ctx.identity.advertise,
                silo,
                host,
            },
        )
    }

    pub(crate) fn on_send_failed(
        &mut self,
        ctx: &mut Ctx,
        writer: &mut Writer,
        to: SocketAddr,
        reason: &str,
        refused: bool,
    ) {
        if to == ctx.identity.advertise {
            self.last_error = Some(reason.to_owned());
            // Another silo there says who it is only to somebody who has read the table.
            if self.stage == Stage::MeetMyself && ctx.base.is_none() {
                self.go_on(ctx, writer);
            }
        }
        self.contacts.on_send_failed(to, reason, refused);
    }

    /// Older rows at this silo's address that may belong to another host with the same private
    /// address and were not watched yet. A row of this host or of this process is superseded at
    /// once.
    pub(super) fn strangers(&self, ctx: &Ctx) -> BTreeSet<SiloAddress> {
        let id = &ctx.identity;
        let strange = |e: &&MembershipEntry| {
            e.status != SiloStatus::Dead
                && e.instance_id != id.instance
                && e.info.host_name != id.info.host_name
                && !self.watched.contains(&e.address)
        };
        ctx.base
            .iter()
            .flat_map(|v| v.snapshot().rows.at_endpoint(id.advertise).filter(strange))
            .map(|e| e.address)
            .collect()
    }

    pub(super) fn watch(&mut self, ctx: &mut Ctx, counters: BTreeMap<SiloAddress, Option<u64>>) {
        self.stage = Stage::WatchAddress {
            counters,
            until: ctx.mono() + long_enough(ctx),
            quiet: Quiet::default(),
        };
        ctx.set_timer_at(Timer::Join, ctx.mono());
    }

    pub(super) fn nobody_home(&self, ctx: &Ctx) -> JoinError {
        let reason = self
            .last_error
            .clone()
            .unwrap_or_else(|| "no answer".to_owned());
        JoinError::NotReachableByMyself {
            endpoint: ctx.identity.advertise,
            reason,
        }
    }
}
