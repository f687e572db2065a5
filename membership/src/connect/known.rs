//! The feature of a scheme.

use super::builtin::KNOWN;

/// A scheme of this project, whether or not this build has it.
pub(super) struct Known {
    pub(super) scheme: &'static str,
    pub(super) feature: &'static str,
}

pub(super) fn known(scheme: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.scheme == scheme)
}
