//! Servers with TLS, as their own client programs see them.

use membership_testbed::{Kind, LaunchError, Options, Server, install};

#[tokio::test]
async fn a_server_with_tls_serves_with_a_certificate_of_its_authority() {
    let kinds = Kind::ALL.iter().copied();
    for kind in kinds.filter(|kind| install::is_offered(*kind)) {
        let server = match Server::start(
            kind,
            Options {
                tls: true,
                ..Options::default()
            },
        )
        .await
        {
            Err(LaunchError::External { .. }) => continue,
            // Valkey's package was built without TLS, and the emulators accept plain connections
            // only.
            Err(LaunchError::Unsupported { .. })
                if matches!(kind, Kind::Valkey | Kind::Azurite | Kind::DynamoDb) =>
            {
                continue;
            }
            other => other.expect("starts"),
        };
        let ca = server.tls().expect("certificates").ca.clone();
        let (address, port) = (server.address(), server.address().port().to_string());
        let ca_text = ca.to_string_lossy().into_owned();
        let mut command = match kind {
            Kind::Etcd => {
                let mut command = server.command("etcdctl").expect("installed");
                command.env("ETCDCTL_API", "3").args([
                    &format!("--endpoints=https://{address}"),
                    "--cacert",
                    &ca_text,
                ]);
                command.args(["endpoint", "health"]);
                command
            }
            Kind::Redis => {
                let mut command = server.command("redis-cli").expect("installed");
                command.args(["-p", &port, "--tls", "--cacert", &ca_text, "PING"]);
                command
            }
            Kind::Postgres => {
                let mut command = server.command("psql").expect("installed");
                let text = format!(
                    "host={} port={port} user=postgres sslmode=verify-full sslrootcert={ca_text}",
                    address.ip()
                );
                command.args([
                    "-Atc",
                    "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
                    &text,
                ]);
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
                    "--ssl-verify-server-cert",
                ]);
                command
                    .arg(format!("--ssl-ca={ca_text}"))
                    .args(["-Ne", "SHOW STATUS LIKE 'Ssl_cipher'"]);
                command
            }
            // The others have no client program; the launcher's own check has covered them.
            _ => continue,
        };
        let output = command.output().expect("runs");
        // etcdctl prints its status on standard error.
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{kind}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let proof = if kind == Kind::Redis {
            "PONG"
        } else if kind == Kind::Etcd {
            "is healthy"
        } else if kind == Kind::Postgres {
            "t"
        } else {
            "TLS"
        };
        assert!(said.contains(proof), "{kind} answered: {said}");
    }
}
