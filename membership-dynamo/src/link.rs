//! One request to DynamoDB, bounded in time, and sent once. Clauses T5, T13, T14.
//!
//! The client's own retries are off: what is sent again, and when, is decided by whoever knows whether that is harmless. A read whose
//! connection broke is sent again here, once; a write never is.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;
use tokio::time::{Instant, timeout_at};

use crate::codec;
use crate::error::{Failed, broke_off, failed, unanswered};

/// An item, or its key.
pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) struct Link {
    pub(crate) client: Client,
    /// The table's name.
    pub(crate) table: String,
    /// The cluster, as the partition's key.
    pub(crate) cluster: String,
    /// The server as people know it.
    pub(crate) at: String,
    pub(crate) timeout: Duration,
}

impl Link {
    /// Sends a request and waits for its answer, for as long as one may take.
    ///
    /// # Errors
    /// What the server says, or that it says nothing: then the outcome is unknown if it `writes`.
    pub(crate) async fn ask<T, E, F>(
        &self,
        writes: bool,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Box<Failed<E>>>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let deadline = Instant::now() + self.timeout;
        let mut repeated = writes;
        loop {
            match timeout_at(deadline, request()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(e)) if !repeated && broke_off(&e) => repeated = true,
                Ok(Err(e)) => return Err(failed(e, &self.at, writes)),
                Err(_) => {
                    let error = unanswered(
                        writes,
                        &format!("{} did not answer within {:?}", self.at, self.timeout),
                    );
                    return Err(Box::new(Failed {
                        answer: None,
                        error,
                    }));
                }
            }
        }
    }

    /// The key of one of the cluster's items.
    pub(crate) fn key(&self, item: impl Into<String>) -> Item {
        HashMap::from([
            (
                codec::CLUSTER.to_owned(),
                AttributeValue::S(self.cluster.clone()),
            ),
            (codec::ITEM.to_owned(), AttributeValue::S(item.into())),
        ])
    }
}
