//! Changes that a member makes by itself. All changes of one edit have one stamp: they raise the
//! member's counter once (specification: periods batch changes).

use std::sync::Arc;

use membership_core::{InstanceId, SiloAddress};

use super::{Flag, Member, MemberStatus, ObserverRows, Profile, Stamp, State, Tombstone};

/// The changes of one member, made together. Each returns whether it changed anything.
#[derive(Debug)]
pub struct Edit<'a> {
    state: &'a mut State,
    stamp: Stamp,
    changed: bool,
}

impl State {
    /// Makes changes as `me`; whether anything changed. Then the counter of `me` is one higher.
    pub fn edit<T>(&mut self, me: SiloAddress, changes: impl FnOnce(&mut Edit<'_>) -> T) -> bool {
        let counter = self.clock.get(&me).saturating_add(1);
        let stamp = Stamp {
            origin: me,
            counter,
        };
        let mut edit = Edit {
            state: self,
            stamp,
            changed: false,
        };
        changes(&mut edit);
        let changed = edit.changed;
        if changed {
            self.clock.raise(me, counter);
            self.normalize();
        }
        changed
    }
}

impl Edit<'_> {
    /// The state with the changes made so far.
    #[must_use]
    pub const fn state(&self) -> &State {
        self.state
    }

    /// Takes a member in as joining. No effect on one that is a member or gone.
    pub fn admit(
        &mut self,
        address: SiloAddress,
        instance: InstanceId,
        profile: impl Into<Arc<Profile>>,
    ) -> bool {
        if self.state.status(&address).is_some() {
            return false;
        }
        let member = Member::joining(address, instance, profile, self.stamp);
        self.put(member)
    }

    /// Moves a member on, and gives it an up number if it has none. No effect if its life has no
    /// such step; see [`MemberStatus::may_become`]. Members are removed by [`remove`](Self::remove).
    pub fn advance(
        &mut self,
        address: &SiloAddress,
        status: MemberStatus,
        up_number: Option<u64>,
    ) -> bool {
        let stamp = self.stamp;
        let next = self
            .state
            .member(address)
            .filter(|m| status != MemberStatus::Removed && m.status().may_become(status))
            .map(|m| m.changed(status, up_number, stamp));
        next.is_some_and(|next| self.put(next))
    }

    /// Records that a member that is exiting or down has ended by itself.
    pub fn confirm_end(&mut self, address: &SiloAddress) -> bool {
        let stamp = self.stamp;
        let next = self
            .state
            .member(address)
            .filter(|m| m.status() >= MemberStatus::Exiting && !m.end_confirmed())
            .map(|m| m.with_confirmed_end(stamp));
        next.is_some_and(|next| self.put(next))
    }

    /// Removes a member for ever: a tombstone stays.
    pub fn remove(&mut self, address: &SiloAddress) -> bool {
        if !self.state.members.contains(address) {
            return false;
        }
        let endpoint = address.endpoint();
        self.state.members.take(&endpoint);
        let (epoch, stamp) = (address.epoch(), self.stamp);
        self.state
            .tombstones
            .add(endpoint, Tombstone { epoch, stamp });
        self.changed = true;
        true
    }

    /// Sets or takes back the flag of the editing member about another one. No effect about itself
    /// or one that is no member; a quarantine is never taken back.
    pub fn flag(&mut self, subject: &SiloAddress, flag: Option<Flag>) -> bool {
        let me = self.stamp.origin;
        let before = self.state.reachability.flag(&me, subject);
        let allowed = *subject != me && self.state.members.contains(subject);
        if !allowed || before == flag || before == Some(Flag::Terminated) {
            return false;
        }
        let rows = self.state.reachability.of(&me);
        let mut rows = rows.map_or_else(ObserverRows::default, |rows| (**rows).clone());
        match flag {
            Some(flag) => drop(rows.rows.insert(*subject, flag)),
            None => drop(rows.rows.remove(subject)),
        }
        rows.version = self.stamp.counter;
        self.state.reachability.set(me, rows);
        self.changed = true;
        true
    }

    /// Replaces the oldest tombstones by a higher floor if there are more than `most`.
    pub fn bound_tombstones(&mut self, most: usize) -> bool {
        let floor = self.state.tombstones.next_floor(most);
        let raised = floor.is_some_and(|floor| self.state.tombstones.raise_floor(floor));
        self.changed |= raised;
        raised
    }

    fn put(&mut self, member: Member) -> bool {
        self.state.members.put(Arc::new(member));
        self.changed = true;
        true
    }
}
