//! A stand-in between a client and its server that plays answers which a test's server cannot be
//! made to give: throttling, a transaction that still runs, a node that is overloaded. T4, T5.
//!
//! It passes everything on, until it is told which requests it answers itself: those never reach
//! the server, so an error that says *certainly not applied* can be checked, and each is counted, so
//! that a request that a client library sends again by itself shows.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use membership_core::{
    CommitOutcome, MembershipTable, NextStep, ReadRequest, TableErrorKind, VersionToken,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Stop;
use crate::helpers::{heartbeat, insert, read};

/// How many bytes of the beginning are the first message; None while it is not complete.
pub type Framing = fn(&[u8]) -> Option<usize>;
/// The answer to a request that is not passed on; None if it is.
pub type Play = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send>;

/// Messages of HTTP/1.1 with a `content-length`, or without a body.
#[must_use]
pub fn http(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(bytes.get(..head)?).to_ascii_lowercase();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let length = lines.find(|(name, _)| *name == "content-length");
    let body = length.map_or(Some(0), |(_, n)| n.trim().parse::<usize>().ok())?;
    (bytes.len() >= head + body).then_some(head + body)
}

/// Whatever comes at once is one message: for clients that send a request in one piece and wait.
#[must_use]
pub fn at_once(bytes: &[u8]) -> Option<usize> {
    Some(bytes.len())
}

/// Frames whose length is a number of four bytes at `at`, and counts from `from`.
fn framed(bytes: &[u8], at: usize, from: usize, number: fn([u8; 4]) -> u32) -> Option<usize> {
    let length: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    let all = from + usize::try_from(number(length)).ok()?;
    (bytes.len() >= all).then_some(all)
}

/// Frames of the native protocol of Cassandra, version 4: nine bytes with the length of the body.
#[must_use]
pub fn cql(bytes: &[u8]) -> Option<usize> {
    framed(bytes, 5, 9, u32::from_be_bytes)
}

/// Messages of MongoDB: the first four bytes are their length.
#[must_use]
pub fn mongo(bytes: &[u8]) -> Option<usize> {
    framed(bytes, 0, 0, u32::from_le_bytes)
}

#[derive(Default)]
struct State {
    play: Option<Play>,
    /// Answers in place of those of the server, which gets the requests.
    replace: Option<Play>,
    /// How a commit looks; none if every request that is answered is one.
    is_commit: Option<fn(&[u8]) -> bool>,
    played: u64,
    commits: u64,
}

impl State {
    fn replacement(&self, request: &[u8]) -> Option<Vec<u8>> {
        self.replace.as_ref()?(request)
    }

    fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let answer = self.play.as_ref()?(request)?;
        self.played += 1;
        self.commits += u64::from(self.is_commit.is_none_or(|is_commit| is_commit(request)));
        Some(answer)
    }
}

/// The stand-in. Dropping it ends its connections.
pub struct StandIn {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl StandIn {
    /// Listens on a free port of 127.0.0.1, in front of this server.
    ///
    /// # Errors
    /// The error of the system.
    pub async fn before(server: SocketAddr, framing: Framing) -> Result<Self, Stop> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, state) = (listener.local_addr()?, Arc::<Mutex<State>>::default());
        let shared = state.clone();
        let task = tokio::spawn(async move {
            let mut clients = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                clients.spawn(serve(client, server, framing, shared.clone()));
                while clients.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            state,
            task,
        })
    }

    /// How a commit looks, for clients that ask more to find out what became of one.
    #[must_use]
    pub fn commits(self, is_commit: fn(&[u8]) -> bool) -> Self {
        locked(&self.state).is_commit = Some(is_commit);
        self
    }

    /// Its address, for the client's URL in place of the server's.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on requests for which this gives an answer are answered so, and not passed on.
    pub fn play(&self, play: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) {
        let mut state = locked(&self.state);
        state.play = Some(Box::new(play));
        (state.played, state.commits) = (0, 0);
    }

    /// From now on requests for which this gives an answer are passed on, and what the server then
    /// says at once is replaced by that answer. For clients that send one request at a time.
    pub fn replace(&self, replace: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) {
        locked(&self.state).replace = Some(Box::new(replace));
    }

    /// Passes everything on. Returns how many requests were answered since [`play`](Self::play).
    pub fn stop(&self) -> u64 {
        let mut state = locked(&self.state);
        (state.play, state.replace) = (None, None);
        state.played
    }

    /// How many of these requests were commits.
    fn commits_played(&self) -> u64 {
        locked(&self.state).commits
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    client: TcpStream,
    server: SocketAddr,
    framing: Framing,
    state: Arc<Mutex<State>>,
) -> Option<()> {
    let server = TcpStream::connect(server).await.ok()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true).ok()?;
    }
    let (mut requests, answers) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = Arc::new(tokio::sync::Mutex::new(answers));
    let back = answers.clone();
    let instead = Arc::<Mutex<Option<Vec<u8>>>>::default();
    let next = instead.clone();
    let mut pump = tokio::spawn(async move { pass(&mut from_server, &back, &next).await });
    let ask = async {
        let mut waiting = Vec::new();
        loop {
            while let Some(length) = framing(&waiting).filter(|length| *length > 0) {
                let message: Vec<u8> = waiting.drain(..length).collect();
                let (played, replaced) = {
                    let mut state = locked(&state);
                    (state.answer(&message), state.replacement(&message))
                };
                if replaced.is_some() {
                    *instead.lock().unwrap_or_else(PoisonError::into_inner) = replaced;
                }
                match played {
                    Some(answer) => answers.lock().await.write_all(&answer).await.ok()?,
                    None => to_server.write_all(&message).await.ok()?,
                }
            }
            let mut part = [0; 16 << 10];
            match requests.read(&mut part).await.ok()? {
                0 => return None,
                n => waiting.extend_from_slice(part.get(..n)?),
            }
        }
    };
    tokio::select! {
        ended = ask => { pump.abort(); ended }
        _ = &mut pump => None,
    }
}

async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &tokio::sync::Mutex<OwnedWriteHalf>,
    instead: &Mutex<Option<Vec<u8>>>,
) -> Option<()> {
    let mut part = [0; 16 << 10];
    loop {
        let said = match from.read(&mut part).await.ok()? {
            0 => return None,
            n => part.get(..n)?,
        };
        let instead = instead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let said = instead.as_deref().unwrap_or(said);
        to.lock().await.write_all(said).await.ok()?;
    }
}

/// One answer, and what a provider makes of it.
pub struct Answer {
    /// The name, for failures.
    pub name: &'static str,
    /// The answer to a request; None if the request is passed on.
    pub play: Play,
    /// The kind of the error with which a commit ends.
    pub commit: &'static [TableErrorKind],
    /// The kind of the error with which a read ends.
    pub read: &'static [TableErrorKind],
}

/// Has the server's place answer a commit, a read and a heartbeat so. Fails unless each ends with an
/// error after which the client may go on, which is no conflict (T4); the commit was sent once;
/// nothing of it happened; and the same client works afterwards. Returns the token after that.
///
/// # Errors
/// What is not so, with the name of the answer.
pub async fn is_no_conflict(
    stand_in: &StandIn,
    table: &dyn MembershipTable,
    token: &VersionToken,
    answer: Answer,
    number: u64,
) -> Result<VersionToken, Stop> {
    let name = answer.name;
    let failed = |what: String| Stop::failed(format!("{name}: {what}"));
    let play = Arc::new(Mutex::new(answer.play));
    let played = |play: &Arc<Mutex<Play>>| {
        let play = play.clone();
        move |request: &[u8]| play.lock().unwrap_or_else(PoisonError::into_inner)(request)
    };
    let request = insert(token, [number]);
    stand_in.play(played(&play));
    let committed = table.commit(&request).await;
    stand_in.stop();
    let sent = stand_in.commits_played();
    match &committed {
        Err(e) if answer.commit.contains(&e.kind()) => {}
        Err(e) => return Err(failed(format!("a commit ends with {:?}: {e}", e.kind()))),
        Ok(outcome) => {
            return Err(failed(format!("a commit is answered with {outcome:?}")));
        }
    }
    if sent != 1 {
        return Err(failed(format!("a commit was sent {sent} times")));
    }
    stand_in.play(played(&play));
    let answered = table.read(&ReadRequest::all()).await;
    let sent = stand_in.stop();
    match &answered {
        Err(e) if sent > 0 && answer.read.contains(&e.kind()) => {}
        // Where the answer is one to a write, a read never gets it.
        Ok(_) if sent == 0 && answer.read.is_empty() => {}
        other => {
            return Err(failed(format!(
                "a read, answered {sent} times so, ends with {other:?}"
            )));
        }
    }
    stand_in.play(played(&play));
    let beaten = table.update_i_am_alive(&heartbeat(1, number)).await;
    let sent = stand_in.stop();
    match &beaten {
        // A client that looks after its connections may send more beside it.
        Err(e) if sent > 0 && e.next_step() != NextStep::GiveUp => {}
        Ok(()) if sent == 0 => {}
        other => {
            return Err(failed(format!(
                "a heartbeat, answered {sent} times so, ends with {other:?}"
            )));
        }
    }
    // The client may connect again first.
    crate::helpers::until("the client is back", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
    let (now, _) = read(table).await;
    if !now.token.same_commit(token) {
        return Err(failed(format!(
            "the table is at {:?}, and the commit on {token:?} reached nobody",
            now.token
        )));
    }
    match table.commit(&request.again()).await {
        Ok(CommitOutcome::Committed(token)) => Ok(token),
        other => Err(failed(format!(
            "sent again, the commit ends with {other:?}"
        ))),
    }
}

/// Has a commit happen and be answered so, in place of the server's answer: fails unless its outcome
/// is unknown to the client (T5), and unless it is a success when it is sent again. Returns the token
/// after that.
///
/// # Errors
/// What is not so, with the name of the answer.
pub async fn is_no_refusal(
    stand_in: &StandIn,
    table: &dyn MembershipTable,
    token: &VersionToken,
    (name, answer): (&'static str, Play),
    number: u64,
) -> Result<VersionToken, Stop> {
    let failed = |what: String| Stop::failed(format!("{name}: {what}"));
    let request = insert(token, [number]);
    stand_in.replace(answer);
    let committed = table.commit(&request).await;
    stand_in.stop();
    match &committed {
        Err(e) if e.next_step() == NextStep::FindOut => {}
        other => {
            return Err(failed(format!(
                "a commit that happened ends with {other:?}"
            )));
        }
    }
    crate::helpers::until("the client is back", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
    let (now, _) = read(table).await;
    if now.version() != request.next_version() {
        return Err(failed(format!("the server is at {:?}", now.token)));
    }
    match table.commit(&request.again()).await {
        Ok(CommitOutcome::Committed(token)) => Ok(token),
        other => Err(failed(format!(
            "sent again, the commit ends with {other:?}"
        ))),
    }
}

/// An answer of HTTP/1.1 with a body.
#[must_use]
pub fn http_answer(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} .\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// Whether a message contains these bytes.
#[must_use]
pub fn says(message: &[u8], word: &[u8]) -> bool {
    message.windows(word.len().max(1)).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_complete_or_not() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(http(request), Some(request.len()));
        assert_eq!(http(&request[..request.len() - 1]), None);
        assert_eq!(http(b"GET / HTTP/1.1\r\n\r\nnext"), Some(18));
        let frame = [4, 0, 0, 1, 7, 0, 0, 0, 2, 1, 2, 9];
        assert_eq!((cql(&frame), cql(&frame[..10])), (Some(11), None));
        assert_eq!(mongo(&[5, 0, 0, 0, 1, 9]), Some(5));
        assert_eq!(mongo(&[5, 0, 0]), None);
    }
}
