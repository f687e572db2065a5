//! The `membership` program.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    membership_cli::main_with(membership_cli::Connectors::default())
}
