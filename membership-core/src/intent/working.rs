//! The table after the intents applied so far, and the room that is left in the commit. It has no
//! rules about silos and never applies a change in part.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::Answer;
use super::check_set::check_set_before;
use super::check_sets::CheckSets;
use crate::{MembershipEntry, Row, SiloAddress, Snapshot, TableLimits};

/// The plan for one intent.
pub(super) enum Planned {
    /// There is nothing to write.
    Answer(Answer),
    /// The rows to write together.
    Change(Change),
}

/// The rows that one intent writes.
#[derive(Default)]
pub(super) struct Change {
    /// The rows as they will be.
    pub(super) rows: Vec<MembershipEntry>,
    /// Dead rows that it removes.
    pub(super) removed: Vec<SiloAddress>,
    /// The votes it writes, as (suspect, accuser).
    pub(super) votes: Vec<(SiloAddress, SiloAddress)>,
    /// The silo that becomes Active, and the silos that it contacted.
    pub(super) activated: Option<(SiloAddress, Contacted)>,
}

/// Whom a silo contacted before it becomes Active.
pub(super) struct Contacted {
    /// The silos that it had two-way contact with.
    pub(super) met: BTreeSet<SiloAddress>,
    /// Those that it must have met; none = everybody.
    pub(super) set: Option<BTreeSet<SiloAddress>>,
}

impl Contacted {
    /// Whether it must have met a silo and has not.
    pub(super) fn lacks(&self, silo: &SiloAddress) -> bool {
        !self.met.contains(silo) && self.set.as_ref().is_none_or(|set| set.contains(silo))
    }
}

impl Change {
    pub(super) fn of(row: MembershipEntry) -> Planned {
        Planned::Change(Self {
            rows: vec![row],
            ..Self::default()
        })
    }
}

enum Touched {
    Written(usize),
    Removed,
}

pub(super) struct Working<'a> {
    before: &'a Snapshot,
    limits: &'a TableLimits,
    after: Snapshot,
    touched: BTreeMap<SiloAddress, Touched>,
    bytes: usize,
    votes: BTreeSet<(SiloAddress, SiloAddress)>,
    activated: BTreeMap<SiloAddress, Contacted>,
    /// Made where many become Active, and good until anything else changes.
    check_sets: OnceCell<CheckSets>,
}

impl<'a> Working<'a> {
    pub(super) fn new(before: &'a Snapshot, limits: &'a TableLimits) -> Self {
        Self {
            before,
            limits,
            after: before.clone(),
            touched: BTreeMap::new(),
            bytes: 0,
            votes: BTreeSet::new(),
            activated: BTreeMap::new(),
            check_sets: OnceCell::new(),
        }
    }

    /// The silos that this one must have met in order to become Active; `None` = everybody. With `many`,
    /// it is one of many silos.
    pub(super) fn check_set(
        &self,
        silo: &SiloAddress,
        limit: usize,
        many: bool,
    ) -> Option<BTreeSet<SiloAddress>> {
        let (rows, version) = (&self.after.rows, self.version());
        if many && rows.len() > limit {
            let all = self.check_sets.get_or_init(|| CheckSets::of(rows, version));
            return all.set(silo, limit);
        }
        check_set_before(rows, silo, limit, version)
    }

    /// The same snapshot and limits with no intent applied.
    pub(super) fn fresh(&self) -> Self {
        Self::new(self.before, self.limits)
    }

    /// The version that the commit makes.
    pub(super) fn version(&self) -> u64 {
        self.before.version().saturating_add(1)
    }

    /// The snapshot that the commit is based on.
    pub(super) const fn before(&self) -> &'a Snapshot {
        self.before
    }

    /// The table after the intents so far.
    pub(super) const fn after(&self) -> &Snapshot {
        &self.after
    }

    pub(super) const fn limits(&self) -> &'a TableLimits {
        self.limits
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.touched.is_empty()
    }

    /// Whether this commit has as many rows as the store takes.
    pub(super) fn is_full(&self) -> bool {
        self.touched.len() >= self.limits.rows_per_commit
    }

    /// Whether this commit writes the row of `silo`.
    pub(super) fn touches(&self, silo: &SiloAddress) -> bool {
        self.touched.contains_key(silo)
    }

    /// Whether this commit writes the vote of `accuser` against `suspect`.
    pub(super) fn wrote_vote(&self, suspect: &SiloAddress, accuser: &SiloAddress) -> bool {
        self.votes.contains(&(*suspect, *accuser))
    }

    /// The silos that become Active in this commit, each with the silos that it contacted.
    pub(super) const fn activated(&self) -> &BTreeMap<SiloAddress, Contacted> {
        &self.activated
    }

    /// Applies a change. If a limit would be exceeded, applies nothing and returns which one.
    pub(super) fn put(&mut self, change: Change) -> Result<(), String> {
        let (mut bytes, mut count, mut inserts) = (self.bytes, self.touched.len(), 0);
        let mut rows = Vec::with_capacity(change.rows.len());
        for mut entry in change.rows {
            let silo = entry.address;
            entry.written_at = self.version();
            let row = Row::encode(entry);
            if row.size() > self.limits.bytes_per_row {
                return Err(format!(
                    "row {silo} would have {} bytes, the store takes {}",
                    row.size(),
                    self.limits.bytes_per_row
                ));
            }
            match self.touched.get(&silo) {
                Some(Touched::Written(old)) => bytes -= old,
                Some(Touched::Removed) => {
                    return Err(format!("row {silo} is removed by the same commit"));
                }
                None => count += 1,
            }
            bytes += row.size();
            inserts += usize::from(self.after.rows.row(&silo).is_none());
            rows.push((silo, row));
        }
        count += change.removed.len();
        if count > self.limits.rows_per_commit {
            return Err(format!(
                "the commit would change {count} rows, the store takes {} at once",
                self.limits.rows_per_commit
            ));
        }
        if bytes > self.limits.bytes_per_commit {
            return Err(format!(
                "the commit would have {bytes} bytes, the store takes {} at once",
                self.limits.bytes_per_commit
            ));
        }
        if inserts > 0 && self.after.rows.len() + inserts > self.limits.rows {
            return Err(format!(
                "the table would have {} rows, the store takes {}",
                self.after.rows.len() + inserts,
                self.limits.rows
            ));
        }
        for (silo, row) in rows {
            self.touched.insert(silo, Touched::Written(row.size()));
            self.after.rows.insert(row);
        }
        for silo in change.removed {
            self.after.rows.remove(&silo.row_key());
            self.touched.insert(silo, Touched::Removed);
        }
        self.bytes = bytes;
        self.votes.extend(change.votes);
        if change.activated.is_none() {
            self.check_sets.take();
        }
        self.activated.extend(change.activated);
        Ok(())
    }

    /// Removes as many of these rows as fit and returns the others. This commit must not write any
    /// of them.
    pub(super) fn remove(&mut self, silos: &[SiloAddress]) -> Vec<SiloAddress> {
        let fit = self
            .limits
            .rows_per_commit
            .saturating_sub(self.touched.len())
            .min(silos.len());
        let (now, later) = silos.split_at(fit);
        self.check_sets.take();
        for silo in now {
            self.after.rows.remove(&silo.row_key());
            self.touched.insert(*silo, Touched::Removed);
        }
        later.to_vec()
    }

    /// Returns inserts, updates and removals, each by address.
    pub(super) fn into_changes(self) -> (Vec<MembershipEntry>, Vec<MembershipEntry>, Vec<String>) {
        let (mut inserts, mut updates, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        for (silo, touched) in &self.touched {
            match (touched, self.after.rows.get(silo)) {
                (Touched::Written(_), Some(entry)) if self.before.rows.row(silo).is_none() => {
                    inserts.push(entry.clone())
                }
                (Touched::Written(_), Some(entry)) => updates.push(entry.clone()),
                _ => removes.push(silo.row_key()),
            }
        }
        (inserts, updates, removes)
    }
}
