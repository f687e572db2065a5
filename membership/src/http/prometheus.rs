//! `/metrics`: Prometheus text, or OpenMetrics for a client that asks for it.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::Response;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::answer::{Problem, typed};
use super::{HttpError, Site};
use crate::metrics;

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Gives `/metrics` what the process has measured.
#[derive(Clone)]
pub struct Exporter(PrometheusHandle);

impl Exporter {
    /// Installs a recorder for the metrics of this process, with the buckets that
    /// [`metrics::BUCKETS`](crate::metrics::BUCKETS) lists. Call it before the silo starts: what is
    /// measured before is lost.
    ///
    /// # Errors
    /// [`HttpError::Recorder`] if one is installed already.
    pub fn install() -> Result<Self, HttpError> {
        let recorder = recorder()?;
        let handle = recorder.handle();
        ::metrics::set_global_recorder(recorder).map_err(|_| HttpError::Recorder)?;
        metrics::describe();
        Ok(Self(handle))
    }

    /// Shows what a recorder of the application has, which also has the application's own metrics.
    /// Such a recorder should know [`metrics::BUCKETS`](crate::metrics::BUCKETS), and
    /// [`metrics::describe`](crate::metrics::describe) gives it the texts of help.
    #[must_use]
    pub const fn of(handle: PrometheusHandle) -> Self {
        Self(handle)
    }

    /// The metrics as Prometheus text.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Takes the values of histograms into their buckets. [`Server`](super::Server) does it every 5 s;
    /// without it, they wait in memory for the next scrape.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

fn recorder() -> Result<PrometheusRecorder, HttpError> {
    let wrong = |e: metrics_exporter_prometheus::BuildError| HttpError::System(e.to_string());
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in metrics::BUCKETS {
        let matcher = Matcher::Full((*name).to_owned());
        builder = builder
            .set_buckets_for_metric(matcher, buckets)
            .map_err(wrong)?;
    }
    Ok(builder.build_recorder())
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

pub(super) async fn metrics(
    State(site): State<Arc<Site>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Some(exporter) = &site.exporter else {
        return Err(Problem::not_found(
            "this application gives no metrics here: give an `Exporter` to `Options::metrics`",
        ));
    };
    let text = exporter.render();
    let mut accepts = headers.get_all(ACCEPT).iter();
    let open = accepts.any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.contains("application/openmetrics-text")
    });
    Ok(match open {
        true => typed(OPEN_METRICS, open_metrics(&text).into()),
        false => typed(PROMETHEUS, text.into()),
    })
}

/// Prometheus text as OpenMetrics: a counter is named without `_total`, and the end is marked.
fn open_metrics(text: &str) -> String {
    let mut counters = Vec::new();
    for line in text.lines() {
        let counter = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.strip_suffix(" counter"));
        counters.extend(counter.and_then(|name| name.strip_suffix("_total")));
    }
    let mut open = String::with_capacity(text.len() + 8);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let family = line
            .strip_prefix("# TYPE ")
            .or_else(|| line.strip_prefix("# HELP "));
        let name = family.and_then(|rest| rest.split(' ').next());
        let counter = name.and_then(|name| name.strip_suffix("_total"));
        match counter.filter(|name| counters.contains(name)) {
            Some(name) => open.push_str(&line.replacen(&format!("{name}_total"), name, 1)),
            None => open.push_str(line),
        }
        open.push('\n');
    }
    open.push_str("# EOF\n");
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_lose_their_ending_in_the_name_of_the_family_alone() {
        let text = "# HELP a_total All.\n# TYPE a_total counter\na_total{x=\"a_total\"} 3\n\n# TYPE b gauge\nb 1\n\n";
        assert_eq!(
            open_metrics(text),
            "# HELP a All.\n# TYPE a counter\na_total{x=\"a_total\"} 3\n# TYPE b gauge\nb 1\n# EOF\n"
        );
    }
}
