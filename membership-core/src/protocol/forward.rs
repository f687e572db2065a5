//! Changes that a silo asks another one to write: only changes of its own row, so that nobody can
//! speak for somebody else.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::message::bounded;
use crate::intent::Action;
use crate::{InstanceId, Row, SiloAddress};

/// A change of the sender's own row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnChange {
    /// Insert this row, as Joining.
    Join(Row),
    /// Change it from Joining to Active.
    BecomeActive {
        /// Every silo that the sender had two-way contact with (invariant P9), with the word that it
        /// told over its own connection to the sender's address.
        #[serde(deserialize_with = "bounded")]
        contacted: Vec<(SiloAddress, u64)>,
    },
    /// Publish that the sender is leaving.
    BeginShutdown {
        /// Leave without draining.
        fast: bool,
    },
    /// End it with cause `left`.
    Leave,
}

/// What has become of a change, as the silo says that was asked to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It waits for a commit.
    Waiting,
    /// It is in the commit that made this version.
    Written {
        /// That version.
        version: u64,
    },
    /// The table has it already, or it no longer matters.
    Moot,
    /// The table does not allow it.
    Refused,
    /// The silo will not write it: ask another one, or write it yourself.
    Elsewhere,
}

impl OwnChange {
    /// The name used in transcripts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Join(_) => "join",
            Self::BecomeActive { .. } => "become active",
            Self::BeginShutdown { .. } => "begin shutdown",
            Self::Leave => "leave",
        }
    }

    /// The change of the author's own row that this action is, with the words of its contacts; `None`
    /// = it concerns others, or a word is missing.
    pub(super) fn of(action: &Action, word: impl Fn(&SiloAddress) -> Option<u64>) -> Option<Self> {
        match action {
            Action::Join(entry) => Some(Self::Join(Row::encode((**entry).clone()))),
            Action::BecomeActive { contacted, .. } => {
                let with_word = |silo: &SiloAddress| Some((*silo, word(silo)?));
                let contacted = contacted.iter().map(with_word).collect::<Option<_>>()?;
                Some(Self::BecomeActive { contacted })
            }
            Action::BeginShutdown { fast, .. } => Some(Self::BeginShutdown { fast: *fast }),
            Action::Leave { .. } => Some(Self::Leave),
            Action::Suspect { .. } | Action::Evict { .. } | Action::RemoveDefunct { .. } => None,
        }
    }

    /// The action that this change of `silo` is: an activation without contacts, because they are not
    /// proven yet. `None` = the row in it is not one of that silo in this process.
    pub(super) fn into_action(self, silo: SiloAddress, instance: InstanceId) -> Option<Action> {
        Some(match self {
            Self::Join(row) => {
                let mine = row.entry()?;
                if mine.address != silo || mine.instance_id != instance {
                    return None;
                }
                Action::Join(Box::new(mine.clone()))
            }
            Self::BecomeActive { .. } => Action::BecomeActive {
                silo,
                contacted: Vec::new(),
            },
            Self::BeginShutdown { fast } => Action::BeginShutdown { silo, fast },
            Self::Leave => Action::Leave { silo },
        })
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Written { version } => write!(f, "written at v{version}"),
            Self::Moot => f.write_str("moot"),
            Self::Refused => f.write_str("refused"),
            Self::Elsewhere => f.write_str("elsewhere"),
        }
    }
}
