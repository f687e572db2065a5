//! A short failure of the table: what this silo suspects from before its end counts no more.

use super::whole::World;
use super::*;
use membership_core::protocol::{
    Command, Destination, Input, LinkId, Observation, PeerIdentity, RequestId, TableState,
};
use membership_core::{CommitRequest, Operation, TableError, TableErrorKind};

/// What happened.
#[derive(Default)]
struct Seen {
    /// The last number of probes in a row that the suspect has missed.
    misses: u32,
    /// How often silos were asked about it.
    calls: usize,
    /// What was last told of the table.
    table: Option<TableState>,
}

/// A silo among three others, of which silo 2 does not answer.
struct Story {
    w: World,
    is_down: bool,
    seen: Seen,
}

impl Story {
    fn new() -> Self {
        let mut w = World::new();
        let before = w.table.clone();
        let [joined, others @ ..] = &actives([2, 3, 4])[..] else {
            panic!("three")
        };
        let commit = CommitRequest::new(
            before.token.clone(),
            commit_id(400),
            None,
            others.to_vec(),
            [joined.clone()],
            [],
        );
        w.table = commit.apply_to(&before, commit.next_token(&[]));
        let mut story = Self {
            w,
            is_down: false,
            seen: Seen::default(),
        };
        story.refresh();
        story
    }

    /// The silo reads the table now.
    fn refresh(&mut self) {
        let command = Command::Refresh {
            request: RequestId(1),
            at_least: None,
        };
        self.take(Input::Command(command));
    }

    /// Handles an input, and whatever follows from it at once.
    fn take(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = self.w.take(input);
            if !self.is_down {
                effects = self.w.serve(effects);
            }
            inputs.extend(effects.into_iter().filter_map(|e| self.after(e)));
        }
    }

    /// The answer to an effect, if there is one.
    fn after(&mut self, effect: Effect) -> Option<Input> {
        let down = |operation| {
            let kind = TableErrorKind::Unavailable;
            TableError::new(kind, operation, "test", "down")
        };
        match effect {
            Effect::Read { call, .. } => Some(Input::Read {
                call,
                result: Err(down(Operation::Read)),
            }),
            Effect::WriteHeartbeat { call, .. } => Some(Input::HeartbeatWritten {
                call,
                result: Err(down(Operation::UpdateIAmAlive)),
            }),
            Effect::Observe(Observation::ProbeMissed { peer, misses, .. }) => {
                assert_eq!(peer, silo(2));
                self.seen.misses = misses;
                None
            }
            Effect::Tell(Notice::Table(state)) => {
                self.seen.table = Some(state);
                None
            }
            Effect::Send { to, body, .. } => match *body {
                Message::RollCall { .. } => {
                    self.seen.calls += 1;
                    None
                }
                Message::Probe { nonce } => self.acknowledge(&to, nonce),
                _ => None,
            },
            _ => None,
        }
    }

    fn acknowledge(&self, to: &Destination, nonce: u64) -> Option<Input> {
        let is_at = |n: &u8| *to == Destination::Endpoint(silo(*n).endpoint());
        let from = silo([3, 4].into_iter().find(is_at)?);
        Some(Input::Message {
            link: LinkId(9),
            peer: PeerIdentity::Proven(instance(from)),
            header: header(from, instance(from), self.w.protocol.me()),
            body: Arc::new(Message::ProbeAck { nonce }),
        })
    }

    /// Time passes until this is seen.
    fn until(&mut self, what: &str, is_seen: impl Fn(&Seen) -> bool) {
        for _ in 0..600 {
            if is_seen(&self.seen) {
                return;
            }
            self.w.wait(ms(50));
            self.take(Input::Wake);
        }
        panic!("never seen: {what}");
    }
}

#[test]
fn a_suspicion_from_before_the_table_recovered_starts_no_roll_call() {
    let mut s = Story::new();
    s.until("a miss", |seen| seen.misses == 1);
    s.is_down = true;
    s.refresh();
    assert_eq!(s.seen.table, Some(TableState::Unavailable));
    s.until("as many as make a suspect", |seen| seen.misses == 2);
    s.is_down = false;
    let available = Some(TableState::Available);
    s.until("the table again", |seen| seen.table == available);
    // Sooner than a failure window, after which the misses themselves are forgotten.
    assert_eq!((s.seen.misses, s.seen.calls), (2, 0));
    s.until("a miss after it", |seen| seen.misses == 3);
    assert!(s.seen.calls > 0);
}
