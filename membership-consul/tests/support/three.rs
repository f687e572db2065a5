//! Three servers of one cluster, started and killed by a test.

use conformance_tests::launch::{ConsulServers, LaunchError};

use super::SECRET;

pub struct Three(pub ConsulServers);

impl Three {
    pub async fn start() -> Self {
        Self(ConsulServers::start(3, Some(SECRET)).await.unwrap())
    }

    /// Kills whoever leads; another one takes over, and the killed one comes back to that.
    pub async fn kill_leader(&self) -> Result<(), LaunchError> {
        let killed = self.0.kill_leader().await?;
        self.0.leader_but(Some(killed)).await?;
        self.0.start_again(killed).await
    }
}
