//! Random inputs: messages of forged senders, results of calls that nobody made, commands.

use super::*;

impl World {
    /// A commit of another silo.
    pub(super) fn foreign_commit(&mut self) {
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

    pub(super) fn lying_snapshot(&mut self) -> Snapshot {
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

    pub(super) fn header(&mut self) -> Header {
        let from = self.rng.silo();
        let to = if self.rng.in_a_hundred(90) {
            self.protocol.me()
        } else {
            Some(self.rng.silo())
        };
        let mut header = header(from, instance(from), to);
        header.table_id = Some(TableId::new(1));
        header.version = self.table.version();
        header.digest = self.table.rows.digest() as u64;
        match self.rng.below(20) {
            0 => header.cluster = self.rng.next(),
            1 => header.protocol = self.rng.number() as u16,
            2 => header.instance = instance(silo(1)),
            3 => header.table_id = None,
            4 => header.table_id = Some(TableId::new(9)),
            5 => header.version = self.rng.number(),
            6 => header.digest = self.rng.next(),
            _ => {}
        }
        header
    }

    pub(super) fn delta(&mut self) -> Delta {
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

    pub(super) fn message(&mut self) -> Input {
        let nonce = self.rng.number();
        let silo = self.rng.silo();
        let body = match self.rng.below(25) {
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
            5 => Message::RollCall {
                call: nonce,
                suspects: self.some(|rng| (rng.silo(), rng.number())),
            },
            6 => Message::RollAnswer {
                call: nonce,
                findings: self.some(|rng| (rng.silo(), rng.finding())),
                missed: self.some(SeededRng::silo),
            },
            7 => Message::RollResult {
                suspects: self.some(SeededRng::silo),
                reached: self.rng.number() as u32,
                wait: self.rng.duration(),
            },
            8 if self.rng.in_a_hundred(50) => Message::Meet {
                nonce,
                endpoint: silo.endpoint(),
                word: self.rng.number(),
            },
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
            14 => Message::AskReach { nonce },
            15 => Message::Reach {
                nonce,
                unreached: self.some(|rng| NotReached::new(rng.silo(), RollCount::default())),
            },
            16 => Message::Forward {
                changes: self
                    .some(|rng| (IntentId::new(u128::from(rng.below(4))), rng.own_change())),
            },
            17 => Message::Receipt {
                changes: self.some(|rng| (IntentId::new(u128::from(rng.below(4))), rng.standing())),
                waiting: self.rng.number() as u32,
            },
            18 => Message::AskRows {
                nonce,
                have: self.rng.number(),
                want: self.rng.number(),
            },
            19 => Message::AskThem {
                nonce,
                silos: self.some(SeededRng::silo),
            },
            20 => {
                let delta = self.delta();
                Message::Rows {
                    nonce,
                    from: delta.from,
                    version: delta.to(),
                    part: u32::from(self.rng.in_a_hundred(50)),
                    parts: 1 + u32::from(self.rng.in_a_hundred(20)),
                    rows: delta.rows,
                    removed: delta.removed,
                }
            }
            21 => Message::Vouch {
                nonce,
                word: self.rng.number(),
            },
            22 => Message::AskVouched {
                nonce,
                words: self.some(|rng| (rng.silo(), rng.number())),
            },
            23 => Message::Vouched {
                nonce,
                silos: self.some(SeededRng::silo),
            },
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

    /// A few values, rarely more than a message may name.
    pub(super) fn some<T>(&mut self, mut value: impl FnMut(&mut SeededRng) -> T) -> Vec<T> {
        let n = if self.rng.in_a_hundred(1) {
            5_000
        } else {
            self.rng.below(4)
        };
        (0..n).map(|_| value(&mut self.rng)).collect()
    }

    pub(super) fn nonsense(&mut self) -> Input {
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
}
