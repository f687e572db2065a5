//! What can be done with a server that the launcher started, and how blocking work is awaited.

use super::error::LaunchError;

/// What can be done with a server that the launcher started.
pub(super) trait Control {
    fn up(&mut self) -> Result<(), LaunchError>;
    fn kill(&mut self) -> Result<(), LaunchError>;
    fn stop(&mut self) -> Result<(), LaunchError>;
    fn freeze(&mut self, frozen: bool) -> Result<(), LaunchError>;
    fn wipe(&mut self) -> Result<(), LaunchError>;
}

/// Runs blocking work on a thread that may wait, so that the test's runtime goes on meanwhile.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LaunchError> + Send + 'static,
) -> Result<T, LaunchError> {
    joined(tokio::task::spawn_blocking(work)).await
}

/// What a task returned.
pub(super) async fn joined<T>(
    task: tokio::task::JoinHandle<Result<T, LaunchError>>,
) -> Result<T, LaunchError> {
    match task.await {
        Ok(done) => done,
        Err(error) => Err(LaunchError::Install(format!(
            "the launcher itself failed: {error}"
        ))),
    }
}
