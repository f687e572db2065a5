//! The schemes people may expect, and the feature each belongs to.

/// A scheme of this project, whether this build has it or not.
pub(super) struct Known {
    pub(super) scheme: &'static str,
    pub(super) feature: &'static str,
    /// Whether this version has a provider for it.
    pub(super) provided: bool,
}

const fn provided(scheme: &'static str) -> Known {
    Known { scheme, feature: scheme, provided: true }
}

const fn provided_by(scheme: &'static str, feature: &'static str) -> Known {
    Known { scheme, feature, provided: true }
}

const fn planned(scheme: &'static str, feature: &'static str) -> Known {
    Known { scheme, feature, provided: false }
}

pub(super) const KNOWN: &[Known] = &[
    provided("memory"),
    provided("sqlite"),
    provided("postgres"),
    provided_by("postgresql", "postgres"),
    provided("mysql"),
    provided("redis"),
    provided_by("rediss", "redis"),
    provided_by("redis+sentinel", "redis"),
    provided_by("redis+cluster", "redis"),
    provided("dynamodb"),
    provided("etcd"),
    provided_by("etcd+https", "etcd"),
    provided("mongodb"),
    provided_by("mongodb+srv", "mongodb-srv"),
    provided("azure-table"),
    provided("cassandra"),
    provided("zk"),
    planned("consul", "consul"),
    planned("consul+https", "consul"),
];

pub(super) fn known(scheme: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.scheme == scheme)
}
