//! `/metrics` of survivors: what died, from 0, with help, for Prometheus and as OpenMetrics.

use std::time::Duration;

use rustix::process::Signal;

use super::client::{address, ask, get, request};
use super::support::silos::{Cluster, Process, port};

#[test]
fn survivors_count_deaths_by_cause() {
    let mut cluster = Cluster::start(0, "local");
    for _ in 0..4 {
        let silo = Process::start(&cluster.place, port(), "local", &["--http", "127.0.0.1:0"]);
        cluster.silos.push(silo);
    }
    cluster.all_active(Duration::from_secs(40));
    let at = address(&cluster.silos[0]);
    let value = |series: &str| {
        let text = get(at, "/metrics").body;
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {text}"))
            .parse::<f64>()
            .unwrap()
    };
    for cause in ["voted", "left", "evicted", "superseded", "stuck", "removed"] {
        let series = format!("membership_deaths_total{{cause=\"{cause}\"}}");
        assert_eq!(value(&series), 0.0, "{series}");
    }
    let (killed, leaver) = (cluster.address(3), cluster.address(2));
    cluster.silos[3].signal(Signal::KILL);
    cluster.silos[0].sees_dead(&killed, "voted", Duration::from_secs(40));
    cluster.silos[2].signal(Signal::TERM);
    cluster.silos[0].sees_dead(&leaver, "left", Duration::from_secs(40));
    assert_eq!(value("membership_deaths_total{cause=\"voted\"}"), 1.0);
    assert_eq!(value("membership_deaths_total{cause=\"left\"}"), 1.0);

    let text = get(at, "/metrics");
    assert!(
        text.header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    for line in text
        .body
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            let family = name.strip_suffix(end)?;
            text.body
                .contains(&format!("# TYPE {family} histogram\n"))
                .then_some(family)
        });
        let family = family.unwrap_or(name);
        assert!(
            text.body.contains(&format!("# HELP {family} ")),
            "no help for {family}"
        );
    }
    for histogram in ["probe_round_trip", "table_call", "executor_lag"] {
        let kind = format!("# TYPE membership_{histogram}_seconds histogram");
        assert!(text.body.contains(&kind), "{kind}");
    }
    let accept = [("Accept", "application/openmetrics-text; version=1.0.0")];
    let open = ask(at, &request("GET", "/metrics", &accept, ""));
    assert!(
        open.header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(open.body.contains("# TYPE membership_deaths counter\n"));
    assert!(
        open.body
            .contains("membership_deaths_total{cause=\"voted\"} 1\n")
    );
    assert!(open.body.ends_with("\n# EOF\n") && !open.body.contains("\n\n"));
}
