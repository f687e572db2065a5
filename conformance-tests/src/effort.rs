//! How much work the long cases do.

use std::time::Duration;

/// How much work the long cases do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effort {
    /// Operations of the model-based run. Default 3,000.
    pub model_operations: usize,
    /// Clients of the concurrent histories, at least 2. Default 8.
    pub clients: usize,
    /// Commits of each concurrent history. Default 2,000.
    pub commits: usize,
    /// How often the committing client is killed. Default 200.
    pub kills: usize,
    /// How often the server is killed during one history. Default 1.
    pub server_kills: usize,
    /// How often the leader is frozen during one history, until another one leads. Default 1.
    pub freezes: usize,
    /// How many silos come and go, one after the other. Default 1,000.
    pub cycles: usize,
    /// Rows of the large table. Default 5,000.
    pub rows: usize,
    /// Writers that compete for the version row. Default 8.
    pub writers: usize,
    /// How long they compete. Default 12 s: longer than one may wait
    /// ([`longest_wait`](crate::contention::longest_wait)).
    pub contention: Duration,
    /// Rows of the table that is read while it changes. Default 200.
    pub busy_rows: usize,
    /// How long it changes. Default 3 s.
    pub busy: Duration,
    /// The limit for one operation, also while the store is unreachable. Default 30 s.
    pub operation_timeout: Duration,
    /// The limit for one case. Default 5 min.
    pub case_timeout: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            model_operations: 3_000,
            clients: 8,
            commits: 2_000,
            kills: 200,
            server_kills: 1,
            freezes: 1,
            cycles: 1_000,
            rows: 5_000,
            writers: 8,
            contention: Duration::from_secs(12),
            busy_rows: 200,
            busy: Duration::from_secs(3),
            operation_timeout: Duration::from_secs(30),
            case_timeout: Duration::from_secs(300),
        }
    }
}

impl Effort {
    /// For every change: every case runs, and checks as much at each repetition, but repeats less.
    /// About a minute for a server nearby.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            model_operations: 600,
            commits: 500,
            kills: 30,
            cycles: 30,
            contention: Duration::from_secs(2),
            busy: Duration::from_secs(2),
            ..Self::default()
        }
    }

    /// The smaller one of both numbers of repetitions, each by itself.
    pub(crate) fn at_most(self, other: Self) -> Self {
        Self {
            model_operations: self.model_operations.min(other.model_operations),
            clients: self.clients.min(other.clients),
            commits: self.commits.min(other.commits),
            kills: self.kills.min(other.kills),
            server_kills: self.server_kills.min(other.server_kills),
            freezes: self.freezes.min(other.freezes),
            cycles: self.cycles.min(other.cycles),
            rows: self.rows.min(other.rows),
            writers: self.writers.min(other.writers),
            contention: self.contention.min(other.contention),
            busy_rows: self.busy_rows.min(other.busy_rows),
            busy: self.busy.min(other.busy),
            ..self
        }
    }

    /// The long runs, for releases: about half an hour for a store that takes a millisecond.
    #[must_use]
    pub fn soak() -> Self {
        Self {
            model_operations: 50_000,
            clients: 16,
            commits: 30_000,
            kills: 1_000,
            cycles: 10_000,
            server_kills: 20,
            freezes: 20,
            rows: 5_000,
            writers: 32,
            contention: Duration::from_secs(60),
            busy_rows: 1_000,
            busy: Duration::from_secs(180),
            operation_timeout: Duration::from_secs(30),
            case_timeout: Duration::from_secs(3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_store_repeats_no_more_in_a_quick_run() {
        let store = Effort {
            commits: 200,
            model_operations: 5_000,
            operation_timeout: Duration::from_secs(60),
            ..Effort::default()
        };
        let both = store.at_most(Effort::quick());
        assert_eq!(both.commits, 200);
        assert_eq!(both.model_operations, Effort::quick().model_operations);
        assert_eq!(both.operation_timeout, store.operation_timeout);
        assert_eq!(both.rows, Effort::default().rows);
    }
}
