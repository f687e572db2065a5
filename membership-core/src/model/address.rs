//! The address of a silo: an ip address, a port and an epoch.

use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::quoted;

/// Upper bound of epochs, versions and counters: the largest range that every store and every JSON
/// reader keeps exactly (clause T10).
pub const MAX_SAFE_INTEGER: u64 = 1 << 53;

/// One incarnation of a server: the endpoint where it listens, and an epoch that identifies the
/// start of its process.
///
/// A restarted process is a new silo with the same ip and port and a larger epoch. IPv4-mapped IPv6
/// addresses are kept as IPv4. Addresses are ordered by ip, port and epoch, so that all
/// incarnations of one endpoint are adjacent.
///
/// ```
/// use membership_core::SiloAddress;
/// let silo: SiloAddress = "10.0.3.9:7100@1763000000000".parse()?;
/// assert_eq!(silo.epoch(), 1_763_000_000_000);
/// let newer = silo.with_epoch(silo.epoch() + 1);
/// assert!(newer.is_successor_of(&silo));
/// assert_eq!("[::1]:7100@5".parse::<SiloAddress>()?.to_string(), "[::1]:7100@5");
/// # Ok::<(), membership_core::ParseSiloError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SiloAddress {
    ip: IpAddr,
    port: u16,
    epoch: u64,
}

impl SiloAddress {
    /// The silo at `ip:port` with this `epoch`: by convention milliseconds since 1970, at most
    /// 2^53. Larger values are cut to 2^53.
    #[must_use]
    pub fn new(ip: IpAddr, port: u16, epoch: u64) -> Self {
        Self {
            ip: ip.to_canonical(),
            port,
            epoch: epoch.min(MAX_SAFE_INTEGER),
        }
    }

    /// The silo at a socket address with this `epoch`; see [`new`](Self::new).
    #[must_use]
    pub fn at(endpoint: SocketAddr, epoch: u64) -> Self {
        Self::new(endpoint.ip(), endpoint.port(), epoch)
    }

    /// The ip address that other silos dial.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The port that other silos dial.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The epoch: which incarnation of the endpoint this is.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The ip address and port that other silos dial.
    #[must_use]
    pub const fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Another incarnation at the same endpoint.
    #[must_use]
    pub fn with_epoch(&self, epoch: u64) -> Self {
        Self::new(self.ip, self.port, epoch)
    }

    /// Whether both have the same ip and port.
    #[must_use]
    pub fn same_endpoint(&self, other: &Self) -> bool {
        self.ip == other.ip && self.port == other.port
    }

    /// Whether this is a newer incarnation: same ip and port, larger epoch.
    #[must_use]
    pub fn is_successor_of(&self, other: &Self) -> bool {
        self.same_endpoint(other) && self.epoch > other.epoch
    }

    /// The key of this silo's row, in every store: the display form, `ip:port@epoch`.
    #[must_use]
    pub fn row_key(&self) -> String {
        self.to_string()
    }
}

impl Ord for SiloAddress {
    /// By ip (IPv4 before IPv6), port, epoch. Every search for a silo uses this comparison, so two
    /// IPv4 addresses are compared as numbers.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let by_ip = match (&self.ip, &other.ip) {
            (IpAddr::V4(mine), IpAddr::V4(theirs)) => mine.to_bits().cmp(&theirs.to_bits()),
            (mine, theirs) => mine.cmp(theirs),
        };
        by_ip
            .then(self.port.cmp(&other.port))
            .then(self.epoch.cmp(&other.epoch))
    }
}

impl PartialOrd for SiloAddress {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `ip:port@epoch`; IPv6 in brackets.
impl fmt::Display for SiloAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.endpoint(), self.epoch)
    }
}

impl fmt::Debug for SiloAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

crate::debug_as_display!(ParseSiloError);

/// The error for a text that is not a silo address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a silo address: write ip:port@epoch, IPv6 in brackets, for example 10.0.3.9:7100@1763000000000"
)]
pub struct ParseSiloError(String);

impl FromStr for SiloAddress {
    type Err = ParseSiloError;

    fn from_str(text: &str) -> Result<Self, ParseSiloError> {
        let parse = || {
            let (endpoint, epoch) = text.rsplit_once('@')?;
            if !epoch.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let epoch: u64 = epoch.parse().ok()?;
            let endpoint: SocketAddr = endpoint.parse().ok()?;
            (epoch <= MAX_SAFE_INTEGER).then(|| Self::at(endpoint, epoch))
        };
        parse().ok_or_else(|| ParseSiloError(quoted(text, 80)))
    }
}

impl Serialize for SiloAddress {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() {
            s.collect_str(self)
        } else {
            (self.ip, self.port, self.epoch).serialize(s)
        }
    }
}

impl<'de> Deserialize<'de> for SiloAddress {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            std::borrow::Cow::<'de, str>::deserialize(d)?
                .parse()
                .map_err(serde::de::Error::custom)
        } else {
            let (ip, port, epoch) = <(IpAddr, u16, u64)>::deserialize(d)?;
            if epoch > MAX_SAFE_INTEGER {
                return Err(serde::de::Error::custom("epoch above 2^53"));
            }
            Ok(Self::new(ip, port, epoch))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in [
            "0.0.0.0:0@0",
            "10.0.3.9:7100@9007199254740992",
            "[2001:db8::1]:65535@1",
        ] {
            assert_eq!(text.parse::<SiloAddress>().unwrap().to_string(), text);
        }
        assert_eq!(
            "[::ffff:10.0.0.1]:1@2"
                .parse::<SiloAddress>()
                .unwrap()
                .to_string(),
            "10.0.0.1:1@2"
        );
    }

    #[test]
    fn rejects_invalid_text_with_advice() {
        for bad in [
            "",
            "10.0.0.1:1",
            "10.0.0.1:1@",
            "10.0.0.1:1@-1",
            "10.0.0.1:1@+1",
            "::1:1@1",
            "10.0.0.1:70000@1",
            "10.0.0.1:1@9007199254740993",
            "host:1@1",
        ] {
            let error = bad.parse::<SiloAddress>().unwrap_err();
            assert!(error.to_string().contains("ip:port@epoch"), "{error}");
        }
    }
}
