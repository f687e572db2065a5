//! The keys of one cluster. Clauses T9, T12.
//!
//! ```text
//! {prefix}/{cluster}/version/table                           the layout; never changes
//! {prefix}/{cluster}/version/settings                        what all silos share
//! {prefix}/{cluster}/version/core                            the core's cell
//! {prefix}/{cluster}/version/recent/{00 to 15}               the last sixteen commits, in turn
//! {prefix}/{cluster}/version/at/{version}.{table}.{commit}   the mark: the table's version
//! {prefix}/{cluster}/silo/{ip:port@epoch}/row                a row
//! {prefix}/{cluster}/silo/{ip:port@epoch}/alive              its heartbeat
//! {prefix}/{cluster}/cluster                                 the cluster's own cell
//! ```
//!
//! A newer build can keep this one from committing with another mark: then no commit finds its
//! mark. One such mark is known: `.deleting` at the end, for a deletion that was begun. (This build
//! deletes at once and never writes it.)
//!
//! The folders of a cluster and of a silo end with a slash, so a read or removal by prefix never
//! includes a neighbour with a longer name.

use membership_core::{CommitId, TableId, VersionToken};
use membership_provider::recent_slot;

/// The last part of the mark while the table is being deleted.
pub(crate) const DELETING: &str = "deleting";

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: String,
}

/// The kind of a key below the cluster's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Table,
    Settings,
    Core,
    Recent,
    /// The rest of the name.
    Mark(&'a str),
    /// With the row's key.
    Row(String),
    Alive(String),
    Cell,
    /// A part of a version row that a newer build has written.
    Unknown,
    /// A key beside a row that a newer build has written.
    Beside,
    /// No build writes such a key.
    Foreign,
}

impl Keys {
    pub(crate) fn new(prefix: &str, cluster: &str) -> Self {
        Self {
            root: format!("{prefix}/{cluster}/"),
        }
    }

    /// The folder of everything.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The folder of the version row.
    pub(crate) fn version(&self) -> String {
        format!("{}version/", self.root)
    }

    /// What never changes; it exists as long as the table.
    pub(crate) fn table(&self) -> String {
        format!("{}version/table", self.root)
    }

    pub(crate) fn settings(&self) -> String {
        format!("{}version/settings", self.root)
    }

    pub(crate) fn core(&self) -> String {
        format!("{}version/core", self.root)
    }

    /// The record of a version.
    pub(crate) fn recent(&self, version: u64) -> String {
        format!("{}version/recent/{:02}", self.root, recent_slot(version))
    }

    /// The folder of the mark. Its index changes with each commit.
    pub(crate) fn marks(&self) -> String {
        format!("{}version/at/", self.root)
    }

    /// The mark of a version. It exists while the table is at that version, made by that commit.
    pub(crate) fn mark(&self, version: u64, table: TableId, commit: CommitId) -> String {
        format!("{}version/at/{version}.{table}.{commit}", self.root)
    }

    pub(crate) fn mark_of(&self, token: &VersionToken) -> String {
        self.mark(token.version(), token.table_id(), token.commit())
    }

    /// The folder of a row and its heartbeat.
    pub(crate) fn silo(&self, key: &str) -> String {
        format!("{}silo/{}/", self.root, escaped(key))
    }

    pub(crate) fn row(&self, key: &str) -> String {
        format!("{}row", self.silo(key))
    }

    pub(crate) fn alive(&self, key: &str) -> String {
        format!("{}alive", self.silo(key))
    }

    pub(crate) fn cell(&self) -> String {
        format!("{}cluster", self.root)
    }

    /// The kind of a key; `None` outside of the cluster's folder.
    pub(crate) fn part<'a>(&self, key: &'a str) -> Option<Part<'a>> {
        let name = key.strip_prefix(&self.root)?;
        if let Some(of_version) = name.strip_prefix("version/") {
            return Some(match of_version.split_once('/') {
                None if of_version == "table" => Part::Table,
                None if of_version == "settings" => Part::Settings,
                None if of_version == "core" => Part::Core,
                Some(("recent", _)) => Part::Recent,
                Some(("at", mark)) => Part::Mark(mark),
                _ => Part::Unknown,
            });
        }
        if let Some((silo, what)) = name
            .strip_prefix("silo/")
            .and_then(|rest| rest.rsplit_once('/'))
        {
            return Some(match what {
                "row" => Part::Row(unescaped(silo)),
                "alive" => Part::Alive(unescaped(silo)),
                _ => Part::Beside,
            });
        }
        Some(if name == "cluster" {
            Part::Cell
        } else {
            Part::Foreign
        })
    }
}

/// A row's key as the name of a folder: without slashes.
fn escaped(key: &str) -> String {
    key.replace('%', "%25").replace('/', "%2F")
}

fn unescaped(name: &str) -> String {
    name.replace("%2F", "/").replace("%25", "%")
}

/// A key as part of a URL's path.
pub(crate) fn path(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_kind() {
        let keys = Keys::new("membership", "billing~-blue");
        let part = |key: &str| keys.part(key).map(|part| format!("{part:?}"));
        assert_eq!(
            keys.row("[::1]:7100@17"),
            "membership/billing~-blue/silo/[::1]:7100@17/row"
        );
        for key in [
            "10.0.0.1:7100@17",
            "[::1]:7100@17",
            "no silo's key",
            "a/b",
            "a%2Fb",
            "/",
            "",
            "%",
            "a/row",
            "ü☃",
        ] {
            assert_eq!(
                keys.part(&keys.row(key)),
                Some(Part::Row(key.to_owned())),
                "{key}"
            );
            assert_eq!(
                keys.part(&keys.alive(key)),
                Some(Part::Alive(key.to_owned())),
                "{key}"
            );
        }
        assert!(
            !keys.silo("a").starts_with(&keys.silo("a/b"))
                && !keys.silo("a/b").starts_with(&keys.silo("a"))
        );
        let mark = keys.mark(17, TableId::new(1), CommitId::new(2));
        let name = mark.strip_prefix(&keys.marks()).unwrap();
        assert_eq!(keys.part(&mark), Some(Part::Mark(name)));
        assert!(
            name.starts_with("17.") && name.split('.').count() == 3,
            "{name}"
        );
        assert_eq!(keys.part(&keys.table()), Some(Part::Table));
        assert_eq!(keys.part(&keys.settings()), Some(Part::Settings));
        assert_eq!(keys.part(&keys.core()), Some(Part::Core));
        assert_eq!(
            (keys.recent(33), keys.part(&keys.recent(33))),
            (
                "membership/billing~-blue/version/recent/01".to_owned(),
                Some(Part::Recent)
            )
        );
        assert_eq!(keys.part(&keys.cell()), Some(Part::Cell));
        assert_eq!(
            keys.part("membership/billing~-blue/10.0.0.1:7100@17"),
            Some(Part::Foreign)
        );
        assert_eq!(part("membership/billing~-blue2/cluster"), None);
    }

    #[test]
    fn paths_are_encoded() {
        assert_eq!(
            path("a/[::1]:1@2/row?x=ü"),
            "a/%5B%3A%3A1%5D%3A1%402/row%3Fx%3D%C3%BC"
        );
    }
}
