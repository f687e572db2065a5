//! The state machine of a simulated silo: the protocol, or a substitute for it, for example one
//! with a planted bug that proves a checker.

use membership_core::hooks::{self, ProtocolVariant};
use membership_core::protocol::{Effect, Input, Protocol, Setup};
use membership_core::{ClusterView, MonoTime, Now, SiloAddress, SiloStatus};

/// The state machine of one silo.
pub trait Machine {
    /// Handles one input and appends the effects.
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>);
    /// The latest time at which it needs [`Input::Wake`].
    fn next_wakeup(&self) -> Option<MonoTime>;
    /// Its silo address; none until it has chosen an epoch.
    fn me(&self) -> Option<SiloAddress>;
    /// The status that it believes it has.
    fn status(&self) -> SiloStatus;
    /// The view that it published last.
    fn view(&self) -> Option<&ClusterView>;
    /// The newest view that it has from the table itself; none if it does not tell.
    fn confirmed_view(&self) -> Option<&ClusterView> {
        None
    }
    /// Whether it has suspended itself: it publishes nothing and writes nothing.
    fn is_suspended(&self) -> bool {
        false
    }
}

impl Machine for Protocol {
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        Protocol::handle(self, now, input, effects);
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        Protocol::next_wakeup(self)
    }
    fn me(&self) -> Option<SiloAddress> {
        Protocol::me(self)
    }
    fn status(&self) -> SiloStatus {
        Protocol::status(self)
    }
    fn view(&self) -> Option<&ClusterView> {
        Protocol::view(self)
    }
    fn confirmed_view(&self) -> Option<&ClusterView> {
        Protocol::confirmed_view(self)
    }
    fn is_suspended(&self) -> bool {
        Protocol::is_suspended(self)
    }
}

/// A protocol around which a test does something else: a silo that lies, or believes too much.
pub struct Altered<F> {
    protocol: Protocol,
    handle: F,
}

impl<F: FnMut(&mut Protocol, Now, Input, &mut Vec<Effect>)> Altered<F> {
    /// `handle` takes the place of [`Protocol::handle`], which it may call.
    pub fn new(protocol: Protocol, handle: F) -> Self {
        Self { protocol, handle }
    }
}

impl<F: FnMut(&mut Protocol, Now, Input, &mut Vec<Effect>)> Machine for Altered<F> {
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        (self.handle)(&mut self.protocol, now, input, effects);
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        self.protocol.next_wakeup()
    }
    fn me(&self) -> Option<SiloAddress> {
        self.protocol.me()
    }
    fn status(&self) -> SiloStatus {
        self.protocol.status()
    }
    fn view(&self) -> Option<&ClusterView> {
        self.protocol.view()
    }
    fn confirmed_view(&self) -> Option<&ClusterView> {
        self.protocol.confirmed_view()
    }
    fn is_suspended(&self) -> bool {
        self.protocol.is_suspended()
    }
}

impl<F> std::fmt::Debug for Altered<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Altered").finish_non_exhaustive()
    }
}

/// Creates the state machine of each process that starts. The default creates [`Protocol`]s; a test
/// can wrap them.
pub type MachineFactory = Box<dyn FnMut(Setup) -> Box<dyn Machine>>;

/// Protocols that differ in this way from the standard one.
pub(super) fn protocols_of(variant: ProtocolVariant) -> MachineFactory {
    Box::new(move |setup| Box::new(hooks::protocol(setup, variant)))
}

/// Protocols of which every other one is the standard one.
pub(super) fn every_other(variant: ProtocolVariant) -> MachineFactory {
    let mut differs = false;
    Box::new(move |setup| {
        differs = !differs;
        let variant = if differs {
            variant
        } else {
            ProtocolVariant::STANDARD
        };
        Box::new(hooks::protocol(setup, variant))
    })
}

/// Protocols of one cluster that share their views, so that thousands of silos fit into memory. For
/// clusters in which nobody forges rows.
#[must_use]
pub fn sharing_protocols(variant: ProtocolVariant) -> MachineFactory {
    let views = hooks::Interned::default();
    Box::new(move |setup| Box::new(hooks::sharing_protocol(setup, variant, &views)))
}

#[cfg(test)]
pub(super) fn protocols() -> MachineFactory {
    protocols_of(ProtocolVariant::STANDARD)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use membership_core::hooks::Calls;

    use super::*;
    use crate::{Cluster, Detail, ProcessId};

    /// Runs nine silos, crashes one, and returns the trace until the others have removed it.
    fn crash(variant: ProtocolVariant) -> Vec<String> {
        crash_of(variant, protocols_of(variant))
    }

    fn crash_of(variant: ProtocolVariant, factory: MachineFactory) -> Vec<String> {
        let builder = Cluster::builder()
            .seed(1)
            .silos(9)
            .detail(Detail::Everything)
            .checks(Vec::new())
            .variant(variant)
            .machines(factory);
        let mut cluster = builder.build().unwrap();
        cluster.run_for(Duration::from_secs(60)).unwrap();
        cluster.kill(ProcessId(4));
        cluster.run_for(Duration::from_secs(60)).unwrap();
        assert!(cluster.agrees() && cluster.running().len() == 8);
        cluster
            .trace()
            .lines()
            .map(|line| format!("{line:?}"))
            .collect()
    }

    #[test]
    fn a_variant_without_roll_calls_sends_none() {
        let calls = |lines: &[String]| {
            lines
                .iter()
                .filter(|line| line.contains("roll-call"))
                .count()
        };
        let plain = ProtocolVariant {
            calls: Calls::Nobody,
            changes_per_commit: 1,
            ..ProtocolVariant::STANDARD
        };
        assert!(calls(&crash(ProtocolVariant::STANDARD)) > 0);
        assert_eq!(calls(&crash(plain)), 0);
    }

    #[test]
    fn shared_views_change_nothing() {
        let scribe = ProtocolVariant {
            scribe: true,
            ..ProtocolVariant::STANDARD
        };
        for variant in [ProtocolVariant::STANDARD, scribe] {
            assert!(crash(variant) == crash_of(variant, sharing_protocols(variant)));
        }
    }
}
