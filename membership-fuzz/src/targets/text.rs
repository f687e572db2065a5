//! What people and stores write as text.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use membership::Connectors;
use membership_core::{
    ClusterName, CommitId, Config, Heartbeat, InstanceId, SiloAddress, SiloStatus, TableId,
    WallTime,
};

use super::{Outcome, Target, check_line};

fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A text is either refused in one line, or it is the same after it was written and read again.
fn check<T>(text: &str) -> &'static str
where
    T: FromStr<Err: Display> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            match written.parse::<T>() {
                Ok(again) => assert_eq!(again, value, "{written}"),
                Err(error) => panic!("{value:?} is written as {written:?}: {error}"),
            }
            "read"
        }
        Err(error) => {
            check_line(&error.to_string());
            "refused"
        }
    }
}

pub(super) const HEARTBEAT: Target = Target {
    name: "heartbeat",
    about: "the heartbeats in the cells of a table",
    seeds: || seeds(&["0 1970-01-01T00:00:00.000Z", "7 2025-11-13T02:13:20.123Z"]),
    words: &[
        " ",
        "-1",
        "T",
        "Z",
        "9007199254740992",
        "18446744073709551616",
        "+",
        "0x",
    ],
    longest: 80,
    read: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        Outcome::of(check::<Heartbeat>(&text), "")
    },
};

pub(super) const NAMES: Target = Target {
    name: "names",
    about: "addresses, names of clusters, identifiers, statuses, times",
    seeds: || {
        seeds(&[
            "10.0.3.8:7100@1763000000000",
            "[2001:db8::1]:65535@9007199254740992",
            "billing/blue",
            "a%2Fb/c%25",
            "00112233445566778899aabbccddeeff",
            "Active",
            "ShuttingDown",
            "2025-11-13T02:13:20.123Z",
        ])
    },
    words: &[
        "@", ":", "/", "%2F", "%00", "[", "]", "::", "Z", "+00:00", "default", "Dead",
    ],
    longest: 400,
    read: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let results = [
            check::<SiloAddress>(&text),
            check::<ClusterName>(&text),
            check::<InstanceId>(&text),
            check::<TableId>(&text),
            check::<CommitId>(&text),
            check::<SiloStatus>(&text),
            check::<WallTime>(&text),
        ];
        Outcome::of(&results.concat(), "")
    },
};

pub(super) const URL: Target = Target {
    name: "url",
    about: "connection strings",
    seeds: || {
        seeds(&[
            "memory:test",
            "sqlite:///var/lib/cluster.db?operation_timeout=3s",
            "postgres://ops:p%40ss@a.example:5433,[::1]/app?pooler&operation_timeout=3s",
            "mysql://ops:word@10.0.0.7/app?tls=require",
            "mssql://ops:word@10.0.0.7/app?encrypt=strict",
            "rediss://:word@10.0.0.7:6379/3?prefix=x",
            "redis+sentinel://a:26379,b:26379/0?master=m",
            "dynamodb://key:word@us-east-1/membership?endpoint=http://127.0.0.1:8000",
            "consul+https://:token@consul:8501/prefix",
            "mongodb://a,b,c/app?replicaSet=rs&w=majority",
            "etcd://a:2379,b:2379/prefix?operation_timeout=1s",
            "azure-table://account:a2V5@host/table",
            "cassandra://ops:word@a,b/keyspace?consistency=quorum&dc=one",
            "zk://ops:word@a:2181,b:2181/chroot?session_timeout=10s",
        ])
    },
    words: &[
        "://",
        "@",
        ":",
        "?",
        "&",
        "=",
        "%",
        "%41",
        "%ff",
        ",",
        "[::1]",
        "10ms",
        "1h",
        "0s",
        "operation_timeout",
        "connect_timeout",
        "tls",
        "true",
        "false",
        "65536",
        "/",
        "//",
        "#",
        "endpoint",
        "prefix",
        "ca_file",
    ],
    longest: 600,
    read: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        thread_local! {
            static KNOWN: Connectors = Connectors::default();
        }
        match KNOWN.with(|known| known.schema(&text)) {
            Ok(schema) => Outcome::sized("schema", schema.map_or(0, |text| text.len())),
            Err(error) => {
                let line = error.to_string();
                check_line(&line);
                Outcome::of("refused", &line)
            }
        }
    },
};

pub(super) const CONFIG: Target = Target {
    name: "config",
    about: "configuration files",
    seeds: || {
        seeds(&[
            "preset = \"lan\"\nprobe_period = \"5s\"\nfailure_window = \"9s\"\n",
            "num_votes_for_death_declaration = 3\nlimit = 10\n[security]\nsecret_file = \"/etc/secret\"\n",
            "[security]\nmode = \"insecure\"\n",
        ])
    },
    words: &[
        "preset",
        "=",
        "\"",
        "\n",
        "[",
        "]",
        "[security]",
        "probe_period",
        "failure_window",
        "probe_timeout",
        "\"5s\"",
        "0s",
        "num_votes_for_death_declaration",
        "-1",
        "1e999",
        "nan",
        "\"\"\"",
        "'",
        "{",
        "}",
        "18446744073709551616ns",
        "secret_file",
        "1d 2h",
    ],
    longest: 4000,
    read: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let refused = |kind: &str, line: String| {
            check_line(&line);
            Outcome::of(kind, &line)
        };
        let config: Config = match membership_cli::fuzzing::config(&text) {
            Ok(config) => config,
            Err(error) => return refused("refused", error),
        };
        match config.validate() {
            Ok(()) => Outcome::of("read", ""),
            Err(error) => refused("not valid", error.to_string()),
        }
    },
};

pub(super) const SECRET: Target = Target {
    name: "secret",
    about: "secret files",
    seeds: || {
        let key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        seeds(&[key, &format!("# the new one\n{key}\n\n{key}\n")])
    },
    words: &["#", "\n", "\r\n", "\t", "00112233445566778899aabbccddeeff"],
    longest: 1000,
    read: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match membership::transport::fuzzing::secret(&text) {
            Ok(keys) => {
                assert!(!keys.is_empty(), "a file without a key is accepted");
                Outcome::sized("read", keys.len())
            }
            Err(line) => {
                check_line(&line);
                for secret in text.lines().map(str::trim) {
                    assert!(
                        secret.len() < 16 || secret.starts_with('#') || !line.contains(secret),
                        "the error shows a line of the file: {line}"
                    );
                }
                Outcome::of("refused", &line)
            }
        }
    },
};
