//! Three members of one etcd cluster, with the user `root`.

use conformance_tests::launch::{EtcdCluster, LaunchError};

use super::SECRET;

pub async fn start() -> EtcdCluster {
    EtcdCluster::start(3, Some(SECRET)).await.unwrap()
}

/// Kills whoever leads; another one takes over, and the killed one comes back to that.
pub async fn kill_leader(members: &EtcdCluster) -> Result<(), LaunchError> {
    let killed = members.kill_leader().await?;
    members.leader_but(Some(killed)).await?;
    members.start_again(killed).await
}

/// A connection string of members at these addresses.
pub fn url(addresses: impl IntoIterator<Item = String>) -> String {
    format!(
        "etcd://root:{SECRET}@{}",
        addresses.into_iter().collect::<Vec<_>>().join(",")
    )
}
