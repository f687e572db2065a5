//! An external server, which an environment variable names.

use std::env;
use std::net::{SocketAddr, ToSocketAddrs as _};

use super::error::LaunchError;
use super::software;
use crate::kind::Kind;

/// The server that the environment names.
pub(super) struct External {
    pub(super) variable: &'static str,
    pub(super) url: String,
    pub(super) address: SocketAddr,
}

pub(super) fn named(kind: Kind) -> Result<Option<External>, LaunchError> {
    for &variable in kind.url_variables() {
        let Ok(url) = env::var(variable) else {
            continue;
        };
        if url.trim().is_empty() {
            continue;
        }
        let software = software::of(kind);
        let place = software
            .place(&url)
            .map(|place| format!("{kind}://{place}"));
        let address = address(place.as_deref().unwrap_or(&url), software.usual_port())
            .map_err(|why| LaunchError::Address { variable, why })?;
        return Ok(Some(External {
            variable,
            url,
            address,
        }));
    }
    Ok(None)
}

/// The first host of a URL. The error contains nothing of the URL, because it may contain a
/// password.
fn address(url: &str, usual_port: u16) -> Result<SocketAddr, String> {
    let (_, rest) = url.split_once("://").ok_or("it contains no '://'")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let hosts = authority
        .rsplit_once('@')
        .map_or(authority, |(_, hosts)| hosts);
    let first = hosts.split(',').next().unwrap_or_default();
    if first.is_empty() {
        return Err("it names no host".to_owned());
    }
    let has_port = first
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.ends_with(':') && port.parse::<u16>().is_ok());
    let target = if has_port {
        first.to_owned()
    } else {
        format!("{first}:{usual_port}")
    };
    let mut found = target
        .to_socket_addrs()
        .map_err(|error| format!("its host cannot be resolved ({error})"))?;
    found
        .next()
        .ok_or_else(|| "its host has no address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn the_address_is_the_first_host_of_the_url() {
        let of = |url| address(url, 6379).map(|address| address.to_string());
        assert_eq!(of("redis://127.0.0.1").as_deref(), Ok("127.0.0.1:6379"));
        assert_eq!(
            of("redis://u:p%40@127.0.0.2:7000/0?x=y").as_deref(),
            Ok("127.0.0.2:7000")
        );
        assert_eq!(
            of("redis+sentinel://127.0.0.3:1,127.0.0.4:2/main").as_deref(),
            Ok("127.0.0.3:1")
        );
        assert_eq!(of("redis://[::1]:7000").as_deref(), Ok("[::1]:7000"));
        assert_eq!(of("redis://[::1]").as_deref(), Ok("[::1]:6379"));
        assert!(of("127.0.0.1:6379").is_err());
        assert!(
            !of("redis://:secret@")
                .expect_err("no host")
                .contains("secret")
        );
    }
}
