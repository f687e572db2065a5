//! The program under test: `membership` with its usual stores.

fn main() -> std::process::ExitCode {
    membership_cli::main_with(membership_cli::Connectors::default())
}
