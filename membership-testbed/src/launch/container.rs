//! A server as a container of any Docker engine.
//!
//! The engine's client belongs to one runtime, but tests with separate runtimes share servers. So
//! this module has its own runtime for containers.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use testcontainers::bollard::models::PortBinding;
use testcontainers::bollard::query_parameters::{
    InspectContainerOptions, KillContainerOptionsBuilder,
};
use testcontainers::core::ContainerPort;
use testcontainers::core::client::docker_client_instance;
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, GenericImage, ImageExt as _};
use tokio::runtime::{Builder, Runtime};

use super::control::Control;
use super::error::LaunchError;
use super::options::{How, Options};
use super::port::free_port;
use super::process::{LOOK, Watch};
use super::software;
use super::software::ground::last_lines;
use super::software::special::Software;
use crate::kind::Kind;

/// How long the engine may take to pull an image and start it.
const PULLED: Duration = Duration::from_secs(600);
/// How long the server may then take until it answers.
const READY: Duration = Duration::from_secs(120);
/// The environment variable that requires containers (`always`) or excludes them (`never`). If it
/// is not set, a container is used if an engine answers.
const ASKED: &str = "MEMBERSHIP_TEST_CONTAINERS";

/// A container of the launcher.
pub(super) struct Container {
    kind: Kind,
    options: Options,
    port: u16,
    engine: Engine,
    watch: Watch,
    /// `None` once it is removed.
    id: Option<String>,
    image: String,
    frozen: bool,
}

/// The engine's client for a container. Its drop calls the engine once more, and needs its runtime
/// for that.
struct Engine(Option<ContainerAsync<GenericImage>>);

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(engine) = self.0.take() else { return };
        // On a separate thread: the thread of the drop may or may not have a runtime.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _inside = runtime().map(Runtime::enter);
                drop(engine);
            });
        });
    }
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Whether this server must be a container.
pub(super) fn wanted(kind: Kind, options: &Options) -> Result<bool, LaunchError> {
    let asked = std::env::var(ASKED).unwrap_or_default();
    // A container would need copies of the certificates that belong to its user. So a server with
    // TLS is a process of this machine.
    if asked == "never" || options.tls || options.local {
        return Ok(false);
    }
    static ANSWERS: OnceLock<Mutex<Option<Result<(), String>>>> = OnceLock::new();
    let answers = ANSWERS.get_or_init(|| Mutex::new(None));
    let mut known = answers.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = known.get_or_insert_with(|| {
        wait(async {
            let engine = docker_client_instance()
                .await
                .map_err(|error| error.to_string())?;
            engine
                .ping()
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        })
        .unwrap_or_else(|error| Err(error.to_string()))
    });
    match answer {
        Ok(()) => Ok(true),
        Err(why) if asked == "always" => {
            let why = format!(
                "{ASKED} requires containers, but no Docker engine answers ({why}). Start one, or unset the variable"
            );
            Err(LaunchError::Start {
                kind,
                why,
                log: String::new(),
            })
        }
        Err(_) => Ok(false),
    }
}

impl Container {
    /// Pulls the image if it is missing, starts a container and returns when the server answers.
    pub(super) fn start(kind: Kind, options: Options) -> Result<Self, LaunchError> {
        let port = match options.port {
            Some(port) => port,
            None => free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"))?,
        };
        let image = image(kind);
        let (engine, id) = run(kind, &options, port, &image)?;
        let watch = Watch::over_container(&id).map_err(LaunchError::io("cannot run", "/bin/sh"))?;
        let container = Self {
            kind,
            options,
            port,
            engine,
            watch,
            id: Some(id),
            image,
            frozen: false,
        };
        container.ready()?;
        Ok(container)
    }

    pub(super) fn image(&self) -> &str {
        &self.image
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(super) fn url(&self) -> String {
        self.software().url(self.address(), &self.options)
    }

    fn software(&self) -> &'static dyn Software {
        software::of(self.kind)
    }

    /// Waits until the server answers. The error contains the end of its log.
    fn ready(&self) -> Result<(), LaunchError> {
        let deadline = Instant::now() + READY;
        loop {
            let Err(error) = self.software().ask(self.address(), &self.options) else {
                return Ok(());
            };
            if Instant::now() > deadline || !self.runs()? {
                let log = self.call(async |engine: &ContainerAsync<GenericImage>| {
                    let mut log = engine.stdout_to_vec().await.unwrap_or_default();
                    log.extend(engine.stderr_to_vec().await.unwrap_or_default());
                    Ok::<_, LaunchError>(log)
                })?;
                let log = last_lines(&String::from_utf8_lossy(&log));
                return Err(LaunchError::Start {
                    kind: self.kind,
                    why: format!("the container does not answer ({error})"),
                    log,
                });
            }
            std::thread::sleep(LOOK * 10);
        }
    }

    fn runs(&self) -> Result<bool, LaunchError> {
        self.call(async |engine: &ContainerAsync<GenericImage>| engine.is_running().await)
    }

    /// Calls the engine.
    fn call<T: Send, E: std::fmt::Display + Send>(
        &self,
        what: impl AsyncFnOnce(&ContainerAsync<GenericImage>) -> Result<T, E> + Send,
    ) -> Result<T, LaunchError> {
        let Some(engine) = &self.engine.0 else {
            return Err(broken("the container is removed"));
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                runtime().map(|runtime| {
                    runtime
                        .block_on(what(engine))
                        .map_err(|error| error.to_string())
                })
            });
            thread.join().map_err(|_| broken("the thread ended"))?
        })?
        .map_err(|why| LaunchError::Start {
            kind: self.kind,
            why: format!("the Docker engine refuses: {why}"),
            log: String::new(),
        })
    }
}

/// Pulls and starts.
fn run(
    kind: Kind,
    options: &Options,
    port: u16,
    image: &str,
) -> Result<(Engine, String), LaunchError> {
    let software = software::of(kind);
    let inside = software.usual_port();
    // A registry may have a port, so the text after the last colon is a tag only if it contains no
    // slash.
    let (name, tag) = image
        .rsplit_once(':')
        .filter(|(_, tag)| !tag.contains('/'))
        .unwrap_or((image, "latest"));
    let arguments = options
        .args
        .iter()
        .map(|argument| argument.replace("{port}", &inside.to_string()));
    let command = software
        .container_command(options)
        .into_iter()
        .chain(arguments);
    // Always on the same port of the same address, which only this machine can reach. Older engines
    // also require the port to be exposed.
    let container = GenericImage::new(name, tag).with_exposed_port(ContainerPort::Tcp(inside));
    let mut request = container
        .with_cmd(command)
        .with_startup_timeout(PULLED)
        .with_host_config_modifier(move |host| {
            let binding = PortBinding {
                host_ip: Some("127.0.0.1".to_owned()),
                host_port: Some(port.to_string()),
            };
            host.publish_all_ports = Some(false);
            host.port_bindings = Some(HashMap::from([(
                format!("{inside}/tcp"),
                Some(vec![binding]),
            )]));
        });
    for (name, value) in software.container_environment(options) {
        request = request.with_env_var(name, value);
    }
    let started = wait(request.start())?.map_err(|error| LaunchError::Start {
        kind,
        why: format!(
            "cannot start a container of the image {image}: {error}. Set MEMBERSHIP_TEST_{}_IMAGE to another image",
            kind.name().to_uppercase()
        ),
        log: String::new(),
    })?;
    let id = started.id().to_owned();
    Ok((Engine(Some(started)), id))
}

impl Control for Container {
    fn kill(&mut self) -> Result<(), LaunchError> {
        // The engine does not kill a paused container.
        self.freeze(false)?;
        if !self.runs()? {
            return Ok(());
        }
        let Some(id) = self.id.clone() else {
            return Ok(());
        };
        if self.software().acknowledges_early() {
            // A server that does not answer has nothing to finish.
            let _ = self.software().ask(self.address(), &self.options);
        }
        self.call(async move |_: &ContainerAsync<GenericImage>| {
            let engine = docker_client_instance()
                .await
                .map_err(|error| error.to_string())?;
            let how = KillContainerOptionsBuilder::default()
                .signal("SIGKILL")
                .build();
            engine
                .kill_container(&id, Some(how))
                .await
                .map_err(|error| error.to_string())?;
            // The engine answers before the process is gone.
            loop {
                let known = engine
                    .inspect_container(&id, None::<InspectContainerOptions>)
                    .await
                    .map_err(|error| error.to_string())?;
                if known.state.and_then(|state| state.running) != Some(true) {
                    return Ok::<(), String>(());
                }
                tokio::time::sleep(LOOK).await;
            }
        })
    }

    fn stop(&mut self) -> Result<(), LaunchError> {
        self.freeze(false)?;
        self.call(async |engine: &ContainerAsync<GenericImage>| {
            engine.stop_with_timeout(Some(30)).await
        })
    }

    fn up(&mut self) -> Result<(), LaunchError> {
        if !self.runs()? {
            self.call(async |engine: &ContainerAsync<GenericImage>| engine.start().await)?;
        }
        self.ready()
    }

    fn freeze(&mut self, frozen: bool) -> Result<(), LaunchError> {
        if frozen == self.frozen || (frozen && !self.runs()?) {
            return Ok(());
        }
        self.call(
            async move |engine: &ContainerAsync<GenericImage>| match frozen {
                true => engine.pause().await,
                false => engine.unpause().await,
            },
        )?;
        self.frozen = frozen;
        Ok(())
    }

    fn wipe(&mut self) -> Result<(), LaunchError> {
        self.remove();
        self.frozen = false;
        let (engine, id) = run(self.kind, &self.options, self.port, &self.image)?;
        self.engine = engine;
        self.watch =
            Watch::over_container(&id).map_err(LaunchError::io("cannot run", "/bin/sh"))?;
        self.id = Some(id);
        self.ready()
    }
}

impl Container {
    /// Removes it with its data. If that fails, the watch tries again.
    fn remove(&mut self) {
        let Some(id) = self.id.take() else { return };
        let removed = self.call(async move |_: &ContainerAsync<GenericImage>| {
            use testcontainers::bollard::query_parameters::RemoveContainerOptionsBuilder;
            let engine = docker_client_instance()
                .await
                .map_err(|error| error.to_string())?;
            let how = RemoveContainerOptionsBuilder::default()
                .force(true)
                .v(true)
                .build();
            engine
                .remove_container(&id, Some(how))
                .await
                .map_err(|error| error.to_string())
        });
        if removed.is_ok() {
            let _ = self.watch.nothing();
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The image: official, with a pinned tag, unless the environment names another.
fn image(kind: Kind) -> String {
    let variable = format!("MEMBERSHIP_TEST_{}_IMAGE", kind.name().to_uppercase());
    std::env::var(variable)
        .ok()
        .filter(|named| !named.is_empty())
        .unwrap_or_else(|| software::of(kind).image().to_owned())
}

/// The runtime of the containers.
fn runtime() -> Result<&'static Runtime, LaunchError> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME
        .get_or_init(|| {
            Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .map_err(|error| error.to_string())
        })
        .as_ref();
    made.map_err(|why| broken(why))
}

/// Waits for a future on that runtime, from any thread.
fn wait<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, LaunchError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| runtime().map(|runtime| runtime.block_on(future)));
        thread.join().map_err(|_| broken("the thread ended"))?
    })
}

fn broken(why: &str) -> LaunchError {
    LaunchError::Unavailable {
        how: How::Container,
        why: why.to_owned(),
    }
}
