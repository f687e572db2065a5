//! The operations on a server of the launcher, and how a task waits for blocking work.

use super::error::LaunchError;

/// The operations on a server of the launcher.
pub(super) trait Control {
    fn up(&mut self) -> Result<(), LaunchError>;
    fn kill(&mut self) -> Result<(), LaunchError>;
    fn stop(&mut self) -> Result<(), LaunchError>;
    fn freeze(&mut self, frozen: bool) -> Result<(), LaunchError>;
    fn wipe(&mut self) -> Result<(), LaunchError>;
}

/// Runs blocking work on a separate thread, so that the test's runtime goes on meanwhile.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LaunchError> + Send + 'static,
) -> Result<T, LaunchError> {
    joined(tokio::task::spawn_blocking(work)).await
}

/// The result of a task.
pub(super) async fn joined<T>(
    task: tokio::task::JoinHandle<Result<T, LaunchError>>,
) -> Result<T, LaunchError> {
    match task.await {
        Ok(done) => done,
        Err(error) => Err(LaunchError::Install(format!(
            "the launcher panicked: {error}"
        ))),
    }
}
