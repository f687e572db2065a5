//! Looks at files again, so that what changes in them needs no restart.

use std::time::Duration;

use super::Secret;

/// How often.
const PERIOD: Duration = Duration::from_secs(30);

/// Reads the secret again, now and then, until it is dropped. New handshakes use what it finds at
/// once; a file that cannot be used changes nothing, and is logged once.
pub(in crate::transport) async fn keep_fresh(secret: Secret) {
    let mut last = None;
    loop {
        tokio::time::sleep(PERIOD).await;
        let again = secret.clone();
        let Ok(result) = tokio::task::spawn_blocking(move || again.reload()).await else {
            return;
        };
        let error = result.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| last.as_ref() != Some(*error)) {
            tracing::warn!(error, "the secret stays as it was");
        }
        last = error;
    }
}
