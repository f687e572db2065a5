//! P4: a silo that has confirmed its end falls silent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::{Check, Fact};
use crate::protocol::{Destination, Effect, Input, Message, Notice};
use crate::testing::circumstances::{Circumstances, ProcessId};
use crate::{ReadAnswer, SiloAddress, SiloStatus, TableId};

/// P4: a silo that has confirmed its end (it read its row Dead or gone, or its own leaving was acknowledged and it stops) sends nothing
/// more except one farewell to each, publishes nothing, writes nothing; and after [`Effect::Stop`] nothing comes at all.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    joined: BTreeMap<ProcessId, (SiloAddress, u64, Option<TableId>)>,
    confirmed: BTreeSet<ProcessId>,
    stopped: BTreeSet<ProcessId>,
    farewells: BTreeSet<(ProcessId, SocketAddr)>,
}

impl Silence {
    fn confirms(&self, process: ProcessId, input: &Input) -> bool {
        let Input::Read { result: Ok(ReadAnswer::Snapshot { snapshot, .. }), .. } = input else { return false };
        let Some((me, since, table)) = self.joined.get(&process) else { return false };
        table.is_some_and(|t| t == snapshot.table_id())
            && snapshot.version() >= *since
            && snapshot.rows.by_key(&me.row_key()).is_none_or(|row| row.entry().is_some_and(|e| e.status == SiloStatus::Dead))
    }

    fn allowed(&mut self, process: ProcessId, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::Tell(_) | Effect::Observe(_) => Ok(()),
            Effect::Stop(_) => {
                self.stopped.insert(process);
                Ok(())
            }
            Effect::Send { to, body, .. } if matches!(**body, Message::Farewell { .. }) => match to {
                Destination::Endpoint(to) | Destination::Fresh(to) if !self.farewells.insert((process, *to)) => {
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

impl Check for Silence {
    fn invariant(&self) -> &'static str {
        "P4"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        match fact {
            Fact::Takes { process, input } if self.confirms(*process, input) => {
                self.confirmed.insert(*process);
            }
            Fact::Wants { process, effect } => {
                let name = || truth.life(*process).map_or("?", |l| l.name.as_str()).to_owned();
                if self.stopped.contains(process) {
                    return Err(format!("{} has stopped and still has effects", name()));
                }
                if self.confirmed.contains(process) {
                    return self.allowed(*process, effect).map_err(|what| format!("{} {what}", name()));
                }
                match effect {
                    Effect::Tell(Notice::Joining { silo, version }) => {
                        self.joined.insert(*process, (*silo, *version, None));
                    }
                    Effect::Publish(view) => {
                        if let Some((_, _, table)) = self.joined.get_mut(process) {
                            *table = Some(view.table_id());
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
