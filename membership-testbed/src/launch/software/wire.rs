//! The part of each protocol that one readiness check needs.

pub(super) mod mongodb;
pub(super) mod tds;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The timeout of one check.
const ANSWER: Duration = Duration::from_secs(5);

/// A connection with timeouts for reads and writes.
pub(in crate::launch) fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(super) fn unix(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

pub(super) fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Redis: one command; the answer as text, and of a list the number of its entries.
fn redis_command<W: AsRef<str>>(
    stream: &mut (impl Read + Write),
    words: &[W],
) -> io::Result<String> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words.iter().map(AsRef::as_ref) {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
    if let Some(length) = line.strip_prefix('$') {
        let length: usize = length.parse().map_err(|_| wrong("there is no text"))?;
        let mut text = vec![0; length + 2];
        stream.read_exact(&mut text)?;
        text.truncate(length);
        return Ok(String::from_utf8_lossy(&text).into_owned());
    }
    match line.strip_prefix(['+', ':', '*']) {
        Some(answer) => Ok(answer.to_owned()),
        None => Err(wrong(line)),
    }
}

/// Redis: one command to a server without a password, which may be busy for a while.
#[cfg(feature = "suite")]
pub(crate) fn redis_call(address: SocketAddr, words: &[String]) -> io::Result<String> {
    let mut stream = tcp(address)?;
    stream.set_read_timeout(Some(6 * ANSWER))?;
    redis_command(&mut stream, words)
}

/// Redis: PING, after AUTH if there is a password.
pub(super) fn redis(mut stream: impl Read + Write, password: Option<&str>) -> io::Result<()> {
    if let Some(password) = password {
        let answer = redis_command(&mut stream, &["AUTH", password])?;
        if answer != "OK" {
            return Err(wrong(answer));
        }
    }
    match redis_command(&mut stream, &["PING"])? {
        answer if answer == "PONG" => Ok(()),
        answer => Err(wrong(answer)),
    }
}

/// PostgreSQL: logs in and selects 1. With `server_may_ask` a password request counts too, because
/// only a serving server sends one.
pub(super) fn postgres(mut stream: impl Read + Write, server_may_ask: bool) -> io::Result<()> {
    const VERSION_3: u32 = 3 << 16;
    let mut start = VERSION_3.to_be_bytes().to_vec();
    start.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
    stream.write_all(&(u32::try_from(start.len() + 4).unwrap_or(0)).to_be_bytes())?;
    stream.write_all(&start)?;
    let mut asked = false;
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length))
            .unwrap_or(0)
            .saturating_sub(4);
        let mut body = vec![0; length.min(1 << 20)];
        stream.read_exact(&mut body)?;
        match kind {
            b'R' if body.starts_with(&[0, 0, 0, 0]) => {}
            b'R' if server_may_ask => return Ok(()),
            b'R' => return Err(wrong("it requires a password")),
            b'E' => return Err(wrong(String::from_utf8_lossy(&body).replace('\0', " "))),
            b'Z' if asked => return Ok(()),
            b'Z' => {
                stream.write_all(b"Q\0\0\0\x0dSELECT 1\0")?;
                asked = true;
            }
            _ => {}
        }
    }
}

/// MariaDB, MySQL: logs in as root without a password and selects 1. With `server_may_refuse` a
/// refusal counts too, because only a serving server refuses.
pub(super) fn mysql(mut stream: impl Read + Write, server_may_refuse: bool) -> io::Result<()> {
    let greeting = packet(&mut stream)?;
    if greeting.first() != Some(&10) {
        return Err(wrong(said(&greeting)));
    }
    // Protocol 4.1, secure connection, plugin authentication.
    const CAPABILITIES: u32 = 0x200 | 0x8000 | 0x8_0000;
    const UTF8: u8 = 45;
    let mut login = CAPABILITIES.to_le_bytes().to_vec();
    login.extend((1_u32 << 24).to_le_bytes());
    login.push(UTF8);
    login.extend([0; 23]);
    login.extend_from_slice(b"root\0\0mysql_native_password\0");
    send(&mut stream, 1, &login)?;
    for sequence in [3, 5] {
        let answer = packet(&mut stream)?;
        match answer.first() {
            Some(0) => break,
            // The server requests another authentication method: again without a password.
            Some(0xfe) => send(&mut stream, sequence, &[])?,
            Some(0xff) if server_may_refuse => return Ok(()),
            _ => return Err(wrong(said(&answer))),
        }
    }
    send(&mut stream, 0, b"\x03SELECT 1")?;
    match packet(&mut stream)? {
        answer if answer.first() == Some(&0xff) => Err(wrong(said(&answer))),
        _ => Ok(()),
    }
}

/// Azurite: requests the tables, unsigned. Only a serving server refuses that as Azure does, with
/// the number of the request.
pub(super) fn azurite(mut stream: impl Read + Write, account: &str) -> io::Result<()> {
    write!(
        stream,
        "GET /{account}/Tables HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAccept: application/json\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(1 << 16).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.lines().next() {
        Some(line)
            if line.contains(" 403 ")
                && answer.to_ascii_lowercase().contains("x-ms-request-id:") =>
        {
            Ok(())
        }
        Some(line) => Err(wrong(line)),
        None => Err(wrong("it closed the connection")),
    }
}

/// DynamoDB: sends one request with any signature; returns its answer.
pub(super) fn dynamodb(
    mut stream: impl Read + Write,
    operation: &str,
    body: &str,
) -> io::Result<String> {
    let who = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: DynamoDB_20120810.{operation}\r\nAuthorization: {who}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| wrong("an answer that is not HTTP"))?;
    if head.split(' ').nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(wrong(body))
    }
}

/// ZooKeeper: checks that it serves, alone, as a leader or as a follower. It answers `ruok`
/// earlier.
pub(super) fn zookeeper(stream: impl Read + Write) -> io::Result<()> {
    let said = srvr(stream)?;
    if said.contains("Mode: ") {
        Ok(())
    } else {
        Err(wrong(said.lines().next().unwrap_or("it sent no answer")))
    }
}

/// ZooKeeper: the server's own statistics.
pub(in crate::launch) fn srvr(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"srvr")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// Consul: writes a key. A follower, or a server without a leader, does that only when there is a
/// leader.
pub(super) fn consul(mut stream: impl Read + Write, token: Option<&str>) -> io::Result<()> {
    let token = token.map_or_else(String::new, |token| format!("X-Consul-Token: {token}\r\n"));
    let head = format!("Host: localhost\r\nConnection: close\r\n{token}Content-Length: 1");
    stream
        .write_all(format!("PUT /v1/kv/launcher/ready HTTP/1.1\r\n{head}\r\n\r\n1").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(1 << 16).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.lines().next() {
        Some(line) if line.contains(" 200 ") => Ok(()),
        Some(line) => Err(wrong(format!(
            "{line}: {}",
            answer.lines().last().unwrap_or_default()
        ))),
        None => Err(wrong("it closed the connection")),
    }
}

/// etcd: sends one request to its gateway. Returns its answer, or its error.
pub(super) fn etcd(mut stream: impl Read + Write, path: &str, body: &str) -> io::Result<String> {
    // With HTTP/1.0 the answer comes in one piece.
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| wrong("an answer that is not HTTP"))?;
    if head.split(' ').nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(wrong(body))
    }
}

/// Cassandra: the consistency of a query that one node answers, a majority of the replicas, or each.
pub(super) const CASSANDRA_ONE: u8 = 1;
pub(super) const CASSANDRA_QUORUM: u8 = 4;
pub(super) const CASSANDRA_ALL: u8 = 5;

/// Cassandra: logs in if required, and sends one query.
pub(super) fn cassandra(
    mut stream: impl Read + Write,
    user: Option<(&str, &str)>,
    question: &str,
    consistency: u8,
) -> io::Result<()> {
    const STARTUP: u8 = 1;
    const AUTHENTICATE: u8 = 3;
    const QUERY: u8 = 7;
    const RESULT: u8 = 8;
    const AUTH_RESPONSE: u8 = 15;
    fn call(stream: &mut (impl Read + Write), code: u8, body: &[u8]) -> io::Result<u8> {
        const ERROR: u8 = 0;
        // The fourth version of the protocol, no flags, stream 0.
        let mut frame = vec![4, 0, 0, 0, code];
        frame.extend(length(body));
        frame.extend_from_slice(body);
        stream.write_all(&frame)?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [_, _, _, _, answer, length @ ..] = head;
        let mut body = vec![
            0;
            usize::try_from(u32::from_be_bytes(length))
                .unwrap_or(0)
                .min(1 << 20)
        ];
        stream.read_exact(&mut body)?;
        if answer == ERROR {
            Err(wrong(String::from_utf8_lossy(
                body.get(6..).unwrap_or_default(),
            )))
        } else {
            Ok(answer)
        }
    }
    fn length(of: &[u8]) -> [u8; 4] {
        u32::try_from(of.len()).unwrap_or(0).to_be_bytes()
    }
    if call(&mut stream, STARTUP, b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0")? == AUTHENTICATE {
        let (name, password) = user.ok_or_else(|| wrong("it requires a password"))?;
        let who = format!("\0{name}\0{password}");
        let mut body = length(who.as_bytes()).to_vec();
        body.extend_from_slice(who.as_bytes());
        call(&mut stream, AUTH_RESPONSE, &body)?;
    }
    let mut body = length(question.as_bytes()).to_vec();
    body.extend_from_slice(question.as_bytes());
    // Without values.
    body.extend([0, consistency, 0]);
    match call(&mut stream, QUERY, &body)? {
        RESULT => Ok(()),
        other => Err(wrong(format!("an answer of kind {other}"))),
    }
}

/// Consul: the leader's address, as its servers know it; empty if this one knows none. Needs no
/// token.
pub(super) fn consul_leader(stream: impl Read + Write) -> io::Result<String> {
    let body = http_get(stream, "/v1/status/leader")?;
    Ok(body.trim().trim_matches('"').to_owned())
}

/// The body of a page.
pub(super) fn http_get(mut stream: impl Read + Write, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| wrong("an answer that is not HTTP"))?;
    if head.split(' ').nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(wrong(body))
    }
}

fn packet(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let [a, b, c, _] = head;
    let mut body = vec![0; usize::try_from(u32::from_le_bytes([a, b, c, 0])).unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn send(stream: &mut impl Write, sequence: u8, body: &[u8]) -> io::Result<()> {
    let [a, b, c, _] = u32::try_from(body.len()).unwrap_or(0).to_le_bytes();
    stream.write_all(&[a, b, c, sequence])?;
    stream.write_all(body)
}

/// An error packet as text.
fn said(packet: &[u8]) -> String {
    let text: String = packet
        .iter()
        .skip(3)
        .map(|&byte| char::from(byte))
        .filter(|c| !c.is_control())
        .collect();
    if text.is_empty() {
        "an answer that does not follow the protocol".to_owned()
    } else {
        text
    }
}
