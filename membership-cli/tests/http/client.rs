//! The smallest HTTP client: one request per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::silos::Process;

pub const PATIENCE: Duration = Duration::from_secs(40);

/// An answer as it came.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect(text);
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    #[track_caller]
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:#?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The text of a request; `headers` may replace `Host`.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text.push_str("Host: localhost\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        let kind = "application/x-www-form-urlencoded";
        text.push_str(&format!(
            "Content-Type: {kind}\r\nContent-Length: {}\r\n",
            body.len()
        ));
    }
    text + "\r\n" + body
}

pub fn ask(at: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    Answer::parse(&text)
}

pub fn get(at: SocketAddr, path: &str) -> Answer {
    ask(at, &request("GET", path, &[], ""))
}

/// Where a silo with `--http` answers.
#[track_caller]
pub fn address(silo: &Process) -> SocketAddr {
    silo.wait("http", PATIENCE, |lines| {
        let line = lines.iter().find(|l| l.event["event"] == "http")?;
        line.event["address"].as_str()?.parse().ok()
    })
}

/// A stream of events.
pub struct Stream(BufReader<TcpStream>);

#[derive(Clone, Debug, Default)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
}

impl Stream {
    pub fn open(at: SocketAddr, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = "GET /api/v1/events HTTP/1.0\r\nHost: localhost\r\n".to_owned();
        if let Some(id) = last {
            request.push_str(&format!("Last-Event-ID: {id}\r\n"));
        }
        stream.write_all((request + "\r\n").as_bytes()).unwrap();
        let mut it = Self(BufReader::new(stream));
        let mut head = it.line().unwrap();
        assert!(head.contains(" 200 "), "{head}");
        while !head.is_empty() {
            head = it.line().unwrap();
        }
        it
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The next event; none at the end.
    pub fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line.is_empty() && !event.name.is_empty() => return Some(event),
                _ => {}
            }
        }
    }

    /// Reads until an event that is wanted; gives it and those before it.
    #[track_caller]
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let (began, mut events) = (Instant::now(), Vec::new());
        while began.elapsed() < PATIENCE {
            let event = self
                .next()
                .unwrap_or_else(|| panic!("the stream ends before `{what}`"));
            let is_it = wanted(&event);
            events.push(event);
            if is_it {
                return events;
            }
        }
        panic!("no `{what}` within {PATIENCE:?}: {events:#?}");
    }
}

/// Whether the event has this silo with this status.
pub fn has(event: &Event, silo: &str, status: &str) -> bool {
    let members = event.data["members"].as_array();
    let mut members = members.into_iter().flatten();
    members.any(|m| m["silo"] == silo && m["status"] == status)
}
