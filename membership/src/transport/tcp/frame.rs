//! Frames: the format of a connection after its first bytes.
//!
//! A frame is its length (4 bytes, big endian, of what follows), one byte for its kind, and its
//! content. A message longer than [`CHUNK`] travels as a `Start` frame and `More` frames. Other
//! frames may be sent between them, so that a probe never waits for a whole snapshot. No memory is
//! allocated for a length before the bytes arrive.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::again;

/// A longer message is cut into pieces of this many bytes: the most that a probe waits for.
pub(super) const CHUNK: usize = 64 * 1024;
/// The longest frame that is accepted: room for a newer build with larger pieces.
pub(super) const MAX_FRAME: usize = 256 * 1024;

/// The longest message of somebody who is not alive in the confirmed view: probes and answers have
/// some 20 bytes.
pub(super) const MAX_FROM_OTHERS: usize = 4096;

/// How long a long message may take from its first piece to its last.
const MESSAGE_TIME: Duration = Duration::from_secs(120);

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Who the sender is; the first frame in each direction.
    Hello = 0,
    /// Instead of a hello: the connection is refused, with the reason as text. The last frame.
    Refuse = 1,
    /// A whole message.
    Message = 2,
    /// The whole length of a message (4 bytes, big endian) and its first piece.
    Start = 3,
    /// The next piece of it.
    More = 4,
    /// Asks whether the connection works. Says nothing about the silo behind it.
    Ping = 5,
    /// The answer to a ping.
    Pong = 6,
    /// The sender closes this connection, and is well: it has no more use for it. The last frame. A
    /// connection that ends without it may have ended with its process.
    Close = 7,
    /// A whole message, of whose header everything is left out that the handshake fixed.
    Terse = 8,
    /// The length of a header (1 byte) and a whole message, which begins with that header.
    Headed = 9,
    /// A whole message without its header, which is that of the last `Headed` one.
    Again = 10,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Hello,
            Self::Refuse,
            Self::Message,
            Self::Start,
            Self::More,
            Self::Ping,
            Self::Pong,
            Self::Close,
            Self::Terse,
            Self::Headed,
            Self::Again,
        ]
        .into_iter()
        .find(|k| *k as u8 == byte)
    }
}

/// Why a frame could not be read. The connection is useless then.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The connection ended between two frames.
    #[error("ended by the other side")]
    Ended,
    /// The other side said that it closes the connection.
    #[error("closed by the other side, which has no more use for it")]
    Closed,
    /// The silo has stopped and takes no message.
    #[error("this silo stops")]
    Stopped,
    /// The other side takes no bytes.
    #[error("the other side reads nothing, whatever it says")]
    Stuck,
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A length above the bound.
    #[error("a frame or message of {0} bytes, above the bound")]
    Oversized(u64),
    /// Invalid in this protocol.
    #[error("not understood: {0}")]
    Garbage(&'static str),
}

impl FrameError {
    /// Whether the connection was ended from outside and without a word, as when the process at its
    /// other end dies. What this side cannot understand, it ends itself; damage within TLS is such.
    pub(super) fn is_loss(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Io(error) => error.kind() != io::ErrorKind::InvalidData,
            Self::Closed | Self::Stopped | Self::Stuck | Self::Oversized(_) | Self::Garbage(_) => {
                false
            }
        }
    }
}

/// Appends a frame with these parts as its content, together at most [`MAX_FRAME`] - 1 bytes.
pub(super) fn put(buffer: &mut Vec<u8>, kind: Kind, parts: &[&[u8]]) {
    let length = 1 + parts.iter().map(|p| p.len()).sum::<usize>();
    debug_assert!(length <= MAX_FRAME);
    buffer.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    buffer.push(kind as u8);
    for part in parts {
        buffer.extend_from_slice(part);
    }
}

/// The content of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// It was longer than wanted: only its first bytes, at most 4, and its length. The rest took no
    /// memory.
    Skipped(Vec<u8>, usize),
}

impl Content {
    /// How many bytes it had on the wire.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Skipped(_, length) => *length,
        }
    }
}

/// What a frame after the handshake led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing yet, or nothing at all.
    Nothing,
    /// A message is complete.
    Message(Vec<u8>),
    /// The same, without what the handshake fixed.
    Terse(Vec<u8>),
    /// A message is not heard: it is too long for its sender. Told once for each.
    Dropped,
    /// The other side asks for a `Pong`.
    Ping,
}

/// Reads one frame of at most `limit` bytes. Not cancel safe.
pub(super) async fn read<R: AsyncRead + Unpin>(
    from: &mut R,
    limit: usize,
) -> Result<(Kind, Vec<u8>), FrameError> {
    match read_or_skip(from, limit, || limit).await? {
        (kind, Content::Whole(bytes)) => Ok((kind, bytes)),
        (_, Content::Skipped(_, length)) => Err(FrameError::Oversized(length as u64)),
    }
}

/// Reads one frame of at most `limit` bytes; one with more than `wanted` bytes, asked once it has
/// begun to arrive, is skipped. Not cancel safe.
pub(super) async fn read_or_skip<R: AsyncRead + Unpin>(
    from: &mut R,
    limit: usize,
    wanted: impl FnOnce() -> usize,
) -> Result<(Kind, Content), FrameError> {
    let mut head = [0; 5];
    // The stream may end only before the first byte.
    if from.read(&mut head[..1]).await? == 0 {
        return Err(FrameError::Ended);
    }
    from.read_exact(&mut head[1..4]).await?;
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let content = match usize::try_from(length) {
        Ok(0) => return Err(FrameError::Garbage("an empty frame")),
        Ok(n) if n <= limit => n - 1,
        _ => return Err(FrameError::Oversized(length.into())),
    };
    from.read_exact(&mut head[4..]).await?;
    let kind = Kind::from_byte(head[4]).ok_or(FrameError::Garbage("an unknown kind of frame"))?;
    let kept = if content < wanted() {
        content
    } else {
        content.min(4)
    };
    let mut bytes = Vec::with_capacity(kept.min(4096));
    if (&mut *from)
        .take(kept as u64)
        .read_to_end(&mut bytes)
        .await?
        < kept
    {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    if kept == content {
        return Ok((kind, Content::Whole(bytes)));
    }
    let rest = (content - kept) as u64;
    if tokio::io::copy(&mut from.take(rest), &mut tokio::io::sink()).await? < rest {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok((kind, Content::Skipped(bytes, content)))
}

/// Reads the next frame after the handshake: how many bytes its content had, and what it led to.
/// Whether the other side is a member is asked once the frame has begun to arrive: only a member's
/// view is worth its memory, others say little. Not cancel safe.
pub(super) async fn next<R: AsyncRead + Unpin>(
    from: &mut R,
    assembler: &mut Assembler,
    limit: usize,
    is_member: impl FnOnce() -> bool,
) -> Result<(usize, Taken), FrameError> {
    let mut member = false;
    let wanted = || {
        member = is_member();
        if member { MAX_FRAME } else { MAX_FROM_OTHERS }
    };
    let (kind, content) = read_or_skip(from, MAX_FRAME, wanted).await?;
    let length = content.len();
    Ok((length, assembler.take(kind, content, member, limit)?))
}

/// Makes whole messages of frames. It joins the pieces of a long one, of which each connection has at
/// most one at a time, and adds the header of those that come without.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    total: usize,
    arrived: usize,
    /// What arrived; empty if the message is skipped.
    bytes: Vec<u8>,
    skips: bool,
    since: Option<Instant>,
    heard: again::Heard,
}

impl Assembler {
    /// How many bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Takes any frame after the handshake. Long messages, of at most `limit` bytes, are joined if
    /// they come from a member.
    fn take(
        &mut self,
        kind: Kind,
        content: Content,
        is_member: bool,
        limit: usize,
    ) -> Result<Taken, FrameError> {
        let length = content.len();
        let (content, is_whole) = match content {
            Content::Whole(bytes) => (bytes, true),
            Content::Skipped(first, _) => (first, false),
        };
        let skip = !is_whole || !is_member || self.is_skipping();
        let message = match kind {
            Kind::Message if is_whole => Some(content),
            Kind::Terse if is_whole => return Ok(Taken::Terse(content)),
            Kind::Headed if is_whole => Some(self.heard.headed(content)?),
            Kind::Again if is_whole => Some(self.heard.again(&content)?),
            Kind::Message | Kind::Terse | Kind::Headed | Kind::Again => return Ok(Taken::Dropped),
            Kind::Start if skip => {
                self.skip(Some(&content), length.saturating_sub(4))?;
                return Ok(Taken::Dropped);
            }
            Kind::More if skip => {
                self.skip(None, length)?;
                None
            }
            Kind::Start => self.start(&content, limit)?,
            Kind::More => self.more(&content)?,
            Kind::Ping => return Ok(Taken::Ping),
            Kind::Pong => None,
            Kind::Close => return Err(FrameError::Closed),
            Kind::Hello | Kind::Refuse => return Err(FrameError::Garbage("a second handshake")),
        };
        Ok(message.map_or(Taken::Nothing, Taken::Message))
    }

    /// Takes a `Start` frame of a message of at most `limit` bytes.
    pub(super) fn start(
        &mut self,
        content: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>, FrameError> {
        let (total, piece) = content
            .split_first_chunk()
            .ok_or(FrameError::Garbage("a message without a length"))?;
        self.begin(u32::from_be_bytes(*total), limit)?;
        self.more(piece)
    }

    /// Takes a `More` frame. The message, when that was its last piece.
    pub(super) fn more(&mut self, piece: &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        self.skips = false;
        self.note(piece.len())?;
        self.bytes.extend_from_slice(piece);
        if self.arrived < self.total {
            return Ok(None);
        }
        self.total = 0;
        Ok(Some(std::mem::take(&mut self.bytes)))
    }

    /// Takes a `Start` or `More` frame without the message: nobody wants to hear it.
    pub(super) fn skip(&mut self, total: Option<&[u8]>, piece: usize) -> Result<(), FrameError> {
        if let Some(total) = total {
            let total = total
                .first_chunk()
                .ok_or(FrameError::Garbage("a message without a length"))?;
            self.begin(u32::from_be_bytes(*total), usize::MAX)?;
        }
        self.skips = true;
        self.bytes = Vec::new();
        self.note(piece)?;
        if self.arrived == self.total {
            self.total = 0;
            self.skips = false;
        }
        Ok(())
    }

    /// Whether the rest of a message that was begun is skipped.
    pub(super) fn is_skipping(&self) -> bool {
        self.skips
    }

    fn begin(&mut self, total: u32, limit: usize) -> Result<(), FrameError> {
        if self.total != 0 {
            return Err(FrameError::Garbage(
                "a second long message within the first",
            ));
        }
        self.total = match usize::try_from(total) {
            Ok(0) => return Err(FrameError::Garbage("a long message of no length")),
            Ok(n) if n <= limit => n,
            _ => return Err(FrameError::Oversized(total.into())),
        };
        self.arrived = 0;
        self.since = Some(Instant::now());
        Ok(())
    }

    fn note(&mut self, piece: usize) -> Result<(), FrameError> {
        if self.total == 0 {
            return Err(FrameError::Garbage("a piece of no message"));
        }
        if piece == 0 {
            return Err(FrameError::Garbage("an empty piece"));
        }
        if piece > self.total - self.arrived {
            return Err(FrameError::Garbage("a message longer than it said"));
        }
        self.arrived += piece;
        Ok(())
    }

    /// Whether the message that was begun takes too long: it keeps memory.
    pub(super) fn is_late(&self) -> bool {
        self.total != 0 && self.since.is_some_and(|at| at.elapsed() > MESSAGE_TIME)
    }
}
