//! `membership dashboard`: a page of one or more tables, without any silo.

use std::net::SocketAddr;
use std::time::Duration;

use membership::ClusterName;
use membership::http::{Dashboard, Server};

use super::evict;
use super::silo::raise_open_files;
use crate::exit::{Exit, Failure};
use crate::http::HttpArgs;
use crate::inspect::Inspection;
use crate::security::{SecurityArgs, SecurityTable};
use crate::session::{Session, StoreArgs};
use crate::stop::Stops;

/// Show the table as a page in the browser, until Ctrl-C: live, without any silo
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Which cluster: [service/]cluster; may be repeated, because no store lists its clusters
    #[arg(
        long,
        env = "MEMBERSHIP_CLUSTER",
        value_name = "ID",
        default_value = "default"
    )]
    cluster: Vec<ClusterName>,
    /// Ask the silos too, who of them does not reach whom: the table does not know
    #[arg(long)]
    ask: bool,
    /// Let people evict silos and clean up from the page, after a confirmation
    #[arg(long)]
    allow_changes: bool,
    /// How often to read the table
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    every: Duration,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    security: SecurityArgs,
    /// One JSON object: the address
    #[arg(long)]
    json: bool,
}

/// Where it listens if nobody says otherwise; if that port is taken, at the next free one.
const PORT: u16 = 9700;
const PORTS: u16 = 20;

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    if args.every < Duration::from_millis(50) {
        return Err(Failure::usage("--every must be at least 50ms"));
    }
    raise_open_files();
    let mut stops = Stops::listen(false)
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot listen to signals: {e}")))?;
    let mut dashboard: Option<Dashboard> = None;
    for cluster in &args.cluster {
        let table = session.connect(&args.store.table, cluster).await?;
        // What is wrong with the address is told here, not on the page.
        Inspection::of(table.as_ref()).await?;
        dashboard = Some(match dashboard {
            None => Dashboard::new(table),
            Some(others) => others.and(table),
        });
    }
    let Some(dashboard) = dashboard else {
        return Err(Failure::usage("give --cluster"));
    };
    let insecure = args.security.insecure();
    let mut dashboard = dashboard.every(args.every);
    if args.ask {
        dashboard = dashboard.ask(SecurityTable::default().with(args.security)?);
    }
    if args.allow_changes {
        dashboard = dashboard.allow_changes(evict::operator());
    }
    let server = start(args.http, insecure)?;
    server.show_dashboard(dashboard);
    let scheme = if server.is_tls() { "https" } else { "http" };
    let url = format!("{scheme}://{}/", server.address());
    session.out.line(match args.json {
        true => serde_json::json!({"event": "http", "address": server.address(), "url": url})
            .to_string(),
        false => format!("{url}  (Ctrl-C ends)"),
    });
    stops.next().await;
    server.close().await;
    Ok(Exit::Ok)
}

fn start(http: HttpArgs, insecure: bool) -> Result<Server, Failure> {
    // Any, if all of these are taken.
    let ports = (PORT..PORT + PORTS).chain([0]);
    let addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    http.start_at_first(addresses, insecure)
}
