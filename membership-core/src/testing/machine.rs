//! What the virtual world drives: the protocol, or a stand-in that behaves like one (or, to prove a checker, misbehaves).

use crate::protocol::{Effect, Input, Protocol, Setup};
use crate::{ClusterView, MonoTime, Now, SiloAddress, SiloStatus};

/// One silo's state machine, as the world sees it.
pub trait Machine {
    /// Takes one input and appends the effects.
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>);
    /// When it wants [`Input::Wake`] at the latest.
    fn next_wakeup(&self) -> Option<MonoTime>;
    /// Its address, once decided.
    fn me(&self) -> Option<SiloAddress>;
    /// Where it is in its life.
    fn status(&self) -> SiloStatus;
    /// What it published last.
    fn view(&self) -> Option<&ClusterView>;
    /// Whether it publishes and writes nothing for now.
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
    fn is_suspended(&self) -> bool {
        Protocol::is_suspended(self)
    }
}

/// Makes the machine of each process that starts. The default makes [`Protocol`]s; a test may wrap them.
pub type MachineFactory = Box<dyn FnMut(Setup) -> Box<dyn Machine>>;

pub(super) fn protocols() -> MachineFactory {
    Box::new(|setup| Box::new(Protocol::new(setup)))
}
