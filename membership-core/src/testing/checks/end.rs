//! P4: a silo that has confirmed its end falls silent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::history::{self, History, State, Told};
use super::{Check, Fact, changed};
use crate::model::version::RECENT_COMMITS;
use crate::protocol::{
    DeclaredDead, Destination, Effect, Message, Notice, TableState, Termination,
};
use crate::testing::circumstances::{Circumstances, ProcessId, VirtualTime};
use crate::{SiloAddress, SiloStatus, Snapshot};

/// So long a silo whose join failed tries to take its row back.
const TAKE_BACK: Duration = Duration::from_secs(15);

/// P4: a silo that has confirmed its end (it read its row Dead or gone, or its own leaving was acknowledged and it stops) sends nothing
/// more except one farewell to each, publishes nothing, writes nothing; and after [`Effect::Stop`] nothing comes at all.
/// And nobody stops as declared dead whose row is not Dead: an end is confirmed by the table; and nobody stops because its join failed who
/// has been Active for long.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    /// Who joined at what version, and the newest state of the table that it published.
    joined: BTreeMap<ProcessId, (SiloAddress, u64, Option<State>)>,
    confirmed: BTreeSet<ProcessId>,
    /// Rows that are, or were, in the table and not Dead: what nobody may take for its own end.
    living: BTreeSet<SiloAddress>,
    /// Processes that the table told of their end. A table that is changed from outside afterwards does not undo that for them.
    told: BTreeSet<ProcessId>,
    /// Processes that know of themselves that the table is not theirs: they take nothing from it any more.
    strangers: BTreeSet<ProcessId>,
    history: History,
    stopped: BTreeSet<ProcessId>,
    farewells: BTreeSet<(ProcessId, SocketAddr)>,
    /// Since when processes say of themselves that they are Active.
    active: BTreeMap<ProcessId, VirtualTime>,
}

impl Silence {
    /// Whether the table as it is tells a process of its end.
    fn confirms(&self, process: ProcessId, snapshot: &Snapshot) -> bool {
        let Some((me, since, table)) = self.joined.get(&process) else {
            return false;
        };
        // A table that went another way than the one it knew is not believed: that latches, and ends nobody.
        table.is_some_and(|known| self.history.leads(known, history::state(&snapshot.token)))
            && snapshot.version() >= *since
            && snapshot
                .rows
                .by_key(&me.row_key())
                .is_none_or(|row| row.entry().is_some_and(|e| e.status == SiloStatus::Dead))
    }

    /// Whether the table was changed from outside in a way that this process cannot see: its row is gone, or Dead, and the version that it knew
    /// is further back than the version row remembers.
    fn cannot_tell(&self, process: ProcessId, end: &DeclaredDead) -> bool {
        let known = self
            .joined
            .get(&process)
            .map(|(_, since, published)| published.map_or(*since, |state| state.1.max(*since)));
        let now = self
            .history
            .current
            .as_ref()
            .and_then(|table| table.rows.get(&end.silo));
        let lives = now.is_some_and(|entry| entry.status != SiloStatus::Dead);
        known.is_some_and(|known| known + RECENT_COMMITS as u64 <= end.version) && !lives
    }

    /// A join that failed may take its row back for a while, and find it Active meanwhile; not for longer.
    fn has_joined(&self, process: ProcessId, truth: &Circumstances) -> bool {
        let lately = truth.now.saturating_sub(truth.stretched(TAKE_BACK));
        let stood_still = truth
            .life(process)
            .is_none_or(|l| l.paused.touched(lately) || l.held.touched(lately));
        !stood_still
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
                    Err("says farewell twice".to_owned())
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

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        self.history.see(fact);
        match fact {
            Fact::Takes { .. } => match history::told(fact) {
                Some((process, _, Told::Snapshot(snapshot)))
                    if self.confirms(process, snapshot) =>
                {
                    self.told.insert(process);
                    // What waited out a pause was asked before it, and may be asked again first.
                    if truth
                        .life(process)
                        .is_none_or(|l| !l.paused.touched(truth.now))
                        && !self.strangers.contains(&process)
                    {
                        self.confirmed.insert(process);
                    }
                }
                // A conflict shows the table, too. It may be one with a commit that the process no longer waits for.
                Some((process, _, Told::Conflict(Some(snapshot))))
                    if self.confirms(process, snapshot) =>
                {
                    self.told.insert(process);
                }
                _ => {}
            },
            Fact::Founded(snapshot) => self.living.extend(living(snapshot)),
            Fact::Committed { after, request, .. } => {
                for silo in changed(request) {
                    match after.rows.get(&silo).map(|e| e.status) {
                        Some(SiloStatus::Dead) | None => self.living.remove(&silo),
                        Some(_) => self.living.insert(silo),
                    };
                }
            }
            Fact::Wants {
                process,
                effect: Effect::Stop(Termination::DeclaredDead(end)),
            } if self.living.contains(&end.silo)
                && !(self.history.changed()
                    && (self.told.contains(process) || self.cannot_tell(*process, end))) =>
            {
                let name = truth.life(*process).map_or("?", |l| l.name.as_str());
                return Err(format!(
                    "{name} stops as declared dead ({}) at v{}, but its row is not Dead",
                    end.cause(),
                    end.version
                ));
            }
            Fact::Wants {
                process,
                effect: Effect::Stop(Termination::JoinFailed(why)),
            } if self.has_joined(*process, truth) => {
                let name = truth.life(*process).map_or("?", |l| l.name.as_str());
                return Err(format!(
                    "{name} has been Active for long and stops because its join failed: {why}"
                ));
            }
            Fact::Wants { process, effect } => {
                let name = || {
                    truth
                        .life(*process)
                        .map_or("?", |l| l.name.as_str())
                        .to_owned()
                };
                if self.stopped.contains(process) {
                    return Err(format!("{} has stopped and still has effects", name()));
                }
                if self.confirmed.contains(process) {
                    return self
                        .allowed(*process, effect)
                        .map_err(|what| format!("{} {what}", name()));
                }
                match effect {
                    Effect::Tell(Notice::Table(TableState::Changed(_))) => {
                        self.strangers.insert(*process);
                    }
                    Effect::Tell(Notice::Joining { silo, version }) => {
                        self.joined.insert(*process, (*silo, *version, None));
                    }
                    Effect::Publish(view) => {
                        let me = truth.life(*process).and_then(|l| l.silo);
                        if me.is_some_and(|me| view.status(&me) == Some(SiloStatus::Active)) {
                            self.active.entry(*process).or_insert(truth.now);
                        }
                        if let Some((_, _, table)) = self.joined.get_mut(process) {
                            *table = Some(history::state(view.token()));
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
