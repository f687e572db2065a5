//! The paths of a cluster's znodes. Clauses T9 and T16.
//!
//! The data of `{root}/{cluster}` is the version row. Below it is a znode per row, named by the
//! row's key, with a child for its heartbeat; and, with names that no row has, the cluster's cell
//! and the *mark*: an empty znode named by the newest commit. A commit deletes the mark of its
//! expected version and creates its own. The data version of a znode starts again when the znode is
//! created again, and goes back when a snapshot is restored; the name of a commit does neither.

use membership_core::{ClusterName, VersionRow, VersionToken};

/// The first character of names that are not a row's.
const OURS: char = '~';
const MARK: &str = "~at-";
const CELL: &str = "~cell";
/// The child of a row with its heartbeat.
const HEARTBEAT: &str = "alive";
/// The baseline's znode. The name of a cluster's znode contains `~-`.
const BASELINE: &str = "~baseline";

/// The paths of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Without a trailing slash; empty for the root of ZooKeeper.
    root: String,
    cluster: String,
}

impl Paths {
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

    pub(crate) fn heartbeat(&self, key: &str) -> String {
        format!("{}/{key}/{HEARTBEAT}", self.cluster)
    }

    pub(crate) fn cell(&self) -> String {
        self.child(CELL)
    }

    /// The mark of this version.
    pub(crate) fn mark(&self, token: &VersionToken) -> String {
        self.child(&mark(token))
    }

    pub(crate) fn baseline(&self) -> String {
        format!("{}/{BASELINE}", self.root)
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

/// Whether the children contain the mark of this version row.
pub(crate) fn is_marked(children: &[String], row: &VersionRow) -> bool {
    let mark = mark(&row.token(&[]));
    children.contains(&mark)
}

/// Whether a child of the cluster is a row.
pub(crate) fn is_row(name: &str) -> bool {
    !name.starts_with(OURS)
}

/// Whether a row can have this key: ZooKeeper accepts it as a name, and it is not one of ours.
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
    fn paths_do_not_collide() {
        let cluster: ClusterName = "billing/blue".parse().unwrap();
        let paths = Paths::new("/a/b", &cluster);
        assert_eq!(paths.cluster(), "/a/b/billing~-blue");
        assert_eq!(paths.above(), ["/a", "/a/b"]);
        assert_eq!(
            paths.heartbeat("10.0.0.1:7@1"),
            "/a/b/billing~-blue/10.0.0.1:7@1/alive"
        );
        let top = Paths::new("", &cluster);
        assert_eq!(
            (top.cluster(), top.above().len(), top.baseline().as_str()),
            ("/billing~-blue", 0, "/~baseline")
        );
        let token = VersionToken::new(TableId::new(1), 3, CommitId::new(2), &[]);
        let other = VersionToken::new(TableId::new(1), 3, CommitId::new(3), &[]);
        assert_ne!(paths.mark(&token), paths.mark(&other));
        assert!(
            !is_row(paths.mark(&token).rsplit('/').next().unwrap())
                && !is_row("~cell")
                && is_row("[::1]:7100@1")
        );
    }

    #[test]
    fn keys_are_valid_names_of_znodes() {
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
