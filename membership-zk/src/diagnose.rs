//! Why no session could be opened: one line per server, with what to do. Used after the driver has
//! given up, because it does not say why.

use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use membership_provider::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::error::error;

/// The time to ask one server.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What is wrong with each of these servers.
pub(crate) async fn why(servers: &[Endpoint], tls: bool, deadline: Instant) -> TableError {
    let deadline = deadline.min(Instant::now() + TIMEOUT);
    let findings =
        futures_util::future::join_all(servers.iter().map(|server| one(server, tls, deadline)))
            .await;
    // A wrong port stays wrong; a server that is down may come back.
    let kind = if findings
        .iter()
        .all(|(kind, _)| *kind == TableErrorKind::Configuration)
    {
        TableErrorKind::Configuration
    } else {
        TableErrorKind::Unavailable
    };
    let each: Vec<String> = servers
        .iter()
        .zip(findings)
        .map(|(server, (_, text))| format!("{server} {text}"))
        .collect();
    error(
        kind,
        format!("no session could be opened: {}", each.join("; ")),
    )
}

async fn one(server: &Endpoint, tls: bool, deadline: Instant) -> (TableErrorKind, String) {
    let down = |text: &str| (TableErrorKind::Unavailable, text.to_owned());
    let mut stream = match timeout_at(deadline, TcpStream::connect(server.to_string())).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            return down("refuses connections (is ZooKeeper running there?)");
        }
        Ok(Err(e)) => {
            return (
                TableErrorKind::Unavailable,
                format!("cannot be connected to ({e})"),
            );
        }
        Err(_) => return down("does not accept a connection in time"),
    };
    let mut said = Vec::new();
    let asked = async {
        stream.write_all(b"srvr").await?;
        stream.take(4096).read_to_end(&mut said).await
    };
    let ended = timeout_at(deadline, asked).await.is_ok();
    judge(&String::from_utf8_lossy(&said), ended, tls)
}

/// How the answers of ZooKeeper to `srvr` begin: what it is, that it does not serve, and that the word
/// is not allowed.
const BEGINNINGS: [&str; 3] = [
    "Zookeeper version",
    "This ZooKeeper",
    "srvr is not executed",
];

/// What an answer to `srvr` means.
fn judge(said: &str, ended: bool, tls: bool) -> (TableErrorKind, String) {
    let is_zookeeper = said.contains("Zookeeper version")
        || said.contains("ZooKeeper")
        || said.contains("whitelist");
    let (kind, text) = if said.contains("not currently serving") {
        (
            TableErrorKind::Unavailable,
            "has no majority of its ensemble and does not serve",
        )
    } else if is_zookeeper && tls {
        (
            TableErrorKind::Configuration,
            "is not encrypted: use the port of its `secureClientPort`, or remove tls",
        )
    } else if is_zookeeper {
        (
            TableErrorKind::Unavailable,
            "is up and gave no session in time (busy, or at its limit of connections?)",
        )
    } else if tls {
        (
            TableErrorKind::Unavailable,
            "was reached, but no encrypted session was opened: check tls_ca, tls_cert and the name in its certificate",
        )
    } else if !said.is_empty() && !ended && BEGINNINGS.iter().any(|it| it.starts_with(said)) {
        (
            TableErrorKind::Unavailable,
            "is up, and its answers do not come in time (busy, or behind a slow line?)",
        )
    } else if !said.is_empty() {
        (
            TableErrorKind::Configuration,
            "does not answer as ZooKeeper: is it another service, or a port for encrypted connections (tls=true)?",
        )
    } else if ended {
        (
            TableErrorKind::Unavailable,
            "closes connections (is it ZooKeeper, and does its port accept connections without TLS?)",
        )
    } else {
        (
            TableErrorKind::Unavailable,
            "accepts connections and does not answer (frozen, or not ZooKeeper?)",
        )
    };
    (kind, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_servers_are_explained() {
        let of = |said, ended, tls| judge(said, ended, tls).1;
        assert!(
            of(
                "This ZooKeeper instance is not currently serving requests\n",
                true,
                false
            )
            .contains("majority")
        );
        assert!(of("Zookeeper version: 3.8.0\nMode: leader\n", true, false).contains("up"));
        assert!(
            of("Zookeeper version: 3.8.0\nMode: leader\n", true, true).contains("secureClientPort")
        );
        assert!(of("-ERR unknown command 'srvr'", false, false).contains("another service"));
        assert!(of("Zookeeper ver", false, false).contains("in time"));
        assert!(of("Zookeeper ver", true, false).contains("another service"));
        assert!(of("", true, false).contains("closes connections"));
        assert!(of("", false, false).contains("does not answer"));
        assert!(of("", true, true).contains("tls_ca"));
    }
}
