//! What a member does for another one that takes a process in: it asks at the advertised address, too.
//! One member alone may reach a process that nobody else does, as one in a container beside it.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};

use super::admission::AGAIN;
use super::context::{Ctx, Timer};
use super::message::{Header, Message, Refusal};

/// How long a process may take to answer, before others hear that it is not reached.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long those that are asked may take: one that has ended says nothing, and counts for nobody. Who
/// does not reach the process must be heard in that time: it says so within `STEP` after `ANSWER_TIME`.
const VOUCH_TIME: Duration = Duration::from_secs(3);
/// Time between two looks at what is not answered.
const STEP: Duration = Duration::from_millis(200);
/// The most questions at a time. For one more the oldest is dropped.
const MAX_QUESTIONS: usize = 4_096;
/// The most that one member may have open, so that it cannot make this one flood others, nor crowd out
/// what others ask. One more is not heard: who asks takes that for silence.
const MAX_OF_ONE: usize = 1_024;

/// Questions of other members that are not answered yet, by who asks and its nonce.
#[derive(Debug, Default)]
pub(crate) struct Vouchers {
    questions: BTreeMap<(SiloAddress, u64), Question>,
}

#[derive(Debug)]
struct Question {
    joiner: SiloAddress,
    /// Not the nonce of who asks: the joiner has heard that one.
    nonce: u64,
    since: MonoTime,
    asked: MonoTime,
}

impl Vouchers {
    /// A member wants to know whether this one reaches a process.
    pub(crate) fn on_vouch(
        &mut self,
        ctx: &mut Ctx,
        asker: SiloAddress,
        joiner: SiloAddress,
        asked: u64,
    ) {
        let (now, key) = (ctx.mono(), (asker, asked));
        let of_asker = self.questions.range((asker, 0)..=(asker, u64::MAX));
        if self.questions.contains_key(&key) || of_asker.count() >= MAX_OF_ONE {
            return;
        }
        if self.questions.len() >= MAX_QUESTIONS {
            let oldest = self.questions.iter().min_by_key(|(_, q)| q.since);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.questions.remove(&oldest);
            }
        }
        if self.questions.is_empty() {
            ctx.timers.set(Timer::Vouch, now + STEP);
        }
        let nonce = ctx.random();
        let question = Question {
            joiner,
            nonce,
            since: now,
            asked: now,
        };
        self.questions.insert(key, question);
        ctx.send_afresh(joiner.endpoint(), Message::Identify { nonce });
    }

    /// Asks those once more that have not answered, and says who did not in time.
    pub(crate) fn look(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        self.questions.retain(|(asker, asked), question| {
            if now.since(question.since) >= ANSWER_TIME {
                say(ctx, *asker, *asked, false);
                return false;
            }
            if now.since(question.asked) >= AGAIN {
                question.asked = now;
                let nonce = question.nonce;
                ctx.send_afresh(question.joiner.endpoint(), Message::Identify { nonce });
            }
            true
        });
        if !self.questions.is_empty() {
            ctx.timers.set(Timer::Vouch, now + STEP);
        }
    }

    /// This process did not run, or not in time: what it did not hear in that time proves nothing.
    pub(crate) fn paused(&mut self, now: MonoTime, late: Duration) {
        for question in self.questions.values_mut() {
            question.since = now.min(question.since + late);
        }
    }

    /// The process at an endpoint says who it is; whether a question of this member was answered.
    pub(crate) fn on_identity(&mut self, ctx: &mut Ctx, header: &Header, nonce: u64) -> bool {
        let mut questions = self.questions.iter();
        let asked = questions.find(|(_, question)| question.nonce == nonce);
        let Some((key, joiner)) = asked.map(|(key, question)| (*key, question.joiner)) else {
            return false;
        };
        self.questions.remove(&key);
        say(ctx, key.0, key.1, header.from == joiner);
        true
    }
}

fn say(ctx: &mut Ctx, asker: SiloAddress, nonce: u64, reached: bool) {
    ctx.send(asker, Message::Vouched { nonce, reached });
}

/// If most of those that are asked do not reach a joiner, further ones are asked, in all so many times as
/// many: a few broken links must not decide.
const FURTHER: u32 = 3;

/// What the members that were asked say about a joiner.
#[derive(Debug)]
pub(crate) struct Votes {
    asked: Vec<SiloAddress>,
    /// Whom to ask if those do not reach it.
    further: Vec<SiloAddress>,
    since: MonoTime,
    said: BTreeMap<SiloAddress, bool>,
}

impl Votes {
    /// Asks whether others reach a joiner.
    pub(crate) fn ask(ctx: &mut Ctx, joiner: SiloAddress, data_centre: &str, nonce: u64) -> Self {
        let further = chosen(ctx, &joiner, data_centre);
        let mut votes = Self {
            asked: Vec::new(),
            further,
            since: ctx.mono(),
            said: BTreeMap::new(),
        };
        votes.ask_further(ctx, joiner, nonce, ctx.config.relayed_heartbeats as usize);
        votes
    }

    fn ask_further(&mut self, ctx: &mut Ctx, joiner: SiloAddress, nonce: u64, count: usize) {
        self.since = ctx.mono();
        for member in self.further.drain(..count.min(self.further.len())) {
            ctx.send(member, Message::Vouch { joiner, nonce });
            self.asked.push(member);
        }
    }

    /// Whether a majority reaches the joiner, once that is known: if those asked first do not, after
    /// further ones were asked.
    pub(crate) fn settle(
        &mut self,
        ctx: &mut Ctx,
        joiner: SiloAddress,
        nonce: u64,
    ) -> Option<Result<(), Refusal>> {
        let verdict = self.verdict(ctx.mono().since(self.since) >= VOUCH_TIME);
        if matches!(verdict, Some(Err(_))) && !self.further.is_empty() {
            self.ask_further(ctx, joiner, nonce, usize::MAX);
            return None;
        }
        verdict
    }

    /// This process did not run, and what others say waits for it.
    pub(crate) fn paused(&mut self, now: MonoTime, late: Duration) {
        self.since = now.min(self.since + late);
    }

    pub(crate) fn on_vouched(&mut self, from: SiloAddress, reached: bool) {
        if self.asked.contains(&from) {
            self.said.entry(from).or_insert(reached);
        }
    }

    fn count(&self, reached: bool) -> usize {
        self.said.values().filter(|said| **said == reached).count()
    }

    /// Whether a majority reaches the joiner, the member that asks included; of those that have spoken
    /// when the `time_is_up`, and none before the silent cannot change it.
    fn verdict(&self, time_is_up: bool) -> Option<Result<(), Refusal>> {
        let (yes, no) = (self.count(true) + 1, self.count(false));
        let silent = if time_is_up {
            0
        } else {
            self.asked.len() + 1 - yes - no
        };
        if yes > no + silent {
            Some(Ok(()))
        } else if yes + silent <= no {
            Some(Err(Refusal::NotReached {
                by: no,
                of: yes + no,
            }))
        } else {
            None
        }
    }
}

/// Who is asked whether it reaches a joiner: members of its data centre, which will watch it, that serve
/// and are reached; the same for each attempt while they stay. A cluster that has not begun has none.
fn chosen(ctx: &Ctx, joiner: &SiloAddress, data_centre: &str) -> Vec<SiloAddress> {
    let count = ctx.config.relayed_heartbeats * FURTHER;
    if count == 0 {
        return Vec::new();
    }
    let state = ctx.gossip.state();
    let unreachable = ctx.scope().unreachable(state);
    let may_vouch = |address: &SiloAddress| {
        *address != ctx.me && !address.same_endpoint(joiner) && !unreachable.contains(address)
    };
    let members = state.members().iter();
    let serving = members.filter(|m| m.serves() && m.data_centre() == data_centre);
    let others: Vec<_> = serving.map(|m| m.address()).filter(may_vouch).collect();
    membership_core::protocol::successors(joiner, &others, count)
}

#[cfg(test)]
mod tests {
    use membership_core::{InstanceId, SiloInfo};

    use super::*;
    use crate::protocol::Setup;
    use crate::state::Profile;

    /// Verdicts about a joiner of which some say that they reach it, of those asked.
    #[test]
    fn a_majority_of_the_asker_and_those_who_speak_decides() {
        let address = |n: u32| SiloAddress::at((n.to_be_bytes(), 7100).into(), 1);
        let verdict = |asked: u32, yes: u32, no: u32, time_is_up| {
            let mut votes = Votes {
                asked: (0..asked).map(address).collect(),
                further: Vec::new(),
                since: MonoTime::ZERO,
                said: BTreeMap::new(),
            };
            (0..yes).for_each(|n| votes.on_vouched(address(n), true));
            (yes..yes + no).for_each(|n| votes.on_vouched(address(n), false));
            // Said twice, and by one that was not asked.
            (0..yes).for_each(|n| votes.on_vouched(address(n), false));
            votes.on_vouched(address(asked + 1), false);
            votes.verdict(time_is_up).map(|verdict| verdict.is_ok())
        };
        let (taken, refused) = (Some(true), Some(false));
        for (asked, yes, no, before, after) in [
            (0, 0, 0, taken, taken),
            (1, 0, 0, None, taken),
            (1, 1, 0, taken, taken),
            (1, 0, 1, refused, refused),
            (2, 0, 0, None, taken),
            (2, 1, 0, taken, taken),
            (2, 0, 1, None, refused),
            (2, 1, 1, taken, taken),
            (2, 0, 2, refused, refused),
            (3, 1, 0, None, taken),
            (3, 2, 0, taken, taken),
            (3, 1, 1, None, taken),
            (3, 2, 1, taken, taken),
            (3, 0, 1, None, refused),
            (3, 0, 2, refused, refused),
            (3, 1, 2, refused, refused),
        ] {
            let case = (asked, yes, no);
            assert_eq!(verdict(asked, yes, no, false), before, "{case:?}");
            assert_eq!(verdict(asked, yes, no, true), after, "{case:?}, time is up");
        }
    }

    fn address(n: u32) -> SiloAddress {
        SiloAddress::at((n.to_be_bytes(), 7100).into(), 1)
    }

    fn set_up() -> (Ctx, Vouchers) {
        let (me, profile) = (address(1), Profile::new(SiloInfo::default()));
        let (cluster, id) = ("test".parse().unwrap(), InstanceId::new(1));
        let setup = Setup::new(cluster, me.endpoint(), 1, id, profile, 1);
        (Ctx::new(setup), Vouchers::default())
    }

    #[test]
    fn questions_take_bounded_memory_for_a_bounded_time() {
        let (mut ctx, mut vouchers) = set_up();
        for n in 0..MAX_QUESTIONS as u32 + 10 {
            ctx.now.mono = MonoTime::from_nanos(n.into());
            vouchers.on_vouch(&mut ctx, address(2 + n % 8), address(n + 10), n.into());
        }
        assert_eq!(vouchers.questions.len(), MAX_QUESTIONS);
        assert!(!vouchers.questions.contains_key(&(address(3), 9)));
        ctx.now.mono = MonoTime::ZERO + ANSWER_TIME * 2;
        ctx.out.clear();
        vouchers.look(&mut ctx);
        assert_eq!(
            (vouchers.questions.len(), ctx.out.len()),
            (0, MAX_QUESTIONS)
        );
    }

    #[test]
    fn one_member_that_asks_without_end_crowds_nobody_out() {
        let (mut ctx, mut vouchers) = set_up();
        vouchers.on_vouch(&mut ctx, address(3), address(5), 1);
        for n in 0..MAX_QUESTIONS as u32 * 2 {
            ctx.now.mono = MonoTime::from_nanos(n.into());
            vouchers.on_vouch(&mut ctx, address(2), address(n + 10), n.into());
        }
        vouchers.on_vouch(&mut ctx, address(4), address(5), 1);
        assert_eq!(ctx.out.len(), MAX_OF_ONE + 2);
        assert_eq!(vouchers.questions.len(), MAX_OF_ONE + 2);
        for other in [3, 4].map(address) {
            assert!(vouchers.questions.contains_key(&(other, 1)));
        }
    }
}
