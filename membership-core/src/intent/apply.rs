//! The pure function that turns intents into changes of the table. It decides the order, which
//! intents wait for a later commit, and one answer for each intent. The rules for single actions
//! are in the neighbouring files (lives, votes, retention). It uses nothing but its arguments.
//! Rules: "Writing" in the protocol; invariants P3, P5, P9.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::working::{Change, Planned, Working};
use super::{Action, Answer, Intent, Refusal, lives, retention, votes};
use crate::{
    CommitId, CommitRequest, Config, MembershipEntry, MonoTime, Now, SiloAddress, Snapshot,
    TableLimits, VersionToken,
};

/// What the caller has observed itself and the table does not contain.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Observed {
    /// Silos whose heartbeat is stale.
    pub stale: BTreeSet<SiloAddress>,
    /// Silos that did not write a heartbeat after they were challenged. They can be voted out like
    /// stale ones, but count in majorities.
    pub challenged: BTreeSet<SiloAddress>,
    /// Silos that answered the caller within the failure window. They are not stale, whatever
    /// `stale` says.
    pub answered: BTreeSet<SiloAddress>,
    /// When the caller first saw each vote (suspect, accuser) in the table, by its monotonic clock,
    /// while it was reading the table. The wall time is that of the vote: it identifies which of
    /// the accuser's votes was seen.
    pub first_seen: BTreeMap<(SiloAddress, SiloAddress), (crate::WallTime, MonoTime)>,
    /// Up to how many silos a joining one must have contacted everybody; above, its
    /// `check_set`.
    #[doc(hidden)]
    pub full_check_limit: Option<usize>,
    /// Joins and activations are not looked at any more once the commit has as many rows as the store
    /// takes: they wait for the next one.
    #[doc(hidden)]
    pub stops_when_full: bool,
    /// Votes count without the majority of a roll call. Only for comparisons with other protocols;
    /// see [`hooks`](crate::hooks).
    #[doc(hidden)]
    pub without_calls: bool,
}

/// The result of applying a batch of intents.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Applied {
    /// Rows to insert, by address.
    pub inserts: Vec<MembershipEntry>,
    /// Rows to update, by address.
    pub updates: Vec<MembershipEntry>,
    /// Keys of the rows to remove.
    pub removes: Vec<String>,
    /// One answer for each intent, in the order of the intents.
    pub answers: Vec<Answer>,
    /// Intents that did not fit, in order. A removal that fitted in part is answered Applied, and
    /// its remainder is here under the same id.
    pub rest: Vec<Intent>,
}

impl Applied {
    /// Whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inserts.is_empty() && self.updates.is_empty() && self.removes.is_empty()
    }

    /// Builds the commit that makes these changes.
    #[must_use]
    pub fn into_request(
        self,
        expected: VersionToken,
        id: CommitId,
        committer: Option<SiloAddress>,
    ) -> CommitRequest {
        let Self {
            inserts,
            updates,
            removes,
            ..
        } = self;
        CommitRequest::new(expected, id, committer, inserts, updates, removes)
    }
}

/// The order in which a batch is applied. Deaths come first: they must not wait, and the dead then
/// need not be contacted by others. Removals come last, because nothing waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Death,
    Leave,
    Shutdown,
    Activation,
    Join,
    Vote,
    Removal,
}

/// The inputs of every rule besides the rows.
pub(super) struct Context<'a> {
    pub(super) observed: &'a Observed,
    pub(super) stale: BTreeSet<SiloAddress>,
    pub(super) now: Now,
    /// Whether so many silos become Active that it pays to find out what their check sets have in common.
    pub(super) many_activate: bool,
}

/// Of so many activations see [`Context::many_activate`].
const MANY: usize = 16;

/// Applies a batch to a snapshot. Returns what to commit against it and one answer for each intent.
/// Pure and deterministic.
///
/// * Deaths come first, then leaves, shutdowns, activations, joins, votes that do not kill, and
///   removals. Of activations, those whose silos have met most come first. Each intent sees the
///   result of the earlier ones. Intents of one author keep their order, except removals, which
///   nothing depends on.
/// * An intent is done as a whole or not at all, except that a removal may be split. An intent that
///   exceeds `limits` together with the others is answered [`Answer::Queued`] and is in `rest`, and
///   so are the later intents of its author. An intent that exceeds them alone is answered
///   [`Refusal::TooLarge`].
/// * Several changes of one row become one change.
/// * Shared settings (votes needed, their expiry) come from the snapshot's version row. `config` is
///   for settings of this silo alone; none is used today.
///
/// ```
/// use membership_core::intent::{Action, Answer, Intent, Observed, apply};
/// use membership_core::{
///     Config, InstanceId, IntentId, MembershipEntry, Now, Rows, SharedSettings, Snapshot, TableId,
///     TableLimits, VersionRow, WallTime,
/// };
/// let version_row = VersionRow::initial(TableId::new(1), SharedSettings::default());
/// let empty = Snapshot::new(version_row.token(&[]), version_row, Rows::new());
/// let me = "10.0.0.1:7100@1".parse()?;
/// let entry = MembershipEntry::new(me, InstanceId::new(7), WallTime::from_millis(1));
/// let join = Intent::new(IntentId::new(1), Some(me), Action::Join(Box::new(entry)));
/// let limits = TableLimits::new(100, 65_536, 1 << 20, 5_000);
/// let (observed, config) = (Observed::default(), Config::default());
/// let applied = apply(&empty, &observed, &[join], Now::default(), &config, &limits);
/// assert_eq!(applied.answers, [Answer::Applied { version: 1 }]);
/// assert_eq!(applied.inserts[0].address, me);
/// # Ok::<(), membership_core::ParseSiloError>(())
/// ```
#[must_use]
pub fn apply(
    snapshot: &Snapshot,
    observed: &Observed,
    intents: &[Intent],
    now: Now,
    _config: &Config,
    limits: &TableLimits,
) -> Applied {
    let is_activation = |intent: &&Intent| matches!(intent.action, Action::BecomeActive { .. });
    let activations = intents.iter().filter(is_activation);
    let context = Context {
        observed,
        stale: observed
            .stale
            .difference(&observed.answered)
            .copied()
            .collect(),
        now,
        many_activate: activations.count() >= MANY,
    };
    let mut working = Working::new(snapshot, limits);
    let mut queue = Queue::new(&working, &context, intents);
    let mut answers = vec![Answer::Queued; intents.len()];
    let mut rest = BTreeMap::new();
    while let Some(next) = queue.pop() {
        let intent = &intents[next.index];
        let can_wait = matches!(intent.action, Action::Join(_) | Action::BecomeActive { .. });
        let (answer, remainder) = if observed.stops_when_full && can_wait && working.is_full() {
            (Answer::Queued, Some(intent.clone()))
        } else {
            one(&mut working, &context, intent)
        };
        if answer == Answer::Queued {
            for waiting in queue.hold(&next) {
                rest.insert(waiting, intents[waiting].clone());
            }
        }
        if let Some(remainder) = remainder {
            rest.insert(next.index, remainder);
        }
        answers[next.index] = answer;
    }
    let (inserts, updates, removes) = working.into_changes();
    Applied {
        inserts,
        updates,
        removes,
        answers,
        rest: rest.into_values().collect(),
    }
}

/// Plans one intent and applies it to the working state if it is allowed and fits. Also returns the
/// part that remains for a later commit.
fn one(
    working: &mut Working<'_>,
    context: &Context<'_>,
    intent: &Intent,
) -> (Answer, Option<Intent>) {
    let applied = Answer::Applied {
        version: working.version(),
    };
    if let Action::RemoveDefunct { silos } = &intent.action {
        let removable = retention::removable(working, silos);
        if removable.is_empty() {
            return (Answer::Moot, None);
        }
        let left = working.remove(&removable);
        if left.is_empty() {
            return (applied, None);
        }
        let answer = if left.len() == removable.len() {
            Answer::Queued
        } else {
            applied
        };
        return (
            answer,
            Some(Intent {
                action: Action::RemoveDefunct { silos: left },
                ..intent.clone()
            }),
        );
    }
    let change = match plan(working, context, intent) {
        Planned::Answer(Answer::Queued) => return (Answer::Queued, Some(intent.clone())),
        Planned::Answer(answer) => return (answer, None),
        Planned::Change(change) => change,
    };
    match working.put(change) {
        Ok(()) => (applied, None),
        Err(why) if working.is_untouched() => (Answer::Refused(Refusal::TooLarge(why)), None),
        Err(_) => match alone(working, context, intent) {
            Err(why) => (Answer::Refused(Refusal::TooLarge(why)), None),
            Ok(()) => (Answer::Queued, Some(intent.clone())),
        },
    }
}

/// Checks that an intent that did not fit would fit alone.
fn alone(working: &Working<'_>, context: &Context<'_>, intent: &Intent) -> Result<(), String> {
    let mut alone = working.fresh();
    match plan(&alone, context, intent) {
        Planned::Change(change) => alone.put(change),
        // The answer depends on the rest of this commit; the next commit decides.
        Planned::Answer(_) => Ok(()),
    }
}

fn plan(working: &Working<'_>, context: &Context<'_>, intent: &Intent) -> Planned {
    let author = intent.author;
    match &intent.action {
        Action::Join(entry) => lives::join(working, context, author, entry),
        Action::BecomeActive { silo, contacted } => {
            lives::become_active(working, context, *silo, contacted)
        }
        Action::Suspect {
            suspect,
            votes,
            call,
        } => votes::suspect(working, context, author, *suspect, votes, call.as_ref()),
        Action::Evict { silo, by, reason } => {
            lives::evict(working, context, author, *silo, by, reason)
        }
        Action::BeginShutdown { silo, fast } => lives::begin_shutdown(working, *silo, *fast),
        Action::Leave { silo } => lives::leave(working, context, author, *silo),
        Action::RemoveDefunct { .. } => Planned::Change(Change::default()),
    }
}

/// The next intent to apply.
struct Next {
    index: usize,
    lane: usize,
}

/// The batch in the order of application: one lane per author; the next intent is the most urgent
/// head of a lane.
struct Queue {
    lanes: Vec<VecDeque<Turn>>,
    /// Each with its lane.
    heads: BTreeSet<(Turn, usize)>,
}

/// When an intent has its turn: by class, among activations by how many silos theirs has met, then by index.
/// Whoever has met most is least likely to keep the others out of the commit.
type Turn = (Class, Reverse<usize>, usize);

fn met(action: &Action) -> usize {
    match action {
        Action::BecomeActive { contacted, .. } => contacted.len(),
        _ => 0,
    }
}

impl Queue {
    fn new(working: &Working<'_>, context: &Context<'_>, intents: &[Intent]) -> Self {
        let mut accused: BTreeMap<SiloAddress, votes::Accusations<'_>> = BTreeMap::new();
        for intent in intents {
            if let (
                Some(author),
                Action::Suspect {
                    suspect,
                    votes,
                    call,
                },
            ) = (intent.author, &intent.action)
            {
                accused
                    .entry(*suspect)
                    .or_default()
                    .push((author, votes, call.as_ref()));
            }
        }
        let doomed: BTreeSet<SiloAddress> = accused
            .into_iter()
            .filter(|(suspect, votes)| votes::would_kill(working, context, *suspect, votes))
            .map(|(suspect, _)| suspect)
            .collect();
        let mut by_author = BTreeMap::new();
        let mut lanes: Vec<VecDeque<Turn>> = Vec::new();
        for (index, intent) in intents.iter().enumerate() {
            let class = class(working, &doomed, &intent.action);
            let lane = match intent.author {
                Some(author) if class != Class::Removal => {
                    *by_author.entry(author).or_insert(lanes.len())
                }
                _ => lanes.len(),
            };
            if lane == lanes.len() {
                lanes.push(VecDeque::new());
            }
            let turn = (class, Reverse(met(&intent.action)), index);
            lanes[lane].push_back(turn);
        }
        let heads = lanes
            .iter()
            .enumerate()
            .filter_map(|(lane, q)| q.front().map(|&turn| (turn, lane)))
            .collect();
        Self { lanes, heads }
    }

    fn pop(&mut self) -> Option<Next> {
        let ((_, _, index), lane) = self.heads.pop_first()?;
        self.lanes[lane].pop_front();
        if let Some(&turn) = self.lanes[lane].front() {
            self.heads.insert((turn, lane));
        }
        Some(Next { index, lane })
    }

    /// Removes and returns all later intents of the author of `next`, which has to wait.
    fn hold(&mut self, next: &Next) -> Vec<usize> {
        if let Some(&turn) = self.lanes[next.lane].front() {
            self.heads.remove(&(turn, next.lane));
        }
        self.lanes[next.lane]
            .drain(..)
            .map(|(_, _, index)| index)
            .collect()
    }
}

fn class(working: &Working<'_>, doomed: &BTreeSet<SiloAddress>, action: &Action) -> Class {
    match action {
        Action::Evict { .. } => Class::Death,
        Action::Suspect { suspect, .. } if doomed.contains(suspect) => Class::Death,
        Action::Suspect { .. } => Class::Vote,
        Action::Join(entry)
            if lives::predecessors(working, &entry.address)
                .next()
                .is_some() =>
        {
            Class::Death
        }
        Action::Join(_) => Class::Join,
        Action::Leave { .. } => Class::Leave,
        Action::BeginShutdown { .. } => Class::Shutdown,
        Action::BecomeActive { .. } => Class::Activation,
        Action::RemoveDefunct { .. } => Class::Removal,
    }
}
