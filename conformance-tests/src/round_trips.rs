//! The number of round trips of each operation.

use std::fmt;

macro_rules! round_trips {
    ($($(#[doc = $doc:literal])+ $field:ident $name:literal,)+) => {
        /// Round trips of each operation, as [`proxy`](crate::proxy) defines them: promised by a
        /// provider, or counted. None if nothing is promised, or nothing was counted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct RoundTrips {
            $($(#[doc = $doc])+ pub $field: Option<u64>,)+
        }

        impl RoundTrips {
            /// Each operation: its name and its number.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> {
                [$(($name, self.$field)),+].into_iter()
            }

            $(
                /// Sets the number of round trips of this operation.
                #[must_use]
                pub const fn $field(mut self, n: u64) -> Self {
                    self.$field = Some(n);
                    self
                }
            )+
        }
    };
}

round_trips! {
    /// `read` without a known version.
    read "read",
    /// `read` with the newest version as the known one.
    read_unchanged "read, unchanged",
    /// `read` with a barrier.
    read_with_barrier "read with barrier",
    /// `read_row`
    read_row "read_row",
    /// `commit` that succeeds.
    commit "commit",
    /// `commit` that conflicts.
    conflict "commit, conflict",
    /// `commit` sent again after it was committed.
    commit_again "commit, again",
    /// `update_i_am_alive`
    update_i_am_alive "update_i_am_alive",
    /// `initialize` of a table that exists.
    initialize "initialize",
    /// `delete` of a table with a few rows.
    delete "delete",
}

impl RoundTrips {
    /// Nothing promised.
    pub const NONE: Self = Self {
        read: None,
        read_unchanged: None,
        read_with_barrier: None,
        read_row: None,
        commit: None,
        conflict: None,
        commit_again: None,
        update_i_am_alive: None,
        initialize: None,
        delete: None,
    };

    /// One for each operation but `delete`, for which nothing is promised.
    pub const ONE_EACH: Self = Self::NONE
        .read(1)
        .read_unchanged(1)
        .read_with_barrier(1)
        .read_row(1)
        .commit(1)
        .conflict(1)
        .commit_again(1)
        .update_i_am_alive(1)
        .initialize(1);
}

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = self
            .each()
            .filter_map(|(name, n)| Some(format!("{name} {}", n?)))
            .collect();
        f.write_str(&known.join(" · "))
    }
}
