//! The handshake: both sides introduce themselves before anything else.
//!
//! A fixed mark, then one `Hello` frame in each direction; the side that accepted may send `Refuse`
//! and a reason instead. The protocol versions always come first, so that builds without a common
//! version can say so.

use std::net::SocketAddr;

use membership_core::protocol::{MIN_PROTOCOL_VERSION, PROTOCOL_VERSION};
use membership_core::{InstanceId, SiloAddress, TableId};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frame::{self, FrameError, Kind};
use crate::transport::Hello;

/// The first bytes in each direction. Not text, so that no text protocol begins like this.
pub(super) const MARK: [u8; 8] = *b"\x93silo\r\n\x01";
/// The longest handshake frame. A hello of this build has at most 5 KiB.
const MAX_HELLO: usize = 16 * 1024;
/// The most bytes of [`Hello::authentication`].
pub(super) const MAX_AUTHENTICATION: usize = 1024;
/// The longest reason of the other side that is shown.
const MAX_REASON_CHARS: usize = 400;

/// The versions of one side, oldest and newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Versions {
    pub(super) min: u16,
    pub(super) max: u16,
}

impl Versions {
    /// The versions of this build.
    pub(super) const MINE: Self = Self {
        min: MIN_PROTOCOL_VERSION,
        max: PROTOCOL_VERSION,
    };

    /// The newest version that both know.
    pub(super) fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// What one side reports about itself after its versions. Newer builds may append fields, which are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    /// The cluster's name as text, for people.
    pub(super) cluster: String,
    /// Its fingerprint, as in every message.
    pub(super) fingerprint: u64,
    pub(super) advertise: SocketAddr,
    pub(super) instance: InstanceId,
    pub(super) silo: Option<SiloAddress>,
    pub(super) table_id: Option<TableId>,
    pub(super) version: u64,
    /// Reserved; sent and ignored.
    pub(super) authentication: Vec<u8>,
}

impl From<&Hello> for Introduction {
    fn from(hello: &Hello) -> Self {
        Self {
            cluster: hello.cluster.to_string(),
            fingerprint: hello.cluster.fingerprint(),
            advertise: hello.advertise,
            instance: hello.instance,
            silo: hello.silo,
            table_id: hello.table_id,
            version: hello.version,
            authentication: hello
                .authentication
                .iter()
                .copied()
                .take(MAX_AUTHENTICATION)
                .collect(),
        }
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The other side does not speak this protocol.
    #[error("what answers there is not a silo")]
    Foreign,
    /// The connection broke, or a frame was wrong.
    #[error("handshake failed: {0}")]
    Frame(#[from] FrameError),
    /// Damaged.
    #[error("damaged handshake: {0}")]
    Damaged(#[from] postcard::Error),
    /// Another cluster.
    #[error("it belongs to cluster `{theirs}`, this silo to `{mine}`")]
    Cluster { theirs: String, mine: String },
    /// No version in common.
    #[error("no common protocol version: it supports {} to {}, this silo {} to {}", .theirs.min, .theirs.max, Versions::MINE.min, Versions::MINE.max)]
    Version { theirs: Versions },
    /// The other side refused; its reason.
    #[error("refused by the other side: {0}")]
    Refused(String),
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> Self {
        Self::Frame(error.into())
    }
}

/// The mark and the hello frame.
pub(super) fn encode(versions: Versions, me: &Introduction) -> Result<Vec<u8>, HandshakeError> {
    let content = postcard::to_extend(me, postcard::to_extend(&versions, Vec::new())?)?;
    let mut bytes = MARK.to_vec();
    frame::put(&mut bytes, Kind::Hello, &[&content]);
    Ok(bytes)
}

/// Decodes and checks the content of a hello frame.
pub(super) fn check(content: &[u8], me: &Introduction) -> Result<Introduction, HandshakeError> {
    let (theirs, rest) = postcard::take_from_bytes::<Versions>(content)?;
    if Versions::MINE.common(theirs).is_none() {
        return Err(HandshakeError::Version { theirs });
    }
    let (peer, _newer_fields) = postcard::take_from_bytes::<Introduction>(rest)?;
    if peer.fingerprint != me.fingerprint || peer.cluster != me.cluster {
        return Err(HandshakeError::Cluster {
            theirs: readable(&peer.cluster),
            mine: me.cluster.clone(),
        });
    }
    Ok(peer)
}

/// The side that dialled: sends first.
pub(super) async fn dial<R, W>(
    reader: &mut R,
    writer: &mut W,
    me: &Introduction,
) -> Result<Introduction, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    writer.write_all(&encode(Versions::MINE, me)?).await?;
    read(reader, me).await
}

/// The side that accepted: reads first, and sends the reason if it refuses.
pub(super) async fn accept<R, W>(
    reader: &mut R,
    writer: &mut W,
    me: &Introduction,
) -> Result<Introduction, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match read(reader, me).await {
        Ok(peer) => {
            writer.write_all(&encode(Versions::MINE, me)?).await?;
            Ok(peer)
        }
        Err(error) => {
            let reason = match &error {
                HandshakeError::Cluster { theirs, mine } => {
                    format!("this silo belongs to cluster `{mine}`, not to `{theirs}`")
                }
                HandshakeError::Version { theirs } => {
                    let mine = Versions::MINE;
                    format!(
                        "this silo supports protocol versions {} to {}, not {} to {}",
                        mine.min, mine.max, theirs.min, theirs.max
                    )
                }
                HandshakeError::Damaged(_) => "the handshake is damaged".to_owned(),
                HandshakeError::Foreign | HandshakeError::Frame(_) | HandshakeError::Refused(_) => {
                    return Err(error);
                }
            };
            let mut bytes = MARK.to_vec();
            frame::put(&mut bytes, Kind::Refuse, &[reason.as_bytes()]);
            writer.write_all(&bytes).await?;
            writer.shutdown().await?;
            Err(error)
        }
    }
}

async fn read<R: AsyncRead + Unpin>(
    reader: &mut R,
    me: &Introduction,
) -> Result<Introduction, HandshakeError> {
    let mut mark = [0; MARK.len()];
    // Byte by byte, so that another protocol is refused at its first byte.
    for (i, expected) in MARK.iter().enumerate() {
        reader.read_exact(&mut mark[i..=i]).await?;
        if mark[i] != *expected {
            return Err(HandshakeError::Foreign);
        }
    }
    match frame::read(reader, MAX_HELLO).await? {
        (Kind::Hello, content) => check(&content, me),
        (Kind::Refuse, content) => Err(HandshakeError::Refused(readable(
            &String::from_utf8_lossy(&content),
        ))),
        _ => Err(FrameError::Garbage("something before the hello").into()),
    }
}

/// Text of an unauthenticated peer, made safe for a log.
fn readable(text: &str) -> String {
    text.chars()
        .take(MAX_REASON_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
