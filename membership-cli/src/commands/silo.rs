//! `membership silo`: runs one silo until it is asked to leave or is declared dead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use membership::protocol::{DeclaredDead, JoinError, Termination};
use membership::transport::TransportError;
use membership::{CauseOfDeath, Config, EventKind, Events, Preset, Silo, SiloBuilder, StartError};

use super::silo_report::Report;
use crate::config_file::{self, PresetName};
use crate::exit::{Exit, Failure};
#[cfg(feature = "http")]
use crate::http::HttpArgs;
use crate::out::Out;
use crate::printer::Printer;
use crate::security::SecurityArgs;
use crate::session::{Session, TableArgs};
use crate::stop::{Stop, Stops};
use crate::text::{clean, ip_and_port};

/// Run one silo until SIGTERM, SIGINT or SIGHUP, then leave; a second signal stops it at once
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Where to listen for other silos; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = ip_and_port)]
    listen: SocketAddr,
    /// Where other silos dial this one, if not at --listen
    #[arg(long, value_name = "IP:PORT", value_parser = ip_and_port)]
    advertise: Option<SocketAddr>,
    /// Where clients reach it; 0 = not a gateway
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    gateway_port: u16,
    /// Its name, for people. Default: the host's name
    #[arg(long)]
    name: Option<String>,
    /// Its role
    #[arg(long)]
    role: Option<String>,
    /// Its failure zone
    #[arg(long)]
    zone: Option<String>,
    /// Metadata that every silo sees; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    metadata: Vec<(String, String)>,
    /// The kind of network. Default: lan
    #[arg(long)]
    preset: Option<PresetName>,
    /// A TOML file with configuration fields; its `preset` gives the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    security: SecurityArgs,
    #[cfg(feature = "http")]
    #[command(flatten)]
    http: HttpArgs,
    /// One JSON object per line: http, active, view, terminated, table, joining
    #[arg(long)]
    json: bool,
    /// Leave when standard input is closed, so that a silo ends with its parent
    #[arg(long, hide = true)]
    exit_with_stdin: bool,
}

/// How long the end of a silo whose parent is gone waits for the silo's tasks.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The same after a second signal: whoever sends two wants the end now.
const QUICK_TIMEOUT: Duration = Duration::from_millis(20);
/// How often lines are written that wait for time to pass.
const TICK: Duration = Duration::from_secs(1);

pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value".to_owned()),
    }
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let (config, security) =
        config_file::load::<Config>(args.preset.map(Preset::from), args.config.as_deref())?;
    let leave_timeout = config.leave_timeout;
    log(args.json);
    raise_open_files();
    #[cfg(feature = "http")]
    let http = args.http.start(args.security.insecure())?;
    let table = session.open(&args.table).await?;
    let stops = Stops::listen(args.exit_with_stdin)
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot listen to signals: {e}")))?;
    let mut builder = Silo::builder(table)
        .listen(args.listen)
        .security(security.with(args.security)?)
        .gateway_port(args.gateway_port)
        .config(config);
    if let Some(advertise) = args.advertise {
        builder = builder.advertise(advertise);
    }
    if let Some(name) = args.name {
        builder = builder.name(name);
    }
    builder = builder
        .role(args.role.unwrap_or_default())
        .zone(args.zone.unwrap_or_default());
    for (key, value) in args.metadata {
        builder = builder.metadata(key, value);
    }
    let out = std::mem::replace(&mut session.out, Out::plain(Box::new(std::io::sink())));
    let report = Report::new(Printer::new(out), args.json);
    #[cfg(feature = "http")]
    if let Some(http) = &http {
        report.http(http.address());
    }
    let mut life = Life {
        #[cfg(feature = "http")]
        http,
        report,
        stops,
        leave_timeout,
        quickly: false,
        tasks: tasks(),
    };
    let end = life.live(builder).await;
    #[cfg(feature = "http")]
    if let Some(http) = life.http.take().filter(|_| !life.quickly) {
        http.close().await;
    }
    life.report.finish(life.quickly);
    end
}

/// Raises the soft limit on open files to the hard limit; if that fails, the limit stays. A joining
/// silo has two to three sockets per member, in a large cluster more than the usual limit of 1,024.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

/// Logs warnings to standard error, or what `RUST_LOG` says. What is printed as text for people is not
/// logged a second time.
pub(crate) fn log(json: bool) {
    let usual = match json {
        true => "warn",
        false => "warn,membership::silo::events=off,membership::gossip::events=off",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .try_init();
}

/// How many tasks this runtime has: a dropped silo has ended when its tasks have.
fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

struct Life {
    #[cfg(feature = "http")]
    http: Option<membership::http::Server>,
    report: Report,
    stops: Stops,
    leave_timeout: Duration,
    /// A second signal has come.
    quickly: bool,
    /// How many tasks there were before the silo started.
    tasks: usize,
}

impl Life {
    async fn live(&mut self, builder: SiloBuilder) -> Result<Exit, Failure> {
        let mut events = builder.events();
        let Some(silo) = self.join(builder, &mut events).await? else {
            return Ok(Exit::Ok);
        };
        #[cfg(feature = "http")]
        if let Some(http) = &self.http {
            http.show(&silo);
        }
        self.report.active(&silo);
        self.report.table(silo.health().table, None, silo.now());
        let mut views = silo.views();
        let mut ticks = tokio::time::interval(TICK);
        let stop = loop {
            tokio::select! {
                biased;
                Some(view) = views.next() => self.report.view(&view),
                end = silo.terminated() => return self.ended_by_itself(&end),
                stop = self.stops.next() => break stop,
                Some(event) = events.next() => match event.kind {
                    EventKind::Table { state, error } => {
                        self.report.table(state, error.as_deref(), event.mono);
                    }
                    EventKind::Missed { .. } => {
                        self.report.table(silo.health().table, None, silo.now());
                    }
                    EventKind::Unanswered { silos } => self.report.unanswered(silos),
                    EventKind::PartialPartition { unreached } => self.report.reach(&unreached),
                    EventKind::ViewWithdrawn { announced } => self.report.withdrawn(announced, event.version),
                    _ => {}
                },
                _ = ticks.tick() => {
                    self.report.tick(silo.now());
                    self.report.scribe(silo.health().writer.scribe);
                }
            }
        };
        if stop == Stop::Orphaned {
            drop((silo, views));
            return Ok(self.wait_until_stopped(STOP_TIMEOUT).await);
        }
        self.report.leaving();
        let leaving = {
            let silo = silo.clone();
            async move { silo.begin_leave().await.finish().await }
        };
        let mut leaving = Box::pin(leaving);
        loop {
            tokio::select! {
                biased;
                Some(view) = views.next() => self.report.view(&view),
                end = &mut leaving => return self.ended(&end),
                _ = self.stops.next() => break,
            }
        }
        drop((leaving, silo, views));
        self.quickly = true;
        Ok(self.wait_until_stopped(QUICK_TIMEOUT).await)
    }

    /// Waits until the silo is Active; none if it was asked to stop before.
    async fn join(
        &mut self,
        builder: SiloBuilder,
        events: &mut Events,
    ) -> Result<Option<Silo>, Failure> {
        let mut starting = Box::pin(builder.start());
        loop {
            tokio::select! {
                started = &mut starting => return match started {
                    Ok(silo) => Ok(Some(silo)),
                    Err(error) => Err(self.refused(error)),
                },
                Some(event) = events.next() => if let EventKind::JoinProgress(progress) = event.kind {
                    self.report.joining(&progress);
                },
                _ = self.stops.next() => break,
            }
        }
        // A dropped start is undone in the background: the row, if there is one, becomes Dead,
        // left.
        drop(starting);
        self.wait_until_stopped(self.leave_timeout).await;
        Ok(None)
    }

    /// Waits until the dropped silo has ended, for at most this long, or until the next request to
    /// stop.
    async fn wait_until_stopped(&mut self, most: Duration) -> Exit {
        let until = Instant::now() + most;
        while tasks() > self.tasks && Instant::now() < until {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
                _ = self.stops.next() => {
                    self.quickly = true;
                    break;
                }
            }
        }
        self.report.stopped();
        Exit::Ok
    }

    /// It was not asked to leave: if it left nevertheless, its task has ended.
    fn ended_by_itself(&mut self, end: &Termination) -> Result<Exit, Failure> {
        match end {
            Termination::Left { .. } => {
                self.report.task_ended();
                Err(Failure::new(
                    Exit::Failed,
                    "the silo's task ended unexpectedly; the other silos will declare it dead; this is a defect, please report it",
                ))
            }
            _ => self.ended(end),
        }
    }

    fn ended(&mut self, end: &Termination) -> Result<Exit, Failure> {
        self.report.terminated(end);
        match end {
            Termination::Left { .. } => Ok(Exit::Ok),
            Termination::DeclaredDead(dead) => {
                Err(Failure::new(Exit::DeclaredDead, declared_dead(dead)))
            }
            Termination::Unreachable { why, .. } => Err(Failure::new(
                Exit::DeclaredDead,
                format!(
                    "{why}; check its --advertise address and the network between the silos, then start it again"
                ),
            )),
            Termination::JoinFailed(error) => {
                Err(Failure::new(join_exit(error), error.to_string()))
            }
            Termination::Panicked { message } => Err(Failure::new(
                Exit::Failed,
                format!(
                    "the silo's task panicked, and the other silos will declare it dead; this is a defect, please report it: {message}"
                ),
            )),
            _ => Err(Failure::new(Exit::Failed, "the silo stopped")),
        }
    }

    fn refused(&mut self, error: StartError) -> Failure {
        let exit = match &error {
            StartError::Config(_)
            | StartError::NoListenAddress
            | StartError::AdvertiseMissing { .. }
            | StartError::AdvertiseUnspecified { .. } => Exit::Usage,
            StartError::Transport(
                TransportError::Insecure { .. }
                | TransportError::SecretWithoutTls
                | TransportError::Certificate(_),
            ) => Exit::Usage,
            StartError::Transport(_) => Exit::CannotJoin,
            StartError::Join(error) => join_exit(error),
            StartError::DeclaredDead(_) => Exit::DeclaredDead,
            _ => Exit::Failed,
        };
        match &error {
            StartError::DeclaredDead(dead) => self
                .report
                .terminated(&Termination::DeclaredDead((**dead).clone())),
            other => self.report.refused(&in_flags(other)),
        }
        Failure::new(exit, in_flags(&error))
    }
}

/// How a silo ended that the table says is dead, and what shows more.
fn declared_dead(dead: &DeclaredDead) -> String {
    let (silo, version) = (dead.silo, dead.version);
    match dead.death.as_ref().map(|death| &death.cause) {
        // There is no row that `why` could explain.
        None => format!(
            "{silo} stopped (removed): version {version} of the table has no row of it. Nobody voted: somebody removed the row by hand, or it was dead for so long that it was cleaned up; `membership doctor` finds rows that were removed by hand"
        ),
        Some(cause @ CauseOfDeath::Evicted { .. }) => clean(&format!(
            "{silo} was declared dead ({cause}) in version {version}"
        )),
        Some(cause @ CauseOfDeath::Superseded) => format!(
            "{silo} was declared dead ({cause}) in version {version}: a newer process took its address; `membership why {silo}` shows which"
        ),
        Some(cause) => format!(
            "{silo} was declared dead ({cause}) in version {version}; `membership why {silo}` shows who voted and why"
        ),
    }
}

/// The error with the options of the command line.
fn in_flags(error: &StartError) -> String {
    match error {
        StartError::AdvertiseMissing { listen } => {
            format!(
                "other silos cannot dial {listen}: give --advertise with an address at which they reach this one"
            )
        }
        StartError::AdvertiseUnspecified { advertise } => {
            format!(
                "--advertise {advertise} cannot be dialled: give an address at which other silos reach this one"
            )
        }
        StartError::Transport(TransportError::Insecure { address }) => format!(
            "--listen {address} is no loopback address, and `mode = \"none\"` allows no other: remove it, or add --insecure if nobody else reaches that network"
        ),
        StartError::Transport(TransportError::SecretWithoutTls) => {
            "a secret and certificates need TLS: leave out --insecure and `mode = \"none\"`, or what is named in [security] and by --secret-file and --tls-…".to_owned()
        }
        StartError::DeclaredDead(dead) => format!(
            "{} was declared dead while it joined ({}): `membership why {}` shows who voted. If they never reached it, compare --advertise, --secret-file, --tls-… and --insecure with theirs, and look for a firewall",
            dead.silo,
            dead.cause(),
            dead.silo
        ),
        StartError::Join(JoinError::VotedOut { silo, .. }) => format!(
            "{error}. Compare --advertise, --secret-file, --tls-… and --insecure with theirs, and look for a firewall; `membership why {silo}` shows who voted"
        ),
        StartError::Join(JoinError::Unreachable { .. }) => format!(
            "{error}. Compare --advertise, --secret-file, --tls-… and --insecure with theirs, and look for a firewall. If their logs say table_replaced or table_rolled_back, they admit nobody: restart all silos together"
        ),
        other => other.to_string(),
    }
}

fn join_exit(error: &JoinError) -> Exit {
    match error {
        JoinError::Table(text) => text.0.kind().into(),
        JoinError::Refused(_) | JoinError::NoClusterKey => Exit::Usage,
        JoinError::Stopped => Exit::Failed,
        _ => Exit::CannotJoin,
    }
}
