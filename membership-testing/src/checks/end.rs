//! P4: a silo that has confirmed its end stops all activity.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::history::{self, History, State, TableAnswer};
use super::{Check, Fact, changed};
use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::RECENT_COMMITS;
use membership_core::protocol::{
    DeclaredDead, Destination, Effect, JoinError, Message, Notice, TableState, Termination,
};
use membership_core::{SiloAddress, SiloStatus, Snapshot};

/// How long a silo whose join failed tries to take its row back.
const TAKE_BACK: Duration = Duration::from_secs(15);

/// P4: a silo that has confirmed its end (it read that its row is Dead or gone, or its own leave
/// was acknowledged and it stops) sends nothing more except one farewell to each peer, publishes
/// nothing, and writes nothing. After [`Effect::Stop`] it has no effects at all. No silo stops as
/// declared dead while its row is not Dead: the table must confirm the end. No silo stops because
/// its join failed after its application was told that it is Active, or, unless the application
/// gave the join up, after it has been Active for long.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    /// The silo and the version of each join, and the last state of the table that the process
    /// published. A view that another silo announced may be none.
    joined: BTreeMap<ProcessId, (SiloAddress, u64, Option<State>)>,
    confirmed: BTreeSet<ProcessId>,
    /// Silos whose rows are in the table, or were, and were not Dead: no process may conclude from
    /// this that it has ended.
    living: BTreeSet<SiloAddress>,
    /// Processes that read their end in the table. A later change of the table from outside does
    /// not undo that for them.
    read_end: BTreeSet<ProcessId>,
    /// Processes that reported that the table was replaced: they accept nothing from it any more.
    detached: BTreeSet<ProcessId>,
    history: History,
    stopped: BTreeSet<ProcessId>,
    farewells: BTreeSet<(ProcessId, SocketAddr)>,
    /// When each process first published itself as Active.
    active: BTreeMap<ProcessId, VirtualTime>,
    told_active: BTreeSet<ProcessId>,
}

impl Silence {
    /// Whether a process learns from this snapshot that it is dead.
    fn confirms(&self, process: ProcessId, snapshot: &Snapshot) -> bool {
        let Some((me, since, table)) = self.joined.get(&process) else {
            return false;
        };
        // A process does not believe a table with another history than the one that it knew: it
        // suspends itself and does not stop.
        table.is_some_and(|known| self.history.leads(known, history::state(&snapshot.token)))
            && snapshot.version() >= *since
            && snapshot
                .rows
                .by_key(&me.row_key())
                .is_none_or(|row| row.entry().is_some_and(|e| e.status == SiloStatus::Dead))
    }

    /// Whether the table was changed from outside in a way that this process cannot detect: its row
    /// is gone or Dead, and the version that it knew is older than the commits that the version row
    /// records.
    fn cannot_detect(&self, process: ProcessId, end: &DeclaredDead) -> bool {
        let now = self
            .history
            .current
            .as_ref()
            .and_then(|table| table.rows.get(&end.silo));
        let records = now.is_some_and(|entry| entry.status != SiloStatus::Dead);
        self.knows_too_little(process, end.version) && !records
    }

    /// Whether a process knows no version that a table at this one still records.
    fn knows_too_little(&self, process: ProcessId, version: u64) -> bool {
        let known = self
            .joined
            .get(&process)
            .map(|(_, since, published)| published.map_or(*since, |state| state.1.max(*since)));
        known.is_some_and(|known| known + RECENT_COMMITS as u64 <= version)
    }

    /// Whether a process reads its end in a table that was changed from outside in a way that it cannot
    /// detect, whatever becomes of that table afterwards.
    fn is_misled(&self, process: ProcessId, snapshot: &Snapshot) -> bool {
        let lives = |me: &SiloAddress| {
            let row = snapshot.rows.by_key(&me.row_key());
            row.is_some_and(|row| row.entry().is_none_or(|e| e.status != SiloStatus::Dead))
        };
        self.knows_too_little(process, snapshot.version())
            && self.joined.get(&process).is_some_and(|(me, ..)| !lives(me))
    }

    /// Whether a process has been Active for longer than a failed join may need to take its row
    /// back. It may know that only by the words of others, while it does not reach the table; if that
    /// then turns out to be another one, nothing can confirm it any more.
    fn has_joined(&self, process: ProcessId, truth: &GroundTruth) -> bool {
        let lately = truth.now.saturating_sub(truth.longest(TAKE_BACK));
        let stood_still = truth.record(process).is_none_or(|l| {
            // A call that was under way when it reached the table again has to time out first.
            let called = lately.saturating_sub(truth.longest(truth.config.table_call_timeout));
            let away = l.table_cut.overlaps(called) || truth.table_down.overlaps(called);
            l.paused.overlaps(lately) || l.held.overlaps(lately) || away
        });
        !stood_still
            && !self.detached.contains(&process)
            && self
                .active
                .get(&process)
                .is_some_and(|since| *since < lately)
    }

    fn allowed(&mut self, process: ProcessId, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::Tell(_) | Effect::Observe(_) => Ok(()),
            Effect::Stop(_) => {
                self.stopped.insert(process);
                Ok(())
            }
            Effect::Send { to, body, .. } if matches!(**body, Message::Farewell { .. }) => match to
            {
                Destination::Endpoint(to) | Destination::Fresh(to)
                    if !self.farewells.insert((process, *to)) =>
                {
                    Err("sends a second farewell to the same peer".to_owned())
                }
                _ => Ok(()),
            },
            Effect::Send { body, .. } => Err(format!("sends {} after its end", body.name())),
            Effect::Publish(view) => Err(format!("publishes v{} after its end", view.version())),
            _ => Err("calls the table after its end".to_owned()),
        }
    }
}

fn living(snapshot: &Snapshot) -> impl Iterator<Item = SiloAddress> {
    snapshot
        .rows
        .entries()
        .filter(|e| e.status != SiloStatus::Dead)
        .map(|e| e.address)
}

impl Check for Silence {
    fn invariant(&self) -> &'static str {
        "P4"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        self.history.observe(fact);
        match fact {
            Fact::Input { .. } => match history::table_answer(fact) {
                Some((process, _, TableAnswer::Snapshot(snapshot)))
                    if self.confirms(process, snapshot) =>
                {
                    self.read_end.insert(process);
                    // An answer that waited for the end of a pause may be older than the pause, and
                    // the process may read again first.
                    if truth
                        .record(process)
                        .is_none_or(|l| !l.paused.overlaps(truth.now))
                        && !self.detached.contains(&process)
                    {
                        self.confirmed.insert(process);
                    }
                }
                Some((process, _, TableAnswer::Snapshot(snapshot)))
                    if self.is_misled(process, snapshot) =>
                {
                    self.read_end.insert(process);
                }
                // A conflict contains the table, too. It may answer a commit that the process no
                // longer waits for.
                Some((process, _, TableAnswer::Conflict(Some(snapshot))))
                    if self.confirms(process, snapshot) =>
                {
                    self.read_end.insert(process);
                }
                _ => {}
            },
            Fact::Created(snapshot) => self.living.extend(living(snapshot)),
            Fact::Committed { after, request, .. } => {
                for silo in changed(request) {
                    match after.rows.get(&silo).map(|e| e.status) {
                        Some(SiloStatus::Dead) | None => self.living.remove(&silo),
                        Some(_) => self.living.insert(silo),
                    };
                }
            }
            Fact::Effect {
                process,
                effect: Effect::Stop(Termination::DeclaredDead(end)),
            } if self.living.contains(&end.silo)
                && !(self.history.changed()
                    && (self.read_end.contains(process) || self.cannot_detect(*process, end))) =>
            {
                let name = truth.process_name(*process);
                return Err(format!(
                    "{name} stops as declared dead ({}) at v{}, but its row is not Dead",
                    end.cause(),
                    end.version
                ));
            }
            Fact::Effect {
                process,
                effect: Effect::Stop(Termination::JoinFailed(why)),
            } if self.told_active.contains(process) => {
                let name = truth.process_name(*process);
                return Err(format!(
                    "{name} was told that it is Active, and then that its join failed: {why}"
                ));
            }
            Fact::Effect {
                process,
                effect: Effect::Stop(Termination::JoinFailed(why)),
            } if !matches!(why, JoinError::Stopped) && self.has_joined(*process, truth) => {
                let name = truth.process_name(*process);
                return Err(format!(
                    "{name} has been Active for long and stops because its join failed: {why}"
                ));
            }
            Fact::Effect { process, effect } => {
                let name = truth.process_name(*process);
                if self.stopped.contains(process) {
                    return Err(format!("{name} has stopped and still has effects"));
                }
                if self.confirmed.contains(process) {
                    return self
                        .allowed(*process, effect)
                        .map_err(|what| format!("{name} {what}"));
                }
                match effect {
                    Effect::Tell(Notice::Table(TableState::Changed(_))) => {
                        self.detached.insert(*process);
                    }
                    Effect::Tell(Notice::Active { .. }) => {
                        self.told_active.insert(*process);
                    }
                    Effect::Tell(Notice::Joining { silo, version }) => {
                        self.joined.insert(*process, (*silo, *version, None));
                    }
                    Effect::Publish(view) => {
                        let me = truth.record(*process).and_then(|l| l.silo);
                        if me.is_some_and(|me| view.status(&me) == Some(SiloStatus::Active)) {
                            self.active.entry(*process).or_insert(truth.now);
                        }
                        let state = history::state(view.token());
                        let is_real = self.history.had(state);
                        if let Some((_, _, table)) =
                            self.joined.get_mut(process).filter(|_| is_real)
                        {
                            *table = Some(state);
                        }
                    }
                    Effect::Stop(_) => {
                        self.stopped.insert(*process);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}
