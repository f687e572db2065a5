//! From an address to a transport that is bound, and to the address that others dial.

use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::{ClusterName, InstanceId};
use tokio::runtime::Handle;

use crate::transport::{Security, SiloKey, TcpConfig, TcpTransport, Transport, TransportError};

crate::debug_as_display!(ListenError);

/// Why a process has no transport.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Neither an address to listen on nor a transport was given.
    #[error(
        "no address to listen on: give `.listen(address)`, or a transport of your own with `.transport(…)`"
    )]
    NoListenAddress,
    /// It listens on every address of the machine, which others cannot dial.
    #[error(
        "others cannot dial {listen}: give `.advertise(address)` with an address at which they reach this process"
    )]
    AdvertiseMissing {
        /// What it listens on.
        listen: SocketAddr,
    },
    /// The advertised address is unspecified.
    #[error(
        "others cannot dial the advertised address {advertise}: give `.advertise(address)` with an address at which they reach this process"
    )]
    AdvertiseUnspecified {
        /// What was to be advertised.
        advertise: SocketAddr,
    },
    /// The transport did not start.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// There is no tokio runtime with time and input/output.
    #[error("no tokio runtime: await `start` within one")]
    NoRuntime,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// Where to listen, as an application described it.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) advertise: Option<SocketAddr>,
    pub(crate) transport: Option<Arc<dyn Transport>>,
    pub(crate) security: Security,
    pub(crate) key: Option<SiloKey>,
}

/// A transport that is bound, and what this process is at it.
pub(crate) struct Bound {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) advertise: SocketAddr,
    pub(crate) instance: InstanceId,
    pub(crate) runtime: Handle,
}

impl Listen {
    pub(crate) const fn new(security: Security) -> Self {
        Self {
            listen: None,
            advertise: None,
            transport: None,
            security,
            key: None,
        }
    }

    /// Binds, and checks that others can dial what is advertised. `limits` are those of a TCP
    /// transport of its own.
    pub(crate) async fn open(
        self,
        cluster: &ClusterName,
        mut limits: TcpConfig,
    ) -> Result<Bound, ListenError> {
        let runtime = Handle::try_current().map_err(|_| ListenError::NoRuntime)?;
        check_advertised(
            self.transport.is_none().then_some(self.listen).flatten(),
            self.advertise,
        )?;
        let certificates = self.security.certificates().cloned();
        let certificates = certificates.filter(|_| self.transport.is_none());
        let transport = match (self.transport, self.listen) {
            (Some(transport), _) => transport,
            (None, Some(listen)) => {
                (limits.security, limits.key) = (self.security, self.key);
                Arc::new(TcpTransport::bind_with(listen, limits).await?)
            }
            (None, None) => return Err(ListenError::NoListenAddress),
        };
        let instance = match transport.instance() {
            Some(instance) => instance,
            None => InstanceId::new(u128::from_ne_bytes(random()?)),
        };
        let advertise = advertised(transport.local_endpoint(), self.advertise)?;
        if let Some(certificates) = certificates {
            certificates
                .check_own(cluster, advertise.ip())
                .map_err(TransportError::Certificate)?;
        }
        Ok(Bound {
            transport,
            advertise,
            instance,
            runtime,
        })
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], ListenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| ListenError::Random(e.to_string()))?;
    Ok(bytes)
}

/// The checks that are possible before anything is bound.
fn check_advertised(
    listen: Option<SocketAddr>,
    advertise: Option<SocketAddr>,
) -> Result<(), ListenError> {
    let unspecified = |address: &SocketAddr| address.ip().to_canonical().is_unspecified();
    match (listen, advertise) {
        (_, Some(advertise)) if unspecified(&advertise) => {
            Err(ListenError::AdvertiseUnspecified { advertise })
        }
        (Some(listen), None) if unspecified(&listen) => {
            Err(ListenError::AdvertiseMissing { listen })
        }
        _ => Ok(()),
    }
}

fn advertised(bound: SocketAddr, advertise: Option<SocketAddr>) -> Result<SocketAddr, ListenError> {
    check_advertised(Some(bound), advertise)?;
    let mut address = advertise.unwrap_or(bound);
    if address.port() == 0 {
        address.set_port(bound.port());
    }
    // As in rows and messages: a dual-stack socket gives an IPv4 address as an IPv6 one.
    address.set_ip(address.ip().to_canonical());
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_cannot_be_dialled_is_refused_with_advice() {
        for listen in ["0.0.0.0:7100", "[::]:0", "[::ffff:0.0.0.0]:7100"] {
            let error = check_advertised(Some(at(listen)), None)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(".advertise(address)") && error.contains(listen),
                "{error}"
            );
        }
        let error = advertised(at("127.0.0.1:7100"), Some(at("0.0.0.0:7100"))).unwrap_err();
        assert!(
            matches!(error, ListenError::AdvertiseUnspecified { .. }),
            "{error}"
        );
    }

    #[test]
    fn port_0_is_the_port_that_was_bound() {
        assert_eq!(
            advertised(at("0.0.0.0:7100"), Some(at("10.0.0.1:0"))).unwrap(),
            at("10.0.0.1:7100")
        );
        assert_eq!(
            advertised(at("0.0.0.0:7100"), Some(at("10.0.0.1:9"))).unwrap(),
            at("10.0.0.1:9")
        );
        assert_eq!(
            advertised(at("127.0.0.1:7100"), None).unwrap(),
            at("127.0.0.1:7100")
        );
    }

    #[test]
    fn an_ipv4_address_is_advertised_as_one() {
        assert_eq!(
            advertised(at("[::]:7100"), Some(at("[::ffff:10.0.0.5]:7100"))).unwrap(),
            at("10.0.0.5:7100")
        );
        assert_eq!(
            advertised(at("[::ffff:127.0.0.1]:7100"), None).unwrap(),
            at("127.0.0.1:7100")
        );
        assert_eq!(
            advertised(at("[::1]:7100"), None).unwrap(),
            at("[::1]:7100")
        );
    }
}
