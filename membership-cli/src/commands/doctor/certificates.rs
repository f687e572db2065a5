//! How long the certificates of the living silos are still valid, where they have some.

use std::net::SocketAddr;

use membership::transport::{Validity, certificate_at};
use membership_core::SiloAddress;
use tokio::task::JoinSet;

use super::address::{DIAL_TIMEOUT, DIALS};
use super::watch::Watched;
use super::{Finding, report};
use crate::session::Session;
use crate::text::count;

async fn left_at(address: SocketAddr) -> Option<Validity> {
    let left = certificate_at(address, DIAL_TIMEOUT).await;
    left.ok().flatten()
}

/// The silos that show a certificate, the one first that ends first.
async fn shown(silos: impl IntoIterator<Item = SiloAddress>) -> Vec<(Validity, SiloAddress)> {
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
    // One that ends soon is a problem: whoever renews certificates has not done it.
    for (validity, silo) in shown.iter().filter(|(validity, _)| validity.ends_soon()) {
        bad += 1;
        let text = if validity.left.is_zero() {
            format!("that of {silo} has ended: renew it. Its connections end within 70 minutes")
        } else {
            format!("that of {silo} ends in {validity}: renew it")
        };
        report(session, Finding::Bad, "certs", &text);
    }
    if let Some((validity, silo)) = shown.first().filter(|_| bad == 0) {
        let text = format!(
            "{} shown; the first one to end is that of {silo}, in {validity}",
            count(shown.len(), "certificate")
        );
        report(session, Finding::Good, "certs", &text);
    }
    bad
}
