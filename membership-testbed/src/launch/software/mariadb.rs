//! MariaDB.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::ground::{Ground, file, finish, in_url, own, tls_arguments};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

/// The database in the URL.
const DATABASE: &str = "membership";

pub(super) struct MariaDb;

impl Software for MariaDb {
    fn create(&self, ground: &Ground) -> Result<(), LaunchError> {
        let mut command = ground.command("mariadb-install-db")?;
        let base = ground
            .tree
            .binary("mariadb-install-db")
            .and_then(|path| path.ancestors().nth(2).map(std::path::Path::to_path_buf))
            .unwrap_or_else(|| ground.tree.root.join("usr"));
        command.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        command
            .arg(format!("--basedir={}", base.display()))
            .arg(format!("--datadir={}", ground.data().display()));
        // The installer writes one table after the other; a flush for each takes seconds.
        command
            .arg("--innodb-flush-log-at-trx-commit=0")
            .arg("--innodb-flush-method=nosync");
        finish(ground, command, "mariadb-install-db")
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        // These statements run at every start, before the server accepts clients, so they must
        // change nothing the second time.
        let first = ground.run().join("first.sql");
        let mut sql = format!("CREATE DATABASE IF NOT EXISTS {DATABASE};\n");
        if let Some(password) = &ground.options.password {
            let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
            for host in ["localhost", "127.0.0.1"] {
                sql.push_str(&format!("CREATE USER IF NOT EXISTS root@'{host}';\nGRANT ALL ON *.* TO root@'{host}' WITH GRANT OPTION;\n"));
                sql.push_str(&format!(
                    "ALTER USER root@'{host}' IDENTIFIED BY '{quoted}';\n"
                ));
            }
        }
        file(&first, &sql)?;
        own(ground, &first)?;

        let mut command = ground.command("mariadbd")?;
        let run = ground.run();
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", ground.data().display()));
        command.arg(format!("--lc-messages-dir={}", messages(ground).display()));
        command
            .arg(format!("--socket={}", run.join("socket").display()))
            .arg(format!("--pid-file={}", run.join("pid").display()));
        command.arg(format!("--init-file={}", first.display()));
        command.args([
            "--bind-address=127.0.0.1",
            &format!("--port={}", ground.port),
        ]);
        command.args(settings(&ground.options));
        if ground.options.tls {
            tls_arguments(ground, |certificate, key, ca| {
                command.arg(format!("--ssl-cert={}", certificate.display()));
                command
                    .arg(format!("--ssl-key={}", key.display()))
                    .arg(format!("--ssl-ca={}", ca.display()));
            });
        }
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        let encrypted = options
            .args
            .iter()
            .any(|argument| argument.starts_with("--require-secure-transport"));
        wire::mysql(wire::tcp(address)?, options.password.is_some() || encrypted)
    }

    fn image(&self) -> &'static str {
        "mariadb:11.4"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec!["mariadbd".to_owned()];
        command.extend(settings(options).into_iter().map(str::to_owned));
        command
    }

    fn container_environment(&self, options: &Options) -> Vec<(&'static str, String)> {
        let root = match &options.password {
            Some(password) => ("MARIADB_ROOT_PASSWORD", password.clone()),
            None => ("MARIADB_ALLOW_EMPTY_ROOT_PASSWORD", "1".to_owned()),
        };
        vec![root, ("MARIADB_DATABASE", DATABASE.to_owned())]
    }

    fn refuses_root(&self) -> bool {
        true
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        match &options.password {
            Some(password) => format!("mysql://root:{}@{address}/{DATABASE}", in_url(password)),
            None => format!("mysql://root@{address}/{DATABASE}"),
        }
    }

    fn usual_port(&self) -> u16 {
        3306
    }
}

/// The folder of messages. Without it the server searches the installation path of the package, and
/// starts with empty messages.
fn messages(ground: &Ground) -> std::path::PathBuf {
    ["usr/share/mysql", "usr/share/mariadb", "share"]
        .iter()
        .map(|folder| ground.tree.root.join(folder))
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| ground.tree.root.join("usr/share/mysql"))
}

/// The settings for the options.
fn settings(options: &Options) -> Vec<&'static str> {
    let mut settings = vec![
        "--skip-name-resolve",
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
        "--character-set-server=utf8mb4",
    ];
    match options.durable {
        true => settings.push("--innodb-flush-log-at-trx-commit=1"),
        false => settings.extend([
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
        ]),
    }
    settings
}
