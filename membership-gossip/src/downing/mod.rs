//! Who ends members that nobody reaches: the strategies of a split brain resolver.
//!
//! A network that is split leaves two sides that each see the other as unreachable. A strategy
//! decides on each side alone, from what it knows, which side goes on. It can do so safely only
//! under its assumptions, which are told at each [`Strategy`]; [`Strategy::LeaseMajority`] asks an
//! arbiter and needs none.
//!
//! [`decide`] is pure: the same facts give the same decision on every member of a side.

mod auto_down;
mod claim;
mod doubted;
mod indirect;
mod keep_majority;
mod keep_oldest;
mod lease_majority;
mod situation;
mod static_quorum;
mod strategy;
mod timing;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::{ConfigError, SiloAddress};
use serde::{Deserialize, Serialize};

pub use auto_down::AutoDown;
pub use claim::{Claim, Grants, Lease};
pub use indirect::indirectly_connected;
pub use lease_majority::lease_delay;
pub use situation::Situation;
pub(crate) use situation::broken_links;
pub use strategy::Strategy;
pub use timing::{Due, Timing};

use crate::written::written;

/// Configuration of the resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Downing {
    /// The strategy. Default: keep the majority. In a file a table with its `name`, or the name alone
    /// if the strategy needs nothing else.
    #[serde(deserialize_with = "crate::written::strategy")]
    pub strategy: Strategy,
    /// Which arbiter is asked, the same text for all that ask the same: whoever runs the member fills
    /// it in before the start, so that a joiner with another arbiter is refused. Not in files.
    #[serde(skip)]
    pub arbiter: Option<String>,
    /// How long nothing must have changed before it decides. Default 20 s; range 1 s to 10 min. It
    /// must cover the time in which all members of a side learn the same: 7 s for 5 members, 10 s
    /// for 10, 13 s for 20, 17 s for 50, 20 s for 100, 30 s for 1,000.
    #[serde(with = "humantime_serde")]
    pub stable_after: Duration,
    /// If things are still changing this long after `stable_after`, everybody is downed; none: never.
    /// Default 15 s: three quarters of `stable_after`, at least 4 s.
    #[serde(
        serialize_with = "humantime_serde::serialize",
        deserialize_with = "crate::written::or_never"
    )]
    pub down_all_when_unstable: Option<Duration>,
    /// Whether every flag makes it wait again (specification's implementation: yes), or only a change of
    /// who is unreachable: that somebody else does not reach them either is no news. Default: no.
    pub every_flag_counts: bool,
    /// Above this share of indirectly connected members everybody is downed. Default 0.5, in
    /// thousandths: 500; range 0 to 1000.
    pub most_indirect_per_mille: u32,
}

impl Default for Downing {
    fn default() -> Self {
        Self::new(Strategy::KeepMajority { role: None })
    }
}

impl Downing {
    /// The usual times with a strategy.
    #[must_use]
    pub const fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            arbiter: None,
            stable_after: Duration::from_secs(20),
            down_all_when_unstable: Some(Duration::from_secs(15)),
            every_flag_counts: false,
            most_indirect_per_mille: 500,
        }
    }

    /// No member is downed but by an operator.
    #[must_use]
    pub const fn none() -> Self {
        Self::new(Strategy::None)
    }

    /// How long what the losers owned must not be started elsewhere after the decision: until then
    /// the other side may not have decided.
    #[must_use]
    pub const fn removal_margin(&self) -> Duration {
        match self.strategy {
            Strategy::None | Strategy::AutoDownUnsafe { .. } => Duration::ZERO,
            _ => self.stable_after,
        }
    }

    /// What all members must agree on.
    pub(crate) fn shared(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: String| (format!("downing.{name}"), value);
        let unstable = self.down_all_when_unstable;
        let unstable = unstable.map_or_else(|| "never".to_owned(), written);
        let mut all = vec![
            pair("strategy", self.strategy.to_string()),
            pair("stable_after", written(self.stable_after)),
            pair("down_all_when_unstable", unstable),
            pair("every_flag_counts", self.every_flag_counts.to_string()),
            pair(
                "most_indirect_per_mille",
                self.most_indirect_per_mille.to_string(),
            ),
        ];
        if let Some(arbiter) = self.arbiter.as_ref().filter(|_| is_lease(&self.strategy)) {
            all.push(pair("arbiter", arbiter.clone()));
        }
        all
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let s = Duration::from_secs;
        let check = ConfigError::check_range::<Duration>;
        check("downing.stable_after", self.stable_after, s(1), s(600))?;
        if let Some(more) = self.down_all_when_unstable {
            check("downing.down_all_when_unstable", more, s(1), s(600))?;
        }
        let share = self.most_indirect_per_mille;
        ConfigError::check_range("downing.most_indirect_per_mille", share, 0, 1000)?;
        match &self.strategy {
            Strategy::AutoDownUnsafe { after } => {
                check("downing.strategy.after", *after, s(0), s(3_600))
            }
            Strategy::StaticQuorum { size, .. } => {
                ConfigError::check_range("downing.strategy.size", *size, 1, 1 << 16)
            }
            Strategy::LeaseMajority {
                delay_for_minority,
                release_after,
                ..
            } => {
                let field = "downing.strategy.delay_for_minority";
                check(field, *delay_for_minority, s(0), s(60))?;
                check(
                    "downing.strategy.release_after",
                    *release_after,
                    s(1),
                    s(3_600),
                )
            }
            _ => Ok(()),
        }
    }
}

/// What a side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// This side goes on and downs those that it does not reach.
    DownUnreachable,
    /// This side ends itself.
    DownReachable,
    /// Everybody is downed, on both sides.
    DownAll,
    /// Only those are downed that some reach and others do not.
    DownIndirectlyConnected,
    /// The arbiter must be asked first.
    AskLease,
}

impl Verdict {
    /// A word for logs and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DownUnreachable => "down-unreachable",
            Self::DownReachable => "down-reachable",
            Self::DownAll => "down-all",
            Self::DownIndirectlyConnected => "down-indirectly-connected",
            Self::AskLease => "ask-lease",
        }
    }
}

/// A decision with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What this side does.
    pub verdict: Verdict,
    /// Whom it downs.
    pub down: BTreeSet<SiloAddress>,
    /// The members that count and are reached.
    pub reached: usize,
    /// The members that count and are not reached.
    pub unreached: usize,
    /// Those that some reach and others do not.
    pub indirect: BTreeSet<SiloAddress>,
}

/// Decides for one side. The lease is held, or not, or was not asked for: see
/// [`Situation::lease`].
#[must_use]
pub fn decide(downing: &Downing, situation: &Situation) -> Decision {
    let situation = &blaming_few(downing, situation);
    let verdict = side_verdict(&downing.strategy, situation);
    let too_many = situation.too_many_indirect(downing.most_indirect_per_mille);
    let is_final = matches!(verdict, Verdict::DownAll | Verdict::AskLease);
    if situation.indirect.is_empty() || is_final {
        return situation.decision(verdict);
    }
    if too_many {
        return situation.decision(Verdict::DownAll);
    }
    if verdict == Verdict::DownReachable && is_lease(&downing.strategy) {
        let mut decision = situation.decision(verdict);
        decision.down.extend(&situation.indirect);
        return decision;
    }
    // Those that are connected indirectly go first. Then the rest decides once more as if they did
    // not flag each other.
    let rest = situation.without_indirect();
    if rest.unreachable.is_empty() {
        return situation.decision(Verdict::DownIndirectlyConnected);
    }
    let mut decision = rest.decision(side_verdict(&downing.strategy, &rest));
    decision.down.extend(&situation.indirect);
    decision.indirect.clone_from(&situation.indirect);
    decision
}

/// The situation without a tie that ends everybody. Where two groups do not reach each other, and each
/// member of them has as many broken links, all of both are to blame. If that is too many, one group is
/// enough. That is so only where this side would go on without it after a split: those to blame may be on the
/// other side of one that nobody knows of yet.
pub(crate) fn blaming_few<'a>(downing: &Downing, situation: &'a Situation) -> Cow<'a, Situation> {
    let most = downing.most_indirect_per_mille;
    let mut tried = BTreeSet::new();
    // Of the two ends of one link nobody knows which is wrong.
    while situation.indirect.len() > 2 && situation.too_many_indirect(most) {
        let fewer = situation.blaming_one_by_one(&tried);
        if fewer.indirect.is_subset(&tried) {
            break;
        }
        let goes_on = side_verdict(&downing.strategy, &fewer.clone().with_lease(true));
        if goes_on == Verdict::DownUnreachable && !fewer.too_many_indirect(most) {
            return Cow::Owned(fewer);
        }
        tried.extend(&fewer.indirect);
    }
    Cow::Borrowed(situation)
}

/// Everybody is downed because things do not settle.
#[must_use]
pub fn down_all(situation: &Situation) -> Decision {
    situation.decision(Verdict::DownAll)
}

pub(crate) const fn is_lease(strategy: &Strategy) -> bool {
    matches!(strategy, Strategy::LeaseMajority { .. })
}

/// What the strategy says of a split without indirect connections.
fn side_verdict(strategy: &Strategy, situation: &Situation) -> Verdict {
    match strategy {
        // It decides by time alone, elsewhere.
        Strategy::None | Strategy::AutoDownUnsafe { .. } => Verdict::DownUnreachable,
        Strategy::StaticQuorum { size, role } => {
            static_quorum::verdict(situation, *size, role.as_deref())
        }
        Strategy::KeepMajority { role } => keep_majority::verdict(situation, role.as_deref()),
        Strategy::KeepOldest {
            down_if_alone,
            role,
        } => keep_oldest::verdict(situation, *down_if_alone, role.as_deref()),
        Strategy::DownAll => Verdict::DownAll,
        Strategy::LeaseMajority { .. } => lease_majority::verdict(situation),
    }
}
