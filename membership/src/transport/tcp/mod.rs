//! TCP for applications without connections of their own: one connection per direction, TLS 1.3
//! within.
//!
//! What a stranger can cost is bounded: connections, handshakes, frames, unfinished messages and
//! queues all have limits, and damage closes a connection and nothing else.
//!
//! From the top: `accept` and `routes` decide which connection carries what, `carry` reads and
//! writes one connection, `connect` makes one, `handshake` decides whether to believe its other
//! end, `shared` knows them all, `link` is one of them. `roll` is what the confirmed view says of
//! their other ends, `refusals` warns of silos that are refused for a secret or a certificate, and
//! `check` looks for them when this silo's own have changed. `terse` leaves out of messages what the
//! handshake fixed.
//! `sources`, `turns` and `recent` bound the handshakes of others.

mod accept;
mod again;
mod carry;
mod check;
mod config;
mod connect;
mod counters;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod link;
mod queue;
mod recent;
mod refusals;
mod roll;
mod routes;
mod shared;
mod sources;
mod stream;
mod terse;
#[cfg(test)]
mod tests;
mod turns;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::protocol::{Destination, LinkId};
use membership_core::{ClusterView, InstanceId, SiloAddress};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

pub use self::config::TcpConfig;
use self::shared::{Phase, Shared};
use super::tls::{SiloKey, Tls, keep_certificates_fresh, keep_fresh};
use super::{EncodedMessage, Hello, Inbox, Kind, Transport, TransportError, TransportStats};

/// How long queued messages may take to leave at shutdown: long enough for a farewell.
const DRAIN: Duration = Duration::from_secs(1);

/// A transport over TCP connections of the silo's own.
///
/// It reports refused dials and lost connections to its [`Inbox`]. A message to an address whose
/// last dial was refused is dialled for again, at most ten times a second. A connection with a
/// member of the confirmed view counts as lost when it ends without the frame that says that the
/// other side closes it. A process that is stopped (SIGSTOP) is not noticed here: its system accepts
/// for it, and only the handshake fails, which is no refusal.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), membership::transport::TransportError> {
/// use membership::transport::{TcpTransport, Transport};
///
/// let transport = TcpTransport::bind("127.0.0.1:0".parse().unwrap()).await?;
/// assert_ne!(transport.local_endpoint().port(), 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TcpTransport {
    local: SocketAddr,
    shared: Arc<Shared>,
    /// Taken by `start`.
    listener: Mutex<Option<TcpListener>>,
    /// Every task holds a receiver, so it also knows when all have ended; dropping it ends them.
    phase: watch::Sender<Phase>,
}

impl TcpTransport {
    /// Listens on an address, port 0 = any free one. Connections wait until
    /// [`start`](Transport::start). Must be called within tokio.
    ///
    /// # Errors
    /// [`TransportError::Bind`], with the address and what to do; [`TransportError::Insecure`].
    pub async fn bind(address: SocketAddr) -> Result<Self, TransportError> {
        Self::bind_with(address, TcpConfig::default()).await
    }

    /// The same with other bounds.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_with(address: SocketAddr, config: TcpConfig) -> Result<Self, TransportError> {
        if !config.security.allows(address.ip()) {
            return Err(TransportError::Insecure { address });
        }
        let (secret, certificates) = (config.security.secret(), config.security.certificates());
        if config.security.is_plain() && (secret.is_some() || certificates.is_some()) {
            return Err(TransportError::SecretWithoutTls);
        }
        let tls = match config.security.is_plain() {
            true => None,
            false => Some(match &config.key {
                Some(key) => Tls::with(key.clone(), certificates.cloned())?,
                None => Tls::with(SiloKey::generate()?, certificates.cloned())?,
            }),
        };
        let failed = |source| TransportError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let phase = watch::Sender::new(Phase::Running);
        Ok(Self {
            local,
            shared: Arc::new(Shared::new(config, tls)),
            listener: Mutex::new(Some(listener)),
            phase,
        })
    }

    /// The address that was bound, with the real port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Only the first call gets it.
    fn take_listener(&self) -> Option<TcpListener> {
        self.listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

async fn until_it_ends(task: impl Future<Output = ()>, mut phase: watch::Receiver<Phase>) {
    tokio::select! {
        () = task => {}
        _ = phase.wait_for(|p| *p != Phase::Running) => {}
    }
}

#[async_trait]
impl Transport for TcpTransport {
    fn local_endpoint(&self) -> SocketAddr {
        self.local
    }

    async fn start(&self, hello: Hello, inbox: Arc<dyn Inbox>) -> Result<(), TransportError> {
        let runtime = Handle::try_current().map_err(|e| TransportError::Other(Box::new(e)))?;
        let is_trusted = self.shared.config.security.says_who_may_join();
        if hello.kind == Kind::Gossip && !is_trusted {
            return Err(TransportError::NoTrust);
        }
        let listener = self.take_listener().ok_or(TransportError::AlreadyStarted)?;
        let phase = self.phase.subscribe();
        self.shared
            .begin(hello.clone(), inbox.clone(), phase.clone(), runtime.clone());
        let security = &self.shared.config.security;
        if let Some(secret) = security.secret() {
            secret.warn_of_mode();
            runtime.spawn(until_it_ends(keep_fresh(secret.clone()), phase.clone()));
        }
        if let Some(certificates) = security.certificates() {
            certificates.warn_of_mode();
            if certificates.are_optional() {
                tracing::warn!(
                    "silos without a certificate are believed too: once all have one, start this silo without `--tls-optional`"
                );
            }
            let fresh = keep_certificates_fresh(certificates.clone(), hello);
            runtime.spawn(until_it_ends(fresh, phase.clone()));
        }
        let changes = check::Changes::of(security);
        let check = check::after(changes, self.shared.clone(), inbox.clone(), phase.clone());
        runtime.spawn(until_it_ends(check, phase.clone()));
        runtime.spawn(accept::accept_all(
            self.shared.clone(),
            listener,
            inbox,
            phase,
        ));
        Ok(())
    }

    fn send(&self, to: Destination, message: EncodedMessage) {
        if message.len() > self.shared.config.max_message_bytes {
            self.shared.refuse_too_large(to, message.len());
        } else {
            self.shared.send(to, message);
        }
    }

    fn instance(&self) -> Option<InstanceId> {
        self.shared.tls.as_ref().map(Tls::instance)
    }

    fn update(&self, silo: Option<SiloAddress>, view: &ClusterView) {
        self.shared.update(silo, view);
    }

    fn dialled_from(&self, link: LinkId) -> Option<IpAddr> {
        self.shared.dialled_from(link)
    }

    fn update_members(&self, me: SiloAddress, members: &[(SiloAddress, InstanceId)]) {
        self.shared.update_members(me, members);
    }

    async fn shutdown(&self) {
        drop(self.take_listener());
        self.phase.send_if_modified(|p| {
            *p == Phase::Running && {
                *p = Phase::Draining;
                true
            }
        });
        // A dial that is under way may still deliver; its queue is sent before the connection
        // closes.
        self.shared.end();
        let _ = timeout(DRAIN, self.phase.closed()).await;
        self.phase.send_replace(Phase::Closed);
        self.phase.closed().await;
    }

    fn stats(&self) -> TransportStats {
        self.shared.counters.read()
    }
}
