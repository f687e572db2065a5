//! Looks at files again, so that what changes in them needs no restart.

use std::fmt::Display;
use std::time::Duration;

use super::{Certificates, Secret};
use crate::transport::Hello;

/// How often.
const PERIOD: Duration = Duration::from_secs(30);
/// Once so many times it is said again that a certificate ends soon: once a day.
const A_DAY: u32 = 24 * 3600 / 30;

/// Reads the secret again, now and then, until it is dropped. New handshakes use what it finds at
/// once; a file that cannot be used changes nothing, and is logged once.
pub(in crate::transport) async fn keep_fresh(secret: Secret) {
    keep("secret", move || {
        let before = secret.keys();
        secret.reload().map(|()| secret.keys() != before)
    })
    .await;
}

/// The same for certificates of the silo that introduces itself so.
pub(in crate::transport) async fn keep_certificates_fresh(certificates: Certificates, silo: Hello) {
    let (mut looks, mut had_ended) = (0, false);
    keep("certificates", move || {
        looks += 1;
        let result = certificates.reload_for(&silo.cluster, silo.advertise.ip());
        let has_ended = certificates.valid_for().is_zero();
        if looks % A_DAY == 0 || has_ended && !had_ended {
            certificates.warn_of_its_end();
        }
        had_ended = has_ended;
        result
    })
    .await;
}

/// `reload` gives whether anything has changed.
async fn keep<E: Display + Send + 'static>(
    what: &'static str,
    mut reload: impl FnMut() -> Result<bool, E> + Send + 'static,
) {
    let mut last = None;
    loop {
        tokio::time::sleep(PERIOD).await;
        let task = tokio::task::spawn_blocking(move || (reload(), reload));
        let Ok((result, again)) = task.await else {
            return;
        };
        reload = again;
        if matches!(result, Ok(changed) if changed || last.is_some()) {
            tracing::info!(what, "the files that are there now are in use");
        }
        let error = result.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| last.as_ref() != Some(*error)) {
            tracing::warn!(
                what,
                error,
                "a file cannot be used: what it said before stays"
            );
        }
        last = error;
    }
}
