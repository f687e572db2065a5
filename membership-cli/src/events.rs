//! The lines of `--json`: one object each, the same for `silo` and `watch`.

use membership_core::ClusterView;
use serde_json::{Value, json};

use crate::clock;

/// The event with the time of this machine as `at`, unless it brings one.
pub(crate) fn timed(mut event: Value) -> Value {
    if let Some(fields) = event.as_object_mut() {
        let now = || json!(clock::wall());
        fields.entry("at").or_insert_with(now);
    }
    event
}

/// A view: every silo of the table with its status and how it ended.
pub(crate) fn view(view: &ClusterView) -> Value {
    let members: Vec<Value> = view
        .members()
        .map(|e| json!({"silo": e.address, "status": e.status, "cause": e.death.as_ref().map(|d| d.cause.as_str())}))
        .collect();
    json!({"event": "view", "version": view.version(), "digest": digest(view), "table_id": view.table_id(), "members": members})
}

/// 32 hexadecimal digits: views with equal versions and digests have equal members.
pub(crate) fn digest(view: &ClusterView) -> String {
    format!("{:032x}", view.digest())
}

/// The table is in another state; `error` says why, if it is known.
pub(crate) fn table(state: &str, error: Option<&str>) -> Value {
    match error {
        Some(error) => json!({"event": "table", "state": state, "error": error}),
        None => json!({"event": "table", "state": state}),
    }
}
