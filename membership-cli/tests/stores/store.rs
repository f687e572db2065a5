//! A real server for one test: clusters in it, and the faults that a test can cause.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use membership_testbed::{How, Kind, LaunchError, Options, Server};

use crate::support::Place;

/// Acknowledged writes survive a kill of the server, as silos expect of a table.
pub struct Store {
    runtime: tokio::runtime::Runtime,
    server: Server,
    /// Separates the clusters of this run from others, in a server that several runs share.
    run: String,
}

/// The server is external, and a test must not stop it.
pub struct Uncontrolled(String);

impl From<LaunchError> for Uncontrolled {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::External { .. } => Self(error.to_string()),
            other => panic!("{other}"),
        }
    }
}

/// Prints that a test does not apply.
pub fn unless_external(outcome: Result<(), Uncontrolled>) {
    if let Err(Uncontrolled(why)) = outcome {
        eprintln!("not applicable: {why}");
    }
}

impl Store {
    #[track_caller]
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, Options::default())
    }

    #[track_caller]
    pub fn start_with(kind: Kind, options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // A server that the environment names is used as it is.
        let durable = Options {
            durable: true,
            ..options
        };
        let server = runtime
            .block_on(Server::start(kind, durable))
            .unwrap_or_else(|error| panic!("{error}"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            runtime,
            server,
            run: format!("stores-{:x}-{:x}", std::process::id(), now.as_nanos()),
        }
    }

    pub fn kind(&self) -> Kind {
        self.server.kind()
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A cluster in it.
    pub fn place(&self, cluster: &str) -> Place {
        Place::at(self.server.url(), format!("{}/{cluster}", self.run))
    }

    /// Runs a scenario that needs to stop the server; prints a note if the server must not be
    /// stopped.
    pub fn under(&self, scenario: impl FnOnce(&Self) -> Result<(), Uncontrolled>) {
        unless_external(scenario(self));
    }

    pub fn kill(&self) -> Result<(), Uncontrolled> {
        Ok(self.runtime.block_on(self.server.crash())?)
    }

    pub fn start_again(&self) -> Result<(), Uncontrolled> {
        Ok(self.runtime.block_on(self.server.start_again())?)
    }

    pub fn pause(&self) -> Result<(), Uncontrolled> {
        Ok(self.runtime.block_on(self.server.pause())?)
    }

    pub fn resume(&self) -> Result<(), Uncontrolled> {
        Ok(self.runtime.block_on(self.server.resume())?)
    }

    pub fn wipe(&self) -> Result<(), Uncontrolled> {
        Ok(self.runtime.block_on(self.server.wipe())?)
    }

    /// The contents of the server, read without the provider: keys or tables, one per line. None if
    /// only the provider can read them: the clients of the SQL servers are installed beside servers
    /// that run as processes of this machine, and nowhere else.
    #[track_caller]
    pub fn contents(&self) -> Option<String> {
        let (host, port) = ("127.0.0.1", self.server.address().port().to_string());
        let (program, args) = match self.server.kind() {
            // The server's command-line program is not installed everywhere, but its protocol is
            // simple text.
            Kind::Redis | Kind::Valkey => {
                return Some(
                    self.says("KEYS *\r\nQUIT\r\n")
                        .replace("*0\r\n", "")
                        .replace("+OK\r\n", ""),
                );
            }
            // The answer is the last line of the body; without tables it is an empty list.
            Kind::DynamoDb => {
                let who = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
                let head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0";
                let what = "X-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2";
                let answer = self.says(&format!(
                    "{head}\r\n{what}\r\nAuthorization: {who}\r\n\r\n{{}}"
                ));
                let (_, tables) = answer.split_once("\r\n\r\n").unwrap_or_default();
                return Some(tables.replace("{\"TableNames\":[]}", ""));
            }
            // The launcher writes this key as a check, before any silo runs.
            Kind::Consul => {
                let answer = self.says("GET /v1/kv/membership?keys&consistent HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                let (_, keys) = answer.split_once("\r\n\r\n").unwrap_or_default();
                return Some(keys.to_owned());
            }
            Kind::MongoDb => return Some(self.collections()),
            Kind::Nats => return Some(self.streams()),
            Kind::Cassandra => return Some(self.keyspaces()),
            // A new server has five znodes of its own.
            Kind::ZooKeeper => {
                let said = self.says("srvr");
                let nodes = said
                    .lines()
                    .find_map(|line| line.strip_prefix("Node count: "))
                    .unwrap_or_default();
                return Some(if nodes == "5" {
                    String::new()
                } else {
                    nodes.to_owned()
                });
            }
            _ if self.server.how() != How::Local => return None,
            Kind::Etcd => (
                "etcdctl",
                vec![
                    "--endpoints",
                    self.server.url().trim_start_matches("etcd://"),
                    "get",
                    "--prefix",
                    "--keys-only",
                    "",
                ],
            ),
            Kind::Postgres => {
                let tables = "SELECT schemaname || '.' || relname FROM pg_stat_user_tables";
                (
                    "psql",
                    vec!["-d", self.server.url(), "-X", "-A", "-t", "-c", tables],
                )
            }
            Kind::MariaDb => {
                let tables = "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables \
                              WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')";
                (
                    "mariadb",
                    vec![
                        "-h",
                        host,
                        "-P",
                        &port,
                        "-u",
                        "root",
                        "--skip-column-names",
                        "-e",
                        tables,
                    ],
                )
            }
            // The server requires a signature; its tables are listed in a file.
            Kind::Azurite => return Some(self.azurite_tables()),
            // A new kind of server, which nothing but its provider can read here.
            _ => return None,
        };
        let mut command = self
            .server
            .command(program)
            .unwrap_or_else(|error| panic!("{error}"));
        let output = command.args(args).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The tables of Azurite, as its data file names them after it has been written.
    fn azurite_tables(&self) -> String {
        self.runtime.block_on(async {
            self.server.stop().await.unwrap();
            self.server.start_again().await.unwrap();
        });
        let data = self
            .server
            .folder()
            .unwrap()
            .join("data")
            .join("__azurite_db_table__.json");
        let Ok(text) = std::fs::read_to_string(&data) else {
            return String::new();
        };
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let collections = file["collections"].as_array().cloned().unwrap_or_default();
        let names = collections
            .iter()
            .filter_map(|collection| collection["name"].as_str());
        // Entities are in collections named `account$table`; the other collections are Azurite's
        // own.
        names
            .filter(|name| name.contains('$') && !name.starts_with('$'))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The contents of the database of MongoDB's address. MongoDB installs no client program, so
    /// this sends one request by hand and reads its answer.
    fn collections(&self) -> String {
        let mut question =
            b"\x10listCollections\0\x01\0\0\0\x08nameOnly\0\x01\x02$db\0\x0b\0\0\0membership\0\0"
                .to_vec();
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
        question.splice(0..0, length(question.len() + 4));
        // A message (2013) without flags, of one document.
        let head = [
            u32::from_le_bytes(length(question.len() + 21)),
            1,
            0,
            2013,
            0,
        ]
        .map(u32::to_le_bytes)
        .concat();
        let mut connection = TcpStream::connect(self.server.address()).unwrap();
        connection
            .write_all(&[&head[..], &[0], &question].concat())
            .unwrap();
        let mut size = [0; 4];
        connection.read_exact(&mut size).unwrap();
        let mut answer = vec![0; usize::try_from(u32::from_le_bytes(size)).unwrap() - 4];
        connection.read_exact(&mut answer).unwrap();
        let mark = b"firstBatch\0";
        let at = answer
            .windows(mark.len())
            .position(|part| part == mark)
            .expect("a list of collections")
            + mark.len();
        let batch = u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
        // An empty list is its length and a zero.
        if batch == 5 {
            String::new()
        } else {
            String::from_utf8_lossy(&answer[at..at + usize::try_from(batch).unwrap()]).into_owned()
        }
    }

    /// The tables of Cassandra in the keyspace of its address. Cassandra installs no client
    /// program, so this sends two requests of its protocol by hand.
    fn keyspaces(&self) -> String {
        let mut connection = TcpStream::connect(self.server.address()).unwrap();
        let mut ask = |code: u8, body: &[u8]| {
            let head = [
                &[4, 0, 0, 0, code][..],
                &u32::try_from(body.len()).unwrap().to_be_bytes(),
            ]
            .concat();
            connection.write_all(&[&head[..], body].concat()).unwrap();
            let mut head = [0; 9];
            connection.read_exact(&mut head).unwrap();
            let mut answer =
                vec![
                    0;
                    usize::try_from(u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
                        .unwrap()
                ];
            connection.read_exact(&mut answer).unwrap();
            (head[4], answer)
        };
        ask(1, b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0");
        let question =
            b"SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'membership'";
        let length = u32::try_from(question.len()).unwrap().to_be_bytes();
        // At consistency ONE, without values; a result (8) of rows.
        let (code, answer) = ask(7, &[&length[..], question, &[0, 1, 0]].concat());
        assert_eq!(code, 8, "{}", String::from_utf8_lossy(&answer));
        let names = ["silos", "heartbeats"];
        names
            .into_iter()
            .filter(|name| {
                answer
                    .windows(name.len())
                    .any(|part| part == name.as_bytes())
            })
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The streams of a NATS server, which keep everything that it keeps.
    fn streams(&self) -> String {
        let mut connection = TcpStream::connect(self.server.address()).unwrap();
        let asks = "CONNECT {\"verbose\":false}\r\nSUB answer 1\r\nPUB $JS.API.STREAM.NAMES answer 2\r\n{}\r\n";
        connection.write_all(asks.as_bytes()).unwrap();
        let lines = BufReader::new(connection).lines().map_while(Result::ok);
        let mut answers = lines.filter_map(|l| serde_json::from_str::<serde_json::Value>(&l).ok());
        let streams = answers
            .find_map(|answer| answer.get("streams").cloned())
            .unwrap();
        let names = streams.as_array().into_iter().flatten();
        names.map(|name| format!("{name}\n")).collect()
    }

    /// All bytes that the server sends until it closes the connection.
    fn says(&self, request: &str) -> String {
        let mut connection = TcpStream::connect(self.server.address()).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }
}
