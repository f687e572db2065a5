//! Separates the bytes of a TLS handshake from the data of client and server. Works without a key,
//! because the headers of records are in plain text.
//!
//! A handshake asks nothing of a store, and a client that opens a spare connection sends nothing
//! else for a while. So the bytes of a handshake belong to no exchange, and neither do closing
//! alerts. What is known of a record:
//!
//! | record | of TLS 1.2 | of TLS 1.3 (RFC 8446 §5, appendix D.4) |
//! |---|---|---|
//! | 20, 22 | handshake | handshake |
//! | 21 | alert | alert in plain text |
//! | 23 of the client | data | the first ends its handshake (one record, with its certificate where requested); then data |
//! | 23 of the server | data | handshake, until the client's has ended; then unrequested tickets, and data |
//! | 23, with two bytes in it | data | alert |
//!
//! Tickets look like data. They come before all data, so the caller waits for them before it
//! forwards the client's first request: see [`Session::awaits_tickets`].

use crate::fault::Way;

const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// An encrypted alert of TLS 1.3: two bytes, the type, and the tag (RFC 8446 §5.2, §6).
const ENCRYPTED_ALERT: usize = 2 + 1 + 16;
/// No record is longer (RFC 5246 §6.2.3, which allows more than RFC 8446 §5.2).
const LONGEST: usize = (1 << 14) + 2048;
/// How many bytes a client may send in plain text before its handshake: PostgreSQL's clients send
/// 8, MySQL's 36.
const PREFACE: usize = 64;
/// From the header of the server's first record to the end of the cipher suite: header, type and
/// length, version, random number, session.
const UP_TO_SESSION: usize = 5 + 4 + 2 + 32;
const LONGEST_HELLO: usize = UP_TO_SESSION + 1 + 32 + 2;

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    client: Records,
    server: Records,
    /// A handshake has begun. Until then `plain` counts the bytes that the client has sent.
    begun: bool,
    plain: usize,
    /// The first bytes that the server sent.
    hello: Vec<u8>,
    tls13: bool,
    /// TLS 1.3: the client has sent the last message of its handshake.
    ended: bool,
    /// The client has sent a request.
    requested: bool,
    /// How many records the server has sent since the client's handshake ended.
    since: u64,
}

impl Session {
    /// Takes the bytes that pass next. Returns how many bytes at their beginning belong to a
    /// handshake or to an alert. Bytes in an unknown format belong to neither.
    pub fn handshake(&mut self, way: Way, bytes: &[u8]) -> usize {
        if self.begun {
            return match way {
                Way::Requests => self.of_client(bytes),
                Way::Answers => self.of_server(bytes),
            };
        }
        if way == Way::Answers {
            return 0;
        }
        let Some(at) = client_hello(bytes, PREFACE.saturating_sub(self.plain)) else {
            self.plain = self.plain.saturating_add(bytes.len());
            return 0;
        };
        self.begun = true;
        let handshake = self.of_client(&bytes[at..]);
        if at == 0 { handshake } else { 0 }
    }

    /// Whether the client's handshake of TLS 1.3 has ended, and it has sent no request since:
    /// records of the server are unrequested now.
    pub fn awaits_tickets(&self) -> bool {
        self.ended && !self.requested
    }

    /// How many records have come from the server since the client's handshake ended.
    pub fn records_since(&self) -> u64 {
        self.since
    }

    /// The client's request is forwarded.
    pub fn request_sent(&mut self) {
        self.requested = true;
    }

    fn of_client(&mut self, bytes: &[u8]) -> usize {
        let (tls13, ended) = (self.tls13, &mut self.ended);
        self.client.read(bytes, |kind, length| match kind {
            DATA if tls13 && !*ended => {
                *ended = true;
                false
            }
            DATA => !(tls13 && length == ENCRYPTED_ALERT),
            _ => false,
        })
    }

    fn of_server(&mut self, bytes: &[u8]) -> usize {
        let missing = LONGEST_HELLO.saturating_sub(self.hello.len());
        if missing > 0 {
            self.hello.extend(bytes.iter().take(missing));
            // All suites of TLS 1.3 begin with the same byte, and no other does (RFC 8446 §B.4).
            self.tls13 = suite(&self.hello).is_some_and(|suite| suite[0] == 0x13);
        }
        let (tls13, ended, since) = (self.tls13, self.ended, &mut self.since);
        self.server.read(bytes, |kind, length| {
            *since += u64::from(ended);
            kind == DATA && !(tls13 && (!ended || length == ENCRYPTED_ALERT))
        })
    }
}

/// Finds the start of a client's handshake among the first bytes: the header of a record that holds
/// a ClientHello and nothing else.
fn client_hello(bytes: &[u8], among: usize) -> Option<usize> {
    let begins = |bytes: &[u8]| match bytes {
        [HANDSHAKE, 3, 1..=3, a, b, 1, 0, c, d, 3, 3, ..] => {
            u16::from_be_bytes([*a, *b]) == u16::from_be_bytes([*c, *d]).saturating_add(4)
        }
        _ => false,
    };
    (0..bytes.len().min(among)).find(|at| begins(&bytes[*at..]))
}

/// The cipher suite that the server has chosen, once it is known.
fn suite(hello: &[u8]) -> Option<[u8; 2]> {
    let session = usize::from(*hello.get(UP_TO_SESSION)?);
    hello
        .get(UP_TO_SESSION + 1 + session..)?
        .first_chunk()
        .copied()
}

/// One direction of a connection, divided into records.
#[derive(Debug, Default)]
struct Records {
    header: [u8; 5],
    /// How much of the next header is known.
    known: usize,
    /// How many bytes of the current record are left, and whether they are data.
    left: usize,
    data: bool,
    /// This is not TLS, or not understood.
    unreadable: bool,
}

impl Records {
    /// Reads the next bytes. Returns how many come before the first byte of data. A part of a
    /// header counts with the bytes before it.
    fn read(&mut self, bytes: &[u8], mut is_data: impl FnMut(u8, usize) -> bool) -> usize {
        let mut before = None;
        let mut at = 0;
        while at < bytes.len() {
            if self.unreadable {
                return before.unwrap_or(at);
            }
            if self.left > 0 {
                if self.data {
                    before = before.or(Some(at));
                }
                let part = self.left.min(bytes.len() - at);
                (self.left, at) = (self.left - part, at + part);
                continue;
            }
            let begun = at;
            let part = (self.header.len() - self.known).min(bytes.len() - at);
            self.header[self.known..][..part].copy_from_slice(&bytes[at..][..part]);
            (self.known, at) = (self.known + part, at + part);
            if self.known < self.header.len() {
                continue;
            }
            self.known = 0;
            let [kind, major, _, a, b] = self.header;
            let length = usize::from(u16::from_be_bytes([a, b]));
            self.unreadable =
                !(CHANGE_CIPHER_SPEC..=DATA).contains(&kind) || major != 3 || length > LONGEST;
            self.data = self.unreadable || is_data(kind, length);
            self.left = length;
            if self.data {
                before = before.or(Some(begun));
            }
        }
        before.unwrap_or(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, length: usize) -> Vec<u8> {
        let [a, b] = u16::try_from(length).unwrap().to_be_bytes();
        [vec![kind, 3, 3, a, b], vec![0xaa; length]].concat()
    }

    fn hello() -> Vec<u8> {
        let mut bytes = record(HANDSHAKE, 200);
        bytes[2] = 1;
        bytes[5..11].copy_from_slice(&[1, 0, 0, 196, 3, 3]);
        bytes
    }

    fn server_hello(suite: [u8; 2]) -> Vec<u8> {
        let mut bytes = record(HANDSHAKE, 118);
        bytes[5..9].copy_from_slice(&[2, 0, 0, 114]);
        bytes[UP_TO_SESSION] = 32;
        bytes[UP_TO_SESSION + 33..][..2].copy_from_slice(&suite);
        bytes
    }

    const ALERT: u8 = 21;
    const CCS: [u8; 6] = [CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1];

    /// A connection of TLS 1.3 up to the end of the client's handshake.
    fn encrypted() -> Session {
        let mut session = Session::default();
        assert_eq!(session.handshake(Way::Requests, &hello()), 205);
        let answer = [
            server_hello([0x13, 1]),
            CCS.to_vec(),
            record(DATA, 27),
            record(DATA, 700),
            record(DATA, 53),
            record(DATA, 130),
        ]
        .concat();
        assert_eq!(session.handshake(Way::Answers, &answer), answer.len());
        assert!(!session.awaits_tickets());
        let end = [CCS.to_vec(), record(DATA, 53)].concat();
        assert_eq!(session.handshake(Way::Requests, &end), end.len());
        assert!(session.awaits_tickets());
        session
    }

    #[test]
    fn bytes_that_are_no_handshake_are_data() {
        let mut session = Session::default();
        for (way, bytes) in [
            (Way::Requests, &b"GET / HTTP/1.1\r\n\r\n"[..]),
            (Way::Answers, b"HTTP/1.1 200 OK\r\n\r\n"),
            // The beginning of a handshake that turns out to be none.
            (Way::Requests, &[22, 3, 1, 0, 200, 1, 0, 0, 7, 3, 3]),
            (Way::Requests, &[22, 3]),
        ] {
            assert_eq!(session.handshake(way, bytes), 0);
        }
        // Too late: no client begins a handshake after so many bytes of plain text.
        assert_eq!(session.handshake(Way::Requests, &[0; PREFACE]), 0);
        assert_eq!(session.handshake(Way::Requests, &hello()), 0);
        assert_eq!(session.handshake(Way::Answers, &server_hello([0x13, 1])), 0);
    }

    #[test]
    fn a_handshake_of_tls_1_3_is_neither_request_nor_answer() {
        let mut session = encrypted();
        assert_eq!(session.handshake(Way::Requests, &record(DATA, 300)), 0);
        session.request_sent();
        assert!(!session.awaits_tickets());
        assert_eq!(session.handshake(Way::Answers, &record(DATA, 300)), 0);
    }

    #[test]
    fn the_end_of_a_handshake_is_separated_from_a_request_behind_it() {
        let mut session = Session::default();
        session.handshake(Way::Requests, &hello());
        session.handshake(Way::Answers, &server_hello([0x13, 2]));
        // With a certificate.
        let end = [CCS.to_vec(), record(DATA, 900)].concat();
        assert_eq!(
            session.handshake(
                Way::Requests,
                &[end.clone(), record(DATA, 100), record(DATA, 100)].concat()
            ),
            end.len()
        );
    }

    #[test]
    fn tickets_are_counted_until_the_first_request() {
        let mut session = encrypted();
        assert_eq!(session.records_since(), 0);
        session.handshake(
            Way::Answers,
            &[record(DATA, 250), record(DATA, 250)].concat(),
        );
        assert_eq!(
            (session.records_since(), session.awaits_tickets()),
            (2, true)
        );
    }

    #[test]
    fn an_alert_is_no_request() {
        let mut session = encrypted();
        let alert = record(DATA, ENCRYPTED_ALERT);
        assert_eq!(session.handshake(Way::Requests, &alert), alert.len());
        assert_eq!(session.handshake(Way::Answers, &alert), alert.len());
        assert_eq!(session.handshake(Way::Requests, &record(ALERT, 2)), 7);
    }

    #[test]
    fn a_handshake_of_tls_1_2_is_neither_request_nor_answer() {
        let mut session = Session::default();
        assert_eq!(session.handshake(Way::Requests, &hello()), 205);
        let first = [server_hello([0xc0, 0x2f]), record(HANDSHAKE, 900)].concat();
        assert_eq!(session.handshake(Way::Answers, &first), first.len());
        let end = [record(HANDSHAKE, 37), CCS.to_vec(), record(HANDSHAKE, 40)].concat();
        assert_eq!(session.handshake(Way::Requests, &end), end.len());
        let end = [record(HANDSHAKE, 180), CCS.to_vec(), record(HANDSHAKE, 40)].concat();
        assert_eq!(session.handshake(Way::Answers, &end), end.len());
        assert!(
            !session.awaits_tickets(),
            "its tickets are part of the handshake"
        );
        assert_eq!(session.handshake(Way::Requests, &record(DATA, 26)), 0);
        assert_eq!(
            session.handshake(Way::Answers, &record(DATA, ENCRYPTED_ALERT)),
            0
        );
        assert_eq!(session.handshake(Way::Answers, &record(ALERT, 26)), 31);
    }

    #[test]
    fn records_may_come_in_any_pieces() {
        let client = [hello(), CCS.to_vec(), record(DATA, 53), record(DATA, 40)].concat();
        let server = [server_hello([0x13, 1]), CCS.to_vec(), record(DATA, 800)].concat();
        let data = client.len() - 45;
        for size in [1, 2, 3, 7, 64, 1000] {
            let mut session = Session::default();
            // The bytes that identify the handshake come together.
            let mut counted = session.handshake(Way::Requests, &client[..11]);
            assert_eq!(counted, 11);
            for piece in client[11..205].chunks(size) {
                counted += session.handshake(Way::Requests, piece);
            }
            for piece in server.chunks(size) {
                assert_eq!(
                    session.handshake(Way::Answers, piece),
                    piece.len(),
                    "pieces of {size}"
                );
            }
            for piece in client[205..].chunks(size) {
                counted += session.handshake(Way::Requests, piece);
            }
            // The kind of a record is unknown until its header is complete.
            assert!(
                (data..data + 5).contains(&counted),
                "pieces of {size}: {counted} of {data}"
            );
        }
    }

    #[test]
    fn a_handshake_may_begin_after_some_plain_text() {
        // PostgreSQL: the client requests TLS, and one byte is the answer.
        let mut session = Session::default();
        assert_eq!(
            session.handshake(Way::Requests, &[0, 0, 0, 8, 4, 210, 22, 47]),
            0
        );
        assert_eq!(session.handshake(Way::Answers, b"S"), 0);
        assert_eq!(session.handshake(Way::Requests, &hello()), 205);
        assert_eq!(
            session.handshake(Way::Answers, &server_hello([0x13, 1])),
            123
        );
        // MySQL: the server sends first, and the client does not wait.
        let mut session = Session::default();
        assert_eq!(session.handshake(Way::Answers, b"J\0\0\0\x0a8.0.30"), 0);
        let wish = [vec![32, 0, 0, 1], vec![0; 32]].concat();
        assert_eq!(
            session.handshake(Way::Requests, &[wish, hello()].concat()),
            0,
            "in one piece: not the handshake alone"
        );
        assert_eq!(
            session.handshake(Way::Answers, &server_hello([0x13, 1])),
            123
        );
        assert_eq!(
            session.handshake(Way::Requests, &[CCS.to_vec(), record(DATA, 53)].concat()),
            64
        );
        assert_eq!(session.handshake(Way::Requests, &record(DATA, 60)), 0);
    }

    #[test]
    fn bytes_after_an_unknown_record_are_data() {
        let mut session = encrypted();
        let (known, strange) = (record(ALERT, 2), vec![99; 20]);
        assert_eq!(
            session.handshake(Way::Answers, &[known.clone(), strange].concat()),
            known.len()
        );
        assert_eq!(session.handshake(Way::Answers, &known), 0);
        // A server that answers in plain text.
        let mut session = Session::default();
        session.handshake(Way::Requests, &hello());
        assert_eq!(
            session.handshake(Way::Answers, b"HTTP/1.0 400 Bad Request\r\n\r\n"),
            0
        );
    }
}
