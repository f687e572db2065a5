//! Reads and writes a value in a server, with its client program or with a few bytes of its
//! protocol.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use membership_testbed::{How, Kind, Server};

use crate::DEADLINE;

/// Whether a test can read and write data. Redis, Valkey, DynamoDB and Consul need a few bytes; the
/// others the client programs that are installed with a server. Azurite, MongoDB, ZooKeeper and
/// Cassandra have none, and a kill loses the latest data of Azurite.
pub fn has_client(server: &Server) -> bool {
    match server.kind() {
        Kind::Redis | Kind::Valkey | Kind::DynamoDb | Kind::Consul => true,
        Kind::Postgres | Kind::MariaDb | Kind::Etcd => server.how() == How::Local,
        _ => false,
    }
}

pub fn write(server: &Server, value: &str) {
    if server.kind() == Kind::DynamoDb {
        // The server refuses this if the table exists.
        dynamodb_call(
            server,
            "CreateTable",
            r#"{"TableName":"it1","BillingMode":"PAY_PER_REQUEST","KeySchema":[{"AttributeName":"k","KeyType":"HASH"}],
                "AttributeDefinitions":[{"AttributeName":"k","AttributeType":"S"}]}"#,
        );
        let item = format!(
            r#"{{"TableName":"it1","Item":{{"k":{{"S":"it"}},"value":{{"S":"{value}"}}}}}}"#
        );
        let said = dynamodb_call(server, "PutItem", &item);
        assert!(said.starts_with("HTTP/1.1 200"), "not written: {said}");
        return;
    }
    let sql = format!(
        "{}CREATE TABLE IF NOT EXISTS it (value TEXT); DELETE FROM it; INSERT INTO it VALUES ('{value}')",
        if server.kind() == Kind::MariaDb {
            "USE membership; "
        } else {
            ""
        }
    );
    let (done, said) = client(server, None, &sql, &["SET", "it", value]);
    assert!(done, "not written: {said}");
}

/// The written value; empty if there is none.
pub fn read(server: &Server) -> String {
    if server.kind() == Kind::DynamoDb {
        let said = dynamodb_call(
            server,
            "GetItem",
            r#"{"TableName":"it1","ConsistentRead":true,"Key":{"k":{"S":"it"}}}"#,
        );
        let value = said
            .split(r#""value":{"S":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        return value.unwrap_or_default().to_owned();
    }
    let sql = match server.kind() {
        Kind::MariaDb => "USE membership; SELECT value FROM it",
        _ => "SELECT value FROM it",
    };
    let (done, said) = client(server, None, sql, &["GET", "it"]);
    if done {
        said.trim().to_owned()
    } else {
        String::new()
    }
}

/// Runs a command in the server's client program, or over a connection. Returns whether it
/// succeeded, and its output.
pub fn client(
    server: &Server,
    password: Option<&str>,
    sql: &str,
    redis: &[&str],
) -> (bool, String) {
    let port = server.address().port().to_string();
    let known = server.url().contains('%').then_some("pass'w ö/@");
    let password = password.or(known);
    let mut command = match server.kind() {
        Kind::Postgres => {
            let mut command = server.command("psql").expect("installed");
            command.args([
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                "postgres",
                "-w",
                "-Atqc",
                sql,
            ]);
            command.env("PGPASSWORD", password.unwrap_or_default());
            command
        }
        Kind::MariaDb => {
            let mut command = server.command("mariadb").expect("installed");
            command.args([
                "--no-defaults",
                "-h",
                "127.0.0.1",
                "-P",
                &port,
                "-u",
                "root",
                "-Ne",
                sql,
            ]);
            command.env("MYSQL_PWD", password.unwrap_or_default());
            command
        }
        Kind::Consul => return consul_call(server, password, redis),
        Kind::Etcd => {
            let mut command = server.command("etcdctl").expect("installed");
            let words: Vec<&str> = match redis {
                ["GET", key] => vec!["get", "--print-value-only", key],
                _ => [&["put"], &redis[1..]].concat(),
            };
            command
                .env("ETCDCTL_API", "3")
                .arg(format!("--endpoints=http://{}", server.address()))
                .args(words);
            if let Some(password) = password {
                command.arg(format!("--user=root:{password}"));
            }
            command
        }
        _ => return redis_call(server, password, redis),
    };
    let output = command.output().expect("runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr),
    )
}

fn dynamodb_call(server: &Server, operation: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let who = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
    let head = format!(
        "Host: localhost\r\nConnection: close\r\nAuthorization: {who}\r\nContent-Type: application/x-amz-json-1.0"
    );
    let target = format!(
        "X-Amz-Target: DynamoDB_20120810.{operation}\r\nContent-Length: {}",
        body.len()
    );
    stream
        .write_all(format!("POST / HTTP/1.1\r\n{head}\r\n{target}\r\n\r\n{body}").as_bytes())
        .expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers");
    said
}

/// `SET key value` or `GET key`.
fn consul_call(server: &Server, token: Option<&str>, words: &[&str]) -> (bool, String) {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let token = token.map_or_else(String::new, |token| format!("X-Consul-Token: {token}\r\n"));
    let value = words.get(2).copied().unwrap_or_default();
    let (method, query) = if words[0] == "SET" {
        ("PUT", "")
    } else {
        ("GET", "?raw&consistent")
    };
    let head = format!(
        "Host: localhost\r\nConnection: close\r\n{token}Content-Length: {}",
        value.len()
    );
    stream
        .write_all(
            format!(
                "{method} /v1/kv/{}{query} HTTP/1.1\r\n{head}\r\n\r\n{value}",
                words[1]
            )
            .as_bytes(),
        )
        .expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers");
    let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (said.starts_with("HTTP/1.1 200"), body.to_owned())
}

fn redis_call(server: &Server, password: Option<&str>, words: &[&str]) -> (bool, String) {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let mut request = String::new();
    let mut ask = |words: &[&str]| {
        request.push_str(&format!("*{}\r\n", words.len()));
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
    };
    if let Some(password) = password {
        ask(&["AUTH", password]);
    }
    ask(words);
    ask(&["QUIT"]);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| *line != "+OK" && !line.starts_with('$'))
        .collect();
    (
        !said.contains("-ERR") && !said.contains("-WRONGPASS") && !said.contains("-NOAUTH"),
        lines.join("\n"),
    )
}
