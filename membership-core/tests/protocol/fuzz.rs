//! A silo in a faulty environment: forged headers, messages and deltas, invalid answers of the
//! table, unusable settings, clocks that jump. It never panics or spins, publishes strictly
//! increasing versions, does nothing after its end, and gives the same effects for the same seed
//! and inputs.

mod input;
mod random;

use std::sync::Arc;
use std::time::Duration;

use self::random::SeededRng;
use super::*;
use membership_core::hooks::{self, ProtocolVariant};
use membership_core::protocol::Protocol;
use membership_core::protocol::{
    CallId, Command, Destination, Effect, Input, LinkId, PeerIdentity, RequestId,
};
use membership_core::protocol::{
    Consent, Finding, Header, Message, NotReached, OwnChange, Standing,
};
use membership_core::{
    ClusterView, CommitOutcome, CommitRequest, Conflict, Delta, Heartbeat, Heartbeats, IntentId,
    Judgement, Operation, ReadAnswer, RollCount, Row, RowChange, TableError, TableErrorKind,
    VersionToken,
};

const MAX: u64 = membership_core::MAX_SAFE_INTEGER;

#[derive(Default)]
struct Tally {
    steps: u64,
    active: u64,
    commits: u64,
    stops: u64,
    views: u64,
    votes: u64,
}

struct World {
    rng: SeededRng,
    protocol: Protocol,
    table: Snapshot,
    beats: Heartbeats,
    /// Whether the silo was shown rows that do not exist: a commit may be based on them.
    lied: bool,
    now: Now,
    waiting: Vec<Input>,
    published: Option<u64>,
    stopped: bool,
    /// All inputs and effects as text, if requested.
    text: Option<String>,
}

impl World {
    fn new(seed: u64, keep: bool) -> Self {
        let mut rng = SeededRng(seed);
        let mut table = snapshot(0, Vec::new());
        let settings = if rng.in_a_hundred(50) {
            rng.settings()
        } else {
            SharedSettings::default()
        };
        let key = ClusterKey::new([7; 32]);
        let mut row = InitializeRequest::new(TableId::new(1), settings, key).version_row();
        row.version = if rng.in_a_hundred(10) {
            MAX - rng.below(6)
        } else {
            rng.below(3) * 20
        };
        table.token = row.token(&[]);
        table.version_row = Arc::new(row);
        let mut setup = setup();
        setup.seed = seed;
        let variant = ProtocolVariant {
            scribe: seed.is_multiple_of(2),
            ..ProtocolVariant::STANDARD
        };
        let protocol = hooks::protocol(setup, variant);
        let now = Now {
            mono: MonoTime::from_nanos(rng.below(1 << 50)),
            wall: rng.wall(),
        };
        let text = keep.then(String::new);
        Self {
            rng,
            protocol,
            table,
            beats: Heartbeats::default(),
            lied: false,
            now,
            waiting: vec![Input::Start],
            published: None,
            stopped: false,
            text,
        }
    }

    fn apply(&mut self, commit: &CommitRequest) -> VersionToken {
        let token = commit.next_token(&[]);
        if commit.next_version() <= MAX {
            self.table = commit.apply_to(&self.table, token.clone());
        }
        token
    }

    /// Answers an effect: usually correctly, sometimes not at all, sometimes falsely.
    fn answer(&mut self, effect: Effect) {
        let lies = self.rng.in_a_hundred(2);
        match effect {
            Effect::Initialize { call, .. } => {
                let result = if self.rng.in_a_hundred(90) {
                    Ok(())
                } else {
                    Err(self.rng.error())
                };
                self.waiting.push(Input::Initialized { call, result });
            }
            Effect::Read { call, request } => {
                let result = if self.rng.in_a_hundred(5) {
                    Err(self.rng.error())
                } else if lies {
                    Ok(ReadAnswer::Snapshot {
                        snapshot: self.lying_snapshot(),
                        heartbeats: None,
                    })
                } else if request
                    .known
                    .as_ref()
                    .is_some_and(|k| k.same_commit(&self.table.token))
                {
                    Ok(ReadAnswer::Unchanged {
                        heartbeats: Some(self.beats.clone()),
                    })
                } else {
                    Ok(ReadAnswer::Snapshot {
                        snapshot: self.table.clone(),
                        heartbeats: Some(self.beats.clone()),
                    })
                };
                self.waiting.push(Input::Read { call, result });
            }
            Effect::Commit { call, request } => {
                let unknown = self.rng.in_a_hundred(10);
                let result = match request.judge(&self.table.version_row) {
                    Judgement::Apply if unknown && self.rng.in_a_hundred(50) => {
                        Err(unknown_outcome())
                    }
                    Judgement::Apply if request.validate(&LIMITS, "fuzz").is_err() => {
                        Err(request.validate(&LIMITS, "fuzz").unwrap_err())
                    }
                    Judgement::Apply => {
                        let fits = request.changes.iter().all(|c| match c {
                            RowChange::Insert(r) => self.table.rows.by_key(r.key()).is_none(),
                            RowChange::Update(r) => self.table.rows.by_key(r.key()).is_some(),
                            RowChange::Remove(k) => self.table.rows.by_key(k).is_some(),
                        });
                        assert!(
                            fits || self.lied,
                            "a change that cannot apply to what it is based on: {request:?}"
                        );
                        if fits {
                            let token = self.apply(&request);
                            if unknown {
                                Err(unknown_outcome())
                            } else {
                                Ok(CommitOutcome::Committed(token))
                            }
                        } else {
                            Ok(CommitOutcome::Conflict(Conflict::default()))
                        }
                    }
                    Judgement::AlreadyCommitted => {
                        Ok(CommitOutcome::Committed(request.next_token(&[])))
                    }
                    Judgement::Conflict => {
                        let snapshot = self.rng.in_a_hundred(50).then(|| self.table.clone());
                        Ok(CommitOutcome::Conflict(Conflict::new(None, snapshot)))
                    }
                    Judgement::OutcomeUnknown => Err(unknown_outcome()),
                    Judgement::Refused(kind) => {
                        Err(TableError::new(kind, Operation::Commit, "fuzz", "refused"))
                    }
                };
                let result = if lies {
                    Ok(CommitOutcome::Committed(self.table.token.clone()))
                } else {
                    result
                };
                self.waiting.push(Input::Committed { call, result });
            }
            Effect::WriteHeartbeat { call, write } => {
                let result = if self.rng.in_a_hundred(90) {
                    Ok(())
                } else {
                    Err(self.rng.error())
                };
                if let membership_core::HeartbeatWrite::Silo { silo, heartbeat } = write {
                    self.beats.silos.insert(silo, heartbeat);
                }
                self.waiting.push(Input::HeartbeatWritten { call, result });
            }
            Effect::Send { to, header, body } if to == Destination::Fresh(silo(1).endpoint()) => {
                self.waiting.push(Input::Message {
                    link: LinkId(1),
                    peer: PeerIdentity::Proven(header.instance),
                    header,
                    body,
                });
            }
            Effect::Send { header, body, .. } => self.reply(&header, &body),
            _ => {}
        }
    }

    fn reply(&mut self, header: &Header, body: &Message) {
        let Some(peer) = header.to else { return };
        let body = match body {
            Message::Probe { nonce } => Message::ProbeAck { nonce: *nonce },
            Message::DialMe { nonce, .. } | Message::Meet { nonce, .. } if nonce % 2 == 0 => {
                Message::Vouch {
                    nonce: *nonce,
                    word: 1,
                }
            }
            Message::DialMe { nonce, .. } | Message::Meet { nonce, .. } => {
                Message::DialBack { nonce: *nonce }
            }
            Message::AskVouched { nonce, words } => Message::Vouched {
                nonce: *nonce,
                silos: words.iter().map(|(silo, _)| *silo).collect(),
            },
            Message::AskDelta { .. } => Message::Delta(Box::new(self.delta())),
            Message::RollCall { call, suspects } => Message::RollAnswer {
                call: *call,
                findings: suspects
                    .iter()
                    .map(|(silo, _)| (*silo, self.rng.finding()))
                    .collect(),
                missed: self.some(SeededRng::silo),
            },
            _ => return,
        };
        // Some peers never answer the protocol.
        let silent = matches!(body, Message::ProbeAck { .. } | Message::RollAnswer { .. });
        if silent && peer.ip().to_string().ends_with('3') {
            return;
        }
        let mut header = header.clone();
        header.to = Some(header.from);
        header.from = peer;
        header.instance = instance(peer);
        self.waiting.push(Input::Message {
            link: LinkId(2),
            peer: PeerIdentity::Proven(header.instance),
            header,
            body: Arc::new(body),
        });
    }

    fn step(&mut self, tally: &mut Tally) {
        let jump = match self.rng.below(100) {
            0 => secs(1 << 20),
            1 => secs(90),
            2..=5 => secs(7),
            6..=30 => ms(300),
            31..=60 => ms(1),
            _ => Duration::ZERO,
        };
        self.now.mono = self.now.mono + jump;
        if self.rng.in_a_hundred(60)
            && let Some(due) = self.protocol.next_wakeup()
        {
            self.now.mono = self.now.mono.max(due);
        }
        self.now.wall = if self.rng.in_a_hundred(2) {
            self.rng.wall()
        } else {
            self.now.wall.plus(jump)
        };
        if self.rng.in_a_hundred(3) {
            self.foreign_commit();
        }
        if self.rng.in_a_hundred(20) {
            let silo = self.rng.silo();
            let counter = self.rng.below(5);
            self.beats.silos.insert(
                silo,
                Heartbeat {
                    counter,
                    at: self.rng.wall(),
                },
            );
        }
        let input = if self.waiting.is_empty() || self.rng.in_a_hundred(30) {
            self.nonsense()
        } else {
            let i = self.rng.below(self.waiting.len() as u64) as usize;
            if self.rng.in_a_hundred(97) {
                self.waiting.swap_remove(i)
            } else {
                self.waiting[i].clone()
            }
        };
        let mut effects = Vec::new();
        self.protocol.handle(self.now, input, &mut effects);
        tally.steps += 1;
        assert!(
            effects.len() < 5_000,
            "{} effects of one input",
            effects.len()
        );
        if let Some(text) = &mut self.text {
            text.push_str(&format!("{:?} {effects:?}\n", self.now));
        }
        let mut effects = effects.into_iter().peekable();
        while let Some(effect) = effects.next() {
            assert!(!self.stopped, "after the end: {effect:?}");
            match &effect {
                Effect::Publish(view) => {
                    // The table's view may go back, and the silo says so next.
                    let told = matches!(
                        effects.peek(),
                        Some(Effect::Tell(Notice::ViewWithdrawn { .. }))
                    );
                    assert!(
                        self.published.is_none_or(|v| view.version() > v)
                            || (told && view.is_confirmed()),
                        "{view:?} after {:?}",
                        self.published
                    );
                    self.published = Some(view.version());
                    tally.views += 1;
                }
                Effect::Stop(_) => self.stopped = true,
                Effect::Commit { .. } => tally.commits += 1,
                Effect::Tell(Notice::Active { .. }) => tally.active += 1,
                Effect::Observe(membership_core::protocol::Observation::VoteCast { .. }) => {
                    tally.votes += 1
                }
                _ => {}
            }
            self.answer(effect);
        }
        let next = self.protocol.next_wakeup();
        assert!(
            next.is_none_or(|at| at >= self.now.mono),
            "a silo whose timers are late takes itself to have been paused"
        );
        if self.stopped {
            assert_eq!(next, None);
        }
    }
}

fn unknown_outcome() -> TableError {
    TableError::new(
        TableErrorKind::OutcomeUnknown,
        Operation::Commit,
        "fuzz",
        "lost",
    )
}

fn run(seed: u64, steps: u64, keep: bool, tally: &mut Tally) -> Option<String> {
    let mut world = World::new(seed, keep);
    let mut after = 0;
    for _ in 0..steps {
        world.step(tally);
        after += u64::from(world.stopped);
        if after > 20 {
            break;
        }
    }
    tally.stops += u64::from(world.stopped);
    world.text
}

#[test]
fn invalid_input_causes_no_panic_and_no_invalid_effect() {
    let mut tally = Tally::default();
    let mut seed = 0;
    while tally.steps < 120_000 {
        run(seed, 4_000, false, &mut tally);
        seed += 1;
    }
    assert!(
        tally.active > 20,
        "only {} became Active in {seed} lives",
        tally.active
    );
    assert!(
        tally.commits > 200 && tally.stops > 50 && tally.views > 300,
        "{} {} {}",
        tally.commits,
        tally.stops,
        tally.views
    );
    assert!(tally.votes > 0, "no vote landed");
}

/// In these lives a read that ends no suspension withdraws the view, and the next one ends it.
#[test]
fn a_view_that_is_withdrawn_while_the_silo_is_suspended_goes_back_when_the_silo_says_so() {
    for seed in [10_240, 20_372] {
        run(seed, 4_000, false, &mut Tally::default());
    }
}

#[test]
fn the_same_seed_and_inputs_give_the_same_effects_byte_for_byte() {
    for seed in 0..15 {
        let mut tally = Tally::default();
        let (one, two) = (
            run(seed, 1_500, true, &mut tally),
            run(seed, 1_500, true, &mut tally),
        );
        assert!(one.as_ref().is_some_and(|t| t.len() > 1_000));
        assert!(one == two, "seed {seed}");
    }
}
