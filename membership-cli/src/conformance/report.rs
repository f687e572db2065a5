//! Output: one line per case as it ends, and a summary.

use conformance_tests::{CaseResult, Outcome, Report};
use serde_json::{Value, json};

use crate::out::{Out, Paint};

/// Shows one case.
pub(crate) fn case(result: &CaseResult, seed: u64, as_json: bool, out: &mut Out) {
    if as_json {
        return out.line(object(result));
    }
    let paint = match result.outcome {
        Outcome::Passed => Paint::Green,
        Outcome::Failed(_) => Paint::Red,
        _ => Paint::Dim,
    };
    let text = result.to_string();
    let (word, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
    let word = out.paint(paint, word);
    out.line(format_args!("{word}{rest}"));
    if matches!(result.outcome, Outcome::Failed(_)) {
        out.line(format_args!(
            "        to repeat: membership conformance --seed {seed} --case {}",
            result.name
        ));
    }
}

fn object(result: &CaseResult) -> Value {
    let clauses: Vec<String> = result.clauses.iter().map(ToString::to_string).collect();
    let (outcome, why) = match &result.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Failed(what) => ("failed", Some(what.clone())),
        Outcome::NotApplicable(reason) => ("not_applicable", Some(reason.to_string())),
    };
    let ms = result.took.as_secs_f64() * 1e3;
    json!({"event": "case", "name": result.name, "clauses": clauses, "outcome": outcome, "why": why, "took_ms": ms})
}

/// Shows the totals.
pub(crate) fn summary(report: &Report, left: &[(String, String)], as_json: bool, out: &mut Out) {
    if as_json {
        let (failed, skipped) = (report.failures().count(), report.not_applicable().count());
        let left: Vec<&String> = left.iter().map(|(cluster, _)| cluster).collect();
        out.line(json!({
            "event": "summary", "store": report.store, "seed": report.seed, "passed": report.results.len() - failed - skipped,
            "failed": failed, "not_applicable": skipped, "left_behind": left,
        }));
    } else {
        out.line(report.summary());
    }
}
