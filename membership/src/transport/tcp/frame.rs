//! Frames: the format of a connection after its first bytes.
//!
//! A frame is its length (4 bytes, big endian, of what follows), one byte for its kind, and its
//! content. A message longer than [`CHUNK`] travels as a `Start` frame and `More` frames. Other
//! frames may be sent between them, so that a probe never waits for a whole snapshot. No memory is
//! allocated for a length before the bytes arrive.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A longer message is cut into pieces of this many bytes: the most that a probe waits for.
pub(super) const CHUNK: usize = 64 * 1024;
/// The longest frame that is accepted: room for a newer build with larger pieces.
pub(super) const MAX_FRAME: usize = 256 * 1024;

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
        ]
        .into_iter()
        .find(|k| *k as u8 == byte)
    }
}

/// Why a frame could not be read. The connection is useless then.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The other side closed the connection, between two frames.
    #[error("closed by the other side")]
    Closed,
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

/// Reads one frame of at most `limit` bytes. Not cancel safe.
pub(super) async fn read<R: AsyncRead + Unpin>(
    from: &mut R,
    limit: usize,
) -> Result<(Kind, Vec<u8>), FrameError> {
    let mut head = [0; 5];
    // The stream may end only before the first byte.
    if from.read(&mut head[..1]).await? == 0 {
        return Err(FrameError::Closed);
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
    let mut bytes = Vec::with_capacity(content.min(4096));
    if from.take(content as u64).read_to_end(&mut bytes).await? < content {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok((kind, bytes))
}

/// Joins the pieces of a long message; each connection has at most one at a time.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    total: usize,
    bytes: Vec<u8>,
}

impl Assembler {
    /// How many bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
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
        let total = u32::from_be_bytes(*total);
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
        self.more(piece)
    }

    /// Takes a `More` frame. The message, when that was its last piece.
    pub(super) fn more(&mut self, piece: &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        if self.total == 0 {
            return Err(FrameError::Garbage("a piece of no message"));
        }
        if piece.is_empty() {
            return Err(FrameError::Garbage("an empty piece"));
        }
        if piece.len() > self.total - self.bytes.len() {
            return Err(FrameError::Garbage("a message longer than it said"));
        }
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() < self.total {
            return Ok(None);
        }
        self.total = 0;
        Ok(Some(std::mem::take(&mut self.bytes)))
    }
}
