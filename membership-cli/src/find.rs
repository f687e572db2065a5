//! Finds the silo that a user names: by full address, by `ip:port`, or by name.

use std::net::SocketAddr;

use membership_core::{MembershipEntry, SiloAddress, Snapshot};

use crate::exit::Failure;
use crate::text::misleads;

/// Every silo that `text` can mean, the latest start last.
pub(crate) fn silos<'a>(snapshot: &'a Snapshot, text: &str) -> Vec<&'a MembershipEntry> {
    if let Ok(silo) = text.parse::<SiloAddress>() {
        return snapshot.rows.get(&silo).into_iter().collect();
    }
    if let Ok(endpoint) = text.parse::<SocketAddr>() {
        return snapshot.rows.at_endpoint(endpoint).collect();
    }
    let mut named: Vec<_> = snapshot
        .rows
        .entries()
        .filter(|e| e.info.silo_name == text)
        .collect();
    named.sort_by_key(|e| (e.address.epoch(), e.address));
    named
}

/// Every silo whose name is another one and looks the same: it differs in spaces, or in characters
/// that cannot be seen.
pub(crate) fn look_the_same<'a>(snapshot: &'a Snapshot, text: &str) -> Vec<&'a MembershipEntry> {
    let seen = |name: &str| -> String {
        let hides = |c: &char| c.is_whitespace() || misleads(*c);
        name.chars().filter(|c| !hides(c)).collect()
    };
    let wanted = seen(text);
    let alike = |name: &str| name != text && !wanted.is_empty() && seen(name) == wanted;
    let rows = snapshot.rows.entries();
    rows.filter(|e| alike(&e.info.silo_name)).collect()
}

/// The error if there is none.
pub(crate) fn not_found(snapshot: &Snapshot, text: &str) -> Failure {
    let shown: String = crate::text::clean(text).chars().take(80).collect();
    let known: Vec<String> = snapshot
        .rows
        .entries()
        .take(5)
        .map(|e| e.address.to_string())
        .collect();
    let known = if known.is_empty() {
        "no silo".to_owned()
    } else {
        known.join(", ")
    };
    Failure::usage(format!(
        "there is no silo `{shown}` in the table: give ip:port@epoch, ip:port or a name; the table has {known}, see `membership status`"
    ))
}
