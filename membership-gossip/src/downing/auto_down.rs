//! The specification's auto-down. **Unsafe**: both sides of a split go on. It is here because the
//! specification has it, and for clusters in which two of everything are better than none.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};

/// Since when each member is unreachable.
#[derive(Clone, Debug, Default)]
pub struct AutoDown {
    since: BTreeMap<SiloAddress, MonoTime>,
}

impl AutoDown {
    /// Takes note of those that are unreachable now, and returns those that have been for `after`.
    pub fn overdue(
        &mut self,
        now: MonoTime,
        unreachable: impl IntoIterator<Item = SiloAddress>,
        after: Duration,
    ) -> Vec<SiloAddress> {
        let before = std::mem::take(&mut self.since);
        for member in unreachable {
            let since = before.get(&member).copied().unwrap_or(now);
            self.since.insert(member, since);
        }
        let is_overdue = |since: &MonoTime| now.since(*since) >= after;
        let all = self.since.iter();
        all.filter(|(_, since)| is_overdue(since))
            .map(|(member, _)| *member)
            .collect()
    }
}
