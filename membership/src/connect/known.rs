//! The schemes of all providers, with the feature of each.

/// A scheme of this project, whether or not this build has it.
pub(super) struct Known {
    pub(super) scheme: &'static str,
    pub(super) feature: &'static str,
}

const fn provided(scheme: &'static str) -> Known {
    Known {
        scheme,
        feature: scheme,
    }
}

const fn provided_by(scheme: &'static str, feature: &'static str) -> Known {
    Known { scheme, feature }
}

pub(super) const KNOWN: &[Known] = &[
    provided("memory"),
    provided("sqlite"),
    provided("postgres"),
    provided_by("postgresql", "postgres"),
    provided("mssql"),
    provided("mysql"),
    provided("redis"),
    provided_by("rediss", "redis"),
    provided_by("redis+sentinel", "redis"),
    provided_by("redis+cluster", "redis"),
    provided("dynamodb"),
    provided("consul"),
    provided_by("consul+https", "consul"),
    provided("etcd"),
    provided_by("etcd+https", "etcd"),
    provided("mongodb"),
    provided_by("mongodb+srv", "mongodb-srv"),
    provided("azure-table"),
    provided("cassandra"),
    provided("nats"),
    provided("zk"),
];

pub(super) fn known(scheme: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.scheme == scheme)
}
