//! One connection after its handshake: a reader, a writer and a watch over both, in one task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use membership_core::InstanceId;
use membership_core::protocol::LinkId;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::connect::{Connection, Reader};
use super::counters::add;
use super::frame::{self, Assembler, CHUNK, FrameError, Kind, MAX_FRAME};
use super::queue::{Item, Queue};
use super::routes::{Phase, Shared};
use crate::transport::{Inbox, decode};

/// After so long without a word from the other side, the next message brings a ping with it.
const QUIET: Duration = Duration::from_secs(2);
/// A ping that is not answered for so long makes the connection doubtful: the next message dials anew. The connection itself stays open
/// until the new one stands, because a silo that was only paused answers on it what it was asked on it.
const PONG_TIMEOUT: Duration = Duration::from_secs(3);
/// A longer message is decoded off the executor: 10,000 rows take tens of milliseconds.
const DECODE_ASIDE: usize = 256 * 1024;
/// How long the last bytes may take to arrive after the connection was closed from here.
const LAST_BYTES: Duration = Duration::from_millis(250);

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    /// The process at the other end, as it says.
    pub(super) instance: InstanceId,
    pub(super) queue: Arc<Queue>,
    origin: Instant,
    received: AtomicU64,
    progress: AtomicU64,
    pinged: AtomicU64,
    doubted: AtomicBool,
    idle: AtomicU64,
}

impl Link {
    /// `idle` = how long it stays open without anything sent or received.
    pub(super) fn new(id: LinkId, instance: InstanceId, queue: Arc<Queue>, idle: Duration) -> Self {
        let link = Self {
            id,
            instance,
            queue,
            origin: Instant::now(),
            received: AtomicU64::new(1),
            progress: AtomicU64::new(1),
            pinged: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            idle: AtomicU64::new(0),
        };
        link.close_when_idle_for(idle);
        link
    }

    /// Milliseconds since the connection stands, plus one: 0 is "never".
    fn now(&self) -> u64 {
        millis(self.origin.elapsed()) + 1
    }

    /// Whether to dial anew rather than to rely on this connection.
    pub(super) fn is_doubtful(&self) -> bool {
        let pinged = self.pinged.load(Relaxed);
        let unanswered = pinged > self.received.load(Relaxed)
            && self.now().saturating_sub(pinged) > millis(PONG_TIMEOUT);
        unanswered || self.doubted.load(Relaxed)
    }

    /// Somebody else is known to listen there now.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Relaxed);
    }

    /// Dialling anew did not work: what was claimed says nothing against this connection any more.
    pub(super) fn trust(&self) {
        self.doubted.store(false, Relaxed);
    }

    /// Sends a message; with a ping, when nothing was heard for a while. How many older messages were dropped for it.
    pub(super) fn send(&self, item: Item) -> usize {
        let (now, received) = (self.now(), self.received.load(Relaxed));
        if self.pinged.load(Relaxed) <= received && now.saturating_sub(received) > millis(QUIET) {
            self.pinged.store(now, Relaxed);
            self.queue.ping();
        }
        self.queue.push(item)
    }

    pub(super) fn close_when_idle_for(&self, idle: Duration) {
        self.idle.store(millis(idle), Relaxed);
    }

    /// How much longer it stays open if nothing happens; none when its time is up.
    pub(super) fn idle_time_left(&self) -> Option<Duration> {
        let until =
            self.progress.load(Relaxed).max(self.received.load(Relaxed)) + self.idle.load(Relaxed);
        until
            .checked_sub(self.now())
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis)
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4)
}

/// Carries messages until the connection ends, for whatever reason. The caller then forgets the link.
pub(super) async fn run(
    shared: &Shared,
    link: &Link,
    connection: Connection,
    inbox: &Inbox,
    phase: &watch::Receiver<Phase>,
) {
    let Connection {
        mut reader, writer, ..
    } = connection;
    let (mut end, draining) = (phase.clone(), phase.clone());
    let why = tokio::select! {
        error = read(shared, link, &mut reader, inbox) => error.to_string(),
        result = write(shared, link, writer, draining) => match result {
            Ok(()) => "this silo stops".to_owned(),
            Err(error) => error.to_string(),
        },
        () = idle(shared, link) => "idle".to_owned(),
        _ = end.wait_for(|p| *p == Phase::Closed) => "this silo stops".to_owned(),
    };
    tracing::debug!(link = link.id.0, peer_instance = %link.instance, why, "connection closed");
}

/// Bytes of unfinished messages, counted against the bound that all connections share.
struct Held<'a> {
    all: &'a AtomicUsize,
    mine: usize,
}

impl Held<'_> {
    fn set(&mut self, bytes: usize, limit: usize) -> Result<(), FrameError> {
        self.all.fetch_sub(self.mine, Relaxed);
        self.mine = bytes;
        let all = self.all.fetch_add(bytes, Relaxed) + bytes;
        if bytes > 0 && all > limit {
            Err(FrameError::Oversized(all as u64))
        } else {
            Ok(())
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.mine, Relaxed);
    }
}

async fn read(shared: &Shared, link: &Link, reader: &mut Reader, inbox: &Inbox) -> FrameError {
    let Err(error) = try_read(shared, link, reader, inbox).await;
    match &error {
        FrameError::Oversized(_) => add(&shared.counters.closed_oversized, 1),
        FrameError::Garbage(_) => add(&shared.counters.closed_garbage, 1),
        FrameError::Closed | FrameError::Io(_) => {}
    }
    error
}

async fn try_read(
    shared: &Shared,
    link: &Link,
    reader: &mut Reader,
    inbox: &Inbox,
) -> Result<std::convert::Infallible, FrameError> {
    let limit = shared.config.max_message_bytes;
    let mut assembler = Assembler::default();
    let mut held = Held {
        all: &shared.reassembly,
        mine: 0,
    };
    loop {
        let (kind, content) = frame::read(reader, MAX_FRAME).await?;
        add(&shared.counters.bytes_received, content.len() + 5);
        link.received.store(link.now(), Relaxed);
        let message = match kind {
            Kind::Message => Some(content),
            Kind::Start => assembler.start(&content, limit)?,
            Kind::More => assembler.more(&content)?,
            Kind::Ping => {
                link.queue.pong();
                None
            }
            Kind::Pong => None,
            Kind::Hello | Kind::Refuse => return Err(FrameError::Garbage("a second handshake")),
        };
        if let Some(bytes) = message {
            // Boxed, so that connections at rest, of which there are many, keep no room for it.
            Box::pin(deliver(shared, link, bytes, inbox)).await?;
        }
        held.set(assembler.held(), shared.config.max_unfinished_bytes)?;
    }
}

async fn deliver(
    shared: &Shared,
    link: &Link,
    bytes: Vec<u8>,
    inbox: &Inbox,
) -> Result<(), FrameError> {
    let decoded = if bytes.len() > DECODE_ASIDE {
        tokio::task::spawn_blocking(move || decode(&bytes))
            .await
            .map_err(|_| FrameError::Closed)?
    } else {
        decode(&bytes)
    };
    let (header, body) = decoded.map_err(|error| {
        tracing::debug!(link = link.id.0, %error, "damaged message");
        FrameError::Garbage("a damaged message")
    })?;
    add(&shared.counters.received, 1);
    if inbox.deliver(link.id, header, Arc::new(body)).await {
        Ok(())
    } else {
        Err(FrameError::Closed)
    }
}

async fn write<W: AsyncWrite + Unpin>(
    shared: &Shared,
    link: &Link,
    mut writer: W,
    mut phase: watch::Receiver<Phase>,
) -> Result<(), std::io::Error> {
    let mut buffer = Vec::new();
    let mut long: Option<(Item, usize)> = None;
    loop {
        let mut batch = link.queue.take(long.is_none());
        if batch.is_empty() && long.is_none() {
            if *phase.borrow_and_update() != Phase::Running {
                writer.shutdown().await?;
                // The other side closes when it has read everything; the reader sees that and ends this.
                sleep(LAST_BYTES).await;
                return Ok(());
            }
            buffer = Vec::new();
            tokio::select! {
                () = link.queue.changed() => {}
                changed = phase.changed() => if changed.is_err() { return Ok(()) },
            }
            continue;
        }
        if let Some(item) = batch.long.take() {
            long = Some((item, 0));
        }
        buffer.clear();
        let mut sent = batch.short.len();
        for (wanted, kind) in [(batch.ping, Kind::Ping), (batch.pong, Kind::Pong)] {
            if wanted {
                frame::put(&mut buffer, kind, &[]);
            }
        }
        for item in &batch.short {
            frame::put(&mut buffer, Kind::Message, &[&item.head, &item.body]);
        }
        if let Some((item, from)) = &mut long {
            put_piece(&mut buffer, item, *from);
            *from += CHUNK;
            if *from >= item.len() {
                sent += 1;
                long = None;
            }
        }
        // Bytes that the system took are progress: whoever reads slowly is not idle.
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            let n = writer.write(rest).await?;
            if n == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            rest = &rest[n..];
            link.progress.store(link.now(), Relaxed);
        }
        writer.flush().await?;
        add(&shared.counters.sent, sent);
        add(&shared.counters.bytes_sent, buffer.len());
    }
}

fn put_piece(buffer: &mut Vec<u8>, item: &Item, from: usize) {
    let [head, body] = item.part(from, CHUNK);
    if from == 0 {
        let total = u32::try_from(item.len()).unwrap_or(u32::MAX).to_be_bytes();
        frame::put(buffer, Kind::Start, &[&total, head, body]);
    } else {
        frame::put(buffer, Kind::More, &[head, body]);
    }
}

async fn idle(shared: &Shared, link: &Link) {
    loop {
        match link.idle_time_left() {
            // Looks again now and then: the limit may have been lowered.
            Some(left) => sleep(left.min(Duration::from_secs(30))).await,
            None if shared.retire(link) => return,
            // A message came at the last moment; or it has waited all the time, because the other side takes nothing.
            None => {
                sleep(Duration::from_secs(1)).await;
                if link.idle_time_left().is_none() {
                    return;
                }
            }
        }
    }
}
