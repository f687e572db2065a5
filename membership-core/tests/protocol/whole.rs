//! The whole protocol, where several machines interact: the join, the end, a table that is gone,
//! hints.

use super::*;
use membership_core::protocol::Header;
use membership_core::protocol::Protocol;
use membership_core::protocol::{
    CallId, Command, Destination, Input, LinkId, PeerIdentity, RequestId, TableState, Termination,
};
use membership_core::{
    CommitOutcome, Heartbeats, Operation, ReadAnswer, TableError, TableErrorKind,
};

pub struct World {
    pub protocol: Protocol,
    pub now: Now,
    pub table: Snapshot,
}

impl World {
    /// The tested silo is the only Active one; silo 2 is Joining.
    pub fn new() -> Self {
        let mut w = Self {
            protocol: Protocol::new(setup()),
            now: Now {
                mono: MonoTime::ZERO + secs(10),
                wall: NOON,
            },
            table: snapshot(1, vec![entry(silo(2), SiloStatus::Joining)]),
        };
        let effects = w.take(Input::Start);
        let Some(Effect::Send {
            to: Destination::Fresh(_),
            header,
            body,
        }) = effects
            .into_iter()
            .find(|e| matches!(e, Effect::Send { .. }))
        else {
            panic!("it meets itself first")
        };
        let effects = w.take(Input::Message {
            link: LinkId(1),
            peer: PeerIdentity::Proven(header.instance),
            header,
            body,
        });
        w.serve(effects);
        assert_eq!(w.protocol.status(), SiloStatus::Active);
        w
    }

    pub fn take(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.protocol.handle(self.now, input, &mut effects);
        effects
    }

    pub fn wait(&mut self, by: Duration) {
        self.now = Now {
            mono: self.now.mono + by,
            wall: self.now.wall.plus(by),
        };
    }

    /// Lets the table answer every call; returns all other effects.
    pub fn serve(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut rest = Vec::new();
        let mut queue: std::collections::VecDeque<Effect> = effects.into();
        while let Some(effect) = queue.pop_front() {
            let input = match effect {
                Effect::Initialize { call, .. } => Input::Initialized {
                    call,
                    result: Ok(()),
                },
                Effect::WriteHeartbeat { call, .. } => Input::HeartbeatWritten {
                    call,
                    result: Ok(()),
                },
                Effect::Read { call, .. } => self.answer(call),
                Effect::Commit { call, request } => {
                    let token = request.next_token(&[]);
                    self.table = request.apply_to(&self.table, token.clone());
                    Input::Committed {
                        call,
                        result: Ok(CommitOutcome::Committed(token)),
                    }
                }
                other => {
                    rest.push(other);
                    continue;
                }
            };
            queue.extend(self.take(input));
        }
        rest
    }

    pub fn answer(&self, call: CallId) -> Input {
        let answer = ReadAnswer::Snapshot {
            snapshot: self.table.clone(),
            heartbeats: Some(Heartbeats::default()),
        };
        Input::Read {
            call,
            result: Ok(answer),
        }
    }

    pub fn probe_header(&self) -> Header {
        header(silo(2), instance(silo(2)), self.protocol.me())
    }

    pub fn probe(&mut self) -> Vec<Effect> {
        let header = self.probe_header();
        self.take(Input::Message {
            link: LinkId(3),
            peer: PeerIdentity::Proven(header.instance),
            header,
            body: Arc::new(Message::Probe { nonce: 4 }),
        })
    }
}

pub fn is_ack(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { body, .. } if **body == Message::ProbeAck { nonce: 4 })
}

pub fn reads(effects: &[Effect]) -> Vec<CallId> {
    effects
        .iter()
        .filter_map(|e| {
            if let Effect::Read { call, .. } = e {
                Some(*call)
            } else {
                None
            }
        })
        .collect()
}

/// Other silos may vote against it after unanswered probes before it knows that its row is in the
/// table (invariant P10).
#[test]
fn a_joining_silo_answers_probes_before_its_insert_is_confirmed() {
    let mut w = World {
        protocol: Protocol::new(setup()),
        ..World::new()
    };
    let effects = w.take(Input::Start);
    let met = effects.into_iter().find_map(|e| {
        if let Effect::Send { header, body, .. } = e {
            Some((header, body))
        } else {
            None
        }
    });
    let (header, body) = met.unwrap();
    let mut effects = w.take(Input::Message {
        link: LinkId(1),
        peer: PeerIdentity::Proven(header.instance),
        header,
        body,
    });
    let call = loop {
        let insert = effects.iter().find_map(|e| {
            if let Effect::Commit { call, .. } = e {
                Some(*call)
            } else {
                None
            }
        });
        if let Some(call) = insert {
            break call;
        }
        assert!(!w.probe().iter().any(is_ack), "nobody can know it yet");
        let next = effects.into_iter().find_map(|e| match e {
            Effect::Initialize { call, .. } => Some(Input::Initialized {
                call,
                result: Ok(()),
            }),
            Effect::Read { call, .. } => Some(w.answer(call)),
            _ => None,
        });
        effects = w.take(next.unwrap());
    };
    let error = TableError::new(
        TableErrorKind::OutcomeUnknown,
        Operation::Commit,
        "test",
        "no answer",
    );
    w.take(Input::Committed {
        call,
        result: Err(error),
    });
    assert_eq!(w.protocol.status(), SiloStatus::Created);
    assert!(w.probe().iter().any(is_ack));
}

/// The silo's own commit made it Active, the answer was lost, and another silo sends the view. The
/// table may remain unreachable after that (an outage ends no silo), and the silo leaves as an
/// Active silo.
#[test]
fn a_join_completes_when_another_silo_reports_the_activation() {
    let mut w = World {
        protocol: Protocol::new(setup()),
        ..World::new()
    };
    let met = w.take(Input::Start).into_iter().find_map(|e| {
        if let Effect::Send { header, body, .. } = e {
            Some((header, body))
        } else {
            None
        }
    });
    let (header, body) = met.unwrap();
    let mut effects = w.take(Input::Message {
        link: LinkId(1),
        peer: PeerIdentity::Proven(header.instance),
        header,
        body,
    });
    let landed = loop {
        let (mut next, mut landed) = (Vec::new(), None);
        for effect in effects {
            match effect {
                Effect::Commit { call, request } if w.protocol.status() == SiloStatus::Joining => {
                    w.table = request.apply_to(&w.table, request.next_token(&[]));
                    landed = Some(call);
                }
                Effect::Initialize { .. }
                | Effect::Read { .. }
                | Effect::Commit { .. }
                | Effect::WriteHeartbeat { .. } => next.push(effect),
                _ => {}
            }
        }
        if let Some(call) = landed {
            break call;
        }
        effects = Vec::new();
        for effect in next {
            let input = match effect {
                Effect::Initialize { call, .. } => Input::Initialized {
                    call,
                    result: Ok(()),
                },
                Effect::WriteHeartbeat { call, .. } => Input::HeartbeatWritten {
                    call,
                    result: Ok(()),
                },
                Effect::Commit { call, request } => {
                    let token = request.next_token(&[]);
                    w.table = request.apply_to(&w.table, token.clone());
                    Input::Committed {
                        call,
                        result: Ok(CommitOutcome::Committed(token)),
                    }
                }
                Effect::Read { call, .. } => w.answer(call),
                other => panic!("{other:?}"),
            };
            effects.append(&mut w.take(input));
        }
    };
    let down = |kind| TableError::new(kind, Operation::Commit, "test", "no answer");
    w.take(Input::Committed {
        call: landed,
        result: Err(down(TableErrorKind::OutcomeUnknown)),
    });
    assert_eq!(w.protocol.status(), SiloStatus::Joining);
    let mut delta = w.probe_header();
    (delta.table_id, delta.version) = (Some(w.table.table_id()), w.table.version());
    let body = Arc::new(Message::Delta(Box::new(membership_core::Delta::whole(
        &membership_core::ClusterView::new(w.table.clone()),
    ))));
    w.take(Input::Message {
        link: LinkId(3),
        peer: PeerIdentity::Proven(delta.instance),
        header: delta,
        body,
    });
    assert_eq!(
        w.protocol.status(),
        SiloStatus::Joining,
        "a message decides nothing"
    );
    // The read that settles the commit shows it.
    for _ in 0..20 {
        w.wait(secs(1));
        let effects = w.take(Input::Wake);
        w.serve(effects);
        // It can be reached.
        let effects = w.probe();
        w.serve(effects);
    }
    assert_eq!(w.protocol.status(), SiloStatus::Active);
    // The table is unavailable for longer than a join may take.
    for _ in 0..400 {
        w.wait(secs(1));
        let mut effects = w.take(Input::Wake);
        while let Some(effect) = effects.pop() {
            assert!(!matches!(effect, Effect::Stop(_)), "{effect:?}");
            let result = Err(down(TableErrorKind::Unavailable));
            match effect {
                Effect::Read { call, .. } => effects.append(&mut w.take(Input::Read {
                    call,
                    result: Err(down(TableErrorKind::Unavailable)),
                })),
                Effect::WriteHeartbeat { call, .. } => {
                    effects.append(&mut w.take(Input::HeartbeatWritten { call, result }))
                }
                Effect::Commit { call, .. } => {
                    effects.append(&mut w.take(Input::Committed {
                        call,
                        result: Err(down(TableErrorKind::OutcomeUnknown)),
                    }));
                }
                _ => {}
            }
        }
    }
    assert_eq!(w.protocol.status(), SiloStatus::Active);
}

#[test]
fn a_silo_found_dead_after_a_pause_answers_its_requests_and_sends_nothing() {
    let mut w = World::new();
    w.take(Input::Command(Command::Refresh {
        request: RequestId(1),
        at_least: Some(1 << 40),
    }));
    let mut mine = w.table.rows.get(&w.protocol.me().unwrap()).unwrap().clone();
    mine.status = SiloStatus::Dead;
    let commit = membership_core::CommitRequest::new(
        w.table.token.clone(),
        commit_id(500),
        None,
        [],
        [mine],
        [],
    );
    w.table = commit.apply_to(&w.table, commit.next_token(&[]));
    w.wait(secs(60));
    let effects = w.probe();
    let answer = w.answer(reads(&effects)[0]);
    let effects = w.take(answer);
    assert!(
        matches!(
            effects.last(),
            Some(Effect::Stop(Termination::DeclaredDead(_)))
        ),
        "{effects:?}"
    );
    assert!(
        !effects
            .iter()
            .any(|e| matches!(e, Effect::Send { .. } | Effect::Publish(_)))
    );
    assert!(effects.iter().any(|e| matches!(
        e,
        Effect::Tell(Notice::Refreshed {
            request: RequestId(1),
            result: Err(_)
        })
    )));
    assert!(w.probe().is_empty() && w.protocol.next_wakeup().is_none());
}

#[test]
fn a_wiped_table_gets_no_writes_and_gives_no_leases() {
    let mut w = World::new();
    let confirmed = w.protocol.view().unwrap().confirmed_at();
    w.wait(secs(3));
    let effects = w.take(Input::Command(Command::Refresh {
        request: RequestId(1),
        at_least: None,
    }));
    let key = ClusterKey::new([7; 32]);
    let mut row =
        InitializeRequest::new(TableId::new(2), SharedSettings::default(), key).version_row();
    row.version = 40;
    w.table = Snapshot::new(row.token(&[]), row, Rows::new());
    let call = reads(&effects)[0];
    let answer = w.answer(call);
    w.take(answer);
    assert_eq!(
        w.protocol.table_state(),
        TableState::Unavailable,
        "one answer may come from a server that was deposed"
    );
    w.wait(secs(1));
    let effects = w.take(Input::Wake);
    let again = effects.iter().find_map(|e| match e {
        Effect::Read { call, request } => Some((*call, request.clone())),
        _ => None,
    });
    let (call, request) = again.unwrap();
    assert!(request.new_connection && request.barrier && request.known.is_none());
    let answer = w.answer(call);
    w.take(answer);
    assert!(matches!(w.protocol.table_state(), TableState::Changed(_)));
    assert_eq!(
        w.protocol.view().unwrap().confirmed_at(),
        confirmed,
        "another table confirms nothing"
    );
    for second in 0..200 {
        w.wait(ms(500));
        let effects = w.take(if second % 2 == 0 {
            Input::Wake
        } else {
            Input::Hint
        });
        let calls = |e: &Effect| {
            matches!(
                e,
                Effect::Read { .. }
                    | Effect::Commit { .. }
                    | Effect::WriteHeartbeat { .. }
                    | Effect::Publish(_)
            )
        };
        assert!(!effects.iter().any(calls), "{effects:?}");
    }
    assert!(w.probe().iter().any(is_ack));
    let effects = w.take(Input::Command(Command::Evict {
        request: RequestId(5),
        silo: silo(2),
        reason: String::new(),
    }));
    assert!(effects.iter().any(|e| matches!(
        e,
        Effect::Tell(Notice::Answered {
            request: RequestId(5),
            ..
        })
    )));
}

#[test]
fn many_hints_cause_few_reads() {
    let mut w = World::new();
    let mut count = 0;
    for _ in 0..5_000 {
        w.wait(ms(1));
        let effects = w.take(Input::Hint);
        count += reads(&effects).len();
        w.serve(effects);
    }
    // One more per second is for the silent silo, which is challenged.
    assert!((10..=31).contains(&count), "{count} reads in five seconds");
}

#[test]
fn a_silo_that_evicts_itself_gets_the_answer() {
    let mut w = World::new();
    let silo = w.protocol.me().unwrap();
    let effects = w.take(Input::Command(Command::Evict {
        request: RequestId(5),
        silo,
        reason: "enough".to_owned(),
    }));
    let effects = w.serve(effects);
    let answered = effects.iter().position(|e| {
        matches!(
            e,
            Effect::Tell(Notice::Answered {
                request: RequestId(5),
                answer: membership_core::intent::Answer::Applied { .. }
            })
        )
    });
    assert!(
        answered.is_some()
            && matches!(
                effects.last(),
                Some(Effect::Stop(Termination::DeclaredDead(_)))
            ),
        "{effects:?}"
    );
}

#[test]
fn a_refresh_is_answered_after_its_view_is_published() {
    let mut w = World::new();
    let commit = membership_core::CommitRequest::new(
        w.table.token.clone(),
        commit_id(500),
        None,
        actives([7]),
        [],
        [],
    );
    w.table = commit.apply_to(&w.table, commit.next_token(&[]));
    let effects = w.take(Input::Command(Command::Refresh {
        request: RequestId(1),
        at_least: None,
    }));
    let effects = w.serve(effects);
    let published = effects
        .iter()
        .position(|e| matches!(e, Effect::Publish(v) if v.get(&silo(7)).is_some()));
    let told = effects
        .iter()
        .position(|e| matches!(e, Effect::Tell(Notice::Refreshed { result: Ok(_), .. })));
    assert!(published.is_some() && published < told, "{effects:?}");
}

#[test]
fn a_silo_that_left_sends_one_farewell_to_each_peer() {
    let mut w = World::new();
    let effects = w.take(Input::Command(Command::FinishLeave));
    let effects = w.serve(effects);
    let farewells = effects.iter().filter(
        |e| matches!(e, Effect::Send { body, .. } if matches!(**body, Message::Farewell { .. })),
    );
    assert_eq!(farewells.count(), 1);
    assert!(
        matches!(
            effects.last(),
            Some(Effect::Stop(Termination::Left { clean: true }))
        ),
        "{effects:?}"
    );
}

#[test]
fn messages_of_another_process_at_a_members_address_are_dropped() {
    let mut w = World::new();
    let me = w.protocol.me();
    let header = header(silo(2), InstanceId::new(99), me);
    let effects = w.take(Input::Message {
        link: LinkId(3),
        peer: PeerIdentity::Proven(header.instance),
        header,
        body: Arc::new(Message::Probe { nonce: 4 }),
    });
    assert!(!effects.iter().any(is_ack));
}

/// A row that was changed by hand makes another table of this one until it is changed back. That
/// its last commit is the known one does not make it this silo's again.
#[test]
fn a_row_that_was_changed_by_hand_is_told_of_once() {
    let mut w = World::new();
    let right = w.table.clone();
    let mut changed = entry(silo(2), SiloStatus::Joining);
    changed.info.host_name = "by-hand".to_owned();
    let mut rows = right.rows.clone();
    rows.insert(Row::encode(changed));
    w.table = Snapshot::new(right.token.clone(), right.version_row.clone(), rows);
    let told = read_for(&mut w, 20);
    let broken = |t: &TableState| matches!(t, TableState::Changed(_));
    assert_eq!(told.iter().filter(|t| broken(t)).count(), 1, "{told:?}");
    assert!(told.last().is_some_and(broken), "{told:?}");
    w.table = right;
    assert_eq!(read_for(&mut w, 2).last(), Some(&TableState::Available));
}

/// Asks for a read in each of these seconds, and returns what was told of the table.
fn read_for(w: &mut World, seconds: u64) -> Vec<TableState> {
    let mut told = Vec::new();
    for second in 0..seconds {
        w.wait(secs(1));
        let request = RequestId(100 + second);
        let refresh = Input::Command(Command::Refresh {
            request,
            at_least: None,
        });
        for input in [refresh, Input::Wake] {
            let effects = w.take(input);
            told.extend(w.serve(effects).into_iter().filter_map(|e| match e {
                Effect::Tell(Notice::Table(state)) => Some(state),
                _ => None,
            }));
        }
    }
    told
}
