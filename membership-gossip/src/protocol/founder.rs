//! A founding on which a majority of the contact points agrees.
//!
//! Contact points that are in no cluster choose one [`FoundingId`] by single-decree Paxos (Lamport,
//! 2001): two majorities share a contact point, so no two foundings are chosen while contact points
//! keep their memory. And nobody is moved up before a majority of the contact points are members, so
//! that a founder which is cut off at once stays a cluster of one that has not begun. Who was
//! restarted has forgotten what it accepted: if a majority restarts while the founder is cut off,
//! another founding can be chosen. Then the sides refuse each other, and say so.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use membership_core::{FoundingId, SiloAddress};

use super::context::Ctx;
use super::message::{Ballot, Message};

#[derive(Debug, Default)]
pub(crate) struct Founder {
    /// What this process has promised and accepted as a contact point.
    promised: Option<Ballot>,
    accepted: Option<(Ballot, FoundingId)>,
    proposal: Option<Proposal>,
}

#[derive(Debug)]
struct Proposal {
    ballot: Ballot,
    founding: FoundingId,
    /// The highest ballot at which a promise named a founding.
    named_at: Option<Ballot>,
    promises: BTreeSet<SocketAddr>,
    accepts: BTreeSet<SocketAddr>,
    accepting: bool,
}

/// By how many rounds a proposal may be ahead of those that are known. Each attempt is one round, so
/// nobody gets so far; and who names the highest number of all must not keep others from founding.
const MAX_LEAD: u64 = 1 << 32;

/// How many of the contact points are a majority.
pub(crate) const fn majority(contact_points: usize) -> usize {
    contact_points / 2 + 1
}

impl Founder {
    /// Proposes a founding to all contact points; the id if it is chosen at once.
    pub(crate) fn propose(
        &mut self,
        ctx: &mut Ctx,
        contact_points: &[SocketAddr],
    ) -> Option<FoundingId> {
        let highest = self.promised.map_or(0, |ballot| ballot.round);
        let ballot = Ballot {
            round: highest.saturating_add(1),
            proposer: ctx.me,
        };
        self.proposal = Some(Proposal {
            ballot,
            founding: FoundingId::new(ctx.random_id()),
            named_at: None,
            promises: BTreeSet::new(),
            accepts: BTreeSet::new(),
            accepting: false,
        });
        let me = ctx.me.endpoint();
        for other in contact_points.iter().filter(|other| **other != me) {
            ctx.send_at(*other, Message::Propose { ballot });
        }
        self.promised = Some(ballot);
        let accepted = self.accepted;
        self.on_promise(ctx, contact_points, me, ballot, accepted)
    }

    /// Whether a proposal has a number that none has that was made in turn.
    pub(crate) fn is_too_far(&self, ballot: Ballot) -> bool {
        let highest = self.promised.map_or(0, |promised| promised.round);
        ballot.round.saturating_sub(highest) > MAX_LEAD
    }

    /// Another contact point proposes.
    pub(crate) fn on_propose(&mut self, ctx: &mut Ctx, from: SiloAddress, ballot: Ballot) {
        match self.promised {
            Some(promised) if promised > ballot => {
                ctx.send(from, Message::Outbid { ballot: promised });
            }
            _ => {
                self.promised = Some(ballot);
                let accepted = self.accepted;
                ctx.send(from, Message::Promise { ballot, accepted });
            }
        }
    }

    /// A contact point promised; the founding if it is chosen.
    pub(crate) fn on_promise(
        &mut self,
        ctx: &mut Ctx,
        contact_points: &[SocketAddr],
        from: SocketAddr,
        ballot: Ballot,
        accepted: Option<(Ballot, FoundingId)>,
    ) -> Option<FoundingId> {
        let proposal = self.proposal.as_mut()?;
        if proposal.ballot != ballot || proposal.accepting || !contact_points.contains(&from) {
            return None;
        }
        proposal.promises.insert(from);
        if let Some((at, founding)) = accepted
            && Some(at) > proposal.named_at
        {
            proposal.named_at = Some(at);
            proposal.founding = founding;
        }
        if proposal.promises.len() < majority(contact_points.len()) {
            return None;
        }
        proposal.accepting = true;
        let (me, founding) = (ctx.me.endpoint(), proposal.founding);
        for other in contact_points.iter().filter(|other| **other != me) {
            ctx.send_at(*other, Message::Accept { ballot, founding });
        }
        if self.promised > Some(ballot) {
            return None;
        }
        self.accepted = Some((ballot, founding));
        self.on_accepted(contact_points, me, ballot)
    }

    /// Another contact point asks to accept.
    pub(crate) fn on_accept(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        ballot: Ballot,
        founding: FoundingId,
    ) {
        match self.promised {
            Some(promised) if promised > ballot => {
                ctx.send(from, Message::Outbid { ballot: promised });
            }
            _ => {
                self.promised = Some(ballot);
                self.accepted = Some((ballot, founding));
                ctx.send(from, Message::Accepted { ballot });
            }
        }
    }

    /// A contact point accepted; the founding if it is chosen.
    pub(crate) fn on_accepted(
        &mut self,
        contact_points: &[SocketAddr],
        from: SocketAddr,
        ballot: Ballot,
    ) -> Option<FoundingId> {
        let proposal = self.proposal.as_mut()?;
        if proposal.ballot != ballot || !proposal.accepting || !contact_points.contains(&from) {
            return None;
        }
        proposal.accepts.insert(from);
        let chosen = proposal.accepts.len() >= majority(contact_points.len());
        chosen.then_some(proposal.founding)
    }

    /// A contact point has promised a higher proposal: the next one of this process is higher still.
    pub(crate) fn on_outbid(&mut self, ballot: Ballot) {
        self.promised = self.promised.max(Some(ballot));
    }

    /// Ends the proposal of this process.
    pub(crate) fn stop(&mut self) {
        self.proposal = None;
    }
}
