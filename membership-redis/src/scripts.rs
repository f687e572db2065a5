//! The scripts, one per operation, and their names on the server.
//!
//! Each checks before it writes, because Redis keeps what a failing script has written. Each is
//! safe to run twice, because a network may deliver a request twice. Versions are compared as
//! strings: a number in Lua is a double.

use std::sync::LazyLock;

/// One script.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    /// Its name for EVALSHA: the SHA-1 of its text.
    pub(crate) hash: String,
}

/// Every script of this provider.
pub(crate) struct Scripts {
    pub(crate) initialize: Script,
    pub(crate) read: Script,
    pub(crate) read_row: Script,
    pub(crate) commit: Script,
    pub(crate) heartbeat: Script,
    pub(crate) cell: Script,
    pub(crate) delete: Script,
}

impl Scripts {
    /// All of them, to load into a server.
    pub(crate) fn all(&self) -> [&Script; 7] {
        [
            &self.read,
            &self.read_row,
            &self.commit,
            &self.heartbeat,
            &self.cell,
            &self.initialize,
            &self.delete,
        ]
    }
}

/// All tables of a process share their texts and hashes.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    initialize: script(include_str!("scripts/initialize.lua")),
    read: script(include_str!("scripts/read.lua")),
    read_row: script(include_str!("scripts/read_row.lua")),
    commit: script(include_str!("scripts/commit.lua")),
    heartbeat: script(include_str!("scripts/heartbeat.lua")),
    cell: script(include_str!("scripts/cell.lua")),
    delete: script(include_str!("scripts/delete.lua")),
});

fn script(text: &'static str) -> Script {
    Script {
        text,
        hash: redis::Script::new(text).get_hash().to_owned(),
    }
}
