//! Runs one member until it is asked to leave, or is downed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use membership::gossip::{
    Config, Events, GossipView, JoinError, Member, MemberBuilder, MemberStatus, Preset, StartError,
    TableArbiter, Termination, downing::Strategy,
};
use membership::transport::TransportError;
use membership::{ClusterName, ListenError};

use super::report::Report;
use crate::commands::silo::{key_value, log, raise_open_files};
use crate::config_file;
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::printer::Printer;
use crate::security::SecurityArgs;
use crate::session::Session;
use crate::stop::{Stop, Stops};
use crate::text::ip_and_port;

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Which cluster: [service/]cluster
    #[arg(
        long,
        env = "MEMBERSHIP_CLUSTER",
        value_name = "ID",
        default_value = "default"
    )]
    cluster: ClusterName,
    /// A contact point: give all of them to every member, in the same order, with this option again or
    /// separated by commas. A majority of them founds the cluster
    #[arg(long, value_name = "IP:PORT", value_parser = contact_point, required = true, value_delimiter = ',')]
    seed: Vec<SocketAddr>,
    /// Where to listen for other members; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = ip_and_port, required = true)]
    listen: Option<SocketAddr>,
    /// Where other members dial this one, if not at --listen
    #[arg(long, value_name = "IP:PORT", value_parser = ip_and_port)]
    advertise: Option<SocketAddr>,
    /// Its name, for people. Default: the host's name
    #[arg(long)]
    name: Option<String>,
    /// Its role
    #[arg(long)]
    role: Option<String>,
    /// Its failure zone
    #[arg(long)]
    zone: Option<String>,
    /// Its data centre: members agree, and are downed, within one. Default: default
    #[arg(long)]
    data_center: Option<String>,
    /// Metadata that every member sees; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    metadata: Vec<(String, String)>,
    /// The specification as it is written, or with its known faults cured. Default: lan
    #[arg(long)]
    preset: Option<PresetName>,
    /// A TOML file with configuration fields; its `preset` gives the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// For the strategy `lease-majority`: a table in which a row decides which side of a split goes
    /// on, in the cluster of this name with `-lease` after it; the same for all members
    #[arg(
        long,
        env = "MEMBERSHIP_ARBITER",
        hide_env_values = true,
        value_name = "URL"
    )]
    arbiter: Option<String>,
    #[command(flatten)]
    security: SecurityArgs,
    /// One JSON object per line: joining, waiting, contact, founded, welcomed, not_taken_in, active,
    /// view, decided, down_asked, downed, removed, link_broken, paused, leaving, exiting, terminated
    #[arg(long)]
    json: bool,
    /// Leave when standard input is closed, so that a member ends with its parent
    #[arg(long, hide = true)]
    exit_with_stdin: bool,
}

/// The presets as values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PresetName {
    /// The Akka Cluster specification with its defaults
    Akka,
    /// One data centre or region
    Lan,
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::Akka => Self::Akka,
            PresetName::Lan => Self::Lan,
        }
    }
}

/// How long the end of a member whose parent is gone, or after a second signal, may take: what it
/// says last leaves within this time.
const QUICKLY: Duration = Duration::from_millis(200);

pub(super) async fn run(args: RunArgs, session: &mut Session) -> Result<Exit, Failure> {
    let preset = args.preset.map(Preset::from);
    let (config, security) = config_file::load::<Config>(preset, args.config.as_deref())?;
    log(args.json);
    raise_open_files();
    let stops = Stops::listen(args.exit_with_stdin)
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot listen to signals: {e}")))?;
    let listen = args.listen;
    let listen = listen.ok_or_else(|| Failure::usage("give --listen IP:PORT"))?;
    let arbiter = match &args.arbiter {
        Some(url) => {
            useful(url, &config)?;
            let cluster: ClusterName = format!("{}-lease", args.cluster).parse()?;
            let table = session.connect(url, &cluster).await;
            let table = table.map_err(|failure| of_arbiter(&failure))?;
            Some(TableArbiter::new(table))
        }
        None => None,
    };
    let mut builder = Member::builder(args.cluster)
        .listen(listen)
        .security(security.with(args.security)?)
        .config(config)
        .name(args.name.unwrap_or_default())
        .role(args.role.unwrap_or_default())
        .zone(args.zone.unwrap_or_default());
    if let Some(arbiter) = arbiter {
        builder = builder.arbiter(arbiter);
    }
    if let Some(advertise) = args.advertise {
        builder = builder.advertise(advertise);
    }
    if let Some(data_centre) = args.data_center {
        builder = builder.data_centre(data_centre);
    }
    for (key, value) in args.metadata {
        builder = builder.metadata(key, value);
    }
    let out = std::mem::replace(&mut session.out, Out::plain(Box::new(std::io::sink())));
    let mut life = Life {
        report: Report::new(Printer::new(out), args.json),
        stops,
        quickly: false,
    };
    let end = life.live(builder, args.seed).await;
    life.report.finish(life.quickly);
    end
}

/// A contact point that members can dial.
fn contact_point(text: &str) -> Result<SocketAddr, String> {
    match ip_and_port(text.trim())? {
        at if at.port() == 0 => {
            Err("port 0 cannot be dialled: write the port at which that member listens".to_owned())
        }
        at => Ok(at),
    }
}

/// Refuses an arbiter that nobody asks, or that no other process can ask.
fn useful(url: &str, config: &Config) -> Result<(), Failure> {
    if !matches!(config.downing.strategy, Strategy::LeaseMajority { .. }) {
        return Err(Failure::usage(format!(
            "--arbiter is asked only with the strategy `lease-majority`, and this is `{}`: write `strategy = \"lease-majority\"` under [downing] in the file of --config, or leave --arbiter out",
            config.downing.strategy.name()
        )));
    }
    let scheme = url.split(':').next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("memory") {
        return Err(Failure::usage(
            "--arbiter memory: is a table of this process, which no other process can ask: name one in a store that all members reach, for example postgres://host/database",
        ));
    }
    Ok(())
}

/// The error of a table that is no membership table.
fn of_arbiter(failure: &Failure) -> Failure {
    let text = failure.message.replace("--table", "--arbiter");
    Failure::new(failure.exit, text)
}

struct Life {
    report: Report,
    stops: Stops,
    /// A second signal has come.
    quickly: bool,
}

impl Life {
    async fn live(
        &mut self,
        builder: MemberBuilder,
        seeds: Vec<SocketAddr>,
    ) -> Result<Exit, Failure> {
        let mut events = builder.events();
        let member = builder
            .start()
            .await
            .map_err(|error| self.refused(&error))?;
        self.report.joining(member.me());
        let stop = {
            let mut joining = Box::pin(member.join(seeds));
            let mut views = member.views();
            let mut joined = false;
            loop {
                tokio::select! {
                    biased;
                    Some(view) = views.next() => {
                        self.report.view(&view);
                        if is_leaving(&view) {
                            break Stop::Signal;
                        }
                    }
                    result = &mut joining, if !joined => match result {
                        Ok(_) => joined = true,
                        Err(JoinError::Ended(end)) => return self.ended(&end),
                        Err(error) => return Err(Failure::usage(error.to_string())),
                    },
                    end = member.terminated() => {
                        self.last_events(&mut events).await;
                        return self.ended(&end);
                    }
                    stop = self.stops.next() => break stop,
                    Some(event) = events.next() => self.report.event(&event.kind),
                }
            }
        };
        if stop == Stop::Orphaned {
            return Ok(self.stop_now(member).await);
        }
        self.leave(member, events).await
    }

    async fn leave(&mut self, member: Member, mut events: Events) -> Result<Exit, Failure> {
        self.report.leaving();
        let mut views = member.views();
        let leaving = {
            let member = member.clone();
            async move { member.leave().await }
        };
        let mut leaving = Box::pin(leaving);
        loop {
            tokio::select! {
                biased;
                Some(view) = views.next() => self.report.view(&view),
                end = &mut leaving => {
                    self.last_events(&mut events).await;
                    return self.ended(&end);
                }
                _ = self.stops.next() => break,
                Some(event) = events.next() => self.report.event(&event.kind),
            }
        }
        drop((leaving, views));
        self.quickly = true;
        Ok(self.stop_now(member).await)
    }

    /// Tells what happened before the end: why it was downed, for example.
    async fn last_events(&self, events: &mut Events) {
        let tell = async {
            while let Some(event) = events.next().await {
                self.report.event(&event.kind);
            }
        };
        let _ = tokio::time::timeout(QUICKLY, tell).await;
    }

    /// Ends without waiting until the others know.
    async fn stop_now(&mut self, member: Member) -> Exit {
        let _ = tokio::time::timeout(QUICKLY, member.leave()).await;
        self.report.stopped();
        Exit::Ok
    }

    fn ended(&mut self, end: &Termination) -> Result<Exit, Failure> {
        self.report.terminated(end);
        match end {
            Termination::Left => Ok(Exit::Ok),
            Termination::LeaveTimedOut => Err(Failure::new(
                Exit::Failed,
                "it left, but not all members know in the time for leaving: they see it as unreachable until it is downed",
            )),
            Termination::Downed => Err(Failure::new(
                Exit::DeclaredDead,
                "it was downed, by an operator or by the resolver of its own or of another member; start it again to join",
            )),
            Termination::Gone => Err(Failure::new(
                Exit::DeclaredDead,
                "it is no member any more: it was removed, or a newer process has its address; start it again to join",
            )),
            Termination::Refused(why) => Err(Failure::new(
                Exit::CannotJoin,
                format!("it was not taken in: {why}"),
            )),
            other => Err(Failure::new(Exit::Failed, other.to_string())),
        }
    }

    fn refused(&mut self, error: &StartError) -> Failure {
        let exit = match error {
            StartError::Listen(ListenError::Transport(TransportError::Bind { .. })) => {
                Exit::CannotJoin
            }
            StartError::Listen(ListenError::Random(_)) => Exit::Failed,
            StartError::Arbiter(_) => Exit::Unreachable,
            _ => Exit::Usage,
        };
        let text = in_flags(error);
        self.report.refused(&text);
        Failure::new(exit, text)
    }
}

/// Whether somebody else asked that this member leaves.
fn is_leaving(view: &GossipView) -> bool {
    let status = view.status(&view.me());
    matches!(status, Some(MemberStatus::Leaving | MemberStatus::Exiting))
}

/// The error with the options of the command line.
fn in_flags(error: &StartError) -> String {
    match error {
        StartError::Listen(ListenError::AdvertiseMissing { listen }) => format!(
            "other members cannot dial {listen}: give --advertise with an address at which they reach this one"
        ),
        StartError::Listen(ListenError::AdvertiseUnspecified { advertise }) => format!(
            "--advertise {advertise} cannot be dialled: give an address at which other members reach this one"
        ),
        StartError::Listen(ListenError::Transport(TransportError::NoTrust)) => {
            "without a table nothing says who may join: give --secret-file, or --tls-ca, --tls-cert and --tls-key; or --insecure if nobody else reaches that network".to_owned()
        }
        StartError::Listen(ListenError::Transport(TransportError::Insecure { address })) => {
            format!(
                "--listen {address} is no loopback address, and `mode = \"none\"` allows no other: remove it, or add --insecure if nobody else reaches that network"
            )
        }
        StartError::Listen(ListenError::Transport(TransportError::SecretWithoutTls)) => {
            "a secret and certificates need TLS: leave out --insecure and `mode = \"none\"`, or what is named in [security] and by --secret-file and --tls-…".to_owned()
        }
        StartError::NoArbiter => {
            "the strategy `lease-majority` needs --arbiter URL, a table that every member reaches".to_owned()
        }
        other => other.to_string(),
    }
}
