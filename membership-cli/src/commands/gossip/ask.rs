//! Asks a living member what it sees, or to change something.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use membership::gossip::{GossipView, InspectError, Inspector, MemberStatus};
use membership::{ClusterName, SiloAddress};
use serde_json::json;

use super::report::{agreement, view_as_json, waiting_as_json};
use crate::events;
use crate::exit::{Exit, Failure};
use crate::out::Paint;
use crate::security::{SecurityArgs, without_table};
use crate::session::Session;
use crate::text::{Grid, clean, count, ip_and_port};

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which member is asked.
#[derive(Debug, clap::Args)]
struct AtArgs {
    /// The member to ask
    #[arg(long, value_name = "IP:PORT", value_parser = ip_and_port)]
    at: SocketAddr,
    /// Which cluster: [service/]cluster
    #[arg(
        long,
        env = "MEMBERSHIP_CLUSTER",
        value_name = "ID",
        default_value = "default"
    )]
    cluster: ClusterName,
    #[command(flatten)]
    security: SecurityArgs,
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Show the members as a living member sees them, and whether they agree
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    ask: AtArgs,
}

/// Ask that a member leaves, as if its application had asked
#[derive(Debug, clap::Args)]
pub(super) struct LeaveArgs {
    /// Who leaves: ip:port@epoch, or ip:port. Default: the member that is asked
    member: Option<String>,
    #[command(flatten)]
    ask: AtArgs,
}

/// Down a member whose process has ended for certain: it is removed, and never comes back
#[derive(Debug, clap::Args)]
pub(super) struct DownArgs {
    /// Who is downed: ip:port@epoch, or ip:port
    member: String,
    #[command(flatten)]
    ask: AtArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        let exit = match error {
            InspectError::NotMember { .. } => Exit::Usage,
            InspectError::NoCluster { .. } => Exit::Failed,
            _ => Exit::Unreachable,
        };
        Self::new(exit, error.to_string())
    }
}

impl AtArgs {
    async fn inspector(&mut self) -> Result<Inspector, Failure> {
        let security = without_table(std::mem::take(&mut self.security))?;
        let inspector = Inspector::new(self.cluster.clone(), security).await;
        inspector.map_err(|error| {
            let text = match error {
                membership::transport::TransportError::NoTrust => "give what the members have: --secret-file, or --tls-ca, --tls-cert and --tls-key; or --insecure if they have that".to_owned(),
                other => other.to_string(),
            };
            Failure::usage(text)
        })
    }
}

pub(super) async fn status(args: StatusArgs, session: &mut Session) -> Result<Exit, Failure> {
    let mut ask = args.ask;
    let mut inspector = ask.inspector().await?;
    let view = inspector.view(ask.at, PATIENCE).await;
    inspector.close().await;
    if let (
        true,
        Err(InspectError::NoCluster {
            waiting: Some(waiting),
            ..
        }),
    ) = (ask.json, &view)
    {
        session.out.line(events::timed(waiting_as_json(waiting)));
    }
    let view = view?;
    if ask.json {
        session.out.line(events::timed(view_as_json(&view)));
        return Ok(Exit::Ok);
    }
    let heading = [
        "MEMBER",
        "NAME",
        "ROLE",
        "ZONE",
        "DATA CENTRE",
        "STATUS",
        "NOT REACHED BY",
    ];
    let mut grid = Grid::new(heading).expendable(&["DATA CENTRE", "ROLE", "ZONE", "NAME"]);
    let flags = view.reachability();
    let centres: BTreeSet<&str> = view.members().map(|m| m.data_centre()).collect();
    for member in view.members() {
        let by = flags.get(&member.address());
        let by = by.map_or_else(String::new, |by| {
            let by: Vec<String> = by.iter().map(ToString::to_string).collect();
            by.join(", ")
        });
        let paint = match member.status() {
            _ if !by.is_empty() => Paint::Red,
            MemberStatus::Up => Paint::Green,
            MemberStatus::Down => Paint::Red,
            _ => Paint::Yellow,
        };
        let info = member.info();
        let centre = if centres.len() > 1 {
            clean(member.data_centre())
        } else {
            String::new()
        };
        grid.row([
            (member.address().to_string(), Paint::Plain),
            (clean(&info.silo_name), Paint::Plain),
            (clean(&info.role), Paint::Plain),
            (clean(&info.zone), Paint::Plain),
            (centre, Paint::Plain),
            (member.status().to_string(), paint),
            (by, Paint::Red),
        ]);
    }
    grid.show(&mut session.out);
    let up = view.members().filter(|m| m.status() == MemberStatus::Up);
    let leader = view.leader();
    let leader = leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
    session.out.line(format_args!(
        "{} · {} up · leader {leader} · as {} sees it",
        count(view.members().count(), "member"),
        up.count(),
        view.me()
    ));
    let paint = if view.converged() {
        Paint::Green
    } else {
        Paint::Yellow
    };
    let text = session.out.paint(paint, agreement(&view));
    session.out.line(text);
    Ok(Exit::Ok)
}

pub(super) async fn leave(args: LeaveArgs, session: &mut Session) -> Result<Exit, Failure> {
    let mut ask = args.ask;
    session.json = ask.json;
    let mut inspector = ask.inspector().await?;
    let view = inspector.view(ask.at, PATIENCE).await?;
    let member = match &args.member {
        Some(text) => find(&view, text)?,
        None => view.me(),
    };
    inspector.leave(ask.at, member, PATIENCE).await?;
    inspector.close().await;
    session.told(
        || json!({"event": "leaving", "silo": member}),
        || format!("{member} leaves"),
    );
    Ok(Exit::Ok)
}

pub(super) async fn down(args: DownArgs, session: &mut Session) -> Result<Exit, Failure> {
    let mut ask = args.ask;
    session.json = ask.json;
    let mut inspector = ask.inspector().await?;
    let view = inspector.view(ask.at, PATIENCE).await?;
    let member = find(&view, &args.member)?;
    if !view.reachability().contains_key(&member) {
        let text = format!(
            "warning: all members reach {member}: it runs, and will stop when it hears of this"
        );
        let text = session.err.paint(Paint::Yellow, text);
        session.err.line(text);
    }
    let question = format!("down {member} for good? Type yes:");
    if !args.yes && !session.ask(&question, "yes")? {
        return Err(Failure::new(
            Exit::Failed,
            "not confirmed, so nothing was done",
        ));
    }
    inspector.down(ask.at, member, PATIENCE).await?;
    inspector.close().await;
    session.told(
        || json!({"event": "downed", "silo": member}),
        || format!("{member} is down"),
    );
    Ok(Exit::Ok)
}

/// The member that a text names.
fn find(view: &GossipView, text: &str) -> Result<SiloAddress, Failure> {
    let address = text.parse::<SiloAddress>().ok();
    let endpoint = text.parse::<SocketAddr>().ok();
    let mut members = view.members().map(|m| m.address());
    let found = members.find(|m| Some(*m) == address || Some(m.endpoint()) == endpoint);
    found.ok_or_else(|| {
        Failure::usage(format!(
            "`{}` is no member, as far as {} knows: write ip:port@epoch or ip:port; `membership gossip status` lists them",
            clean(text),
            view.me()
        ))
    })
}
