//! The bucket: making it, and whether it keeps what the guarantees promise.

use std::sync::atomic::Ordering;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, PersistenceMode, StorageType};
use membership_core::{TableError, TableErrorKind};

use crate::NatsDocuments;
use crate::client::{Link, is_missing, path};
use crate::config::NatsConfig;
use crate::error::{error, of_answer};
use crate::keys;

impl NatsDocuments {
    /// Makes the bucket, unless it exists, and checks it.
    pub(crate) async fn make_bucket(&self) -> Result<(), TableError> {
        let deadline = self.client.config().timeouts.deadline();
        let link = self.client.ready(deadline).await?;
        let requests = async {
            if self.check_bucket(&link).await? {
                return Ok(());
            }
            let config = self.client.config();
            let create = path("CREATE", &config.bucket);
            match link.api::<Info>(&create, &wanted(config)).await? {
                Ok(info) => self.learn(&info),
                // Another client was faster, and made it in another way.
                Err(e) if e.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                    self.check_bucket(&link).await.map(drop)
                }
                Err(e) => Err(of_answer(&e)),
            }
        };
        self.client.in_time(deadline, &link, true, requests).await
    }

    /// Whether the bucket exists.
    ///
    /// # Errors
    /// `Configuration` if it exists and does not fit.
    pub(crate) async fn check_bucket(&self, link: &Link) -> Result<bool, TableError> {
        let info = path("INFO", &self.client.config().bucket);
        match link.api::<Info>(&info, &()).await? {
            Ok(info) => self.learn(&info).map(|()| true),
            Err(e) if is_missing(&e) => Ok(false),
            Err(e) => Err(of_answer(&e)),
        }
    }

    /// Remembers on how many servers the bucket is, if it fits.
    fn learn(&self, found: &Info) -> Result<(), TableError> {
        let config = self.client.config();
        if let Some(why) = unfit(&found.config, config) {
            let message = format!("the bucket `{}` {why}", config.bucket);
            return Err(error(TableErrorKind::Configuration, message));
        }
        self.learn_replicas(found.config.num_replicas, is_in_cluster(found));
        Ok(())
    }

    /// Looks on how many servers the bucket is now, and at nothing else.
    pub(crate) async fn look_at_replicas(&self, link: &Link) -> Result<(), TableError> {
        let info = path("INFO", &self.client.config().bucket);
        match link.api::<Info>(&info, &()).await? {
            Ok(info) => self.learn_replicas(info.config.num_replicas, is_in_cluster(&info)),
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(of_answer(&e)),
        }
        Ok(())
    }

    pub(crate) fn learn_replicas(&self, found: usize, in_cluster: bool) {
        self.replicas.store(found.max(1), Ordering::Relaxed);
        self.in_cluster.store(in_cluster, Ordering::Relaxed);
    }

    /// Whether one server of several has the only copy: a client of another one keeps its connection
    /// when that copy goes away and comes back.
    pub(crate) fn may_go_back_unnoticed(&self) -> bool {
        self.has_one_replica() && self.in_cluster.load(Ordering::Relaxed)
    }

    pub(crate) fn has_one_replica(&self) -> bool {
        self.replicas.load(Ordering::Relaxed) == 1
    }
}

/// Whether the server is one of several: only those name their cluster.
fn is_in_cluster(found: &Info) -> bool {
    let cluster = found.cluster.as_ref();
    let name = cluster.and_then(|cluster| cluster.name.as_ref());
    name.is_some_and(|name| !name.is_empty())
}

/// A key-value bucket as other clients of NATS make it, with one value per key, whose values only
/// the leader returns.
fn wanted(config: &NatsConfig) -> Config {
    Config {
        name: keys::stream(&config.bucket),
        subjects: vec![subjects(config)],
        description: Some("membership of silos".to_owned()),
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: config.replicas.unwrap_or(1),
        allow_rollup: true,
        deny_delete: true,
        allow_direct: false,
        max_bytes: -1,
        max_messages: -1,
        max_consumers: -1,
        ..Config::default()
    }
}

fn subjects(config: &NatsConfig) -> String {
    format!("$KV.{}.>", config.bucket)
}

/// Why a bucket cannot hold the table, and what to do. Settings of the servers, such as
/// `sync_interval`, cannot be seen.
fn unfit(found: &Config, config: &NatsConfig) -> Option<String> {
    let replicas = found.num_replicas.max(1);
    if !found.subjects.contains(&subjects(config)) {
        return Some("is no key-value bucket: name another one".to_owned());
    }
    if found.max_messages_per_subject < 1 && found.max_messages_per_subject != -1 {
        return Some("keeps no message per key: set history to 1".to_owned());
    }
    if !found.max_age.is_zero() {
        return Some("forgets values by their age: remove its TTL".to_owned());
    }
    if found.discard != DiscardPolicy::New && (found.max_bytes > 0 || found.max_messages > 0) {
        return Some("discards old values when it is full: set `discard` to `new`".to_owned());
    }
    if found.no_ack || found.deny_purge || found.sealed {
        return Some(
            "takes no acknowledged writes or purges: unset no_ack, deny_purge and sealed"
                .to_owned(),
        );
    }
    if found.mirror.is_some() || found.sources.is_some() || found.subject_transform.is_some() {
        return Some("is filled from another stream: name one that is not".to_owned());
    }
    if config.replicas.is_some_and(|wanted| wanted != replicas) {
        return Some(format!(
            "has {replicas} replicas: change it, or the option `replicas`"
        ));
    }
    if config.flushes && found.storage != StorageType::File {
        return Some(
            "is in memory, so `sync=always` is not true: leave the option out, or make it anew in files"
                .to_owned(),
        );
    }
    if config.flushes && found.persist_mode == Some(PersistenceMode::Async) {
        return Some(
            "acknowledges before it writes (persist_mode: async), so `sync=always` is not true: leave the option out, or make it anew"
                .to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_does_not_fit_is_named_with_its_cure() {
        let config = |url: &str| NatsConfig::from_url(url).unwrap();
        let kept = config("nats://a?sync=always&replicas=3");
        assert_eq!(unfit(&wanted(&kept), &kept), None);
        // As `nats kv add` makes it.
        let usual = Config {
            allow_direct: true,
            max_messages_per_subject: 5,
            ..wanted(&kept)
        };
        assert_eq!(unfit(&usual, &kept), None);
        let why = |change: fn(&mut Config)| {
            let mut found = wanted(&kept);
            change(&mut found);
            unfit(&found, &kept).unwrap_or_default()
        };
        assert!(why(|it| it.subjects.clear()).contains("no key-value bucket"));
        assert!(why(|it| it.max_age = std::time::Duration::from_secs(1)).contains("TTL"));
        assert!(why(|it| (it.max_bytes, it.discard) = (9, DiscardPolicy::Old)).contains("discard"));
        assert!(why(|it| it.deny_purge = true).contains("deny_purge"));
        assert!(why(|it| it.num_replicas = 1).contains("has 1 replicas"));
        assert!(why(|it| it.storage = StorageType::Memory).contains("in memory"));
        assert!(why(|it| it.persist_mode = Some(PersistenceMode::Async)).contains("persist_mode"));
        let any = config("nats://a");
        let found = Config {
            storage: StorageType::Memory,
            ..wanted(&kept)
        };
        assert_eq!(unfit(&found, &any), None);
    }
}
