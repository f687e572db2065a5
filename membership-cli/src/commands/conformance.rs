//! `membership conformance`: checks whether a store keeps the contract of a membership table.

use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use conformance_tests::{Clause, Effort, Suite, child};
use membership_core::ClusterName;

use crate::clock;
use crate::conformance::backend::{Store, Through};
use crate::conformance::report;
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::session::Session;
use crate::stop::Stops;
use crate::text::count;

/// Check that a store keeps the contract of a membership table, with the suite that every provider
/// runs, in clusters that it makes and removes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store, for example redis://127.0.0.1:6379
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL",
        required_unless_present = "list"
    )]
    table: Option<String>,
    /// Prefix of its clusters: ID/case-1 and so on; refused if one exists. Default: a random one
    #[arg(long, value_name = "ID")]
    cluster: Option<ClusterName>,
    /// Only the cases for this clause, such as T5; may be repeated
    #[arg(long, value_name = "CLAUSE")]
    clause: Vec<Clause>,
    /// Only the cases with this text in their name; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Seed of the random choices, to repeat another run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How much work the long cases do
    #[arg(long, value_name = "EFFORT", default_value = "default")]
    effort: EffortLevel,
    /// One JSON object per line: each case, and a summary
    #[arg(long)]
    json: bool,
    /// Stage lost answers over TLS, too: pass bytes on from LISTEN, where a line of /etc/hosts leads
    /// the name in --table, to SERVER; each an IP address with a port
    #[arg(long, value_name = "LISTEN=SERVER")]
    proxy: Option<Through>,
    /// Only list the cases and their clauses
    #[arg(long)]
    list: bool,
}

/// How much work the long cases do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EffortLevel {
    /// About a minute on a nearby server
    Quick,
    /// As in the providers' own tests
    Default,
    /// About an hour
    Soak,
}

impl EffortLevel {
    fn set(self, effort: &mut Effort) {
        match self {
            Self::Quick => *effort = Effort::quick(),
            Self::Default => {}
            Self::Soak => *effort = Effort::soak(),
        }
    }
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let wanted = |name: &str, clauses: &[Clause]| {
        (args.clause.is_empty() || clauses.iter().any(|c| args.clause.contains(c)))
            && (args.case.is_empty() || args.case.iter().any(|part| name.contains(part.as_str())))
    };
    let cases: Vec<_> = Suite::cases()
        .filter(|(name, clauses)| wanted(name, clauses))
        .collect();
    if cases.is_empty() {
        return Err(Failure::usage(
            "no case matches; `membership conformance --list` shows all cases",
        ));
    }
    if args.list {
        for (name, clauses) in cases {
            let clauses: Vec<String> = clauses.iter().map(ToString::to_string).collect();
            session
                .out
                .line(format_args!("{:<12} {name}", clauses.join(" ")));
        }
        return Ok(Exit::Ok);
    }
    let Some(url) = &args.table else {
        return Err(Failure::usage("--table is missing"));
    };
    let mut stops = Stops::listen(false)
        .map_err(|e| Failure::new(Exit::Failed, format!("cannot listen to signals: {e}")))?;
    let cluster = match args.cluster {
        Some(cluster) => cluster,
        None => ClusterName::new(
            membership_core::DEFAULT_SERVICE,
            format!("conformance-{:012x}", clock::random() & 0xffff_ffff_ffff),
        )?,
    };
    let seed = args
        .seed
        .unwrap_or_else(|| u64::try_from(clock::random() & 0xffff_ffff).unwrap_or(1));
    let store = Arc::new(Store::open(session.connectors(), url, &cluster, seed, args.proxy).await?);
    // The suite reports results through a callback, one at a time.
    let out = Arc::new(Mutex::new(std::mem::replace(
        &mut session.out,
        Out::plain(Box::new(std::io::sink())),
    )));
    let mut suite = Suite::shared(store.clone())
        .seed(seed)
        .clauses(args.clause)
        .effort(|effort| args.effort.set(effort));
    for part in args.case {
        suite = suite.named(part);
    }
    let shown = out.clone();
    let suite = suite.on_result(move |result| {
        report::case(
            result,
            seed,
            args.json,
            &mut shown.lock().unwrap_or_else(PoisonError::into_inner),
        );
    });
    let ended = tokio::select! {
        biased;
        _ = stops.next() => None,
        report = suite.run() => Some(report),
    };
    let left = tokio::select! {
        left = store.clear(ended.is_some()) => left,
        _ = stops.next() => return Err(Failure::new(Exit::Failed, format!("stopped during the clean-up; clusters of {cluster} may be left in the store"))),
    };
    for (cluster, why) in &left {
        session
            .err
            .line(format_args!("cluster {cluster} is left behind: {why}"));
    }
    let Some(report) = ended else {
        return Err(Failure::new(Exit::Failed, "stopped before the end"));
    };
    std::mem::swap(
        &mut session.out,
        &mut out.lock().unwrap_or_else(PoisonError::into_inner),
    );
    report::summary(&report, &left, args.json, &mut session.out);
    if !left.is_empty() {
        return Err(Failure::new(
            Exit::Failed,
            format!("{} left behind", count(left.len(), "cluster")),
        ));
    }
    match report.failures().count() {
        0 if report.passed() => Ok(Exit::Ok),
        0 => Err(Failure::new(Exit::Failed, "no case ran")),
        failed => Err(Failure::new(
            Exit::Failed,
            format!(
                "{} failed: the store does not keep the contract",
                count(failed, "case")
            ),
        )),
    }
}

/// The client that the suite kills during a commit
#[derive(Debug, clap::Args)]
pub(crate) struct ChildArgs {
    #[arg(long, env = "MEMBERSHIP_TABLE", hide_env_values = true)]
    table: String,
}

pub(crate) async fn run_child(args: ChildArgs, session: &mut Session) -> Result<Exit, Failure> {
    let Some(cluster) = child::cluster() else {
        return Err(Failure::usage("this command is for the suite alone"));
    };
    let table = session.connect(&args.table, &cluster).await?;
    child::run(table.as_ref()).await;
    Ok(Exit::Ok)
}
