//! How the tests' own server is started.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

const DIR: &str = "MEMBERSHIP_TOY_TEST_DIR";
const LISTEN: &str = "MEMBERSHIP_TOY_TEST_LISTEN";
const PASSWORD: &str = "MEMBERSHIP_TOY_TEST_PASSWORD";

/// This test program again, in which only `serve_toy_store` does something. The store's log is always durable.
pub fn command(data: &Path, listen: SocketAddr, secret: &str) -> Option<Command> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["support::server::serve_toy_store", "--exact", "--nocapture"]);
    command
        .env(DIR, data)
        .env(LISTEN, listen.to_string())
        .env(PASSWORD, secret);
    Some(command)
}

/// Does nothing unless it is the process that `command` starts.
#[test]
fn serve_toy_store() {
    let of = |name| std::env::var(name).ok();
    if let (Some(dir), Some(listen), Some(secret)) = (of(DIR), of(LISTEN), of(PASSWORD)) {
        toy_store::Server::open(Path::new(&dir), Some(secret))
            .unwrap()
            .spawn(listen.parse().unwrap())
            .unwrap();
        // Until it is killed, or the tests are gone.
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}
