//! What the measurements with many connections share.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to this number, as far as the hard one allows.
pub fn open_files(wanted: u64) {
    let allowed = getrlimit(Resource::Nofile);
    if allowed.current.is_some_and(|n| n < wanted) {
        let more = Rlimit {
            current: Some(allowed.maximum.map_or(wanted, |most| most.min(wanted))),
            ..allowed
        };
        setrlimit(Resource::Nofile, more)
            .expect("the soft limit of open files can be raised to the hard one");
    }
}
