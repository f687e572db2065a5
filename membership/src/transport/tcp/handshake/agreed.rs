//! What both sides know after a handshake, so that messages need not repeat it.

use membership_core::SiloAddress;

use super::{Introduction, Me, Side};
use crate::transport::header::Fixed;

/// What a handshake has fixed of later headers. Both sides make it of the same two introductions, so
/// what one of them leaves out the other adds again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::transport::tcp) struct Agreed {
    /// Of the headers that this side sends.
    pub(in crate::transport::tcp) sent: Fixed,
    /// Of those that it receives.
    pub(in crate::transport::tcp) received: Fixed,
}

impl Agreed {
    /// What these introductions fix, of which `mine` is that of the side `side`.
    pub(super) fn new(
        me: &Me,
        side: Side,
        protocol: u16,
        mine: &Introduction,
        peer: &Introduction,
    ) -> Self {
        let cluster = me.cluster.fingerprint();
        let table_id = match side {
            Side::Accepted => mine.table_id,
            Side::Dialled => peer.table_id,
        };
        let way = |from: &Introduction, to: &Introduction| Fixed {
            cluster,
            protocol,
            from: from
                .silo
                .unwrap_or_else(|| SiloAddress::at(from.advertise, 0)),
            instance: from.instance,
            to: to.silo,
            table_id,
        };
        Self {
            sent: way(mine, peer),
            received: way(peer, mine),
        }
    }
}
