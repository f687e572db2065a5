//! Runs the conformance suite on servers of the testbed.

pub mod crowd;
pub mod postgres;
pub mod redis;
pub mod restored;
pub mod trickle;
pub mod truth;

use std::net::SocketAddr;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::servers::{ServerBackend, Servers, Store};
use membership_core::ClusterName;

use crate::{How, Kind, LaunchError, Options, Server, ServerSet, Tls};

/// The password of servers for the suite, unless a store needs another form.
pub const SECRET: &str = "correct-horse-battery-staple";

/// Servers that the suite does not empty: SQL Server, because no package source has it, so that no run
/// has been looked at. A new kind is emptied.
const NOT_EMPTIED: &[Kind] = &[Kind::SqlServer];

/// The suite's backend over one server: the external server that the environment names, or a new
/// one that keeps what it acknowledges and has this password.
///
/// # Errors
/// As [`Server::start`].
pub async fn single<S: Store>(
    store: S,
    kind: Kind,
    secret: &str,
) -> Result<ServerBackend<S>, LaunchError> {
    let server = Server::start_or_external(kind, durable(secret)).await?;
    Ok(ServerBackend::new(kind.name(), store, server).secret(secret))
}

/// The suite's backend over one server whose clients use TLS, with the URL options that `trust`
/// returns.
///
/// # Errors
/// As [`Server::start`].
pub async fn encrypted<S: Store>(
    store: S,
    kind: Kind,
    secret: &str,
    options: Options,
    trust: impl FnOnce(&Tls) -> String,
) -> Result<ServerBackend<S>, LaunchError> {
    let options = Options {
        durable: true,
        tls: true,
        password: Some(secret.to_owned()),
        ..options
    };
    let server = Server::start(kind, options).await?;
    let trust = server.tls().map(trust).unwrap_or_default();
    let backend = ServerBackend::new(format!("{kind} (TLS)"), store, server);
    Ok(backend.options(trust).secret(secret))
}

/// The suite's backend over several servers that form one cluster. `members` is the store's word
/// for them, for the report.
///
/// # Errors
/// As [`ServerSet::start`].
pub async fn several<S: Store>(
    store: S,
    kind: Kind,
    secret: &str,
    members: &str,
) -> Result<ServerBackend<S>, LaunchError> {
    let set = ServerSet::start(kind, 3, Some(secret)).await?;
    let backend = ServerBackend::new(format!("{kind} (three {members})"), store, set);
    Ok(backend.secret(secret))
}

/// A new server for one test, even if the environment names one: the test does to it what it must
/// not do to an external server.
///
/// # Panics
/// If the server does not start.
#[allow(clippy::panic, reason = "a helper of tests")]
pub async fn own_server(kind: Kind, args: &[&str], options: Options) -> Server {
    let options = Options {
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        local: true,
        ..options
    };
    match Server::start(kind, options).await {
        Ok(server) => server,
        Err(error) => panic!("{error}"),
    }
}

/// A server for one test that keeps what it acknowledges, also when it is killed.
///
/// # Panics
/// If the server does not start.
pub async fn durable_server(kind: Kind) -> Server {
    let options = Options {
        durable: true,
        ..Options::default()
    };
    own_server(kind, &[], options).await
}

/// A server for one test that requires a password.
///
/// # Panics
/// If it does not start.
pub async fn locked_server(kind: Kind, secret: &str) -> Server {
    let password = Some(secret.to_owned());
    let options = Options {
        password,
        ..Options::default()
    };
    own_server(kind, &[], options).await
}

/// What the suite requires of a server: it keeps what it acknowledges, and requires a password.
#[must_use]
pub fn durable(secret: &str) -> Options {
    Options {
        durable: true,
        password: Some(secret.to_owned()),
        ..Options::default()
    }
}

/// A text in which `escape` stands for each byte that is no letter, no digit and not in `plain`.
#[must_use]
pub fn escaped(text: &str, plain: &str, escape: fn(u8) -> String) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || plain.as_bytes().contains(&b);
    text.bytes()
        .map(|b| match is_plain(b) {
            true => char::from(b).to_string(),
            false => escape(b),
        })
        .collect()
}

#[async_trait]
impl Servers for Server {
    fn url(&self) -> String {
        Server::url(self).to_owned()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address()]
    }

    fn is_external(&self) -> bool {
        self.how() == How::External
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        if running {
            self.start_again().await?;
        } else {
            self.crash().await?;
        }
        Ok(())
    }

    fn can_be_emptied(&self) -> bool {
        !self.is_external() && !NOT_EMPTIED.contains(&self.kind())
    }

    async fn empty(&self) -> Result<(), Stop> {
        Ok(self.wipe().await?)
    }
}

#[async_trait]
impl Servers for ServerSet {
    fn url(&self) -> String {
        ServerSet::url(self)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().iter().map(Server::address).collect()
    }

    fn is_external(&self) -> bool {
        false
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        Ok(ServerSet::set_running(self, running).await?)
    }

    async fn kill_leader(&self, _: &ClusterName) -> Result<(), Stop> {
        Ok(self.fail_over().await?)
    }

    fn have_successors(&self) -> bool {
        true
    }

    async fn leader(&self, _: &ClusterName) -> Result<SocketAddr, Stop> {
        let leader = self.leader_but(None).await?;
        let server = self.servers().get(leader).map(Server::address);
        server.ok_or_else(|| Stop::failed("the leader is none of the servers"))
    }

    async fn depose(&self, _: &ClusterName) -> Result<(), Stop> {
        Ok(ServerSet::depose(self).await.map(drop)?)
    }

    async fn thaw(&self) -> Result<(), Stop> {
        Ok(ServerSet::thaw(self).await.map(drop)?)
    }

    async fn rejoined(&self) -> Result<(), Stop> {
        Ok(self.is_whole().await?)
    }
}
