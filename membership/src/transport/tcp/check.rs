//! After a change of the secret or of the certificates: dials some silos of the view anew.
//!
//! Open connections hide a change that other silos do not follow, for up to an hour. A few dials
//! show it at once: [`refusals`](super::refusals) then warns at both sides.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::shared::{Phase, Shared};
use crate::transport::tls::{Certificates, Secret};
use crate::transport::{Inbox, Security};

/// How many silos are dialled. All silos change their files at about the same time, so that each
/// one is dialled by several.
const DIALS: usize = 8;
/// A silo that closes the connection without a word is dialled once more after this time: it may
/// just have been stopping.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Changes since this was made.
pub(super) struct Changes {
    secret: Option<watch::Receiver<()>>,
    certificates: Option<watch::Receiver<()>>,
}

impl Changes {
    pub(super) fn of(security: &Security) -> Self {
        Self {
            secret: security.secret().map(Secret::changes),
            certificates: security.certificates().map(Certificates::changes),
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            () = changed(&mut self.secret) => {}
            () = changed(&mut self.certificates) => {}
        }
    }
}

/// Waits for ever where nothing can change.
async fn changed(changes: &mut Option<watch::Receiver<()>>) {
    let alive = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !alive {
        std::future::pending::<()>().await;
    }
}

/// Dials after each change, until the transport stops.
pub(super) async fn after(
    mut changes: Changes,
    shared: Arc<Shared>,
    inbox: Arc<dyn Inbox>,
    phase: watch::Receiver<Phase>,
) {
    loop {
        changes.next().await;
        let mut dials = JoinSet::new();
        for to in shared.some_members(DIALS) {
            let (shared, inbox, phase) = (shared.clone(), inbox.clone(), phase.clone());
            dials.spawn(async move {
                if !shared.try_out(to, &inbox, &phase).await {
                    sleep(AGAIN_AFTER).await;
                    shared.try_out(to, &inbox, &phase).await;
                }
            });
        }
        while dials.join_next().await.is_some() {}
    }
}

impl Shared {
    /// The addresses of so many other silos that are alive in the confirmed view, by chance.
    fn some_members(&self, most: usize) -> Vec<SocketAddr> {
        let Some(me) = self.me() else {
            return Vec::new();
        };
        let others = me.roll.members().filter(|(_, silo)| *silo != me.instance);
        let chance = RandomState::new();
        let mut others: Vec<_> = others
            .map(|(to, silo)| (chance.hash_one(silo), to))
            .collect();
        others.sort_unstable();
        others.into_iter().take(most).map(|(_, to)| to).collect()
    }
}
