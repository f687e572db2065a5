//! Random histories: a few nodes that change their own states and exchange them in any order, whole
//! or as deltas, with loss.

use std::sync::Arc;

use membership_core::{InstanceId, SiloAddress, SiloInfo};
use proptest::prelude::*;

use crate::state::{Base, Flag, MemberStatus, Profile, State};

/// One step of a history; numbers name nodes modulo their count.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Admit { by: u8, who: u8, epoch: u8 },
    Advance { by: u8, who: u8, to: MemberStatus },
    ConfirmEnd { by: u8, who: u8 },
    Remove { by: u8, who: u8 },
    Flag { by: u8, who: u8, flag: Option<Flag> },
    Bound { by: u8, most: u8 },
    Merge { from: u8, to: u8 },
    Delta { from: u8, to: u8 },
}

pub(super) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..5_u8;
    let status = prop::sample::select(MemberStatus::ALL.to_vec());
    let flags = vec![None, Some(Flag::Unreachable), Some(Flag::Terminated)];
    let flag = prop::sample::select(flags);
    let step = prop_oneof![
        3 => (n(), n(), 1..4_u8).prop_map(|(by, who, epoch)| Step::Admit { by, who, epoch }),
        4 => (n(), n(), status).prop_map(|(by, who, to)| Step::Advance { by, who, to }),
        1 => (n(), n()).prop_map(|(by, who)| Step::ConfirmEnd { by, who }),
        2 => (n(), n()).prop_map(|(by, who)| Step::Remove { by, who }),
        3 => (n(), n(), flag).prop_map(|(by, who, flag)| Step::Flag { by, who, flag }),
        1 => (n(), 1..3_u8).prop_map(|(by, most)| Step::Bound { by, most }),
        4 => (n(), n()).prop_map(|(from, to)| Step::Merge { from, to }),
        3 => (n(), n()).prop_map(|(from, to)| Step::Delta { from, to }),
    ];
    prop::collection::vec(step, 0..most)
}

pub(super) fn address(node: u8, epoch: u8) -> SiloAddress {
    SiloAddress::new([10, 0, 0, node].into(), 7100, epoch.into())
}

/// The states of five nodes, and every state that any of them has had.
pub(super) struct World {
    pub(super) states: Vec<State>,
    pub(super) past: Vec<State>,
}

impl World {
    pub(super) fn run(steps: &[Step]) -> Self {
        let mut world = Self {
            states: vec![State::default(); 5],
            past: vec![State::default()],
        };
        for step in steps {
            let at = world.take(step);
            world.past.push(world.states[at].clone());
        }
        world
    }

    fn take(&mut self, step: &Step) -> usize {
        let edit = |world: &mut Self, by: u8, change: &dyn Fn(&mut crate::state::Edit<'_>)| {
            world.states[usize::from(by)].edit(address(by, 9), |edit| change(edit));
            usize::from(by)
        };
        match step.clone() {
            Step::Admit { by, who, epoch } => {
                let (instance, profile) = (InstanceId::new(who.into()), profile());
                edit(self, by, &|e| {
                    e.admit(address(who, epoch), instance, Arc::clone(&profile));
                })
            }
            Step::Advance { by, who, to } => {
                let member = self.current(by, who);
                let up = (to == MemberStatus::Up).then_some(u64::from(by) + 1);
                edit(self, by, &|e| {
                    let _ = e.advance(&member, to, up);
                })
            }
            Step::ConfirmEnd { by, who } => {
                let member = self.current(by, who);
                edit(self, by, &|e| {
                    let _ = e.confirm_end(&member);
                })
            }
            Step::Remove { by, who } => {
                let member = self.current(by, who);
                edit(self, by, &|e| {
                    let _ = e.remove(&member);
                })
            }
            Step::Flag { by, who, flag } => {
                let member = self.current(by, who);
                edit(self, by, &|e| {
                    let _ = e.flag(&member, flag);
                })
            }
            Step::Bound { by, most } => edit(self, by, &|e| {
                let _ = e.bound_tombstones(most.into());
            }),
            Step::Merge { from, to } => {
                let theirs = self.states[usize::from(from)].clone();
                self.states[usize::from(to)].merge(&theirs);
                usize::from(to)
            }
            Step::Delta { from, to } => {
                let base: Base = self.states[usize::from(to)].base();
                let delta = self.states[usize::from(from)].delta_since(&base);
                if let Some(delta) = delta {
                    self.states[usize::from(to)].apply(&delta);
                }
                usize::from(to)
            }
        }
    }

    /// The member of an endpoint as a node knows it.
    fn current(&self, by: u8, who: u8) -> SiloAddress {
        let endpoint = address(who, 1).endpoint();
        let member = self.states[usize::from(by)].members().at(&endpoint);
        member.map_or_else(|| address(who, 1), |m| m.address())
    }
}

pub(super) fn profile() -> Arc<Profile> {
    Arc::new(Profile::new(SiloInfo::named("a")))
}
