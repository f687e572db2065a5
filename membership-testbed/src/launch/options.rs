//! What is asked of a server, and the ways in which one runs.

use std::fmt;

/// What a server should be like. The default is a fast one that forgets everything when it ends.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An acknowledged write survives the kill of the server (Redis: `appendfsync always`; PostgreSQL: `fsync` and `synchronous_commit`;
    /// MariaDB: `innodb_flush_log_at_trx_commit=1`; Azurite cannot, and keeps what it has when it is [stopped](super::Server::stop);
    /// MongoDB always does what a write asks for; DynamoDB Local writes a file, and does not flush it to the disk, and acknowledges a
    /// transaction a moment early, which [`kill`](super::Server::kill) waits for, unless more are coming in; Consul and etcd always flush;
    /// ZooKeeper flushes its log before it answers; Cassandra: `commitlog_sync: batch`).
    pub durable: bool,
    /// Further arguments of the server's program, after our own. `{dir}` stands for its data folder, `{port}` for its port. For Redis and
    /// Valkey a first argument without a dash is a configuration file. MongoDB is a replica set of one member, unless `--replSet=NAME` names
    /// one that the test makes by itself; after `--replSet=` it is in none. Consul is a cluster of one server, unless `-bootstrap-expect=N` and
    /// `-retry-join` say otherwise. ZooKeeper's are lines of its configuration, `server.1=127.0.0.1:2888:3888` for instance; `myid=1` is written
    /// into the file of that name. Those of Cassandra are Java's, or, without a dash, further lines of its `cassandra.yaml`.
    pub args: Vec<String>,
    /// The password of the user that [`Server::url`](super::Server::url) names; without one nobody is asked. Azurite's is the key of the account, in base64; without
    /// one it is the key that everybody knows. DynamoDB Local takes any. Consul's is the token of whoever may do everything; who has none then
    /// may do nothing. ZooKeeper takes any, as that of the user `membership`. Cassandra's is that of its superuser
    /// `cassandra`; without one anybody may do everything.
    pub password: Option<String>,
    /// Speaks TLS with a certificate by an authority of its own ([`Server::tls`](super::Server::tls)). Needs the feature `tls`. Redis and Valkey then speak
    /// nothing else; PostgreSQL, MariaDB and Cassandra take both, unless told otherwise; Consul has a second port without.
    pub tls: bool,
    /// Listens on this port of 127.0.0.1; without it on a free one.
    pub port: Option<u16>,
    /// Runs as a process of this machine, whatever else there is: other servers reach it at 127.0.0.1, or the test looks into its
    /// [folder](super::Server::folder).
    pub local: bool,
}

impl Options {
    /// Whether any server will do.
    pub(super) fn is_plain(&self) -> bool {
        self.args.is_empty()
            && self.password.is_none()
            && !self.tls
            && self.port.is_none()
            && !self.local
    }
}

/// The way in which a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Somebody else runs it: an environment variable named it.
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
