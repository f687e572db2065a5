//! How a connection begins: what each side takes part in, and the versions that it speaks.

use membership_core::protocol::{MIN_PROTOCOL_VERSION, PROTOCOL_VERSION};
use serde::{Deserialize, Serialize};

use crate::transport::Kind as Part;

/// The first bytes in each direction, of silos. Not text, so that no text protocol begins like this.
/// The last one names what the process takes part in.
pub(in crate::transport::tcp) const MARK: [u8; 8] = *b"\x93silo\r\n\x01";
/// The last byte of the mark of members without a table.
const MARK_OF_GOSSIP: u8 = 2;
/// The first bytes of a process.
pub(super) const fn mark(part: Part) -> [u8; 8] {
    let mut mark = MARK;
    if matches!(part, Part::Gossip) {
        mark[7] = MARK_OF_GOSSIP;
    }
    mark
}

/// What the byte at this place of a mark says: nothing yet, or what the other side takes part in; none
/// if no mark has it there.
pub(super) fn part_of(place: usize, byte: u8) -> Option<Option<Part>> {
    let last = place + 1 == MARK.len();
    match byte {
        byte if MARK.get(place) == Some(&byte) => Some(last.then_some(Part::Table)),
        MARK_OF_GOSSIP if last => Some(Some(Part::Gossip)),
        _ => None,
    }
}

/// The versions of one side, oldest and newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::transport::tcp) struct Versions {
    pub(in crate::transport::tcp) min: u16,
    pub(in crate::transport::tcp) max: u16,
}

impl Versions {
    /// The versions of this build.
    pub(in crate::transport::tcp) const MINE: Self = Self {
        min: MIN_PROTOCOL_VERSION,
        max: PROTOCOL_VERSION,
    };

    /// The versions of this build of what a process takes part in.
    pub(super) const fn of(part: Part) -> Self {
        match part {
            Part::Table => Self::MINE,
            #[cfg(feature = "gossip")]
            Part::Gossip => Self {
                min: membership_gossip::protocol::PROTOCOL_VERSION,
                max: membership_gossip::protocol::PROTOCOL_VERSION,
            },
            #[cfg(not(feature = "gossip"))]
            Part::Gossip => Self { min: 1, max: 1 },
        }
    }

    /// The newest version that both know.
    pub(super) fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}
