//! A server that speaks TDS and answers as a test says: what a SQL Server answers, byte for byte as
//! the published protocol has it (MS-TDS), where no server is at hand.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A value of an answer.
#[derive(Clone)]
pub enum Cell {
    Int(Option<i64>),
    Text(Option<String>),
}

/// One row of an answer with five columns.
pub fn line(kind: i64, silo: Option<&str>, body: Option<&str>, number: Option<i64>) -> Vec<Cell> {
    at(kind, silo, body, number, None)
}

/// The same with the last column.
pub fn at(
    kind: i64,
    silo: Option<&str>,
    body: Option<&str>,
    number: Option<i64>,
    at: Option<&str>,
) -> Vec<Cell> {
    let text = |text: Option<&str>| Cell::Text(text.map(str::to_owned));
    vec![
        Cell::Int(Some(kind)),
        text(silo),
        text(body),
        Cell::Int(number),
        text(at),
    ]
}

/// An error of the server: number and class.
pub type Refusal = (u32, u8);

/// What the server does with a request.
#[derive(Clone)]
pub enum Reply {
    /// Result sets, and then maybe an error.
    Sets(Vec<Vec<Vec<Cell>>>, Option<Refusal>),
    /// It closes the connection.
    Close,
    /// It takes the request, and never answers.
    Silence,
}

impl Reply {
    pub fn error(number: u32, class: u8) -> Self {
        Self::Sets(Vec::new(), Some((number, class)))
    }

    pub fn rows(rows: Vec<Vec<Cell>>) -> Self {
        Self::Sets(vec![rows], None)
    }

    /// A set with one row of one column.
    pub fn number(kind: i64) -> Vec<Vec<Cell>> {
        vec![vec![Cell::Int(Some(kind))]]
    }
}

type Answers = dyn Fn(&str) -> Reply + Send + Sync;
type Logins = dyn Fn(usize) -> Option<Refusal> + Send + Sync;

/// The server. Dropping it ends it.
pub struct Stub {
    pub address: SocketAddr,
    logins: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    /// `login` says for each login, counted from 0, whether it is refused; `answer` what a statement
    /// comes to.
    pub async fn start(
        login: impl Fn(usize) -> Option<Refusal> + Send + Sync + 'static,
        answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (logins, requests) = (
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let (login, answer): (Arc<Logins>, Arc<Answers>) = (Arc::new(login), Arc::new(answer));
        let (counted, noted) = (Arc::clone(&logins), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (login, answer) = (Arc::clone(&login), Arc::clone(&answer));
                let (counted, noted) = (Arc::clone(&counted), Arc::clone(&noted));
                connections.spawn(async move {
                    // The client may go at any moment.
                    let _gone = serve(stream, &*login, &*answer, &counted, &noted).await;
                });
            }
        });
        Self {
            address,
            logins,
            requests,
            task: task.abort_handle(),
        }
    }

    /// How many clients have logged in or tried to.
    pub fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }

    /// The statements since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

const BATCH: u8 = 1;
const RPC: u8 = 3;
const LOGIN: u8 = 16;
const PRELOGIN: u8 = 18;

async fn serve(
    mut stream: TcpStream,
    login: &Logins,
    answer: &Answers,
    logins: &AtomicUsize,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    loop {
        let (kind, message) = message(&mut stream).await?;
        let reply = match kind {
            // Version 15, and no encryption.
            PRELOGIN => vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 15, 0, 0, 0, 0, 0, 2],
            LOGIN => {
                let mut out = Vec::new();
                match login(logins.fetch_add(1, Ordering::SeqCst)) {
                    Some(refusal) => {
                        error(&mut out, refusal);
                        done(&mut out, 0xfd, 2);
                    }
                    None => {
                        let mut body = vec![1, 0x74, 0, 0, 4];
                        short(&mut body, "stub");
                        body.extend([15, 0, 0, 0]);
                        token(&mut out, 0xad, &body);
                        done(&mut out, 0xfd, 0);
                    }
                }
                out
            }
            BATCH | RPC => {
                let units: Vec<u16> = message
                    .chunks_exact(2)
                    .map(|b| u16::from_le_bytes([b[0], b[1]]))
                    .collect();
                let mut statement = String::from_utf16_lossy(&units);
                if has_null(&message) {
                    statement += NULL;
                }
                let reply = answer(&statement);
                requests.lock().unwrap().push(statement);
                match reply {
                    Reply::Close => return Ok(()),
                    Reply::Silence => std::future::pending().await,
                    Reply::Sets(sets, refusal) => answered(&sets, refusal),
                }
            }
            _ => return Ok(()),
        };
        send(&mut stream, &reply).await?;
    }
}

/// What a statement with a parameter of the type of nulls ends with.
pub const NULL: &str = "(a parameter is null)";

/// Whether a parameter `@P1`, `@P2`, … has the type of nulls, which not every server takes.
fn has_null(message: &[u8]) -> bool {
    let name = b"@\0P\0";
    let names = message.windows(name.len()).enumerate();
    names.filter(|(_, window)| window == name).any(|(at, _)| {
        let rest = &message[at + name.len()..];
        let digits = rest.chunks(2).take_while(|it| it[0].is_ascii_digit());
        let rest = rest.get(2 * digits.count()..);
        rest.is_some_and(|rest| rest.starts_with(&[0, 0x1f]))
    })
}

/// A message of one or more packets.
async fn message(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut whole = Vec::new();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).await?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]])).saturating_sub(8);
        let start = whole.len();
        whole.resize(start + length, 0);
        stream.read_exact(&mut whole[start..]).await?;
        if head[1] & 1 == 1 {
            return Ok((head[0], whole));
        }
    }
}

async fn send(stream: &mut TcpStream, reply: &[u8]) -> io::Result<()> {
    const ROOM: usize = 4000;
    let packets: Vec<_> = reply.chunks(ROOM).collect();
    for (n, packet) in packets.iter().enumerate() {
        let last = u8::from(n + 1 == packets.len());
        let length = u16::try_from(packet.len() + 8).unwrap().to_be_bytes();
        let number = u8::try_from(n % 256).unwrap();
        stream
            .write_all(&[4, last, length[0], length[1], 0, 0, number, 0])
            .await?;
        stream.write_all(packet).await?;
    }
    Ok(())
}

fn answered(sets: &[Vec<Vec<Cell>>], refusal: Option<Refusal>) -> Vec<u8> {
    let mut out = Vec::new();
    for set in sets.iter().filter(|set| !set.is_empty()) {
        out.push(0x81);
        out.extend(u16::try_from(set[0].len()).unwrap().to_le_bytes());
        for cell in &set[0] {
            out.extend([0, 0, 0, 0, 9, 0]);
            match cell {
                // The first column is four bytes wide, the others eight.
                Cell::Int(_) => out.extend([0x26, 8]),
                Cell::Text(_) => out.extend([0xe7, 0xff, 0xff, 9, 4, 0xd0, 0, 0x34]),
            }
            short(&mut out, "c");
        }
        // The kind is an `int`.
        let kind = 1 + 2 + 6 + 1;
        out_at_kind(&mut out, set, kind);
        for row in set {
            out.push(0xd1);
            for (n, cell) in row.iter().enumerate() {
                put(&mut out, n == 0, cell);
            }
        }
        // More follows.
        done(&mut out, 0xff, 0x11);
    }
    if let Some(refusal) = refusal {
        error(&mut out, refusal);
    } else {
        out.extend([0x79, 0, 0, 0, 0]);
    }
    done(&mut out, 0xfe, if refusal.is_some() { 2 } else { 0 });
    out
}

/// Makes the first column of the set that begins last an `int`.
fn out_at_kind(out: &mut [u8], set: &[Vec<Cell>], width_at: usize) {
    let columns: usize = set[0]
        .iter()
        .map(|cell| match cell {
            Cell::Int(_) => 6 + 2 + 3,
            Cell::Text(_) => 6 + 8 + 3,
        })
        .sum();
    let start = out.len() - columns - 3;
    out[start + width_at] = 4;
}

fn put(out: &mut Vec<u8>, is_kind: bool, cell: &Cell) {
    match cell {
        Cell::Int(None) => out.push(0),
        Cell::Int(Some(n)) if is_kind => {
            out.push(4);
            out.extend(i32::try_from(*n).unwrap().to_le_bytes());
        }
        Cell::Int(Some(n)) => {
            out.push(8);
            out.extend(n.to_le_bytes());
        }
        Cell::Text(None) => out.extend([0xff; 8]),
        Cell::Text(Some(text)) => {
            let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            out.extend(u64::try_from(bytes.len()).unwrap().to_le_bytes());
            if !bytes.is_empty() {
                out.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
                out.extend(bytes);
            }
            out.extend([0; 4]);
        }
    }
}

fn error(out: &mut Vec<u8>, (number, class): Refusal) {
    let mut body = number.to_le_bytes().to_vec();
    body.extend([1, class]);
    let text: Vec<u8> = "words".encode_utf16().flat_map(u16::to_le_bytes).collect();
    body.extend(5_u16.to_le_bytes());
    body.extend(text);
    short(&mut body, "stub");
    short(&mut body, "");
    body.extend(1_u32.to_le_bytes());
    token(out, 0xaa, &body);
}

fn token(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend(u16::try_from(body.len()).unwrap().to_le_bytes());
    out.extend(body);
}

fn done(out: &mut Vec<u8>, kind: u8, status: u16) {
    out.push(kind);
    out.extend(status.to_le_bytes());
    out.extend([0; 10]);
}

/// A text with its length in one byte.
fn short(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).unwrap());
    out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
}
