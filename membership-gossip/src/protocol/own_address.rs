//! Who is at the address that this process advertises, where that is a contact point: another process
//! may be there, and have a cluster. A process that does not reach itself founds nothing.

use membership_core::MonoTime;

use super::admission::PROOF_TIME;
use super::context::Ctx;
use super::io::Notice;
use super::message::{Message, Refusal};

#[derive(Debug, Default)]
pub(crate) struct OwnAddress {
    /// The nonce of the question.
    nonce: Option<u64>,
    /// Since when it has no answer.
    since: MonoTime,
    /// Whether this process has answered it.
    leads_here: bool,
}

impl OwnAddress {
    pub(crate) fn start(&mut self, ctx: &Ctx) {
        self.since = ctx.mono();
    }

    pub(crate) const fn leads_here(&self) -> bool {
        self.leads_here
    }

    /// This process has answered itself. Returns whether that is new.
    pub(crate) const fn met(&mut self) -> bool {
        !std::mem::replace(&mut self.leads_here, true)
    }

    pub(crate) fn asked(&self, nonce: u64) -> bool {
        self.nonce == Some(nonce)
    }

    /// Asks whoever is there, until this process itself has answered.
    pub(crate) fn ask(&mut self, ctx: &mut Ctx) {
        if self.leads_here {
            return;
        }
        let now = ctx.mono();
        if now.since(self.since) >= PROOF_TIME {
            self.since = now;
            let (by, reason) = (ctx.me, Refusal::Unanswered);
            ctx.tell(Notice::NotTakenIn { by, reason });
        }
        let nonce = *self.nonce.get_or_insert_with(|| ctx.random());
        ctx.send_afresh(ctx.me.endpoint(), Message::Identify { nonce });
    }
}
