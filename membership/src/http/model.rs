//! Silos and views as JSON, with the names of the rows in the table.

use membership_core::{ClusterView, MembershipEntry};
use serde_json::{Value, json};

/// A row with all its fields; `silo` and `cause` are those of `membership status --json`.
pub(super) fn member(entry: &MembershipEntry) -> Value {
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        let cause = entry.death.as_ref().map(|death| death.cause.as_str());
        fields.insert("silo".to_owned(), json!(entry.address));
        fields.insert("cause".to_owned(), json!(cause));
    }
    value
}

/// 32 hexadecimal digits: views with equal versions and digests have equal members.
pub(super) fn digest(view: &ClusterView) -> String {
    format!("{:032x}", view.digest())
}

/// A whole view.
pub(super) fn view(view: &ClusterView) -> Value {
    let members: Vec<Value> = view.members().map(member).collect();
    json!({
        "table_id": view.table_id(),
        "version": view.version(),
        "digest": digest(view),
        "leader": view.leader().map(|leader| leader.address),
        "members": members,
    })
}

/// What changed from one view to a later one: the rows that are new or otherwise, and the silos
/// whose rows are gone.
pub(super) fn changes(older: &ClusterView, newer: &ClusterView) -> Value {
    let changed = newer.changes_since(older);
    let is_there = |silo| newer.get(silo).is_some();
    let members: Vec<Value> = changed
        .iter()
        .filter(|change| is_there(&change.entry.address))
        .map(|change| member(&change.entry))
        .collect();
    let removed: Vec<Value> = older
        .members()
        .filter(|entry| !is_there(&entry.address))
        .map(|entry| json!(entry.address))
        .collect();
    json!({
        "table_id": newer.table_id(),
        "since": older.version(),
        "version": newer.version(),
        "digest": digest(newer),
        "leader": newer.leader().map(|leader| leader.address),
        "members": members,
        "removed": removed,
    })
}
