//! A real server, for one test: clusters in it, and what can be done to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use conformance_tests::launch::{How, Kind, LaunchError, Options, Server};

use crate::support::Place;

/// Acknowledged writes survive its end, as silos expect of a table.
pub struct Store {
    runtime: tokio::runtime::Runtime,
    server: Server,
    /// Keeps this run's clusters apart from others in a server that several runs share.
    run: String,
}

/// The server belongs to somebody else, who does not let a test stop it.
pub struct Uncontrolled(String);

impl From<LaunchError> for Uncontrolled {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Yours { .. } => Self(error.to_string()),
            other => panic!("{other}"),
        }
    }
}

impl Store {
    #[track_caller]
    pub fn start(kind: Kind) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // A server that is named by the environment is taken as it is.
        let durable = Options { durable: true, ..Options::default() };
        let server = runtime.block_on(Server::start(kind, durable)).unwrap_or_else(|error| panic!("{error}"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self { runtime, server, run: format!("stores-{:x}-{:x}", std::process::id(), now.as_nanos()) }
    }

    pub fn kind(&self) -> Kind {
        self.server.kind()
    }

    /// A cluster in it.
    pub fn place(&self, cluster: &str) -> Place {
        Place::at(self.server.url(), format!("{}/{cluster}", self.run))
    }

    /// Runs a scenario that needs to stop the server; says so where it must not be stopped.
    pub fn under(&self, scenario: impl FnOnce(&Self) -> Result<(), Uncontrolled>) {
        if let Err(Uncontrolled(why)) = scenario(self) {
            eprintln!("not applicable: {why}");
        }
    }

    pub fn kill(&self) -> Result<(), Uncontrolled> {
        Ok(self.runtime.block_on(self.server.kill())?)
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

    /// What is in it, past the contract: keys or tables, one per line. None where it can be asked only through its provider: the clients of the
    /// SQL servers are installed beside processes of this machine, and nowhere else.
    #[track_caller]
    pub fn contents(&self) -> Option<String> {
        let (host, port) = ("127.0.0.1", self.server.address().port().to_string());
        let (program, args) = match self.server.kind() {
            // Its command-line program is not installed everywhere; its protocol can be typed.
            Kind::Redis | Kind::Valkey => return Some(self.says("KEYS *\r\nQUIT\r\n").replace("*0\r\n", "").replace("+OK\r\n", "")),
            // Its answer is the body's last line; without tables it is an empty list.
            Kind::DynamoDb => {
                let who = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
                let head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0";
                let what = "X-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2";
                let answer = self.says(&format!("{head}\r\n{what}\r\nAuthorization: {who}\r\n\r\n{{}}"));
                let (_, tables) = answer.split_once("\r\n\r\n").unwrap_or_default();
                return Some(tables.replace("{\"TableNames\":[]}", ""));
            }
            _ if self.server.how() != How::Local => return None,
            Kind::Postgres => {
                let tables = "SELECT schemaname || '.' || relname FROM pg_stat_user_tables";
                ("psql", vec!["-d", self.server.url(), "-X", "-A", "-t", "-c", tables])
            }
            Kind::MariaDb => {
                let tables = "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables \
                              WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')";
                ("mariadb", vec!["-h", host, "-P", &port, "-u", "root", "--skip-column-names", "-e", tables])
            }
            other => panic!("nobody has said how to look into {other}"),
        };
        let mut command = self.server.command(program).unwrap_or_else(|error| panic!("{error}"));
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Everything that it answers until it hangs up.
    fn says(&self, request: &str) -> String {
        let mut connection = TcpStream::connect(self.server.address()).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }
}
