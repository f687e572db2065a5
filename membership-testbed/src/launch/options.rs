//! The options of a server, and the ways in which one runs.

use std::fmt;
use std::net::Ipv4Addr;

/// The options of a server. The default is a fast server that forgets everything when it ends.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An acknowledged write survives a kill of the server. Redis: `appendfsync always`.
    /// PostgreSQL: `fsync` and `synchronous_commit`. MariaDB: `innodb_flush_log_at_trx_commit=1`.
    /// Azurite cannot do that, and keeps its data only when it is [stopped](super::Server::stop).
    /// MongoDB always obeys the write concern. DynamoDB Local writes a file and does not flush it
    /// to the disk. It acknowledges a transaction a moment early, which
    /// [`kill`](super::Server::kill) waits for, unless more transactions are coming in. Consul and
    /// etcd always flush. ZooKeeper flushes its log before it answers. Cassandra: `commitlog_sync:
    /// batch`.
    pub durable: bool,
    /// Further arguments of the server's program, after those of the launcher. `{dir}` stands for
    /// its data folder, `{port}` for its port. With `standby_of=PORT` PostgreSQL is a copy of the
    /// server at that port of 127.0.0.1, and follows it until it is promoted. For Redis and Valkey a first argument without a dash
    /// is a configuration file. MongoDB is a replica set of one member, unless `--replSet=NAME`
    /// names one that the test creates; with `--replSet=` it is in none. Consul is a cluster of one
    /// server, unless `-bootstrap-expect=N` and `-retry-join` say otherwise. ZooKeeper's are lines
    /// of its configuration, for example `server.1=127.0.0.1:2888:3888`; `myid=1` is written into
    /// the file of that name. Those of Cassandra are options of Java, or, without a dash, further
    /// lines of its `cassandra.yaml`; `peers=HOST:PORT,HOST:PORT` names the nodes of its cluster,
    /// itself among them.
    pub args: Vec<String>,
    /// The password of the user in [`Server::url`](super::Server::url); without one the server
    /// requires none. Azurite's is the key of the account, in base64; without one it is the
    /// published key. DynamoDB Local accepts any. Consul's is the token with all rights; a client
    /// without it has none. ZooKeeper accepts any for the user `membership`. Cassandra's is that of
    /// its superuser `cassandra`; without one every client has all rights.
    pub password: Option<String>,
    /// Speaks TLS with a certificate of its own authority ([`Server::tls`](super::Server::tls)).
    /// Needs the feature `tls`. Redis and Valkey then accept only TLS; PostgreSQL, MariaDB and
    /// Cassandra accept both, unless their arguments say otherwise; Consul has a second port
    /// without TLS.
    pub tls: bool,
    /// Listens on this port of 127.0.0.1; the default is a free one.
    pub port: Option<u16>,
    /// Listens on this address of the loopback network in place of 127.0.0.1. Cassandra only: its
    /// nodes have one port, and differ in their addresses.
    pub host: Option<Ipv4Addr>,
    /// Runs as a process of this machine in any case: other servers reach it at 127.0.0.1, or the
    /// test reads its [folder](super::Server::folder).
    pub local: bool,
}

impl Options {
    /// Whether any server fits.
    pub(super) fn is_plain(&self) -> bool {
        self.args.is_empty()
            && self.password.is_none()
            && !self.tls
            && self.port.is_none()
            && self.host.is_none()
            && !self.local
    }
}

/// The way in which a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// External: an environment variable names it.
    External,
    /// As a container.
    Container,
    /// As a process of this machine.
    Local,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::External => "external server",
            Self::Container => "container",
            Self::Local => "local process",
        })
    }
}
