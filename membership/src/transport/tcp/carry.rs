//! Reading and writing one connection after its handshake, in one task, until it ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::{Connection, Reader};
use super::counters::add;
use super::frame::{self, Assembler, CHUNK, FrameError, Kind, Taken};
use super::link::Link;
use super::roll::Standing;
use super::shared::{Phase, Shared};
use super::{again, terse};
use crate::transport::tls::Secret;
use crate::transport::{DecodeError, DeliverError, EncodedMessage, Inbox};

/// How long the last bytes may take to arrive after this side closed the connection.
const LAST_BYTES: Duration = Duration::from_millis(250);

/// How often a link is judged that lives longer than it should.
const JUDGE_AGAIN: Duration = Duration::from_secs(30);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// From outside and without a word: the process at its other end may be gone.
    Lost,
    /// One of its sides closed it, and is well; or this silo stops.
    Closed,
}

/// Carries messages until the connection ends. The caller then forgets the link.
pub(super) async fn run(
    shared: &Shared,
    link: &Link,
    connection: Connection,
    inbox: &Arc<dyn Inbox>,
    phase: &watch::Receiver<Phase>,
) -> End {
    let Connection {
        mut reader, writer, ..
    } = connection;
    let (mut end, draining) = (phase.clone(), phase.clone());
    let mut writing = pin!(write(shared, link, writer, draining));
    let mut unwanted = false;
    let (lost, why) = tokio::select! {
        error = read(shared, link, &mut reader, inbox) => (error.is_loss(), error.to_string()),
        result = &mut writing => match result {
            Ok(()) => (false, FrameError::Stopped.to_string()),
            Err(error) => (error.is_loss(), error.to_string()),
        },
        why = until_useless(shared, link) => {
            unwanted = true;
            (false, why.to_owned())
        }
        _ = end.wait_for(|p| *p == Phase::Closed) => (false, FrameError::Stopped.to_string()),
    };
    if unwanted {
        // Otherwise the other side would think that this process is gone.
        link.queue.say_close();
        let _ = timeout(LAST_BYTES, writing).await;
    }
    tracing::debug!(link = link.id.0, peer_instance = %link.instance, why, "connection closed");
    // The others close their connections, too, once they hear that this silo leaves.
    let stops = *phase.borrow() != Phase::Running || phase.has_changed().is_err();
    if lost && !stops {
        End::Lost
    } else {
        End::Closed
    }
}

/// Waits until this side has no more use for a connection, and gives the reason.
async fn until_useless(shared: &Shared, link: &Link) -> &'static str {
    tokio::select! {
        () = idle(shared, link) => "idle",
        () = link.cut.notified() => {
            add(&shared.counters.closed_oversized, 1);
            "it held the most of the unfinished messages, of which there were too many"
        }
        () = link.surplus.notified() => "its peer has newer connections",
        () = link.expelled.notified() => "the table no longer names its peer or the key that it showed",
        () = old(shared, link) => "it is old",
    }
}

/// Waits until what was proven at its beginning must be proven again. A link must not end before
/// another one works only because nobody can make one now.
async fn old(shared: &Shared, link: &Link) {
    sleep(link.life).await;
    loop {
        let secret = shared.config.security.secret().map(Secret::keys);
        if !link.is_as_good_as_new(secret.as_ref()) {
            return;
        }
        sleep(JUDGE_AGAIN.min(link.life)).await;
    }
}

/// Bytes of an unfinished message, counted against the bound that all connections share.
struct Held<'a> {
    shared: &'a Shared,
    link: &'a Link,
}

impl Held<'_> {
    /// If all connections hold too much, the one that holds the most is closed.
    fn set(&self, bytes: usize) {
        let all = &self.shared.reassembly;
        let before = self.link.held.swap(bytes, Relaxed);
        all.fetch_sub(before, Relaxed);
        let now = all.fetch_add(bytes, Relaxed) + bytes;
        if bytes > before && now > self.shared.config.max_unfinished_bytes {
            self.shared.cut_the_largest();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

async fn read(
    shared: &Shared,
    link: &Link,
    reader: &mut Reader,
    inbox: &Arc<dyn Inbox>,
) -> FrameError {
    let Err(error) = try_read(shared, link, reader, inbox).await;
    match &error {
        FrameError::Oversized(_) => add(&shared.counters.closed_oversized, 1),
        FrameError::Garbage(_) => add(&shared.counters.closed_garbage, 1),
        _ => {}
    }
    error
}

async fn try_read(
    shared: &Shared,
    link: &Link,
    reader: &mut Reader,
    inbox: &Arc<dyn Inbox>,
) -> Result<std::convert::Infallible, FrameError> {
    let limit = shared.config.max_message_bytes;
    let mut assembler = Assembler::default();
    let held = Held { shared, link };
    loop {
        let is_member = || link.standing() == Standing::Member;
        let (length, taken) = frame::next(reader, &mut assembler, limit, is_member).await?;
        add(&shared.counters.bytes_received, length + 5);
        link.note_received();
        match taken {
            Taken::Nothing => {}
            Taken::Ping => link.queue.pong(),
            Taken::Dropped => add(&shared.counters.dropped_of_others, 1),
            // Boxed, so that idle connections, of which there are many, need no memory for it.
            Taken::Message(bytes) => Box::pin(deliver(shared, link, bytes, inbox)).await?,
            Taken::Terse(bytes) => {
                let agreed = link.agreed.as_ref();
                let agreed = agreed.ok_or(FrameError::Garbage("a message without a header"))?;
                let bytes = terse::restore(&bytes, &agreed.received);
                let bytes = bytes.map_err(|error| damaged(link, &error))?;
                Box::pin(deliver(shared, link, bytes, inbox)).await?;
            }
        }
        if assembler.is_late() {
            return Err(FrameError::Garbage("a long message that takes too long"));
        }
        held.set(assembler.held());
    }
}

async fn deliver(
    shared: &Shared,
    link: &Link,
    bytes: Vec<u8>,
    inbox: &Arc<dyn Inbox>,
) -> Result<(), FrameError> {
    inbox
        .deliver(link.id, link.peer, bytes.into())
        .await
        .map_err(|error| match error {
            DeliverError::Damaged(error) => damaged(link, &error),
            DeliverError::Stopped => FrameError::Stopped,
        })?;
    add(&shared.counters.received, 1);
    Ok(())
}

fn damaged(link: &Link, error: &DecodeError) -> FrameError {
    tracing::debug!(link = link.id.0, %error, "damaged message");
    FrameError::Garbage("a damaged message")
}

async fn write<W: AsyncWrite + Unpin>(
    shared: &Shared,
    link: &Link,
    mut writer: W,
    mut phase: watch::Receiver<Phase>,
) -> Result<(), FrameError> {
    let mut buffer = Vec::new();
    let mut long: Option<(EncodedMessage, usize)> = None;
    let mut written = again::Written::default();
    loop {
        let mut batch = link.queue.take(long.is_none());
        if batch.is_empty() && long.is_none() {
            if *phase.borrow_and_update() != Phase::Running {
                writer.shutdown().await?;
                // The other side closes when it has read everything; then `read` ends this task.
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
            match &link.agreed {
                Some(agreed) => terse::put(&mut buffer, item, &agreed.sent),
                None => written.put(&mut buffer, item),
            }
        }
        if batch.close {
            frame::put(&mut buffer, Kind::Close, &[]);
            long = None;
        }
        if let Some((item, from)) = &mut long {
            put_piece(&mut buffer, item, *from);
            *from += CHUNK;
            if *from >= item.len() {
                sent += 1;
                long = None;
            }
        }
        // Bytes that the system took are progress: a slow reader is not idle.
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            let written = timeout(shared.config.write_timeout, writer.write(rest)).await;
            let n = written.map_err(|_| FrameError::Stuck)??;
            if n == 0 {
                return Err(FrameError::Ended);
            }
            rest = &rest[n..];
            link.note_progress();
        }
        writer.flush().await?;
        add(&shared.counters.sent, sent);
        add(&shared.counters.bytes_sent, buffer.len());
        if batch.close {
            return Ok(writer.shutdown().await?);
        }
    }
}

pub(super) fn put_piece(buffer: &mut Vec<u8>, item: &EncodedMessage, from: usize) {
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
            // Checks again now and then: the limit may be lowered.
            Some(left) => sleep(left.min(Duration::from_secs(30))).await,
            None if shared.retire(link) => return,
            // A message waits: either it was just queued, or the other side does not read.
            None => {
                sleep(Duration::from_secs(1)).await;
                if link.idle_time_left().is_none() {
                    return;
                }
            }
        }
    }
}
