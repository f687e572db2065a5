//! Two-way contact before a silo becomes Active: which silos it must reach, which of them answer,
//! and which of them dialled its advertised address. Invariant P9.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::callers::Met;
use super::context::Ctx;
use super::meeting_pace::{Pace, SLOT};
use super::message::Message;
use super::prober::Prober;
use super::roll_call::refusal;
use super::unreached::Unreached;
use crate::intent::Checks;
use crate::model::place::place;
use crate::{ClusterView, Heartbeats, MAX_SAFE_INTEGER, MonoTime, SiloAddress, SiloStatus};

/// A silo that does not answer and whose heartbeat is older than this by this silo's clock need not
/// be reached.
const ABANDONED: Duration = Duration::from_secs(15 * 60);

/// For how long others that join as well are waited for, for each unit of time by which this silo's timers
/// were late, and the most.
const OTHERS_PER_LAG: u32 = 10;
const MOST_FOR_OTHERS: Duration = Duration::from_secs(15);

/// How often in a row a machine must have refused connections before its silo counts as silent.
const REFUSALS: u32 = 2;

#[derive(Debug)]
struct Contact {
    answers: bool,
    dials: bool,
    /// What it told over its own connection to this silo, if it tells words.
    word: Option<u64>,
    nonce: u64,
    /// The nonce of its own request, if it came with a word: it says so again when it has the answer.
    theirs: Option<u64>,
    /// It was told a word with the request.
    meets: bool,
    /// When the first attempt was made, and the last.
    since: MonoTime,
    tried: MonoTime,
    /// The time of the next attempt, and the wait before it.
    next: (MonoTime, Duration),
    /// Whether there was an attempt. In the first, the silo is only asked to dial back, which shows
    /// both directions; in later ones it is probed first, so that reports can tell them apart.
    again: bool,
    error: Option<String>,
    /// How often in a row its machine has refused a connection.
    refused: u32,
}

impl Contact {
    const fn new(nonce: u64, now: MonoTime, retry: Duration) -> Self {
        Self {
            answers: false,
            dials: false,
            word: None,
            nonce,
            theirs: None,
            meets: false,
            since: now,
            tried: now,
            next: (now, retry),
            again: false,
            error: None,
            refused: 0,
        }
    }

    const fn is_two_way(&self) -> bool {
        self.answers && self.dials
    }

    /// Whether it was never tried, and has not come by itself.
    const fn is_untried(&self) -> bool {
        !self.again && !self.is_two_way()
    }

    /// Whether the last attempt may still succeed soon.
    fn is_under_way(&self, ctx: &Ctx) -> bool {
        let tried = self.again && ctx.mono().since(self.tried) < ctx.patience(SLOT);
        tried && !self.is_two_way() && self.refused == 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Contacts {
    all: BTreeMap<SiloAddress, Contact>,
    /// The missing silo that was found last. While it is missing, no other silo is checked.
    missing: Option<SiloAddress>,
    frame: Option<Frame>,
    /// The check set, which follows the view.
    checks: Option<Checks>,
    pace: Pace,
}

/// Whom a silo must reach in a large cluster; none = everybody.
type Set = Option<BTreeSet<SiloAddress>>;

/// Whom this silo must reach, by one version.
#[derive(Debug)]
struct Frame {
    version: u64,
    /// Since when it is this version.
    since: MonoTime,
    /// Whom it must reach in a large cluster; none = everybody.
    set: Set,
    /// Those of the set that are Active, by address, where the view may be an announced one; none =
    /// the confirmed ones.
    active: Option<Vec<SiloAddress>>,
    /// The view from which both are still to be drawn.
    undrawn: Option<ClusterView>,
}

/// How long a joining silo keeps to one announced view before it follows the next.
const FOLLOW: Duration = Duration::from_millis(50);

/// The evidence that an Active silo need not be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedOver<'a> {
    /// Silos whose heartbeat this silo sees as stale.
    pub(crate) stale: &'a BTreeSet<SiloAddress>,
    /// The heartbeats of the last read.
    pub(crate) beats: &'a Heartbeats,
    /// Challenged silos that have written no heartbeat since, if nobody who is Active writes any.
    pub(crate) challenged: &'a BTreeSet<SiloAddress>,
}

impl Contacts {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.missing = None;
        self.frame = None;
        self.checks = None;
        self.pace = Pace::default();
    }

    /// Forgets whom this silo has met.
    pub(crate) fn forget(&mut self) {
        self.all.clear();
    }

    /// Handles the answer to a probe. Returns true when the probe was one of a contact.
    pub(crate) fn on_ack(&mut self, ctx: &mut Ctx, from: SiloAddress, nonce: u64) -> bool {
        let is_it = |c: &&mut Contact| c.nonce == nonce || c.theirs == Some(nonce);
        let Some(contact) = self.all.get_mut(&from).filter(is_it) else {
            return false;
        };
        if !contact.answers && !contact.dials {
            ask_to_dial(ctx, from, nonce);
        }
        contact.answers = true;
        contact.refused = 0;
        true
    }

    /// Handles the answer to a request to dial this silo: each reaches the other. Returns, when it
    /// belongs to a contact, whether that silo was told a word with the request.
    pub(crate) fn on_dial_back(
        &mut self,
        from: SiloAddress,
        nonce: u64,
        word: Option<u64>,
        now: MonoTime,
    ) -> Option<bool> {
        let contact = self.all.get_mut(&from).filter(|c| c.nonce == nonce)?;
        if !contact.is_two_way() {
            self.pace.on_success(now.since(contact.tried));
        }
        contact.answers = true;
        contact.dials = true;
        contact.word = contact.word.or(word);
        contact.refused = 0;
        Some(contact.meets)
    }

    /// A silo that joins as well has dialled this one and told its word, and this one has dialled it:
    /// what is missing is that it says so.
    pub(crate) fn on_met(&mut self, ctx: &mut Ctx, met: Met, retry: Duration) {
        let (now, nonce) = (ctx.mono(), ctx.random());
        let new = || Contact::new(nonce, now, retry / 2);
        let contact = self.all.entry(met.silo).or_insert_with(new);
        contact.dials = true;
        contact.word = contact.word.or(Some(met.word));
        contact.theirs = Some(met.nonce);
        if contact.is_untried() {
            (contact.again, contact.since, contact.tried) = (true, now, now);
            contact.next = (now + retry, retry);
        }
    }

    pub(crate) fn on_send_failed(&mut self, to: SocketAddr, reason: &str, refused: bool) {
        let incarnations = SiloAddress::at(to, 0)..=SiloAddress::at(to, MAX_SAFE_INTEGER);
        for (_, contact) in self.all.range_mut(incarnations) {
            contact.error = Some(reason.to_owned());
            contact.refused = if refused {
                contact.refused.saturating_add(1)
            } else {
                0
            };
        }
    }

    /// Active silos whose last heartbeat is so old by this silo's clock that they need not be
    /// reached. The clock alone proves nothing: they must also have left this silo's attempts
    /// unanswered for a failure window.
    pub(crate) fn abandoned(&self, ctx: &Ctx, passed: &PassedOver<'_>) -> BTreeSet<SiloAddress> {
        ctx.members
            .active
            .iter()
            .filter(|s| self.is_abandoned(ctx, passed, s))
            .copied()
            .collect()
    }

    fn is_abandoned(&self, ctx: &Ctx, passed: &PassedOver<'_>, silo: &SiloAddress) -> bool {
        let old = passed
            .beats
            .silos
            .get(silo)
            .is_some_and(|beat| ctx.now.wall.since(beat.at) > ABANDONED);
        old && self
            .all
            .get(silo)
            .is_some_and(|c| !c.answers && ctx.mono().since(c.since) >= ctx.failure_window())
    }

    /// Finds out whom this silo must reach, if the view has moved. Returns whether that is somebody
    /// whom it has not tried to reach. Where one silo writes for many, an announced view counts: hundreds
    /// of views follow each other before one is confirmed, and contact with the wrong silos makes nobody
    /// Active, because whoever writes the activation verifies the contacts by what the table has.
    ///
    /// While this silo's row is not in the table it contacts nobody, and only remembers the view.
    pub(crate) fn follow(&mut self, ctx: &Ctx, is_contacting: bool) -> bool {
        let Some(limit) = ctx.variant.full_check_limit else {
            return false;
        };
        let Some(view) = roster(ctx) else {
            return false;
        };
        let (now, version) = (ctx.mono(), view.version());
        let scribe = ctx.variant.scribe;
        let is_old = |f: &Frame| {
            f.version != version && (!scribe || now.since(f.since) >= FOLLOW || f.version > version)
        };
        if self.frame.as_ref().is_some_and(|f| !is_old(f)) {
            if is_contacting {
                self.draw_last(ctx);
            }
            return false;
        }
        if !is_contacting {
            self.frame = Some(Frame {
                version,
                since: now,
                set: None,
                active: None,
                undrawn: Some(view.clone()),
            });
            self.missing = None;
            return false;
        }
        let (set, active) = self.draw(ctx, view, limit);
        let is_new = |silo: &SiloAddress| self.all.get(silo).is_none_or(Contact::is_untried);
        let anybody = match (&set, &active) {
            (Some(set), _) => set.iter().any(is_new),
            (None, Some(active)) => active.iter().any(is_new),
            (None, None) => ctx.members.active.iter().any(is_new),
        };
        self.frame = Some(Frame {
            version,
            since: now,
            set,
            active,
            undrawn: None,
        });
        self.missing = None;
        anybody
    }

    /// Finds out whom this silo must reach by the view that it has only remembered.
    pub(crate) fn draw_last(&mut self, ctx: &Ctx) {
        let undrawn = self.frame.as_mut().and_then(|f| f.undrawn.take());
        if let Some((view, limit)) = undrawn.zip(ctx.variant.full_check_limit) {
            let (set, active) = self.draw(ctx, &view, limit);
            if let Some(frame) = &mut self.frame {
                (frame.set, frame.active) = (set, active);
            }
        }
    }

    /// Whom this silo must reach by this view, and those of them that are Active.
    fn draw(
        &mut self,
        ctx: &Ctx,
        view: &ClusterView,
        limit: usize,
    ) -> (Set, Option<Vec<SiloAddress>>) {
        let rows = &view.snapshot().rows;
        match &mut self.checks {
            Some(checks) => checks.follow(rows),
            None => self.checks = Some(Checks::of(rows, &ctx.me)),
        }
        let set = self.checks.as_ref().and_then(|checks| checks.set(limit));
        let active = ctx.variant.scribe.then(|| match &set {
            Some(set) => {
                let is = |s: &&SiloAddress| view.status(s) == Some(SiloStatus::Active);
                set.iter().filter(is).copied().collect::<Vec<_>>()
            }
            None => view.active().map(|e| e.address).collect(),
        });
        (set, active)
    }

    /// Whether the view is newer than the one that says whom this silo must reach.
    pub(crate) fn is_behind(&self, ctx: &Ctx) -> bool {
        self.frame
            .as_ref()
            .is_some_and(|f| f.version < ctx.version())
    }

    /// The Active silos of which this silo must reach those that are required.
    fn actives<'a>(&'a self, ctx: &'a Ctx) -> &'a [SiloAddress] {
        let announced = self.frame.as_ref().and_then(|f| f.active.as_deref());
        announced.unwrap_or(&ctx.members.active)
    }

    /// Whether this silo is one of those that a joining one contacts.
    fn is_in_set(&self, silo: &SiloAddress) -> bool {
        let set = self.frame.as_ref().and_then(|f| f.set.as_ref());
        set.is_none_or(|set| set.contains(silo))
    }

    /// Whether this silo must reach an Active silo.
    fn is_required(&self, ctx: &Ctx, passed: &PassedOver<'_>, silo: &SiloAddress) -> bool {
        !silo.same_endpoint(&ctx.me)
            && self.is_in_set(silo)
            && !passed.stale.contains(silo)
            && !passed.challenged.contains(silo)
            && !self.is_abandoned(ctx, passed, silo)
    }

    /// The Active silos that this silo must reach and does not, if no Active silo has answered it
    /// for a failure window, or all refuse connections: each with when it was first tried, as the
    /// suspects of a roll call.
    pub(crate) fn silent(
        &self,
        ctx: &Ctx,
        prober: &Prober,
        passed: &PassedOver<'_>,
    ) -> BTreeMap<SiloAddress, (MonoTime, bool)> {
        let (now, window) = (ctx.mono(), ctx.failure_window());
        let mut silent = BTreeMap::new();
        for silo in ctx
            .members
            .active
            .iter()
            .filter(|s| !s.same_endpoint(&ctx.me))
        {
            if prober.answered_within(silo, now, window) {
                return BTreeMap::new();
            }
            // It has become Active since it was contacted both ways.
            if self.all.get(silo).is_some_and(|c| c.is_two_way()) {
                continue;
            }
            let tried = self.all.get(silo).filter(|c| {
                let refuses = c.refused >= REFUSALS && now.since(c.since) >= refusal(ctx);
                refuses || now.since(c.since) >= window
            });
            let Some(since) = tried.map(|c| c.since) else {
                // A silo that has just become Active gets its time, too.
                if self.is_required(ctx, passed, silo) {
                    return BTreeMap::new();
                }
                continue;
            };
            if self.is_required(ctx, passed, silo) {
                silent.insert(*silo, (since, false));
            }
        }
        silent
    }

    /// Whether the machine of a silo refuses connections.
    pub(crate) fn refuses(&self, silo: &SiloAddress) -> bool {
        self.all.get(silo).is_some_and(|c| c.refused >= REFUSALS)
    }

    /// All silos that this silo must reach: the Active silos that are not stale.
    pub(crate) fn required(&self, ctx: &Ctx, passed: &PassedOver<'_>) -> BTreeSet<SiloAddress> {
        self.actives(ctx)
            .iter()
            .filter(|s| self.is_required(ctx, passed, s))
            .copied()
            .collect()
    }

    /// The Active silos that this one must reach, has tried to reach for this time, and has no two-way
    /// contact with.
    pub(crate) fn unmet<'a>(
        &'a self,
        ctx: &'a Ctx,
        passed: &'a PassedOver<'a>,
        least: Duration,
    ) -> impl Iterator<Item = SiloAddress> + 'a {
        let is_unmet = move |silo: &SiloAddress| {
            let contact = self.all.get(silo).filter(|c| !c.is_two_way());
            contact.is_some_and(|c| !c.answers && ctx.mono().since(c.since) >= least)
                && self.is_required(ctx, passed, silo)
        };
        let active = ctx.members.active.iter().copied();
        active.filter(is_unmet)
    }

    /// How many silos this one has two-way contact with.
    pub(crate) fn met(&self) -> usize {
        self.all.values().filter(|c| c.is_two_way()).count()
    }

    /// Whether this silo, while it joins, leaves out an Active one that it would have to reach, by what it
    /// has seen itself.
    pub(crate) fn leaves_any_out(&self, ctx: &Ctx, passed: &PassedOver<'_>) -> bool {
        let is_met = |s: &SiloAddress| self.all.get(s).is_some_and(|c| c.is_two_way());
        let is_left_out = |s: &&SiloAddress| {
            !s.same_endpoint(&ctx.me)
                && self.is_in_set(s)
                && !is_met(s)
                && !self.is_required(ctx, passed, s)
        };
        self.actives(ctx).iter().any(|s| is_left_out(&s))
    }

    /// Whether two-way contact with any required silo is missing. Called after every input. The
    /// search starts at the silo that was found missing last, so that all calls during a join
    /// together cost about one pass over the Active silos.
    pub(crate) fn lacks_any(&mut self, ctx: &Ctx, passed: &PassedOver<'_>) -> bool {
        let active = self.actives(ctx);
        let lacks = |s: &SiloAddress| {
            self.all.get(s).is_none_or(|c| !c.is_two_way()) && self.is_required(ctx, passed, s)
        };
        let from = self
            .missing
            .map_or(0, |last| active.partition_point(|s| *s < last));
        let found = active[from..]
            .iter()
            .chain(&active[..from])
            .find(|s| lacks(s))
            .copied();
        self.missing = found;
        found.is_some()
    }

    /// Dials every silo without two-way contact. This includes other Joining silos, which do not
    /// delay this join, and silos that were passed over, because an answer makes them required
    /// again. The wait before the next attempt starts at `retry` and doubles up to two probe
    /// periods. This limits the load when a large cluster joins over the rows of crashed silos, or a
    /// silo that loses most messages tries to reach all of a large one. Invariant P15.
    pub(crate) fn try_again(
        &mut self,
        ctx: &mut Ctx,
        required: &BTreeSet<SiloAddress>,
        retry: Duration,
    ) {
        let Some(view) = roster(ctx).cloned() else {
            return;
        };
        let mine = place(&ctx.me);
        let tried_before = |s: &SiloAddress| self.all.contains_key(s);
        let is_wanted = |silo: &SiloAddress, status: Option<SiloStatus>| match status {
            Some(SiloStatus::Joining) => *silo != ctx.me && self.is_in_set(silo),
            Some(SiloStatus::Active) => required.contains(silo) || tried_before(silo),
            _ => false,
        };
        let set = self.frame.as_ref().and_then(|f| f.set.as_ref());
        let wanted: BTreeSet<SiloAddress> = match set.filter(|_| ctx.variant.scribe) {
            Some(set) => {
                let some = set.iter().chain(self.all.keys()).copied();
                some.filter(|s| is_wanted(s, view.status(s))).collect()
            }
            None => {
                let all = view.members().map(|e| (e.address, Some(e.status)));
                all.filter(|(s, status)| is_wanted(s, *status))
                    .map(|(s, _)| s)
                    .collect()
            }
        };
        // Otherwise each has a set of its own.
        let everybody = set.is_none();
        let now = ctx.mono();
        let wanted = self.in_order(ctx, &view, wanted);
        let mut free = if ctx.variant.scribe {
            self.free(ctx)
        } else {
            usize::MAX
        };
        self.pace.is_full = false;
        for silo in wanted {
            let nonce = ctx.random();
            let new = || Contact::new(nonce, now, retry / 2);
            let contact = self.all.entry(silo).or_insert_with(new);
            let joins = ctx.variant.scribe && view.status(&silo) == Some(SiloStatus::Joining);
            if contact.is_two_way() || now < contact.next.0 {
                continue;
            }
            // Of two that join and have to meet, one asks, and tells its word. The other one asks when
            // it becomes Active first: until then neither waits for the other.
            if joins && everybody && !contact.again && place(&silo) < mine {
                continue;
            }
            if free == 0 {
                self.pace.is_full = true;
                break;
            }
            free -= 1;
            if !contact.again {
                contact.since = now;
            } else if ctx.variant.scribe {
                self.pace.on_failure(now);
            }
            contact.tried = now;
            let longest = (ctx.config.probe_period * 2).max(retry);
            let wait = (contact.next.1 * 2).min(longest);
            contact.next = (now + ctx.patience(wait), wait);
            // A silo that answers is dialled as well: it is not stale while it answers, and the
            // join waits until it reaches this silo.
            let again = std::mem::replace(&mut contact.again, true);
            let (nonce, asks) = (contact.nonce, contact.answers || !again);
            if again {
                ctx.send_to(silo, Message::Probe { nonce });
            }
            if asks && !contact.dials {
                contact.meets = joins;
                if joins {
                    let (endpoint, word) = (ctx.identity.advertise, ctx.words.for_silo(&silo));
                    let meet = Message::Meet {
                        nonce,
                        endpoint,
                        word,
                    };
                    ctx.send_to(silo, meet);
                } else {
                    ask_to_dial(ctx, silo, nonce);
                }
            }
        }
    }

    /// Whether somebody was not asked because too many others had just been, and there is room now.
    pub(crate) fn may_go_on(&self, ctx: &Ctx) -> bool {
        self.pace.is_full && self.free(ctx) > 0
    }

    /// How many more may be asked now.
    fn free(&self, ctx: &Ctx) -> usize {
        let under_way = self.all.values().filter(|c| c.is_under_way(ctx));
        self.pace
            .free(under_way.count(), ctx.lag.recent(ctx.mono()))
    }

    /// The order in which silos are asked, of which not all are at once where one silo writes for many:
    /// first those that were not asked yet, of them those that must be reached, and each silo begins
    /// with its own neighbours, so that not all ask the same ones.
    fn in_order(
        &self,
        ctx: &Ctx,
        view: &ClusterView,
        wanted: BTreeSet<SiloAddress>,
    ) -> Vec<SiloAddress> {
        let mut wanted: Vec<SiloAddress> = wanted.into_iter().collect();
        if ctx.variant.scribe {
            let mine = place(&ctx.me);
            wanted.sort_by_cached_key(|silo| {
                let again = self.all.get(silo).is_some_and(|c| c.again);
                let joins = view.status(silo) == Some(SiloStatus::Joining);
                (again, joins, place(silo).wrapping_sub(mine))
            });
        }
        wanted
    }

    /// Whether this silo waits for contact with others that join as well, though it need not have it: on a
    /// busy machine contact takes seconds, and each of those that becomes Active first would have all
    /// others refused that have not met it. Not for long, and not at all where timers are in time.
    pub(crate) fn waits_for_others(&self, ctx: &Ctx, since: MonoTime) -> bool {
        let patience = ctx.lag.slack(ctx.mono(), OTHERS_PER_LAG, MOST_FOR_OTHERS);
        if !ctx.variant.scribe || ctx.mono().since(since) >= patience {
            return false;
        }
        let met = |s: &SiloAddress| {
            let contact = self.all.get(s);
            contact.is_some_and(|c| c.is_two_way() || c.refused > 0)
        };
        let mut joining = ctx.members.joining.iter();
        joining.any(|s| !s.same_endpoint(&ctx.me) && self.is_in_set(s) && !met(s))
    }

    /// The word of a silo with two-way contact.
    pub(crate) fn word(&self, silo: &SiloAddress) -> Option<u64> {
        self.all.get(silo)?.word
    }

    /// All silos with two-way contact.
    pub(crate) fn both_ways(&self) -> Vec<SiloAddress> {
        self.all
            .iter()
            .filter(|(_, c)| c.is_two_way())
            .map(|(s, _)| *s)
            .collect()
    }

    pub(crate) fn unreached(&self, required: &BTreeSet<SiloAddress>) -> Vec<Unreached> {
        required
            .iter()
            .filter_map(|s| {
                let c = self.all.get(s);
                let (i_reach_it, it_reaches_me) =
                    (c.is_some_and(|c| c.answers), c.is_some_and(|c| c.dials));
                let last_error = c.and_then(|c| c.error.clone());
                (!(i_reach_it && it_reaches_me)).then_some(Unreached {
                    silo: *s,
                    i_reach_it,
                    it_reaches_me,
                    last_error,
                })
            })
            .collect()
    }
}

/// The view by which a joining silo makes contact.
const fn roster(ctx: &Ctx) -> Option<&ClusterView> {
    if ctx.variant.scribe {
        ctx.view.as_ref()
    } else {
        ctx.base.as_ref()
    }
}

/// Asks a silo to dial the advertised address of this one.
fn ask_to_dial(ctx: &mut Ctx, silo: SiloAddress, nonce: u64) {
    let endpoint = ctx.identity.advertise;
    ctx.send_to(silo, Message::DialMe { nonce, endpoint });
}
