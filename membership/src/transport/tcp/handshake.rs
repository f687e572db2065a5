//! The handshake: both sides introduce themselves before anything else.
//!
//! A fixed mark, which names what the process takes part in ([`Part`]), then one `Hello` frame in each direction, the side that dialled first. The other
//! side answers only if that hello is good: a stranger learns nothing, not even the cluster's name.
//!
//! Within TLS each side has already proven its key, which is its instance, or a certificate; then
//! its hello proves the key. It is believed if the
//! confirmed view has a row of that instance, or if its hello has a proof made with a cluster key.
//! A proof is tied to the connection, to the side, to the cluster and to who says it, so that
//! nobody can relay, reflect or repeat it.

mod agreed;
mod error;
mod mark;

use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::protocol::PeerIdentity;
use membership_core::{
    ClusterKeys, ClusterName, ClusterProof, ClusterView, InstanceId, SiloAddress, TableId,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) use self::agreed::Agreed;
use self::error::readable;
pub(super) use self::error::{Claim, HandshakeError};
pub(super) use self::mark::{MARK, Versions};
use self::mark::{mark, part_of};
use super::frame::{self, FrameError, Kind};
use super::roll::{Roll, Standing};
use crate::transport::tls::{Binding, KeyProof, Proven, SiloKey};
use crate::transport::{Hello, Kind as Part};

/// The longest handshake frame. A hello of this build has at most 400 bytes.
const MAX_HELLO: usize = 2048;
/// What a proof is about: the cluster keys of the table, or the secret beside it.
const TABLE: &[u8] = b"table";
const SECRET: &[u8] = b"secret";
/// What a process signs whose key TLS has not proven.
const KEY: &[u8] = b"key";

/// What one side reports about itself after its versions. Newer builds may append fields, which are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    pub(super) advertise: SocketAddr,
    pub(super) instance: InstanceId,
    pub(super) silo: Option<SiloAddress>,
    /// The cluster's fingerprint: only without TLS.
    pub(super) fingerprint: Option<u64>,
    /// Proofs of having read the table: only within TLS, one for each cluster key.
    pub(super) proofs: Vec<ClusterProof>,
    /// Proof of having the secret.
    pub(super) secret: Option<ClusterProof>,
    /// The table of its confirmed view: only of the side that accepted, because the other one does
    /// not know yet whom it tells.
    pub(super) table_id: Option<TableId>,
}

/// What this silo knows when a handshake begins.
#[derive(Clone, Debug)]
pub(super) struct Me {
    pub(super) part: Part,
    pub(super) cluster: ClusterName,
    pub(super) advertise: SocketAddr,
    pub(super) instance: InstanceId,
    pub(super) silo: Option<SiloAddress>,
    /// The newest confirmed view.
    pub(super) view: Option<ClusterView>,
    /// Its rows, by process.
    pub(super) roll: Arc<Roll>,
    /// The secret that everybody needs besides, the key to prove first.
    pub(super) secret: Option<ClusterKeys>,
    /// The key pair of this process, to prove it where TLS proves a certificate.
    pub(super) key: Option<SiloKey>,
    /// Whether a peer without a certificate is refused.
    pub(super) needs_certificates: bool,
}

impl From<&Hello> for Me {
    fn from(hello: &Hello) -> Self {
        Self {
            part: hello.kind,
            cluster: hello.cluster.clone(),
            advertise: hello.advertise,
            instance: hello.instance,
            silo: None,
            view: None,
            roll: Arc::default(),
            secret: None,
            key: None,
            needs_certificates: false,
        }
    }
}

/// The two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Side {
    Dialled = 0,
    Accepted = 1,
}

/// What TLS has proven about the other side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secured {
    pub(super) peer: Proven,
    pub(super) binding: Binding,
}

impl Secured {
    /// Who a peer is that was believed.
    pub(super) fn identity(this: Option<&Self>, peer: &Introduction) -> PeerIdentity {
        match this {
            Some(_) => PeerIdentity::Proven(peer.instance),
            None => PeerIdentity::Unproven,
        }
    }
}

impl Me {
    /// The keys of the newest confirmed view.
    pub(super) fn cluster_keys(&self) -> ClusterKeys {
        let view = self.view.as_ref().map(ClusterView::snapshot);
        view.map(|view| view.version_row.core.cluster_keys())
            .unwrap_or_default()
    }

    /// What this side says.
    pub(super) fn introduce(&self, side: Side, secured: Option<&Secured>) -> Introduction {
        let (advertise, instance) = (self.advertise, self.instance);
        let prove = |about, keys: &ClusterKeys| match secured {
            Some(secured) => self.said(about, side, secured, advertise, instance, |said| {
                keys.prove(said)
            }),
            None => Vec::new(),
        };
        let proofs = prove(TABLE, &self.cluster_keys());
        let secret = self.secret.as_ref().map(|keys| prove(SECRET, keys));
        let secret = secret.unwrap_or_default();
        let told = self.view.as_ref().filter(|_| side == Side::Accepted);
        Introduction {
            advertise,
            instance,
            silo: self.silo,
            fingerprint: secured.is_none().then(|| self.cluster.fingerprint()),
            proofs,
            secret: secret.first().copied(),
            table_id: told.map(ClusterView::table_id),
        }
    }

    /// The proof of this process's key, where TLS has proven a certificate instead.
    fn prove_key(&self, side: Side, secured: Option<&Secured>) -> Option<KeyProof> {
        let secured = secured.filter(|s| s.peer == Proven::Certificate)?;
        let key = self.key.as_ref()?;
        let (advertise, instance) = (self.advertise, self.instance);
        self.said(KEY, side, secured, advertise, instance, |said| {
            key.prove(said)
        })
    }

    /// What a proof is about.
    fn said<T>(
        &self,
        about: &[u8],
        side: Side,
        secured: &Secured,
        advertise: SocketAddr,
        instance: InstanceId,
        then: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        then(&[
            about,
            &secured.binding,
            &[side as u8],
            self.cluster.to_string().as_bytes(),
            advertise.to_string().as_bytes(),
            &instance.get().to_be_bytes(),
        ])
    }

    /// Whether to believe the other side, of which `side` is the role.
    fn judge(
        &self,
        peer: &Introduction,
        key: Option<&KeyProof>,
        side: Side,
        secured: Option<&Secured>,
    ) -> Result<(), HandshakeError> {
        let Some(secured) = secured else {
            return if peer.fingerprint == Some(self.cluster.fingerprint()) {
                Ok(())
            } else {
                Err(HandshakeError::Cluster)
            };
        };
        let (advertise, instance) = (peer.advertise, peer.instance);
        let proven = match secured.peer {
            Proven::Key(instance) => Some(instance),
            Proven::Certificate => key.and_then(|key| {
                self.said(KEY, side, secured, advertise, instance, |said| {
                    key.instance(said)
                })
            }),
        };
        if proven != Some(instance) {
            return Err(HandshakeError::OtherInstance);
        }
        if instance == self.instance {
            return Ok(());
        }
        let claim = || self.claim(peer, side, secured);
        if self.needs_certificates && secured.peer != Proven::Certificate {
            return Err(HandshakeError::NoCertificate(claim()));
        }
        if let Some(keys) = &self.secret {
            let shown = peer
                .secret
                .ok_or_else(|| HandshakeError::NoSecret(claim()))?;
            let accepts = |said: &[&[u8]]| keys.accept(&[shown], said);
            if !self.said(SECRET, side, secured, advertise, instance, accepts) {
                return Err(HandshakeError::WrongSecret(claim()));
            }
        }
        if self.part == Part::Table && self.view.is_none() {
            return Err(HandshakeError::TooEarly);
        }
        let row = self.roll.endpoint(instance);
        if row.is_some_and(|endpoint| endpoint != canonical(advertise)) {
            return Err(HandshakeError::OtherAddress);
        }
        let is_believed = match self.part {
            Part::Table => row.is_some() || self.has_key_of_the_cluster(peer, side, secured),
            // What it has shown is all that there is.
            Part::Gossip => self.secret.is_some() || secured.peer == Proven::Certificate,
        };
        if is_believed {
            Ok(())
        } else {
            Err(HandshakeError::Unproven)
        }
    }

    fn has_key_of_the_cluster(&self, peer: &Introduction, side: Side, secured: &Secured) -> bool {
        let keys = self.cluster_keys();
        let accepts = |said: &[&[u8]]| keys.accept(&peer.proofs, said);
        let (advertise, instance) = (peer.advertise, peer.instance);
        self.said(TABLE, side, secured, advertise, instance, accepts)
    }

    /// Who a peer is that has proven its key.
    fn claim(&self, peer: &Introduction, side: Side, secured: &Secured) -> Claim {
        match self.roll.endpoint(peer.instance) {
            Some(endpoint) if self.roll.standing(peer.instance) == Standing::Member => {
                Claim::Member(endpoint)
            }
            None if self.has_key_of_the_cluster(peer, side, secured) => {
                Claim::Newcomer(canonical(peer.advertise))
            }
            _ => Claim::Stranger,
        }
    }
}

/// The mark and the hello frame.
pub(super) fn encode(
    part: Part,
    versions: Versions,
    me: &Introduction,
    key: Option<&KeyProof>,
) -> Result<Vec<u8>, HandshakeError> {
    let mut content = postcard::to_extend(me, postcard::to_extend(&versions, Vec::new())?)?;
    if let Some(key) = key {
        content = postcard::to_extend(key, content)?;
    }
    let mut bytes = mark(part).to_vec();
    frame::put(&mut bytes, Kind::Hello, &[&content]);
    Ok(bytes)
}

/// Decodes and judges the content of a hello frame of the given side. Gives the newest protocol
/// version that both know, too.
pub(super) fn check(
    content: &[u8],
    me: &Me,
    side: Side,
    secured: Option<&Secured>,
) -> Result<(Introduction, u16), HandshakeError> {
    let (theirs, rest) = postcard::take_from_bytes::<Versions>(content)?;
    let (peer, rest) = postcard::take_from_bytes::<Introduction>(rest)?;
    // What follows otherwise are fields of newer builds.
    let shows_key = secured.is_some_and(|s| s.peer == Proven::Certificate);
    let key = shows_key.then(|| postcard::from_bytes::<KeyProof>(rest));
    me.judge(&peer, key.transpose()?.as_ref(), side, secured)?;
    let mine = Versions::of(me.part);
    match mine.common(theirs) {
        Some(protocol) => Ok((peer, protocol)),
        None => Err(HandshakeError::Version { theirs, mine }),
    }
}

/// The side that dialled: sends first.
pub(super) async fn dial<S>(
    stream: &mut S,
    me: &Me,
    secured: Option<&Secured>,
) -> Result<(Introduction, Agreed), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mine = me.introduce(Side::Dialled, secured);
    let key = me.prove_key(Side::Dialled, secured);
    let bytes = encode(me.part, Versions::of(me.part), &mine, key.as_ref())?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    let mut first = [0];
    if !matches!(stream.read(&mut first).await, Ok(1)) {
        return Err(HandshakeError::Dismissed);
    }
    let (peer, protocol) = read(stream, first[0], me, Side::Accepted, secured).await?;
    let agreed = Agreed::new(me, Side::Dialled, protocol, &mine, &peer);
    Ok((peer, agreed))
}

/// The side that accepted: reads first. It answers those alone whom it believes.
pub(super) async fn accept<S>(
    stream: &mut S,
    me: &Me,
    secured: Option<&Secured>,
) -> Result<(Introduction, Agreed), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let first = stream.read_u8().await?;
    let result = read(stream, first, me, Side::Dialled, secured).await;
    let (bytes, result) = match result {
        Ok((peer, protocol)) => {
            let mine = me.introduce(Side::Accepted, secured);
            let key = me.prove_key(Side::Accepted, secured);
            let agreed = Agreed::new(me, Side::Accepted, protocol, &mine, &peer);
            let bytes = encode(me.part, Versions::of(me.part), &mine, key.as_ref())?;
            (bytes, Ok((peer, agreed)))
        }
        // It has proven who it is, so it may know.
        Err(HandshakeError::Version { theirs, mine }) => {
            let reason = format!(
                "this silo supports protocol versions {} to {}, not {} to {}",
                mine.min, mine.max, theirs.min, theirs.max
            );
            let mut bytes = mark(me.part).to_vec();
            frame::put(&mut bytes, Kind::Refuse, &[reason.as_bytes()]);
            (bytes, Err(HandshakeError::Version { theirs, mine }))
        }
        // The mark alone says what this process is, and no more than TLS has said.
        Err(error @ HandshakeError::OtherPart { .. }) => (mark(me.part).to_vec(), Err(error)),
        Err(error) => (Vec::new(), Err(error)),
    };
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    if result.is_err() {
        stream.shutdown().await?;
    }
    result
}

async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    first: u8,
    me: &Me,
    side: Side,
    secured: Option<&Secured>,
) -> Result<(Introduction, u16), HandshakeError> {
    let mut byte = first;
    // Byte by byte, so that another protocol is refused at its first byte.
    for i in 0..MARK.len() {
        if i > 0 {
            byte = stream.read_u8().await?;
        }
        let theirs = match part_of(i, byte) {
            Some(None) => continue,
            Some(Some(theirs)) => theirs,
            None => return Err(HandshakeError::Foreign),
        };
        if theirs != me.part {
            let mine = me.part;
            return Err(HandshakeError::OtherPart { theirs, mine });
        }
    }
    match frame::read(stream, MAX_HELLO).await? {
        (Kind::Hello, content) => check(&content, me, side, secured),
        (Kind::Refuse, content) => Err(HandshakeError::Refused(readable(
            &String::from_utf8_lossy(&content),
        ))),
        _ => Err(FrameError::Garbage("something before the hello").into()),
    }
}

fn canonical(endpoint: SocketAddr) -> SocketAddr {
    SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port())
}
