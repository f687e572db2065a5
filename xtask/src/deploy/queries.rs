//! The expressions of the rules and of the dashboard, as Prometheus gets them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::tools::Tools;
use super::{DASHBOARD, RULES, read};
use crate::Failure;

/// One alert.
pub(super) struct Alert {
    pub(super) name: String,
    /// What stands before the comparison at the end: it has a value also when all is well.
    pub(super) value: String,
    /// Where it tells an operator to read.
    pub(super) runbook: String,
}

/// The alerts, in the order of the file.
pub(super) fn alerts(tools: &Tools, root: &Path) -> Result<Vec<Alert>, Failure> {
    let rules = rules(tools, root)?;
    let mut alerts = Vec::new();
    for rule in rules.iter().filter(|rule| rule["alert"].is_string()) {
        let name = text(&rule["alert"]);
        alerts.push(Alert {
            value: before_comparison(&text(&rule["expr"])).ok_or_else(|| {
                Failure::new(format!(
                    "{RULES}: {name} does not end with a comparison with a number"
                ))
            })?,
            runbook: text(&rule["annotations"]["runbook_url"]),
            name,
        });
    }
    Ok(alerts)
}

/// The names that rules record.
pub(super) fn records(tools: &Tools, root: &Path) -> Result<Vec<String>, Failure> {
    let rules = rules(tools, root)?;
    let names = rules.iter().filter(|rule| rule["record"].is_string());
    Ok(names.map(|rule| text(&rule["record"])).collect())
}

fn rules(tools: &Tools, root: &Path) -> Result<Vec<Value>, Failure> {
    let documents = tools.yaml(&root.join(RULES))?;
    let groups = documents
        .iter()
        .flat_map(|document| array(&document["groups"]));
    Ok(groups
        .flat_map(|group| array(&group["rules"]))
        .cloned()
        .collect())
}

/// The expression without ` > 5` or ` < 1` at its end.
fn before_comparison(expression: &str) -> Option<String> {
    let expression = expression.trim();
    let at = expression.rfind([' ', '\n'])?;
    expression[at..].trim().parse::<f64>().ok()?;
    let rest = expression[..at].trim_end();
    let rest = rest.strip_suffix('>').or_else(|| rest.strip_suffix('<'))?;
    Some(rest.trim_end().to_owned())
}

/// A query of a panel of the dashboard.
pub(super) struct Query {
    pub(super) panel: String,
    /// With variables of Grafana.
    pub(super) expression: String,
}

/// Every query of every panel.
pub(super) fn dashboard(root: &Path) -> Result<Vec<Query>, Failure> {
    let text = read(root, DASHBOARD)?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let mut queries = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in array(&dashboard["panels"]) {
        let title = self::text(&panel["title"]);
        if !ids.insert(panel["id"].as_u64()) {
            return Err(Failure::new(format!(
                "{DASHBOARD}: the panel '{title}' has the id of another one"
            )));
        }
        let targets = array(&panel["targets"]);
        if targets.is_empty() && panel["type"] != "row" {
            return Err(Failure::new(format!(
                "{DASHBOARD}: the panel '{title}' has no query"
            )));
        }
        for target in targets {
            queries.push(Query {
                panel: title.clone(),
                expression: self::text(&target["expr"]),
            });
        }
    }
    Ok(queries)
}

impl Query {
    /// As Grafana sends it when everything is chosen and Prometheus scrapes every two seconds.
    pub(super) fn filled(&self) -> String {
        let mut text = self.expression.replace("$__rate_interval", "30s");
        for variable in ["$namespace", "$job", "$instance"] {
            text = text.replace(variable, ".*");
        }
        text
    }
}

/// The metrics of silos that a text names, as docs/operating.md writes them.
pub(super) fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !is_part(c));
    let words = words.filter(|word| word.starts_with("membership_") && !word.contains(':'));
    words.map(family).map(str::to_owned).collect()
}

/// A histogram is scraped as several series.
fn family(series: &str) -> &str {
    let endings = ["_seconds_bucket", "_seconds_count", "_seconds_sum"];
    if !endings.iter().any(|ending| series.ends_with(ending)) {
        return series;
    }
    series.rsplit_once('_').map_or(series, |(name, _)| name)
}

pub(super) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_at_the_end_is_removed_and_no_other() {
        let cut = |text| before_comparison(text);
        assert_eq!(cut("a > 0"), Some("a".to_owned()));
        assert_eq!(cut("(a > 5 or b) < 1.5\n"), Some("(a > 5 or b)".to_owned()));
        assert_eq!(cut("(\n  a\n) > 0"), Some("(\n  a\n)".to_owned()));
        assert_eq!(cut("a"), None);
        assert_eq!(cut("a == 5"), None);
        assert_eq!(cut("a > b"), None);
    }

    #[test]
    fn series_of_a_histogram_are_one_metric() {
        let text = "rate(membership_x_seconds_bucket{a=\"b\"}[5m]) / membership_y_total + job:membership_z:max";
        let found: Vec<String> = metrics_in(text).into_iter().collect();
        assert_eq!(found, ["membership_x_seconds", "membership_y_total"]);
    }
}
