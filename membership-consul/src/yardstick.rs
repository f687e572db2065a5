//! Consul's own cheapest write and read, over the table's client: one key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use membership_core::{Operation, TableError, Yardstick};
use reqwest::Method;

use crate::keys::path;
use crate::link::{Link, Request};

/// As much as a small row.
const CONTENT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) struct ConsulYardstick {
    link: Arc<Link>,
    key: String,
}

impl ConsulYardstick {
    pub(crate) fn new(link: Arc<Link>, prefix: &str) -> Self {
        // No cluster's folder has such a name.
        Self {
            link,
            key: format!(
                "{prefix}/!yardstick/{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ),
        }
    }

    fn writes(&self, method: Method, body: Option<String>) -> Request {
        Request {
            method,
            path: format!("/v1/kv/{}", path(&self.key)),
            body,
            writes: true,
        }
    }
}

impl fmt::Debug for ConsulYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for ConsulYardstick {
    fn write_is(&self) -> &'static str {
        "PUT of one key"
    }

    fn read_is(&self) -> &'static str {
        "consistent GET of one key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // What is written must differ from what is there, or Consul does less.
        let content = format!("{CONTENT}{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let request = self.writes(Method::PUT, Some(content));
        self.link
            .ask(&request, &[200], self.link.deadline())
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Commit))
    }

    async fn read(&self) -> Result<(), TableError> {
        self.link
            .keys(&Request::get(&self.key), self.link.deadline())
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let request = self.writes(Method::DELETE, None);
        self.link
            .ask(&request, &[200], self.link.deadline())
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Delete))
    }
}
