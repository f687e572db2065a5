//! `toy-store --dir DIR [--listen ADDRESS]`: serves until it is stopped. The password is taken from `TOY_STORE_PASSWORD`.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use toy_store::Server;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut dir, mut listen) = (None, SocketAddr::from(([127, 0, 0, 1], 7007)));
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--dir", Some(value)) => dir = Some(PathBuf::from(value)),
            ("--listen", Some(value)) => listen = value.parse()?,
            _ => return Err("toy-store --dir DIR [--listen ADDRESS]".into()),
        }
    }
    let dir = dir.ok_or("toy-store --dir DIR [--listen ADDRESS]: the directory is missing")?;
    let server = Server::open(&dir, std::env::var("TOY_STORE_PASSWORD").ok())?;
    println!("listening on {}", server.spawn(listen)?);
    loop {
        std::thread::park();
    }
}
