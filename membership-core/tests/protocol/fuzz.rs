//! A silo in a faulty environment: forged headers, messages and deltas, invalid answers of the
//! table, unusable settings, clocks that jump. It never panics or spins, publishes strictly
//! increasing versions, does nothing after its end, and gives the same effects for the same seed
//! and inputs.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use membership_core::protocol::Protocol;
use membership_core::protocol::{
    CallId, Command, Destination, Effect, Input, LinkId, PeerIdentity, RequestId,
};
use membership_core::protocol::{Header, IndirectOutcome, Message};
use membership_core::{
    ClusterView, CommitOutcome, CommitRequest, Conflict, Delta, Heartbeat, Heartbeats, Judgement,
    Operation, ReadAnswer, RowChange, TableError, TableErrorKind, VersionToken,
};

const MAX: u64 = membership_core::MAX_SAFE_INTEGER;

struct SeededRng(u64);

impl SeededRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn in_a_hundred(&mut self, n: u64) -> bool {
        self.below(100) < n
    }
    fn number(&mut self) -> u64 {
        [0, 1, 2, 1000, MAX - 1, MAX, MAX + 1, u64::MAX][self.below(8) as usize]
    }
    fn duration(&mut self) -> Duration {
        let some = [
            Duration::ZERO,
            Duration::from_nanos(1),
            ms(1),
            secs(1),
            secs(100),
            secs(1 << 40),
            Duration::MAX,
        ];
        some[self.below(some.len() as u64) as usize]
    }
    fn wall(&mut self) -> WallTime {
        [
            WallTime::default(),
            NOON,
            NOON.plus(secs(3600)),
            WallTime::from_millis(u64::MAX),
        ][self.below(4) as usize]
    }
    fn silo(&mut self) -> SiloAddress {
        let n = u8::try_from(self.below(7)).unwrap();
        let epoch = [1, 1, 1, 1, 2, 1_795_000_000_000, MAX, 0][self.below(8) as usize];
        silo(n).with_epoch(epoch)
    }
    fn settings(&mut self) -> SharedSettings {
        let mut settings = SharedSettings::default();
        settings.i_am_alive_period = self.duration();
        settings.num_missed_i_am_alive_limit = self.number() as u32;
        settings.failure_window = self.duration();
        settings.num_votes_for_death_declaration = self.number() as u32;
        settings.death_vote_expiration = self.duration();
        settings.max_join_attempt_time = self.duration();
        settings
    }
    fn suspicion(&mut self) -> Suspicion {
        let mut v = vote(1, self.wall());
        v.accuser = self.silo();
        v.evidence.via = self.in_a_hundred(30).then(|| self.silo());
        v.evidence.timeout_ms = self.number();
        v.evidence.misses = self.number() as u32;
        if self.in_a_hundred(20) {
            v.reason = SuspicionReason::Stuck;
        }
        v
    }
    fn entry(&mut self, silo: SiloAddress) -> MembershipEntry {
        let status = SiloStatus::ALL[1 + self.below(5) as usize];
        let mut e = entry(silo, status);
        e.active_since = self.in_a_hundred(80).then(|| self.number());
        e.suspicions = (0..self.below(3)).map(|_| self.suspicion()).collect();
        e.start_time = self.wall();
        e
    }
    fn error(&mut self) -> TableError {
        use TableErrorKind as K;
        let usual = [K::Unavailable, K::Busy, K::OutcomeUnknown];
        let kind = if self.in_a_hundred(96) {
            usual[self.below(3) as usize]
        } else {
            K::ALL[self.below(15) as usize]
        };
        TableError::new(kind, Operation::Read, "fuzz", "it lies")
    }
}

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
        let protocol = Protocol::new(setup);
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

    /// A commit of another silo.
    fn foreign_commit(&mut self) {
        let silo = self.rng.silo();
        let about_me = self.rng.in_a_hundred(4);
        let e = self.rng.entry(if about_me {
            self.protocol.me().unwrap_or(silo)
        } else {
            silo
        });
        let known = self.table.rows.get(&e.address).is_some();
        let (new, old) = if known {
            (None, Some(e))
        } else {
            (Some(e), None)
        };
        let id = CommitId::new(u128::from(self.rng.next()));
        let mut commit = CommitRequest::new(self.table.token.clone(), id, None, new, old, []);
        commit.settings = self.rng.in_a_hundred(10).then(|| self.rng.settings());
        self.apply(&commit);
    }

    fn apply(&mut self, commit: &CommitRequest) -> VersionToken {
        let token = commit.next_token(&[]);
        if commit.next_version() <= MAX {
            self.table = commit.apply_to(&self.table, token.clone());
        }
        token
    }

    fn lying_snapshot(&mut self) -> Snapshot {
        let mut lie = self.table.clone();
        let mut row = (*lie.version_row).clone();
        match self.rng.below(4) {
            0 => row.table_id = TableId::new(u128::from(self.rng.below(2))),
            1 => row.version = self.rng.number(),
            2 => row.recent.clear(),
            _ => row.settings = self.rng.settings(),
        }
        if self.rng.in_a_hundred(50) {
            let silo = self.rng.silo();
            self.lied = true;
            lie.rows
                .insert(membership_core::Row::encode(self.rng.entry(silo)));
        }
        lie.token = row.token(&[]);
        lie.version_row = Arc::new(row);
        lie
    }

    fn header(&mut self) -> Header {
        let from = self.rng.silo();
        let to = if self.rng.in_a_hundred(90) {
            self.protocol.me()
        } else {
            Some(self.rng.silo())
        };
        let mut header = header(from, instance(from), to);
        header.table_id = Some(TableId::new(1));
        header.version = self.table.version();
        header.digest = self.table.rows.digest();
        match self.rng.below(20) {
            0 => header.cluster = self.rng.next(),
            1 => header.protocol = self.rng.number() as u16,
            2 => header.instance = instance(silo(1)),
            3 => header.table_id = None,
            4 => header.table_id = Some(TableId::new(9)),
            5 => header.version = self.rng.number(),
            6 => header.digest = u128::from(self.rng.next()),
            _ => {}
        }
        header
    }

    fn delta(&mut self) -> Delta {
        let snapshot = if self.rng.in_a_hundred(50) {
            self.lying_snapshot()
        } else {
            self.table.clone()
        };
        let view = ClusterView::new(snapshot);
        let mine = self.protocol.view().map_or(0, ClusterView::version);
        let mut delta = view
            .delta_since(mine)
            .unwrap_or_else(|| Delta::whole(&view));
        match self.rng.below(10) {
            0 => delta.from = Some(self.rng.number()),
            1 => delta.digest = 0,
            2 => delta.removed.push("nonsense".to_owned()),
            3 => {
                delta.token =
                    VersionToken::new(TableId::new(1), self.rng.number(), CommitId::new(1), &[])
            }
            _ => {}
        }
        delta
    }

    fn message(&mut self) -> Input {
        let nonce = self.rng.number();
        let silo = self.rng.silo();
        let body = match self.rng.below(15) {
            0 => Message::Identify { nonce },
            1 => Message::Identity {
                nonce,
                silo: Some(silo),
                instance: instance(silo),
                host: "x".repeat(300),
            },
            2 => Message::Probe { nonce },
            3 => Message::ProbeAck { nonce },
            4 => Message::NotMe { nonce },
            5 | 6 => Message::IndirectProbe {
                round: nonce,
                suspect: silo,
                timeout: self.rng.duration(),
            },
            7 => {
                let consent = Some(self.rng.suspicion());
                Message::IndirectReply {
                    round: nonce,
                    outcome: IndirectOutcome::No { consent },
                }
            }
            8 => Message::DialMe {
                nonce,
                endpoint: silo.endpoint(),
            },
            9 => Message::DialBack { nonce },
            10 => Message::AskDelta {
                table_id: Some(TableId::new(1)),
                have: self.rng.number(),
            },
            11 | 12 => Message::Delta(Box::new(self.delta())),
            13 => {
                let delta = self.rng.in_a_hundred(50).then(|| Box::new(self.delta()));
                Message::Farewell {
                    version: nonce,
                    delta,
                }
            }
            _ => Message::YouAreDead { version: nonce },
        };
        let header = self.header();
        let peer = match self.rng.below(3) {
            0 => PeerIdentity::Unproven,
            _ => PeerIdentity::Proven(header.instance),
        };
        Input::Message {
            link: LinkId(self.rng.below(3)),
            peer,
            header,
            body: Arc::new(body),
        }
    }

    fn nonsense(&mut self) -> Input {
        let call = CallId(self.rng.below(40));
        let request = RequestId(self.rng.below(9));
        match self.rng.below(24) {
            0 => Input::Start,
            1 => Input::Hint,
            2 => Input::ExecutorLag(self.rng.duration()),
            3 => Input::Heard {
                from: self.rng.silo(),
                asked: MonoTime::from_nanos(self.rng.number()),
            },
            4 if self.rng.below(2) == 0 => Input::Disconnected {
                peer: self.rng.silo().endpoint(),
            },
            4 => Input::SendFailed {
                to: self.rng.silo().endpoint(),
                refused: self.rng.below(2) == 0,
                reason: "no".to_owned(),
            },
            5 => Input::Initialized {
                call,
                result: Ok(()),
            },
            6 => Input::Read {
                call,
                result: Err(self.rng.error()),
            },
            7 => Input::Committed {
                call,
                result: Ok(CommitOutcome::Conflict(Conflict::default())),
            },
            8 => Input::HeartbeatWritten {
                call,
                result: Err(self.rng.error()),
            },
            9 => Input::Command(Command::Refresh {
                request,
                at_least: self.rng.in_a_hundred(50).then(|| self.rng.number()),
            }),
            10 => Input::Command(Command::Evict {
                request,
                silo: self.rng.silo(),
                reason: "because".to_owned(),
            }),
            11 if self.rng.in_a_hundred(5) => {
                let leave = [Command::BeginLeave, Command::FinishLeave, Command::Stop];
                Input::Command(leave[self.rng.below(3) as usize].clone())
            }
            12..=14 => Input::Wake,
            _ => self.message(),
        }
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
            Message::DialMe { nonce, .. } => Message::DialBack { nonce: *nonce },
            Message::AskDelta { .. } => Message::Delta(Box::new(self.delta())),
            Message::IndirectProbe { round, .. } => {
                let mut own = self.rng.suspicion();
                own.accuser = peer;
                let outcome = if self.rng.in_a_hundred(20) {
                    IndirectOutcome::Unknown
                } else {
                    IndirectOutcome::No { consent: Some(own) }
                };
                Message::IndirectReply {
                    round: *round,
                    outcome,
                }
            }
            _ => return,
        };
        // Some peers never answer probes.
        if matches!(body, Message::ProbeAck { .. }) && peer.ip().to_string().ends_with('3') {
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
        if self.stopped {
            assert_eq!(self.protocol.next_wakeup(), None);
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
