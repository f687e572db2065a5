//! A running server, in any of the three ways, and its operations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "containers")]
use super::container;
use super::control::{Control, on_thread};
use super::error::LaunchError;
use super::local::Local;
use super::options::{How, Options};
use super::tls::Tls;
use super::{external, progress};
use crate::kind::Kind;

/// A running server. Dropping the last clone ends it.
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
    External(&'static str),
    Local(Arc<Mutex<Local>>),
    #[cfg(feature = "containers")]
    Container(Arc<Mutex<container::Container>>),
}

impl Server {
    /// Starts a server, or uses the one that the environment names. Installs what is missing; the
    /// first start downloads it.
    ///
    /// Needs a Tokio runtime. A dropped future leaves nothing running.
    ///
    /// # Errors
    /// The server cannot be installed or does not start; or the environment names one, but the
    /// options require a special server ([`LaunchError::External`]).
    pub async fn start(kind: Kind, options: Options) -> Result<Self, LaunchError> {
        if let Some(external) = external::named(kind)? {
            if !options.is_plain() {
                return Err(LaunchError::External {
                    kind,
                    variable: external.variable,
                    what: "a server with options",
                });
            }
            progress::report_way(
                kind,
                How::External,
                &format!("{} (from {})", external.address, external.variable),
            );
            let inner = Inner::External(external.variable);
            return Ok(Self {
                kind,
                url: external.url,
                address: external.address,
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
                progress::report_way(kind, How::Container, container.image());
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
        progress::report_way(kind, How::Local, &format!("version {}", local.version()));
        Ok(Self {
            kind,
            url: local.url(),
            address: local.address(),
            tls: local.tls(),
            version: Some(local.version().to_owned()),
            inner: Inner::Local(Arc::new(Mutex::new(local))),
        })
    }

    /// Uses the server that the environment names as it is, or starts one with these options.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_or_external(kind: Kind, options: Options) -> Result<Self, LaunchError> {
        match external::named(kind)? {
            Some(_) => Self::start(kind, Options::default()).await,
            None => Self::start(kind, options).await,
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its URL for its provider, with user and password: `redis://127.0.0.1:6379`,
    /// `postgres://postgres@127.0.0.1:5432/postgres`, `mysql://root@127.0.0.1:3306/membership`,
    /// `azure-table://devstoreaccount1/membership?endpoint=http://127.0.0.1:10002/devstoreaccount1&account_key=…`,
    /// `mongodb://127.0.0.1:27017/membership?directConnection=true`,
    /// `dynamodb://local:…@us-east-1/membership?endpoint=http://127.0.0.1:8000`,
    /// `consul://:…@127.0.0.1:8500`, `etcd://127.0.0.1:2379`, `zk://127.0.0.1:2181`,
    /// `cassandra://127.0.0.1:9042/membership`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address on which it listens. A restart does not change it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The way in which it runs.
    #[must_use]
    pub fn how(&self) -> How {
        match self.inner {
            Inner::External(_) => How::External,
            Inner::Local(_) => How::Local,
            #[cfg(feature = "containers")]
            Inner::Container(_) => How::Container,
        }
    }

    /// Its version, if it is known without asking the server.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The certificates, if it was started with TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Kills it, as a crash does (SIGKILL); returns when it is gone. Does nothing if it does not
    /// run.
    ///
    /// # Errors
    /// The server is external. The same error comes from the next functions.
    pub async fn kill(&self) -> Result<(), LaunchError> {
        self.control("kill", |server| server.kill()).await
    }

    /// Kills it, if servers of this kind keep what they acknowledge. Azurite does not, so it is
    /// stopped in order.
    ///
    /// # Errors
    /// As [`kill`](Self::kill) and [`stop`](Self::stop).
    pub async fn crash(&self) -> Result<(), LaunchError> {
        match self.kind {
            Kind::Azurite => self.stop().await,
            _ => self.kill().await,
        }
    }

    /// Stops it in order, and returns when it has ended.
    ///
    /// # Errors
    /// Also if it has not ended within 30 s; then it was killed.
    pub async fn stop(&self) -> Result<(), LaunchError> {
        self.control("stop", |server| server.stop()).await
    }

    /// Starts it again on the same port with the same data, and returns when it answers. Does
    /// nothing if it runs.
    ///
    /// # Errors
    /// Also if it does not start.
    pub async fn start_again(&self) -> Result<(), LaunchError> {
        self.control("start again", |server| server.up()).await
    }

    /// Pauses it and its children (SIGSTOP): connections stay open, and it does not answer.
    ///
    /// # Errors
    /// The server is external.
    pub async fn pause(&self) -> Result<(), LaunchError> {
        self.control("pause", |server| server.freeze(true)).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// The server is external.
    pub async fn resume(&self) -> Result<(), LaunchError> {
        self.control("resume", |server| server.freeze(false)).await
    }

    /// Kills it, removes its data, and starts it again, empty, on the same port.
    ///
    /// # Errors
    /// Also if it does not start.
    pub async fn wipe(&self) -> Result<(), LaunchError> {
        self.control("wipe", |server| server.wipe()).await
    }

    /// The path of one of its installed programs, for example `redis-cli`. Prefer
    /// [`command`](Self::command).
    ///
    /// # Errors
    /// It is no local process, or has no such program.
    pub fn binary(&self, name: &str) -> Result<PathBuf, LaunchError> {
        Ok(PathBuf::from(self.command(name)?.get_program()))
    }

    /// A command of one of its installed programs, with the server's user and libraries.
    ///
    /// # Errors
    /// It is no local process, or has no such program.
    pub fn command(&self, program: &str) -> Result<Command, LaunchError> {
        self.local("programs")?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .command(program)
    }

    /// Its whole log.
    ///
    /// # Errors
    /// It is no local process.
    pub fn log(&self) -> Result<String, LaunchError> {
        Ok(self
            .local("log")?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .log())
    }

    /// Its folder, which is removed with it: data, sockets, log, certificates.
    ///
    /// # Errors
    /// It is no local process.
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
    /// It is no local process.
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
            Inner::External(variable) => Err(LaunchError::External {
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
            Inner::External(variable) => Err(LaunchError::External {
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
