//! `membership silo`: one silo in a process of its own, until it is asked to leave or told that it is dead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use membership::{Silo, SiloBuilder, StartError};
use membership_core::protocol::{JoinError, JoinProgress, Termination};
use tokio::sync::mpsc;

use super::silo_report::Report;
use crate::config_file::{self, PresetName};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::printer::Printer;
use crate::program::{Session, TableArgs};
use crate::stop::{Stop, Stops};

/// Run one silo until SIGTERM, SIGINT or SIGHUP; then it leaves. A second signal stops it at once
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Where to listen for other silos; port 0 is any free one
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Where other silos dial this one, if not at --listen
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<SocketAddr>,
    /// Where clients reach it; 0 = it is no gateway
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    gateway_port: u16,
    /// Its name, for people; the host's if not given
    #[arg(long)]
    name: Option<String>,
    /// What it is for
    #[arg(long)]
    role: Option<String>,
    /// Its failure zone
    #[arg(long)]
    zone: Option<String>,
    /// Something every silo should know of this one; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    metadata: Vec<(String, String)>,
    /// The kind of network; lan if not given
    #[arg(long)]
    preset: Option<PresetName>,
    /// A TOML file with configuration fields; `preset` in it says where to start from
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON object per line: active, view, terminated, table, joining
    #[arg(long)]
    json: bool,
    /// Leave when standard input is closed: a parent that dies takes its silos with it
    #[arg(long, hide = true)]
    exit_with_stdin: bool,
}

/// How often the state of the table is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a stop in a hurry waits for what is under way.
const HURRY: Duration = Duration::from_secs(2);

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value".to_owned()),
    }
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let config = config_file::load(args.preset, args.config.as_deref())?;
    let leave_timeout = config.leave_timeout;
    log();
    raise_open_files();
    let table = session.open(&args.table).await?;
    let stops = Stops::listen(args.exit_with_stdin)
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot listen to signals: {e}")))?;
    let mut builder = Silo::builder(table)
        .listen(args.listen)
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
    let mut life = Life {
        report,
        stops,
        leave_timeout,
        tasks: tasks(),
    };
    let end = life.live(builder).await;
    life.report.finish();
    end
}

/// A silo that joins dials everybody and is dialled by everybody: two to three sockets for each member, more than the usual soft limit
/// of 1,024 open files in a large cluster. It is raised to what the system allows; where that fails, the limit stays as it is.
fn raise_open_files() {
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

/// Logs go to standard error; what is worth a line there is warnings, unless `RUST_LOG` says otherwise.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .try_init();
}

/// How many tasks live in this runtime: a silo that was dropped has ended when its tasks have.
fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

struct Life {
    report: Report,
    stops: Stops,
    leave_timeout: Duration,
    /// How many tasks there were before the silo.
    tasks: usize,
}

impl Life {
    async fn live(&mut self, builder: SiloBuilder) -> Result<Exit, Failure> {
        let Some(silo) = self.join(builder).await? else {
            return Ok(Exit::Ok);
        };
        self.report.active(&silo);
        let mut views = silo.views();
        let mut glance = tokio::time::interval(GLANCE);
        glance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let stop = loop {
            tokio::select! {
                biased;
                Some(view) = views.next() => self.report.view(&view),
                end = silo.terminated() => return self.ended_by_itself(&end),
                stop = self.stops.next() => break stop,
                _ = glance.tick() => self.report.table(silo.health().table),
            }
        };
        if stop == Stop::Orphaned {
            drop((silo, views));
            return Ok(self.in_a_hurry(HURRY).await);
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
        Ok(self.in_a_hurry(HURRY).await)
    }

    /// Until it is Active; none when it was asked to stop before.
    async fn join(&mut self, builder: SiloBuilder) -> Result<Option<Silo>, Failure> {
        let (tell, mut told) = mpsc::unbounded_channel::<JoinProgress>();
        let mut starting = Box::pin(
            builder
                .on_progress(move |progress| {
                    let _ = tell.send(progress.clone());
                })
                .start(),
        );
        loop {
            tokio::select! {
                started = &mut starting => return match started {
                    Ok(silo) => Ok(Some(silo)),
                    Err(error) => Err(self.refused(error)),
                },
                Some(progress) = told.recv() => self.report.joining(&progress),
                _ = self.stops.next() => break,
            }
        }
        // Dropped, the start is taken back in the background: the row, if there is one, ends as left.
        drop(starting);
        self.in_a_hurry(self.leave_timeout).await;
        Ok(None)
    }

    /// Waits until the silo that was dropped is gone, or for so long, or until somebody asks again.
    async fn in_a_hurry(&mut self, most: Duration) -> Exit {
        let until = Instant::now() + most;
        while tasks() > self.tasks && Instant::now() < until {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
                _ = self.stops.next() => break,
            }
        }
        self.report.stopped();
        Exit::Ok
    }

    /// Nobody asked it to leave: if it has all the same, the task that ran it is gone.
    fn ended_by_itself(&mut self, end: &Termination) -> Result<Exit, Failure> {
        match end {
            Termination::Left { .. } => {
                self.report.refused_to_go_on();
                Err(Failure::new(
                    Exit::Failed,
                    "the silo's task ended unexpectedly; the others will declare it dead",
                ))
            }
            _ => self.ended(end),
        }
    }

    fn ended(&mut self, end: &Termination) -> Result<Exit, Failure> {
        self.report.terminated(end);
        match end {
            Termination::Left { .. } => Ok(Exit::Ok),
            Termination::DeclaredDead(dead) => Err(Failure::new(
                Exit::ToldDead,
                format!(
                    "{} was declared dead ({}) in version {}; `membership why {}` tells the story",
                    dead.silo,
                    dead.cause(),
                    dead.version,
                    dead.silo
                ),
            )),
            Termination::JoinFailed(error) => {
                Err(Failure::new(join_exit(error), error.to_string()))
            }
            _ => Err(Failure::new(Exit::Failed, "the silo stopped")),
        }
    }

    fn refused(&mut self, error: StartError) -> Failure {
        let exit = match &error {
            StartError::Config(_)
            | StartError::NoListenAddress
            | StartError::AdvertiseMissing { .. }
            | StartError::AdvertiseUnspecified { .. } => Exit::Usage,
            StartError::Transport(_) => Exit::CannotJoin,
            StartError::Join(error) => join_exit(error),
            StartError::DeclaredDead(_) => Exit::ToldDead,
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

/// The same in the words of the command line.
fn in_flags(error: &StartError) -> String {
    match error {
        StartError::AdvertiseMissing { listen } => {
            format!(
                "listening on {listen} tells nobody where to dial: give --advertise, the address that other silos reach this one at"
            )
        }
        StartError::AdvertiseUnspecified { advertise } => {
            format!(
                "--advertise {advertise} cannot be dialled: give an address that other silos reach this one at"
            )
        }
        other => other.to_string(),
    }
}

fn join_exit(error: &JoinError) -> Exit {
    match error {
        JoinError::Table(text) => text.0.kind().into(),
        JoinError::Refused(_) => Exit::Usage,
        JoinError::Stopped => Exit::Failed,
        _ => Exit::CannotJoin,
    }
}
