//! Rows that cannot be decoded, and rows that somebody changed without a commit.

use std::collections::BTreeSet;

use membership_core::{Row, Rows, SiloAddress, Snapshot};

use super::address::{AtAddress, look};
use super::watch::Watched;
use super::{Finding, report};
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::{clean, count};

/// At most this many silos are named in a line.
const NAMES: usize = 8;

/// A row that cannot be decoded.
#[derive(Debug)]
pub(super) struct DamagedRow {
    pub key: String,
    /// The silos that its key and its body name.
    pub silos: BTreeSet<SiloAddress>,
    /// Not every silo that it may belong to is certainly gone.
    pub may_be_alive: bool,
}

/// The silo that a damaged row itself says it is.
pub(super) fn named(row: &Row) -> Option<SiloAddress> {
    let body: serde_json::Value = serde_json::from_str(row.body()).ok()?;
    body.get("address")?.as_str()?.parse().ok()
}

/// The damaged rows.
pub(super) async fn damaged(inspection: &Inspection, seen: &Watched) -> Vec<DamagedRow> {
    let mut found: Vec<DamagedRow> = Vec::new();
    for row in inspection.snapshot.rows.undecodable() {
        let of_key = row.key().parse::<SiloAddress>().ok();
        found.push(DamagedRow {
            key: row.key().to_owned(),
            silos: of_key.into_iter().chain(named(row)).collect(),
            // A key that names no silo: nobody knows whose row it is, and heartbeats without a row
            // are not shown.
            may_be_alive: of_key.is_none_or(|silo| silo.row_key() != row.key()),
        });
    }
    let silos = found.iter().flat_map(|row| row.silos.iter().copied());
    let at = look(silos.collect(), inspection, seen).await;
    for row in &mut found {
        row.may_be_alive |= row
            .silos
            .iter()
            .any(|silo| seen.moved.contains_key(silo) || at.get(silo) != Some(&AtAddress::Nothing));
    }
    found
}

/// Whether rows that can be decoded are those that the last commit left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undamaged {
    /// Nothing says otherwise.
    AsCommitted,
    /// Some were changed or removed without a commit.
    Changed,
    /// The hash covers all rows, and nobody knows what the damaged ones were.
    NotKnown,
}

impl Undamaged {
    pub(super) fn of(now: &Snapshot) -> Self {
        if now.is_as_committed() != Some(false) {
            return Self::AsCommitted;
        }
        if now.rows.undecodable().next().is_none() {
            return Self::Changed;
        }
        // Perhaps the damaged rows are new, or stand only under another key.
        let mut rows: Rows = now
            .rows
            .iter()
            .filter(|r| r.entry().is_some())
            .cloned()
            .collect();
        let is_whole = |rows: &Rows| {
            let as_then = Snapshot::new(now.token.clone(), now.version_row.clone(), rows.clone());
            as_then.is_as_committed() == Some(true)
        };
        if is_whole(&rows) {
            return Self::AsCommitted;
        }
        for row in now.rows.undecodable() {
            if let Some(silo) = named(row)
                && rows.get(&silo).is_none()
            {
                rows.insert(Row::decode(silo.row_key(), row.body()));
            }
        }
        match is_whole(&rows) {
            true => Self::AsCommitted,
            false => Self::NotKnown,
        }
    }
}

/// Every commit counts the rows that it inserts and removes. Another number of rows shows that some
/// were removed or added by hand, also when later commits have confirmed what is left.
fn miscounted(inspection: &Inspection, session: &mut Session) -> usize {
    let (counted, found) = (
        inspection.snapshot.version_row.row_count,
        inspection.snapshot.rows.len() as u64,
    );
    if counted == found {
        return 0;
    }
    let what_to_do = match inspection.snapshot.is_as_committed() {
        // Rows that are put back now are not those of the last commit.
        Some(true) => {
            "A later commit has confirmed what is left, and the silos that have a row go on. Do not \
             put rows back now: after the next commit all silos would report table_rolled_back. To \
             end this report, `membership delete` the cluster and restart all silos together"
        }
        _ => {
            "Put them back as they were before the next commit, or restore a backup; where that is \
             not possible, `membership delete` the cluster and restart all silos together"
        }
    };
    let text = format!(
        "the commits so far leave {counted}, and the table has {found}: somebody removed or added \
         some by hand. {what_to_do}"
    );
    report(session, Finding::Bad, "damaged", &text);
    1
}

/// Names the silos whose heartbeats have no row: their rows were removed by hand, or a heartbeat came
/// after the removal.
pub(super) fn orphans(inspection: &Inspection, session: &mut Session) {
    let orphans = &inspection.heartbeats.orphans;
    if orphans.is_empty() {
        return;
    }
    let mut names: Vec<String> = orphans
        .iter()
        .take(NAMES)
        .map(ToString::to_string)
        .collect();
    if let Some(more @ 1..) = orphans.len().checked_sub(NAMES) {
        names.push(format!("{more} more"));
    }
    let text = format!(
        "without a row: {}. Somebody removed the rows by hand, or a heartbeat came late. Such a silo \
         stops at the next commit. The heartbeats do no harm: `membership delete` removes them, and \
         some stores do when they next remove a row",
        names.join(", ")
    );
    report(session, Finding::Note, "heartbeats", &text);
}

/// Reports the damaged and the changed rows; gives the number of problems.
pub(super) fn report_all(
    inspection: &Inspection,
    damaged: &[DamagedRow],
    undamaged: Undamaged,
    session: &mut Session,
) -> usize {
    let rows = &inspection.snapshot.rows;
    for one in damaged {
        let why = rows.by_key(&one.key).and_then(|r| r.undecodable());
        let text = format!(
            "{} cannot be decoded: {}{}",
            clean(&one.key),
            clean(why.unwrap_or_default()),
            match one.may_be_alive {
                true =>
                    ". Its silo may be alive, and stops when the row is removed. If the row was \
                     changed by hand, undo that",
                false => "",
            }
        );
        report(session, Finding::Bad, "row", &text);
    }
    let version = inspection.snapshot.version();
    let counted = miscounted(inspection, session);
    counted
        + match undamaged {
            Undamaged::AsCommitted if damaged.is_empty() && counted == 0 => {
                let text = format!("{}, none damaged", count(rows.len(), "row"));
                report(session, Finding::Good, "rows", &text);
                0
            }
            Undamaged::AsCommitted => damaged.len(),
            Undamaged::Changed => {
                let text = format!(
                    "they are not those of version {version}: somebody changed or removed some without \
                 a commit. Undo that before the next commit; after it, a silo without a row stops, \
                 and where a row was changed all silos report table_rolled_back: then restart all of \
                 them together"
                );
                report(session, Finding::Bad, "rows", &text);
                damaged.len() + 1
            }
            Undamaged::NotKnown => {
                let text = format!(
                    "not known whether others are those of version {version}, because nobody knows what \
                 the damaged ones were. If a row was changed by hand, undo that before the next \
                 commit; after it, all silos report table_rolled_back: then restart all of them together"
                );
                report(session, Finding::Note, "rows", &text);
                damaged.len()
            }
        }
}
