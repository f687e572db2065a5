//! Host and port: parsing, defaults, display.

use std::fmt;
use std::net::IpAddr;

use membership_core::{ConnectionString, Operation, TableError, TableErrorKind};

/// Where a server listens. Displays as `host:port`, IPv6 in brackets.
///
/// ```
/// use membership_provider::Endpoint;
///
/// assert_eq!(Endpoint::new("::1", 7000).to_string(), "[::1]:7000");
/// assert_eq!(Endpoint::parse("db.example", 7000), Endpoint::new("db.example", 7000));
/// assert_eq!(Endpoint::parse("[::1]:9", 7000), Endpoint::new("::1", 9));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// This port of this host.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// From `host` or `host:port`, IPv6 with or without brackets; without brackets it has no port.
    #[must_use]
    pub fn parse(text: &str, default_port: u16) -> Self {
        let has_port = text.rsplit_once(':').and_then(|(host, port)| {
            let plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
            Some((host, port.parse().ok()?)).filter(|_| plain)
        });
        let (host, port) = has_port.unwrap_or((text, default_port));
        Self::new(host.trim_start_matches('[').trim_end_matches(']'), port)
    }

    /// The hosts of a [`ConnectionString`](membership_core::ConnectionString) or of a builder.
    #[must_use]
    pub fn list(hosts: &[(String, Option<u16>)], default_port: u16) -> Vec<Self> {
        hosts
            .iter()
            .map(|(host, port)| Self::new(host, port.unwrap_or(default_port)))
            .collect()
    }

    /// The host of a connection string that must name exactly one.
    ///
    /// ```
    /// use membership_core::ConnectionString;
    /// use membership_provider::Endpoint;
    ///
    /// let url = ConnectionString::parse("mystore", &["mystore"], "mystore://a")?;
    /// assert_eq!(Endpoint::single("mystore", &url, 7000)?, Endpoint::new("a", 7000));
    /// let url = ConnectionString::parse("mystore", &["mystore"], "mystore://a,b")?;
    /// assert!(Endpoint::single("mystore", &url, 7000).is_err());
    /// # Ok::<(), membership_core::TableError>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration`
    pub fn single(
        store: &'static str,
        url: &ConnectionString,
        default_port: u16,
    ) -> Result<Self, TableError> {
        if let [(host, port)] = &url.hosts[..] {
            return Ok(Self::new(host, port.unwrap_or(default_port)));
        }
        Err(TableError::new(
            TableErrorKind::Configuration,
            Operation::Connect,
            store,
            format!("name one host: `{}://host:{default_port}`", url.scheme),
        ))
    }

    /// Whether it is certainly this machine: `localhost` or a loopback address.
    ///
    /// ```
    /// use membership_provider::Endpoint;
    /// let is_loopback = |host| Endpoint::new(host, 1).is_loopback();
    /// assert!(is_loopback("127.0.0.1") && is_loopback("::1") && is_loopback("localhost"));
    /// assert!(!is_loopback("10.0.0.1") && !is_loopback("db.example"));
    /// ```
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        address.map_or_else(
            |_| self.host.eq_ignore_ascii_case("localhost"),
            |ip| ip.is_loopback(),
        )
    }

    /// The first of these servers that is another machine, if a password goes there `plain`. It is
    /// named in the log, with `advice` how to encrypt.
    ///
    /// ```
    /// use membership_provider::Endpoint;
    /// let servers = ["localhost", "db.example"].map(|host| Endpoint::new(host, 1));
    /// let far = Endpoint::warn_if_exposed("mystore", &servers, true, "use tls=true");
    /// assert_eq!(far, Some(&servers[1]));
    /// assert_eq!(Endpoint::warn_if_exposed("mystore", &servers, false, "use tls=true"), None);
    /// ```
    pub fn warn_if_exposed<'a>(
        store: &'static str,
        servers: &'a [Self],
        plain: bool,
        advice: &str,
    ) -> Option<&'a Self> {
        let far = servers.iter().find(|it| plain && !it.is_loopback())?;
        tracing::warn!(
            store,
            server = %far,
            "user and password go to another machine unencrypted, and can be read or guessed on the way: {advice}"
        );
        Some(far)
    }

    /// Several with a comma between them.
    #[must_use]
    pub fn join(endpoints: &[Self]) -> String {
        let all: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        all.join(",")
    }
}

impl<H: Into<String>> From<(H, u16)> for Endpoint {
    fn from((host, port): (H, u16)) -> Self {
        Self::new(host, port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_with_and_without_ports_and_brackets() {
        for (text, shown) in [
            ("h", "h:7"),
            ("h:1", "h:1"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
            ("[::1]:9", "[::1]:9"),
            ("10.0.0.1:65535", "10.0.0.1:65535"),
        ] {
            assert_eq!(Endpoint::parse(text, 7).to_string(), shown, "{text}");
        }
        let list = Endpoint::list(&[("a".to_owned(), None), ("::2".to_owned(), Some(1))], 7);
        assert_eq!(Endpoint::join(&list), "a:7,[::2]:1");
    }
}
