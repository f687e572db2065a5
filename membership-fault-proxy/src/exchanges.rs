//! Assigns bytes to exchanges, and finds the exchange that a fault is meant for. No input or
//! output: the caller reports the bytes that pass, and the answer says what to do with them.
//!
//! An exchange is what a client sends until it receives an answer, and that answer. Everything that
//! a client sends before it receives an answer, on one connection or on several, is one exchange.
//! What it sends afterwards on a connection that was answered is the next exchange.

use std::collections::BTreeMap;

use crate::fault::{Fault, Stage, Way};

/// What to do with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They are forwarded.
    Pass,
    /// They are discarded; the connection stays open.
    Swallow,
    /// The first `keep` of them are forwarded, then the connection is cut: the client sees a reset,
    /// or the end of the stream.
    Cut { keep: usize, reset: bool },
    /// They are forwarded, without the last byte if `hold_last`: it is forwarded when more comes.
    /// The connection is cut at the client's next request, or after [`QUIET`](crate::fault::QUIET).
    PassThenCut { hold_last: bool },
}

/// How much of a request's first line is remembered: a path, and no header with a secret.
const LINE: usize = 120;

/// One connection.
#[derive(Debug, Default)]
struct Connection {
    /// The exchange in which it takes or last took part; 0 for none.
    exchange: u64,
    /// It has sent a request, and has received no answer yet.
    awaiting: bool,
    /// It has sent a request, which the proxy has not forwarded yet: bytes from the server are no
    /// answer to it.
    delayed: bool,
    /// A link between servers: not part of any exchange.
    link: bool,
    /// The client's own monitoring: neither counted nor hit by a fault of one exchange.
    ignored: bool,
    /// The client has sent something since the idle time began.
    sent: bool,
    /// Everything that the server sends on it is discarded.
    muted: bool,
    /// It is cut at the client's next request.
    cut_due: bool,
    /// It is cut before the last byte of its answer.
    hold_last: bool,
    /// The client has closed it, and the server still works on its request.
    client_gone: bool,
    /// How its newest request begins.
    begins: String,
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    at: u64,
    fired: bool,
}

/// The bookkeeping of all connections of one proxy.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    connections: BTreeMap<u64, Connection>,
    ids: u64,
    /// How many exchanges have begun; also the number of the newest.
    begun: u64,
    /// The newest exchange has been answered, or no client waits for its answer any more: the next
    /// request begins a new exchange.
    newest_done: bool,
    answered: u64,
    /// For each counter: the exchange after which it began, and its count.
    counters: BTreeMap<u64, (u64, u64)>,
    armed: Option<Armed>,
    /// Set by a fault that holds bytes; the owner of this struct holds them.
    pub hold_requests: bool,
    pub hold_answers: bool,
}

impl Exchanges {
    pub fn connect(&mut self, link: bool) -> u64 {
        self.ids += 1;
        self.connections.insert(
            self.ids,
            Connection {
                link,
                ..Connection::default()
            },
        );
        self.ids
    }

    /// The newest connection; 0 before the first one.
    pub fn newest(&self) -> u64 {
        self.ids
    }

    /// The client has closed the connection. Returns true if an answer is still due: until then the
    /// server works on the request.
    pub fn client_closed(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        connection.client_gone = true;
        let late = connection.awaiting && !connection.ignored && !connection.muted;
        self.end_abandoned();
        late
    }

    pub fn closed(&mut self, connection: u64) {
        // It does not matter which side closed first: the connection is cut after its answer.
        self.cut_done(connection);
        self.connections.remove(&connection);
        self.end_abandoned();
    }

    pub fn connections(&self) -> usize {
        self.connections
            .values()
            .filter(|c| !c.link && !c.client_gone)
            .count()
    }

    pub fn links(&self) -> usize {
        self.connections.values().filter(|c| c.link).count()
    }

    /// Whether the bytes of a connection belong to exchanges.
    pub fn is_watched(&self, connection: u64) -> bool {
        self.connections
            .get(&connection)
            .is_some_and(|c| !c.link && !c.ignored)
    }

    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether an answer is still due, even if its client is gone.
    pub fn under_way(&self) -> bool {
        self.connections
            .values()
            .any(|c| (c.awaiting || c.delayed) && !c.ignored && !c.muted)
    }

    /// How the requests begin whose answer is still due.
    pub fn open_requests(&self) -> Vec<String> {
        let is_open = |c: &&Connection| (c.awaiting || c.delayed) && !c.ignored && !c.muted;
        let open = self.connections.values().filter(is_open);
        open.map(|connection| connection.begins.clone()).collect()
    }

    /// Remembers how a request begins: its first line if that is text, else its first bytes. Bytes
    /// that continue a request change nothing.
    pub fn begins(&mut self, id: u64, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.awaiting) {
            let line = bytes.split(|b| b"\r\n".contains(b)).next().unwrap_or(bytes);
            let line = line.get(..LINE).unwrap_or(line);
            connection.begins = match line.iter().all(|b| (b' '..=b'~').contains(b)) {
                true if line.len() > 3 => format!("`{}`", String::from_utf8_lossy(line)),
                _ => format!(
                    "{} bytes, {:02x?}",
                    bytes.len(),
                    bytes.get(..16).unwrap_or(bytes)
                ),
            };
        }
    }

    /// Ends the newest exchange if no client waits for its answer.
    fn end_abandoned(&mut self) {
        if !self
            .connections
            .values()
            .any(|l| l.awaiting && !l.ignored && !l.client_gone && l.exchange == self.begun)
        {
            self.newest_done = true;
        }
    }

    pub fn count(&mut self) -> u64 {
        self.ids += 1;
        self.counters.insert(self.ids, (self.begun, 0));
        self.newest_done = true;
        self.ids
    }

    pub fn counted(&self, counter: u64) -> u64 {
        self.counters.get(&counter).map_or(0, |(_, n)| *n)
    }

    pub fn stop_counting(&mut self, counter: u64) {
        self.counters.remove(&counter);
    }

    /// Sets a fault for the exchange after the next `skip` ones.
    pub fn arm(&mut self, skip: u64, fault: Fault) {
        self.newest_done = true;
        self.armed = Some(Armed {
            fault,
            at: self.begun.saturating_add(1).saturating_add(skip),
            fired: false,
        });
    }

    pub fn disarm(&mut self) {
        self.armed = None;
    }

    pub fn fired(&self) -> bool {
        self.armed.as_ref().is_some_and(|a| a.fired)
    }

    /// This connection is the client's own monitoring.
    pub fn ignore(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.ignored = true;
        }
    }

    pub fn begin_idle(&mut self) {
        self.connections.values_mut().for_each(|l| l.sent = false);
    }

    /// Connections that sent something or waited for an answer during the idle time are the
    /// client's own monitoring.
    pub fn end_idle(&mut self) -> usize {
        for connection in self.connections.values_mut() {
            connection.ignored |=
                !connection.client_gone && (connection.sent || connection.awaiting);
        }
        self.end_abandoned();
        self.connections.values().filter(|l| l.ignored).count()
    }

    pub fn passes(&mut self, connection: u64, way: Way, bytes: usize) -> Verdict {
        match way {
            Way::Requests => self.request(connection, bytes),
            Way::Answers => self.answer(connection, bytes),
        }
    }

    /// Bytes of a handshake belong to no exchange. They pass unless their connection is muted or
    /// due to be cut.
    pub fn handshake(&mut self, id: u64, way: Way) -> Verdict {
        match (way, self.connections.get(&id)) {
            (_, Some(connection)) if connection.link => Verdict::Pass,
            (Way::Requests, Some(connection)) if connection.cut_due => Verdict::Cut {
                keep: 0,
                reset: true,
            },
            // The server may still work on the request of a client that is gone.
            (Way::Answers, Some(connection)) if connection.muted || connection.client_gone => {
                Verdict::Swallow
            }
            (Way::Answers, Some(connection)) if connection.cut_due => Verdict::PassThenCut {
                hold_last: connection.hold_last,
            },
            _ => Verdict::Pass,
        }
    }

    /// A side asks whether the other is there, or says that it is: part of no exchange. The answer
    /// to a client that asks is none to a request, because nothing is awaited.
    pub fn keep_alive(&mut self, id: u64, way: Way) -> Verdict {
        self.handshake(id, way)
    }

    /// The client has sent a request that is not forwarded yet.
    pub fn delay_request(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.delayed = true;
        }
    }

    fn request(&mut self, id: u64, bytes: usize) -> Verdict {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Verdict::Pass;
        };
        connection.delayed = false;
        if connection.link {
            return Verdict::Pass;
        }
        connection.sent = true;
        if connection.cut_due {
            return Verdict::Cut {
                keep: 0,
                reset: true,
            };
        }
        if connection.ignored {
            return Verdict::Pass;
        }
        if !connection.awaiting {
            connection.awaiting = true;
            if self.newest_done || self.begun == 0 {
                self.begun += 1;
                self.newest_done = false;
            }
            connection.exchange = self.begun;
        }
        let Some(armed) = self
            .armed
            .as_mut()
            .filter(|a| a.at == connection.exchange && !a.fired)
        else {
            return Verdict::Pass;
        };
        match armed.fault {
            Fault::Cut(Stage::BeforeRequest) => {
                armed.fired = true;
                Verdict::Cut {
                    keep: 0,
                    reset: true,
                }
            }
            Fault::Cut(Stage::WithinRequest) => {
                armed.fired = true;
                Verdict::Cut {
                    keep: bytes / 2,
                    reset: true,
                }
            }
            Fault::HoldRequest => {
                armed.fired = true;
                self.hold_requests = true;
                Verdict::Pass
            }
            Fault::Cut(_) | Fault::LoseAnswer | Fault::HoldAnswer => Verdict::Pass,
        }
    }

    fn answer(&mut self, id: u64, bytes: usize) -> Verdict {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Verdict::Pass;
        };
        if connection.link {
            return Verdict::Pass;
        }
        if connection.client_gone {
            connection.awaiting = false;
            return Verdict::Cut {
                keep: 0,
                reset: false,
            };
        }
        if connection.muted {
            return Verdict::Swallow;
        }
        if connection.cut_due {
            return Verdict::PassThenCut {
                hold_last: connection.hold_last,
            };
        }
        if connection.ignored || !connection.awaiting {
            return Verdict::Pass;
        }
        if let Some(armed) = self
            .armed
            .as_mut()
            .filter(|a| a.at == connection.exchange && !a.fired)
        {
            match armed.fault {
                Fault::Cut(Stage::AfterRequest) => {
                    armed.fired = true;
                    return Verdict::Cut {
                        keep: 0,
                        reset: true,
                    };
                }
                Fault::Cut(Stage::WithinAnswer) => {
                    armed.fired = true;
                    return Verdict::Cut {
                        keep: bytes / 2,
                        reset: false,
                    };
                }
                Fault::LoseAnswer => {
                    armed.fired = true;
                    connection.muted = true;
                    return Verdict::Swallow;
                }
                Fault::HoldAnswer => {
                    armed.fired = true;
                    self.hold_answers = true;
                }
                // The fault counts as fired once the connection is cut.
                Fault::Cut(stage @ (Stage::BeforeLastByte | Stage::AfterAnswer)) => {
                    connection.cut_due = true;
                    connection.hold_last = stage == Stage::BeforeLastByte;
                }
                Fault::Cut(_) | Fault::HoldRequest => {}
            }
        }
        connection.awaiting = false;
        let (cut_due, hold_last) = (connection.cut_due, connection.hold_last);
        if connection.exchange == self.begun && !self.newest_done {
            self.newest_done = true;
            self.answered += 1;
            for (from, n) in self.counters.values_mut() {
                *n += u64::from(self.begun > *from);
            }
        }
        if cut_due {
            Verdict::PassThenCut { hold_last }
        } else {
            Verdict::Pass
        }
    }

    /// The connection is cut now. If the cut was due, the fault has fired.
    pub fn cut_done(&mut self, connection: u64) {
        if self.connections.get(&connection).is_some_and(|l| l.cut_due)
            && let Some(armed) = &mut self.armed
        {
            armed.fired = true;
        }
    }
}

#[cfg(test)]
mod tests;
