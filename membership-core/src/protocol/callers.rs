//! Silos that asked to be dialled before this silo has read their rows. A message alone makes no
//! silo dial anybody: the address must be in the row of the process that asks.

use std::collections::BTreeMap;

use super::context::Ctx;
use super::message::Message;
use crate::{InstanceId, MonoTime, SiloAddress};

/// How many are remembered; the oldest is forgotten first. They ask again.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Callers(BTreeMap<SiloAddress, Caller>);

#[derive(Debug)]
struct Caller {
    at: MonoTime,
    instance: InstanceId,
    nonce: u64,
}

impl Callers {
    pub(super) fn hold(
        &mut self,
        at: MonoTime,
        silo: SiloAddress,
        instance: InstanceId,
        nonce: u64,
    ) {
        let caller = Caller {
            at,
            instance,
            nonce,
        };
        // One process has one address.
        self.0.retain(|_, held| held.instance != instance);
        self.0.insert(silo, caller);
        if self.0.len() > MOST {
            let oldest = self.0.iter().min_by_key(|(_, caller)| caller.at);
            if let Some(silo) = oldest.map(|(silo, _)| *silo) {
                self.0.remove(&silo);
            }
        }
    }

    /// Dials those whose rows this silo has read since.
    pub(super) fn dial(&mut self, ctx: &mut Ctx) {
        let patience = ctx.config.probe_period;
        self.0.retain(|silo, caller| {
            if ctx.is_member(silo, caller.instance) {
                ctx.dial_back(*silo, caller.nonce);
                return false;
            }
            ctx.mono().since(caller.at) < patience
        });
    }
}

impl Ctx {
    /// Proves to a silo that its address can be dialled.
    pub(super) fn dial_back(&mut self, silo: SiloAddress, nonce: u64) {
        self.dial_afresh(silo.endpoint(), Some(silo), Message::DialBack { nonce });
    }
}
