//! How far the application asked to leave.

use tokio::sync::watch;

/// How far a process should leave; this only moves forward. It has a channel of its own, which is
/// never full, and which is closed when the last handle is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Running,
    Leave,
    Finish,
}

/// The stage only moves forward. Without effect after the end.
pub(crate) fn ask(stages: &watch::Sender<Stage>, wanted: Stage) {
    stages.send_if_modified(|stage| {
        let forward = wanted > *stage;
        if forward {
            *stage = wanted;
        }
        forward
    });
}
