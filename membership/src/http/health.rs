//! `/livez` and `/readyz` for supervisors, `/api/v1/health` for programs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use membership_core::protocol::{TableState, Termination};
use membership_core::{Discontinuity, SiloStatus, TableErrorKind};
use serde_json::json;

use super::Site;
use super::answer::{self, Problem, text};

/// 200 while only time helps; 503 when a new process does.
pub(super) async fn live(State(site): State<Arc<Site>>) -> Response {
    let health = site.observed.health();
    match (health.live, site.observed.ended()) {
        (true, _) => text(StatusCode::OK, "live\n"),
        (false, Some(end)) => unavailable(site.stopped(&end)),
        (false, None) => unavailable("the silo's task has taken no input for 30 s\n".to_owned()),
    }
}

/// 200 while the silo takes new work.
pub(super) async fn ready(State(site): State<Arc<Site>>) -> Response {
    let health = site.observed.health();
    match (health.ready, site.observed.ended()) {
        (true, _) => text(StatusCode::OK, "ready\n"),
        (false, Some(end)) => unavailable(site.stopped(&end)),
        (false, None) if health.suspended => {
            unavailable("suspended after a pause, until the table can be read\n".to_owned())
        }
        (false, None) if health.status == SiloStatus::Active => {
            unavailable("the silo is leaving\n".to_owned())
        }
        (false, None) => unavailable(format!("the silo is {}\n", health.status)),
    }
}

impl Site {
    /// These two need no token, and the end of a silo names those that voted.
    fn stopped(&self, end: &Termination) -> String {
        match self.tells_strangers {
            true => format!("the silo has stopped: {end}\n"),
            false => "the silo has stopped\n".to_owned(),
        }
    }
}

fn unavailable(why: String) -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// The state of the table in one word.
pub(super) fn table_word(state: TableState) -> &'static str {
    match state {
        TableState::Available => "available",
        TableState::Unavailable => "unavailable",
        TableState::Changed(Discontinuity::Replaced) => TableErrorKind::TableReplaced.as_str(),
        TableState::Changed(Discontinuity::RolledBack) => TableErrorKind::TableRolledBack.as_str(),
        TableState::Unusable(kind) => kind.as_str(),
        _ => "unknown",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Every field of [`Health`](crate::Health).
pub(super) async fn health(State(site): State<Arc<Site>>) -> Result<Response, Problem> {
    let health = site.observed.health();
    Ok(answer::json(&json!({
        "silo": site.observed.me(),
        "status": health.status,
        "live": health.live,
        "ready": health.ready,
        "suspended": health.suspended,
        "score": health.score,
        "local": health.local,
        "view_age_ms": millis(health.view_age),
        "table": table_word(health.table),
        "table_age_ms": millis(health.table_age),
        "unreached": health.unreached,
        "writer": {
            "scribe": health.writer.scribe,
            "waiting": health.writer.waiting,
            "asked": health.writer.asked,
        },
    })))
}
