//! A hash of an input, for the hash of a run. Inputs with different contents, receivers or subjects
//! get different numbers.

use membership_core::protocol::{Finding, Header, Input, Message, PeerIdentity};
use membership_core::{
    CommitOutcome, Heartbeats, ReadAnswer, SiloAddress, TableError, VersionToken,
};

/// Mixes numbers and texts, in order.
#[derive(Clone, Copy, Debug)]
struct Mix(u64);

impl Mix {
    const fn number(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    fn text(&mut self, text: &str) {
        for eight in text.as_bytes().chunks(8) {
            self.number(
                eight
                    .iter()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte)),
            );
        }
        self.number(u64::try_from(text.len()).unwrap_or(u64::MAX));
    }

    const fn long(&mut self, number: u128) {
        self.number(number as u64);
        self.number((number >> 64) as u64);
    }

    fn silo(&mut self, silo: &SiloAddress) {
        self.long(match silo.ip() {
            std::net::IpAddr::V4(ip) => ip.to_bits().into(),
            std::net::IpAddr::V6(ip) => ip.to_bits(),
        });
        self.number(silo.port().into());
        self.number(silo.epoch());
    }

    fn token(&mut self, token: &VersionToken) {
        self.number(token.version());
        self.long(token.commit().get());
    }

    fn heartbeats(&mut self, heartbeats: Option<&Heartbeats>) {
        let Some(all) = heartbeats else {
            return self.number(1);
        };
        for (silo, heartbeat) in &all.silos {
            self.number(silo.epoch() ^ heartbeat.counter << 48);
        }
    }

    fn error(&mut self, error: &TableError) {
        self.text(error.kind().as_str());
        self.text(&error.to_string());
    }

    fn header(&mut self, header: &Header) {
        self.silo(&header.from);
        self.long(header.instance.get());
        self.number(header.version);
        self.number(header.digest);
    }

    fn message(&mut self, body: &Message) {
        self.text(body.name());
        match body {
            Message::Identify { nonce }
            | Message::Probe { nonce }
            | Message::ProbeAck { nonce }
            | Message::NotMe { nonce }
            | Message::DialMe { nonce, .. }
            | Message::Meet { nonce, .. }
            | Message::DialBack { nonce } => self.number(*nonce),
            Message::Identity {
                nonce,
                silo,
                instance,
                host,
            } => {
                self.number(*nonce);
                self.number(silo.map_or(0, |silo| silo.epoch()));
                self.long(instance.get());
                self.text(host);
            }
            Message::RollCall { call, suspects } => {
                self.number(*call);
                for (silo, silent_ms) in suspects {
                    self.silo(silo);
                    self.number(*silent_ms);
                }
            }
            Message::RollAnswer {
                call,
                findings,
                missed,
            } => {
                self.number(*call);
                for (silo, finding) in findings {
                    self.silo(silo);
                    match finding {
                        Finding::Reached => self.number(1),
                        Finding::Failed {
                            silent_ms,
                            heard_ms,
                            refused,
                            consent,
                        } => {
                            self.number(*silent_ms);
                            self.number(heard_ms.unwrap_or(u64::MAX));
                            self.number(2 + u64::from(consent.is_some()));
                            self.number(u64::from(*refused));
                        }
                        Finding::Unknown => self.number(6),
                    }
                }
                self.number(missed.len() as u64);
                missed.iter().for_each(|silo| self.silo(silo));
            }
            Message::RollResult {
                suspects,
                reached,
                wait,
            } => {
                suspects.iter().for_each(|silo| self.silo(silo));
                self.number(u64::from(*reached));
                self.long(wait.as_nanos());
            }
            Message::AskDelta { have, .. } => self.number(*have),
            Message::Delta(delta) => {
                self.number(delta.from.map_or(0, |from| from + 1));
                self.token(&delta.token);
                self.long(delta.digest);
            }
            Message::Farewell { version, delta } => {
                self.number(*version);
                self.number(delta.as_ref().map_or(0, |delta| delta.to()));
            }
            Message::YouAreDead { version } => self.number(*version),
            other => self.text(&format!("{other:?}")),
        }
    }
}

/// The hash of an input.
pub(super) fn of(input: &Input) -> u64 {
    let mut mix = Mix(0xcbf2_9ce4_8422_2325);
    match input {
        Input::Start => mix.text("start"),
        Input::Wake => mix.text("wake"),
        Input::Hint => mix.text("hint"),
        Input::Message {
            link,
            peer,
            header,
            body,
        } => {
            if *peer == PeerIdentity::Unproven {
                mix.text("unproven");
            }
            mix.number(link.0);
            mix.header(header);
            mix.message(body);
        }
        Input::SendFailed {
            to,
            refused,
            reason,
        } => {
            mix.silo(&SiloAddress::at(*to, 0));
            mix.number(u64::from(*refused));
            mix.text(reason);
        }
        Input::Heard { from, asked } => {
            mix.silo(from);
            mix.number(asked.as_nanos());
        }
        Input::Initialized { call, result } | Input::HeartbeatWritten { call, result } => {
            mix.text(if matches!(input, Input::Initialized { .. }) {
                "initialized"
            } else {
                "heartbeat"
            });
            mix.number(call.0);
            if let Err(error) = result {
                mix.error(error);
            }
        }
        Input::Read { call, result } => {
            mix.text("read");
            mix.number(call.0);
            match result {
                Ok(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats,
                }) => {
                    mix.token(&snapshot.token);
                    mix.heartbeats(heartbeats.as_ref());
                }
                Ok(ReadAnswer::Unchanged { heartbeats }) => mix.heartbeats(heartbeats.as_ref()),
                Err(error) => mix.error(error),
                other => mix.text(&format!("{other:?}")),
            }
        }
        Input::RowRead { call, result } => {
            mix.text("row");
            mix.number(call.0);
            match result {
                Ok(read) => mix.token(&read.token),
                Err(error) => mix.error(error),
            }
        }
        Input::Committed { call, result } => {
            mix.text("committed");
            mix.number(call.0);
            match result {
                Ok(CommitOutcome::Committed(token)) => mix.token(token),
                Ok(CommitOutcome::Conflict(conflict)) => {
                    mix.text("conflict");
                    mix.long(conflict.newest.as_ref().map_or(0, |newest| newest.id.get()));
                }
                Err(error) => mix.error(error),
                other => mix.text(&format!("{other:?}")),
            }
        }
        Input::ExecutorLag(lag) => mix.long(lag.as_nanos()),
        Input::Command(command) => mix.text(&format!("{command:?}")),
        other => mix.text(&format!("{other:?}")),
    }
    mix.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use membership_core::protocol::{CallId, Command, LinkId, PeerIdentity, RequestId};
    use membership_core::{InstanceId, Operation, TableErrorKind};

    #[test]
    fn different_inputs_have_different_hashes() {
        let silo = |n: u8| SiloAddress::new([10, 0, 0, n].into(), 7100, 1);
        let message = |from: u8, body| {
            let mut header = Header::new(0, silo(from), InstanceId::new(7));
            header.version = 3;
            header.digest = 4;
            Input::Message {
                link: LinkId(1),
                peer: PeerIdentity::Proven(header.instance),
                header,
                body: Arc::new(body),
            }
        };
        let read = |kind, why: &str| Input::Read {
            call: CallId(1),
            result: Err(TableError::new(kind, Operation::Read, "virtual", why)),
        };
        let evict = |n| {
            Input::Command(Command::Evict {
                request: RequestId(1),
                silo: silo(n),
                reason: String::new(),
            })
        };
        let all = [
            Input::Start,
            Input::Wake,
            message(1, Message::Probe { nonce: 1 }),
            message(1, Message::Probe { nonce: 2 }),
            message(2, Message::Probe { nonce: 1 }),
            // Names of one length, and one nonce.
            message(
                1,
                Message::DialMe {
                    nonce: 1,
                    endpoint: silo(1).endpoint(),
                },
            ),
            message(1, Message::NotMe { nonce: 1 }),
            message(1, Message::Identify { nonce: 1 }),
            message(
                1,
                Message::RollAnswer {
                    call: 1,
                    findings: vec![(silo(2), Finding::Reached)],
                    missed: Vec::new(),
                },
            ),
            message(
                1,
                Message::RollAnswer {
                    call: 1,
                    findings: vec![(
                        silo(2),
                        Finding::Failed {
                            silent_ms: 1,
                            heard_ms: None,
                            refused: false,
                            consent: None,
                        },
                    )],
                    missed: Vec::new(),
                },
            ),
            message(
                1,
                Message::RollAnswer {
                    call: 1,
                    findings: vec![(
                        silo(2),
                        Finding::Failed {
                            silent_ms: 1,
                            heard_ms: None,
                            refused: true,
                            consent: None,
                        },
                    )],
                    missed: Vec::new(),
                },
            ),
            message(
                1,
                Message::RollAnswer {
                    call: 1,
                    findings: vec![(silo(2), Finding::Unknown)],
                    missed: Vec::new(),
                },
            ),
            message(
                1,
                Message::RollCall {
                    call: 1,
                    suspects: vec![(silo(2), 3_000)],
                },
            ),
            Input::SendFailed {
                to: silo(1).endpoint(),
                refused: true,
                reason: "refused".to_owned(),
            },
            Input::SendFailed {
                to: silo(2).endpoint(),
                refused: true,
                reason: "refused".to_owned(),
            },
            Input::SendFailed {
                to: silo(1).endpoint(),
                refused: true,
                reason: "refuses".to_owned(),
            },
            read(TableErrorKind::Unavailable, "down"),
            read(TableErrorKind::Unavailable, "slow"),
            read(TableErrorKind::Busy, "down"),
            Input::Read {
                call: CallId(1),
                result: Ok(ReadAnswer::Unchanged { heartbeats: None }),
            },
            Input::Read {
                call: CallId(2),
                result: Ok(ReadAnswer::Unchanged { heartbeats: None }),
            },
            Input::HeartbeatWritten {
                call: CallId(1),
                result: Ok(()),
            },
            Input::Initialized {
                call: CallId(1),
                result: Ok(()),
            },
            evict(1),
            evict(2),
        ];
        let numbers: BTreeSet<u64> = all.iter().map(of).collect();
        assert_eq!(numbers.len(), all.len());
        assert!(all.iter().all(|input| of(input) == of(&input.clone())));
    }
}
