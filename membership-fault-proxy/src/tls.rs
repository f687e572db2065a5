//! Which bytes of a connection are the handshake of TLS, and which are what client and server have to say to each other. Told what passes,
//! without a key: the headers of records are in plain text.
//!
//! A handshake asks a store for nothing, and a client that makes a connection to spare says no more than that for a while. So its bytes belong
//! to no flight; nor does a goodbye. What is known of a record:
//!
//! | record | of TLS 1.2 | of TLS 1.3 (RFC 8446 §5, appendix D.4) |
//! |---|---|---|
//! | 20, 22 | handshake | handshake |
//! | 21 | goodbye, or what went wrong | the same, in plain text |
//! | 23 of the client | words | the first ends its handshake: one record holds its certificate, where asked for, and its last word; then words |
//! | 23 of the server | words | handshake, until the client's has ended; then tickets, unasked, and words |
//! | 23, with two bytes in it | words | goodbye, or what went wrong |
//!
//! Tickets look like words. They come before all words, so whoever carries bytes lets them come before it takes the client's first question on:
//! see [`Session::lets_tickets_come`].

use crate::fault::Way;

const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// An encrypted alert of TLS 1.3: two bytes, the type, and the tag (RFC 8446 §5.2, §6).
const ENCRYPTED_ALERT: usize = 2 + 1 + 16;
/// No record is longer (RFC 5246 §6.2.3, which allows more than RFC 8446 §5.2).
const LONGEST: usize = (1 << 14) + 2048;
/// How much a client may say in plain text before it begins: PostgreSQL's 8 bytes and MySQL's 36.
const PREFACE: usize = 64;
/// From the header of the server's first record to the end of the cipher suite: header, type and length, version, random number, session.
const UP_TO_SESSION: usize = 5 + 4 + 2 + 32;
const LONGEST_HELLO: usize = UP_TO_SESSION + 1 + 32 + 2;

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    client: Records,
    server: Records,
    /// A handshake has begun; until then, how much the client has said in plain text.
    begun: bool,
    plain: usize,
    /// The beginning of what the server said.
    hello: Vec<u8>,
    tls13: bool,
    /// TLS 1.3: the client's last word of the handshake is out.
    ended: bool,
    /// The client has asked.
    asked: bool,
    /// How many records of the server have come since.
    since: u64,
}

impl Session {
    /// Told what passes next; how many bytes at its beginning belong to a handshake, or to a goodbye. Whatever is not understood does not.
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
        let greeting = self.of_client(&bytes[at..]);
        if at == 0 { greeting } else { 0 }
    }

    /// Whether the client's handshake of TLS 1.3 has ended, and it has asked for nothing since: what the server says now was not asked for.
    pub fn lets_tickets_come(&self) -> bool {
        self.ended && !self.asked
    }

    /// How many records have come from the server since the client's handshake ended.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// The client's question goes on.
    pub fn asks(&mut self) {
        self.asked = true;
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

/// Where in these bytes, among the first so many, a client begins a handshake: the header of a record with nothing in it but a ClientHello.
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

/// One way of a connection, cut into records.
#[derive(Debug, Default)]
struct Records {
    header: [u8; 5],
    /// How much of the next header is known.
    known: usize,
    /// How much is left of a record, and whether it is words.
    left: usize,
    words: bool,
    /// This is no TLS, or not understood.
    lost: bool,
}

impl Records {
    /// Reads on; how many bytes come before the first of words. A part of a header is told with what comes before it.
    fn read(&mut self, bytes: &[u8], mut are_words: impl FnMut(u8, usize) -> bool) -> usize {
        let mut before = None;
        let mut at = 0;
        while at < bytes.len() {
            if self.lost {
                return before.unwrap_or(at);
            }
            if self.left > 0 {
                if self.words {
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
            self.lost =
                !(CHANGE_CIPHER_SPEC..=DATA).contains(&kind) || major != 3 || length > LONGEST;
            self.words = self.lost || are_words(kind, length);
            self.left = length;
            if self.words {
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
        let flight = [
            server_hello([0x13, 1]),
            CCS.to_vec(),
            record(DATA, 27),
            record(DATA, 700),
            record(DATA, 53),
            record(DATA, 130),
        ]
        .concat();
        assert_eq!(session.handshake(Way::Answers, &flight), flight.len());
        assert!(!session.lets_tickets_come());
        let end = [CCS.to_vec(), record(DATA, 53)].concat();
        assert_eq!(session.handshake(Way::Requests, &end), end.len());
        assert!(session.lets_tickets_come());
        session
    }

    #[test]
    fn what_is_no_handshake_is_words() {
        let mut session = Session::default();
        for (way, bytes) in [
            (Way::Requests, &b"GET / HTTP/1.1\r\n\r\n"[..]),
            (Way::Answers, b"HTTP/1.1 200 OK\r\n\r\n"),
            // The beginning of one, and it is not.
            (Way::Requests, &[22, 3, 1, 0, 200, 1, 0, 0, 7, 3, 3]),
            (Way::Requests, &[22, 3]),
        ] {
            assert_eq!(session.handshake(way, bytes), 0);
        }
        // Too late: nobody begins after so much in plain text.
        assert_eq!(session.handshake(Way::Requests, &[0; PREFACE]), 0);
        assert_eq!(session.handshake(Way::Requests, &hello()), 0);
        assert_eq!(session.handshake(Way::Answers, &server_hello([0x13, 1])), 0);
    }

    #[test]
    fn a_handshake_of_tls_1_3_is_neither_question_nor_answer() {
        let mut session = encrypted();
        assert_eq!(session.handshake(Way::Requests, &record(DATA, 300)), 0);
        session.asks();
        assert!(!session.lets_tickets_come());
        assert_eq!(session.handshake(Way::Answers, &record(DATA, 300)), 0);
    }

    #[test]
    fn the_last_word_of_a_handshake_is_told_from_a_question_behind_it() {
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
    fn tickets_are_counted_until_a_question() {
        let mut session = encrypted();
        assert_eq!(session.since(), 0);
        session.handshake(
            Way::Answers,
            &[record(DATA, 250), record(DATA, 250)].concat(),
        );
        assert_eq!((session.since(), session.lets_tickets_come()), (2, true));
    }

    #[test]
    fn a_goodbye_is_no_question() {
        let mut session = encrypted();
        let goodbye = record(DATA, ENCRYPTED_ALERT);
        assert_eq!(session.handshake(Way::Requests, &goodbye), goodbye.len());
        assert_eq!(session.handshake(Way::Answers, &goodbye), goodbye.len());
        assert_eq!(session.handshake(Way::Requests, &record(ALERT, 2)), 7);
    }

    #[test]
    fn a_handshake_of_tls_1_2_is_neither_question_nor_answer() {
        let mut session = Session::default();
        assert_eq!(session.handshake(Way::Requests, &hello()), 205);
        let first = [server_hello([0xc0, 0x2f]), record(HANDSHAKE, 900)].concat();
        assert_eq!(session.handshake(Way::Answers, &first), first.len());
        let end = [record(HANDSHAKE, 37), CCS.to_vec(), record(HANDSHAKE, 40)].concat();
        assert_eq!(session.handshake(Way::Requests, &end), end.len());
        let end = [record(HANDSHAKE, 180), CCS.to_vec(), record(HANDSHAKE, 40)].concat();
        assert_eq!(session.handshake(Way::Answers, &end), end.len());
        assert!(!session.lets_tickets_come(), "its tickets are within");
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
        let words = client.len() - 45;
        for size in [1, 2, 3, 7, 64, 1000] {
            let mut session = Session::default();
            // What tells that it is one comes together.
            let mut told = session.handshake(Way::Requests, &client[..11]);
            assert_eq!(told, 11);
            for piece in client[11..205].chunks(size) {
                told += session.handshake(Way::Requests, piece);
            }
            for piece in server.chunks(size) {
                assert_eq!(
                    session.handshake(Way::Answers, piece),
                    piece.len(),
                    "pieces of {size}"
                );
            }
            for piece in client[205..].chunks(size) {
                told += session.handshake(Way::Requests, piece);
            }
            // A part of a header is not known for what it is yet.
            assert!(
                (words..words + 5).contains(&told),
                "pieces of {size}: {told} of {words}"
            );
        }
    }

    #[test]
    fn it_may_begin_after_some_words_in_plain_text() {
        // PostgreSQL: a question for it, and one byte for an answer.
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
        // MySQL: the server greets first, and the client does not wait.
        let mut session = Session::default();
        assert_eq!(session.handshake(Way::Answers, b"J\0\0\0\x0a8.0.30"), 0);
        let wish = [vec![32, 0, 0, 1], vec![0; 32]].concat();
        assert_eq!(
            session.handshake(Way::Requests, &[wish, hello()].concat()),
            0,
            "together: not the handshake alone"
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
    fn what_is_not_understood_is_words_from_there_on() {
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
