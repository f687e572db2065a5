//! How long the certificates of the living silos are still valid, where they have some.

use std::net::SocketAddr;
use std::time::Duration;

use membership::transport::certificate_at;
use membership_core::SiloAddress;
use tokio::task::JoinSet;

use super::silos::{DIAL_TIMEOUT, DIALS, Watched};
use super::{Finding, report};
use crate::session::Session;
use crate::text::count;

/// A certificate that ends sooner is a problem: whoever renews certificates has not done it.
const SOON: Duration = Duration::from_secs(30 * DAY);
const DAY: u64 = 24 * 3600;

async fn left_at(address: SocketAddr) -> Option<Duration> {
    let left = certificate_at(address, DIAL_TIMEOUT).await;
    left.ok().flatten()
}

/// The silos that show a certificate, the one first that ends first.
async fn shown(silos: impl IntoIterator<Item = SiloAddress>) -> Vec<(Duration, SiloAddress)> {
    let (mut waiting, mut found) = (silos.into_iter(), Vec::new());
    let mut dials = JoinSet::new();
    loop {
        while dials.len() < DIALS
            && let Some(silo) = waiting.next()
        {
            dials.spawn(async move { (silo, left_at(silo.endpoint()).await) });
        }
        match dials.join_next().await {
            Some(Ok((silo, left))) => found.extend(left.map(|left| (left, silo))),
            Some(Err(_)) => {}
            None => break,
        }
    }
    found.sort_unstable();
    found
}

/// Asks every silo that wrote a heartbeat; gives the number of problems. Says nothing where silos
/// have no certificates.
pub(super) async fn check(seen: &Watched, session: &mut Session) -> usize {
    let shown = shown(seen.moved.keys().copied()).await;
    let mut bad = 0;
    for (left, silo) in shown.iter().take_while(|(left, _)| *left < SOON) {
        bad += 1;
        let text = match left.as_secs() {
            0 => {
                format!("that of {silo} has ended: renew it. Its connections end within 70 minutes")
            }
            left => format!(
                "that of {silo} ends in {}: renew it",
                count(whole_days(left), "day")
            ),
        };
        report(session, Finding::Bad, "certs", &text);
    }
    if let Some((left, silo)) = shown.first().filter(|_| bad == 0) {
        let days = count(whole_days(left.as_secs()), "day");
        let text = format!(
            "{} shown; the first one to end is that of {silo}, in {days}",
            count(shown.len(), "certificate")
        );
        report(session, Finding::Good, "certs", &text);
    }
    bad
}

fn whole_days(seconds: u64) -> usize {
    usize::try_from(seconds / DAY).unwrap_or(usize::MAX)
}
