//! The names of a cluster's znodes. Clauses T9 and T16.
//!
//! `{root}/{cluster}` has the version row as its data. Below it stand a znode per row, named by the row's key, with a child for its heartbeat;
//! and, with names that no row has, the cluster's own cell and the *mark*: a znode without content whose name is the newest commit. A commit
//! removes the mark of the version it is based on and makes its own. Versions of znodes begin anew when one is removed and made again, and go
//! back when a snapshot is restored; the name of a commit does neither.

use membership_core::{ClusterName, VersionRow, VersionToken};

/// What the names begin with that are no row's.
const OURS: char = '~';
const MARK: &str = "~at-";
const CELL: &str = "~cell";
/// The child of a row.
const ALIVE: &str = "alive";
/// What the yardstick's znode is called; no cluster's, which have a `~-` within.
const YARDSTICK: &str = "~yardstick";

/// Where a cluster is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Without a slash at the end; empty for the root of ZooKeeper.
    root: String,
    cluster: String,
}

impl Place {
    pub(crate) fn new(root: &str, cluster: &ClusterName) -> Self {
        Self {
            root: root.to_owned(),
            cluster: format!("{root}/{}", cluster.store_key()),
        }
    }

    /// The cluster's own znode.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The znodes above it, outermost first.
    pub(crate) fn above(&self) -> Vec<&str> {
        let ends = self
            .root
            .char_indices()
            .skip(1)
            .filter(|(_, c)| *c == '/')
            .map(|(at, _)| at);
        let mut all: Vec<&str> = ends.filter_map(|at| self.root.get(..at)).collect();
        all.extend((!self.root.is_empty()).then_some(self.root.as_str()));
        all
    }

    pub(crate) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.cluster)
    }

    pub(crate) fn row(&self, key: &str) -> String {
        self.child(key)
    }

    pub(crate) fn alive(&self, key: &str) -> String {
        format!("{}/{key}/{ALIVE}", self.cluster)
    }

    pub(crate) fn cell(&self) -> String {
        self.child(CELL)
    }

    /// The mark of a version.
    pub(crate) fn mark(&self, token: &VersionToken) -> String {
        self.child(&mark(token))
    }

    pub(crate) fn yardstick(&self) -> String {
        format!("{}/{YARDSTICK}", self.root)
    }
}

fn mark(token: &VersionToken) -> String {
    format!(
        "{MARK}{}-{}-{}",
        token.table_id(),
        token.version(),
        token.commit()
    )
}

/// Whether the mark of this version row is among the children.
pub(crate) fn is_marked(children: &[String], row: &VersionRow) -> bool {
    let mark = mark(&row.token(&[]));
    children.contains(&mark)
}

/// Whether a child of the cluster is a row.
pub(crate) fn is_row(name: &str) -> bool {
    !name.starts_with(OURS)
}

/// Whether a row can have this key: what ZooKeeper takes as the name of a znode, and is none of our own.
pub(crate) fn is_key(key: &str) -> bool {
    let bad = |c: char| {
        c == '/' || c.is_control() || ('\u{e000}'..='\u{f8ff}').contains(&c) || c >= '\u{fff0}'
    };
    !key.is_empty() && key != "." && key != ".." && is_row(key) && !key.contains(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{CommitId, TableId};

    #[test]
    fn names_are_apart() {
        let cluster: ClusterName = "billing/blue".parse().unwrap();
        let place = Place::new("/a/b", &cluster);
        assert_eq!(place.cluster(), "/a/b/billing~-blue");
        assert_eq!(place.above(), ["/a", "/a/b"]);
        assert_eq!(
            place.alive("10.0.0.1:7@1"),
            "/a/b/billing~-blue/10.0.0.1:7@1/alive"
        );
        let top = Place::new("", &cluster);
        assert_eq!(
            (top.cluster(), top.above().len(), top.yardstick().as_str()),
            ("/billing~-blue", 0, "/~yardstick")
        );
        let token = VersionToken::new(TableId::new(1), 3, CommitId::new(2), &[]);
        let other = VersionToken::new(TableId::new(1), 3, CommitId::new(3), &[]);
        assert_ne!(place.mark(&token), place.mark(&other));
        assert!(
            !is_row(place.mark(&token).rsplit('/').next().unwrap())
                && !is_row("~cell")
                && is_row("[::1]:7100@1")
        );
    }

    #[test]
    fn keys_are_names_that_zookeeper_takes() {
        for good in [
            "10.0.0.1:7100@17",
            "[::1]:7100@1",
            "no silo's key",
            "ünïcode",
        ] {
            assert!(is_key(good), "{good:?}");
        }
        for bad in ["", ".", "..", "a/b", "~cell", "a\0", "a\u{1f}", "\u{f000}"] {
            assert!(!is_key(bad), "{bad:?}");
        }
    }
}
