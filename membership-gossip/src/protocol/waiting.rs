//! What a process waits for that is in no cluster: for people and tools.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use membership_core::SiloAddress;
use membership_core::encoding::bounded_by;
use serde::{Deserialize, Deserializer, Serialize};

use super::founder::majority;
use super::machine::Protocol;
use crate::Founding;

/// The most contact points in a message, and the longest reason, in bytes.
const MAX_POINTS: usize = 256;
const MAX_REASON: usize = 512;

/// A contact point that has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Silent {
    /// Where it should be.
    pub contact_point: SocketAddr,
    /// The last failure, for people; none: nothing was heard at all.
    #[serde(deserialize_with = "reason")]
    pub reason: Option<String>,
}

/// What a process waits for before it founds a cluster or is taken in. Contact points beyond the first
/// 256 are not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// For how long it has been joining.
    pub elapsed: Duration,
    /// The contact points that are in no cluster either, this process included.
    #[serde(deserialize_with = "points")]
    pub answered: Vec<SocketAddr>,
    /// The other contact points.
    #[serde(deserialize_with = "points")]
    pub silent: Vec<Silent>,
    /// How many must answer before this process founds a cluster; none: it never does.
    pub needed: Option<u32>,
    /// Who was asked to take this process in, and has not done so yet.
    pub asked: Option<SiloAddress>,
}

fn points<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    bounded_by::<MAX_POINTS, T, D>(d)
}

fn reason<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    let reason = Option::<String>::deserialize(d)?;
    if reason.as_ref().is_some_and(|text| text.len() > MAX_REASON) {
        return Err(serde::de::Error::custom("a reason longer than 512 bytes"));
    }
    Ok(reason)
}

impl Waiting {
    /// Adds the last failure of a contact point. It has not answered then.
    pub fn failed(&mut self, contact_point: SocketAddr, reason: &str) {
        self.answered.retain(|answered| *answered != contact_point);
        let within = |(at, c): &(usize, char)| at + c.len_utf8() <= MAX_REASON;
        let reason: String = reason
            .char_indices()
            .take_while(within)
            .map(|(_, c)| c)
            .collect();
        let reason = Some(reason);
        let mut known = self.silent.iter_mut();
        if let Some(silent) = known.find(|silent| silent.contact_point == contact_point) {
            silent.reason = reason;
        } else if self.silent.len() < MAX_POINTS {
            self.silent.push(Silent {
                contact_point,
                reason,
            });
        }
    }

    /// How many contact points there are.
    #[must_use]
    pub fn contact_points(&self) -> usize {
        self.answered.len() + self.silent.len()
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, all) = (self.answered.len(), self.contact_points());
        if let Some(asked) = self.asked {
            write!(f, "{asked} was asked to take it in; ")?;
        }
        write!(f, "{answered} of {all} contact points answered, ")?;
        match self.needed {
            Some(needed) => write!(f, "{needed} are needed to found a cluster")?,
            None => f.write_str("and it waits until others found a cluster")?,
        }
        for silent in &self.silent {
            let reason = silent.reason.as_deref().unwrap_or("no answer");
            write!(f, "; {}: {reason}", silent.contact_point)?;
        }
        Ok(())
    }
}

impl Protocol {
    /// What this process waits for, while it joins; none: it is a member, or was not told to join.
    #[must_use]
    pub fn waiting(&self) -> Option<Waiting> {
        let (ctx, joiner) = (&self.ctx, &self.joiner);
        let points = joiner.contact_points();
        if ctx.is_member() || self.has_ended() || points.is_empty() {
            return None;
        }
        let me = ctx.me.endpoint();
        let has_answered = |point: &&SocketAddr| **point == me || joiner.has_answered(point);
        let answered = points.iter().filter(has_answered).copied();
        let silent = points.iter().filter(|point| !has_answered(point));
        let silent = silent.map(|point| Silent {
            contact_point: *point,
            reason: None,
        });
        let founds = match ctx.config.founding {
            Founding::Majority => points.contains(&me).then(|| majority(points.len())),
            Founding::FirstSeed => (points.first() == Some(&me)).then_some(1),
            Founding::Never => None,
        };
        Some(Waiting {
            elapsed: ctx.mono().since(joiner.began()),
            answered: answered.take(MAX_POINTS).collect(),
            silent: silent.take(MAX_POINTS).collect(),
            needed: founds.and_then(|needed| u32::try_from(needed).ok()),
            asked: joiner.asked(),
        })
    }
}
