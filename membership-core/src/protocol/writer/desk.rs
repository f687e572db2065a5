//! The changes that others ask this silo to write (it is then their scribe). They go through the
//! same queue as its own, so that one commit carries many. Nothing is promised: a silo that hears
//! nothing writes its change itself, and of the two at most one has an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Writer;
use super::early::Early;
use super::vouching::Vouching;
use crate::intent::{Action, Answer, Intent};
use crate::protocol::context::Ctx;
use crate::protocol::forward::{OwnChange, Standing};
use crate::protocol::io::LinkId;
use crate::protocol::message::{MAX_NAMED, Message};
use crate::protocol::observation::{Observation, Unwritten};
use crate::protocol::timers::Timer;
use crate::{InstanceId, IntentId, MembershipEntry, MonoTime, SiloAddress, SiloStatus};

/// How often those whose changes wait are told so.
pub(super) const REPEAT: Duration = Duration::from_millis(500);
/// How long a change may be written after it was taken. Its silo waits for less; and a row is kept for
/// longer after a death, so that no silo comes back whose row has been removed meanwhile (invariant P3).
/// A commit of unknown outcome can be held for as long as the table is away.
const KEPT: Duration = Duration::from_secs(60);
/// How many changes one message may ask for: more than any silo has at a time.
const MOST_OF_ONE: usize = 4;
/// How long a newcomer's address is looked at.
const LOOK: Duration = Duration::from_secs(3);

/// Who asked for a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) by: SiloAddress,
    link: LinkId,
    at: MonoTime,
}

/// A newcomer whose advertised address is being dialled: it must lead to it.
#[derive(Debug)]
struct Newcomer {
    id: IntentId,
    asked: Asked,
    instance: InstanceId,
    join: Action,
    at: MonoTime,
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    asked: BTreeMap<IntentId, Asked>,
    /// By the nonce of the question.
    newcomers: BTreeMap<u64, Newcomer>,
    pub(super) vouching: Vouching,
    pub(super) early: Early,
}

impl Desk {
    pub(super) fn is_open(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> usize {
        self.asked.len() + self.looked_at()
    }

    /// How many changes are not in the queue yet: the table or other silos have to say something first.
    pub(super) fn looked_at(&self) -> usize {
        self.newcomers.len() + self.vouching.len() + self.early.len()
    }

    pub(super) fn has(&self, id: IntentId) -> bool {
        self.asked.contains_key(&id)
            || self.newcomers.values().any(|n| n.id == id)
            || self.vouching.has(id)
            || self.early.has(id)
    }
}

fn receipt(changes: Vec<(IntentId, Standing)>, waiting: usize) -> Message {
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
    Message::Receipt { changes, waiting }
}

/// Counts the changes of one answer that this silo does not write. A message may have many.
fn observe(ctx: &mut Ctx, from: SiloAddress, answer: &[(IntentId, Standing)]) {
    for (standing, why) in [
        (Standing::Refused, Unwritten::Refused),
        (Standing::Elsewhere, Unwritten::Elsewhere),
    ] {
        let changes = answer.iter().filter(|(_, s)| *s == standing).count();
        if changes > 0 {
            ctx.observe(Observation::ChangesTurnedAway { from, changes, why });
        }
    }
}

impl Writer {
    /// Handles changes that a silo asks this one to write. `instance` is the process that the
    /// connection proved; none if it proves nothing. `fit` = this silo is well and stays.
    pub(crate) fn on_forward(
        &mut self,
        ctx: &mut Ctx,
        (link, by): (LinkId, SiloAddress),
        instance: Option<InstanceId>,
        changes: &[(IntentId, OwnChange)],
        fit: bool,
    ) {
        let mut standings = Vec::with_capacity(changes.len());
        let at = ctx.mono();
        let asked = Asked { by, link, at };
        for (at, (id, change)) in changes.iter().enumerate() {
            let fit = fit && at < MOST_OF_ONE;
            let taken =
                self.desk.has(*id) || (fit && self.take_in(ctx, asked, instance, *id, change));
            let standing = if taken {
                Standing::Waiting
            } else {
                Standing::Elsewhere
            };
            standings.push((*id, standing));
        }
        observe(ctx, by, &standings);
        ctx.reply(link, by, receipt(standings, self.desk.waiting()));
        if self.desk.is_open() && !ctx.timers.is_set(Timer::Desk) {
            ctx.set_timer(Timer::Desk, REPEAT);
        }
    }

    fn take_in(
        &mut self,
        ctx: &mut Ctx,
        asked: Asked,
        instance: Option<InstanceId>,
        id: IntentId,
        change: &OwnChange,
    ) -> bool {
        let Some(instance) = instance.filter(|_| self.desk.waiting() < ctx.variant.most_waiting)
        else {
            return false;
        };
        let Some(action) = change.clone().into_action(asked.by, instance) else {
            return false;
        };
        if ctx.is_member(&asked.by, instance) {
            if let OwnChange::BecomeActive { contacted } = change {
                return self.prove(ctx, (id, asked), contacted);
            }
            self.take(ctx, id, asked, action);
            return true;
        }
        if let OwnChange::BecomeActive { contacted } = change {
            return self.hold(ctx, (id, asked), instance, contacted);
        }
        // One dial for each process: a message must not make this silo dial again and again.
        let is_looked_at = |n: &Newcomer| n.instance == instance;
        if !matches!(action, Action::Join(_)) || self.desk.newcomers.values().any(is_looked_at) {
            return false;
        }
        let nonce = ctx.random();
        let newcomer = Newcomer {
            id,
            asked,
            instance,
            join: action,
            at: ctx.mono(),
        };
        self.desk.newcomers.insert(nonce, newcomer);
        ctx.dial_afresh(asked.by.endpoint(), None, Message::Identify { nonce });
        true
    }

    /// Takes a change into the queue.
    pub(super) fn take(&mut self, ctx: &Ctx, id: IntentId, asked: Asked, action: Action) {
        let (now, intent) = (ctx.mono(), Intent::new(id, Some(asked.by), action));
        self.desk.asked.insert(id, asked);
        self.gather(&intent.action, now);
        self.queue.push(intent, now);
    }

    /// Handles the answer of the process at a newcomer's address. Returns true when it was asked for.
    pub(crate) fn on_identity(&mut self, ctx: &mut Ctx, nonce: u64, instance: InstanceId) -> bool {
        let Some(newcomer) = self.desk.newcomers.remove(&nonce) else {
            return false;
        };
        let (id, asked) = (newcomer.id, newcomer.asked);
        if newcomer.instance == instance {
            self.take(ctx, id, asked, newcomer.join);
        } else {
            self.say(ctx, asked, id, Standing::Elsewhere);
        }
        true
    }

    /// Whether others have asked this silo to write.
    pub(crate) fn writes_for_others(&self) -> bool {
        self.desk.is_open()
    }

    /// Whether somebody else asked for this change.
    pub(super) fn is_for_others(&self, id: IntentId) -> bool {
        self.desk.asked.contains_key(&id)
    }

    /// Sends back those of these changes that were taken long ago, and the joins that would end a row of
    /// another machine: its owner may be alive, and only the newcomer itself has watched that row. A row
    /// of the newcomer's own machine needs no watching: the newcomer is at its address, as this silo has
    /// seen. Unless the former process has just `answered` this silo.
    pub(super) fn send_back(
        &mut self,
        ctx: &mut Ctx,
        batch: Vec<Intent>,
        answered: &BTreeSet<SiloAddress>,
    ) -> Vec<Intent> {
        if self.desk.asked.is_empty() {
            return batch;
        }
        let ends_another = |intent: &Intent| match &intent.action {
            Action::Join(entry) => ctx.base.as_ref().is_some_and(|view| {
                let rows = view.snapshot().rows.at_endpoint(entry.address.endpoint());
                let is_of_another = |e: &MembershipEntry| {
                    e.info.host_name != entry.info.host_name || answered.contains(&e.address)
                };
                let mut others = rows
                    .into_iter()
                    .filter(|e| e.status != SiloStatus::Dead && e.instance_id != entry.instance_id);
                others.any(is_of_another)
            }),
            _ => false,
        };
        let now = ctx.mono();
        let goes_back = |intent: &Intent| {
            let asked = self.desk.asked.get(&intent.id);
            asked.is_some_and(|asked| now.since(asked.at) >= KEPT || ends_another(intent))
        };
        let (back, rest): (Vec<_>, Vec<_>) = batch.into_iter().partition(goes_back);
        for intent in back {
            if let Some(asked) = self.desk.asked.remove(&intent.id) {
                self.say(ctx, asked, intent.id, Standing::Elsewhere);
            }
        }
        rest
    }

    /// Tells who asked for a change what has become of it. Returns true if somebody else did.
    pub(crate) fn answer_others(&mut self, ctx: &mut Ctx, id: IntentId, answer: &Answer) -> bool {
        self.courier.forget(id);
        let Some(asked) = self.desk.asked.remove(&id) else {
            return false;
        };
        let standing = match answer {
            Answer::Applied { version } => Standing::Written { version: *version },
            Answer::Moot => Standing::Moot,
            Answer::Refused(_) => Standing::Refused,
            Answer::Queued => Standing::Waiting,
        };
        self.say(ctx, asked, id, standing);
        true
    }

    pub(super) fn say(&self, ctx: &mut Ctx, asked: Asked, id: IntentId, standing: Standing) {
        let answer = vec![(id, standing)];
        observe(ctx, asked.by, &answer);
        let message = receipt(answer, self.desk.waiting());
        ctx.reply(asked.link, asked.by, message);
    }

    /// Tells everybody whose change waits that it does, and gives up on newcomers whose address does
    /// not answer.
    pub(crate) fn on_desk_timer(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let late: Vec<u64> = self
            .desk
            .newcomers
            .iter()
            .filter(|(_, n)| now.since(n.at) >= LOOK)
            .map(|(nonce, _)| *nonce)
            .collect();
        for nonce in late {
            if let Some(newcomer) = self.desk.newcomers.remove(&nonce) {
                self.say(ctx, newcomer.asked, newcomer.id, Standing::Elsewhere);
            }
        }
        for (id, asked) in self.desk.early.late(now) {
            self.say(ctx, asked, id, Standing::Elsewhere);
        }
        let newcomers = self.desk.newcomers.values().map(|n| (n.id, n.asked));
        let all = self.desk.asked.iter().map(|(id, asked)| (*id, *asked));
        let all: Vec<_> = all
            .chain(newcomers)
            .chain(self.desk.vouching.all())
            .chain(self.desk.early.all())
            .collect();
        // One message to each, however many of its changes wait.
        let mut told: BTreeMap<LinkId, (SiloAddress, Vec<_>)> = BTreeMap::new();
        for (id, asked) in all {
            let (_, changes) = told.entry(asked.link).or_insert((asked.by, Vec::new()));
            if changes.len() < MAX_NAMED {
                changes.push((id, Standing::Waiting));
            }
        }
        let waiting = self.desk.waiting();
        for (link, (by, changes)) in told {
            ctx.reply(link, by, receipt(changes, waiting));
        }
        if self.desk.is_open() {
            self.desk.vouching.forget_others(ctx);
            ctx.set_timer(Timer::Desk, REPEAT);
        } else {
            self.desk.vouching.clear();
        }
    }

    /// Gives the changes of others back that are not in a commit yet: this silo is unwell, was
    /// paused, or leaves.
    pub(crate) fn hand_back(&mut self, ctx: &mut Ctx) {
        if !self.desk.is_open() {
            return;
        }
        for (_, newcomer) in std::mem::take(&mut self.desk.newcomers) {
            self.say(ctx, newcomer.asked, newcomer.id, Standing::Elsewhere);
        }
        let early = self.desk.early.clear();
        for (id, asked) in self.desk.vouching.clear().into_iter().chain(early) {
            self.say(ctx, asked, id, Standing::Elsewhere);
        }
        let under_way = self.under_way();
        let asked = std::mem::take(&mut self.desk.asked);
        let (kept, back): (BTreeMap<_, _>, BTreeMap<_, _>) = asked
            .into_iter()
            .partition(|(id, _)| under_way.contains(id));
        self.desk.asked = kept;
        self.queue.drop_all(|id| back.contains_key(&id));
        for (id, asked) in back {
            self.say(ctx, asked, id, Standing::Elsewhere);
        }
    }

    /// The changes in a commit that was sent and whose outcome is not known.
    fn under_way(&self) -> std::collections::BTreeSet<IntentId> {
        let sent = match &self.exchange {
            Some(super::Exchange::Commit { commit, .. }) => Some(commit),
            _ => None,
        };
        let sent = sent.into_iter().chain(&self.unsettled);
        sent.flat_map(|s| s.batch.iter().map(|i| i.id)).collect()
    }
}
