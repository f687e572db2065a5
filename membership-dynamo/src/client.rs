//! The connection to one table: requests with a deadline, and the limits. Clauses T5, T13, T14.
//!
//! The SDK's own retries are off, because only the caller of a request knows whether it may be sent
//! again. A read whose connection broke is sent once more; a write never is.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Once};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client as Sdk;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Builder, ConfigBag, Credentials as Keys, Intercept};
use aws_sdk_dynamodb::config::{RuntimeComponents, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;
use membership_core::{
    ClusterName, CommitRequest, Operation, TableError, TableLimits, VersionToken,
};
use membership_provider::{Credentials, FullRead, Replaceable, SnapshotCache, unanswered};
use tokio::time::{Instant, timeout_at};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, enabled};

use crate::STORE;
use crate::config::{DynamoConfig, wrong};
use crate::error::{Failed, broke_off, failed};
use crate::keys;

/// A transaction takes 100 items and 4 MB: the version row, and two items for each row that is
/// inserted or removed. An item takes 400 KB, including the names of its attributes and the
/// cluster's name (1.2 KB at most). 10,000 rows are about ten pages.
pub(crate) const LIMITS: TableLimits = TableLimits::new(49, 400_000, 3_500_000, 10_000);

/// An item, or its key.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// The connection to one cluster's partition. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    sdk: Arc<Replaceable<Sdk>>,
    /// The table's name.
    pub(crate) table: String,
    /// The cluster, as the partition's key.
    pub(crate) cluster: String,
    /// The server, as errors name it.
    pub(crate) endpoint: String,
    timeout: Duration,
    /// When the operation ends. None: each request has a timeout of its own.
    deadline: Option<Instant>,
}

impl Client {
    /// Reads the environment and files; sends nothing.
    async fn open(config: &DynamoConfig, cluster: &ClusterName) -> Result<Self, TableError> {
        let builder = match &config.client {
            Some(client) => client.config().to_builder(),
            None => builder(config).await,
        };
        let builder = builder
            .interceptor(Sending)
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let sdk = Sdk::from_conf(builder.build());
        let endpoint = match (&config.endpoint, sdk.config().region()) {
            (Some(endpoint), _) => endpoint.trim_end_matches('/').to_owned(),
            (None, Some(region)) => format!("DynamoDB in {region}"),
            (None, None) => {
                return Err(wrong(
                    "no region is known: write dynamodb://eu-west-1/table, set AWS_REGION, or name a profile that has one",
                ));
            }
        };
        Ok(Self {
            sdk: Arc::new(Replaceable::new(sdk)),
            table: config.table.clone(),
            cluster: cluster.to_string(),
            endpoint,
            timeout: config.timeouts.operation(),
            deadline: None,
        })
    }

    /// This client for an operation that begins now, or has begun: its requests end when the operation
    /// must.
    pub(crate) fn begin(&self) -> Self {
        Self {
            deadline: (self.deadline).or_else(|| Some(Instant::now() + self.timeout)),
            ..self.clone()
        }
    }

    /// The SDK's client for one request.
    pub(crate) fn sdk(&self) -> Sdk {
        self.sdk.current()
    }

    /// From now on requests take new connections, unless the application gave an HTTP client of its
    /// own. Region and credentials stay.
    pub(crate) fn reconnect(&self) {
        self.sdk
            .replace(Sdk::from_conf(self.sdk().config().clone()));
    }

    /// Sends a request and waits for its answer, at most until the operation ends.
    ///
    /// # Errors
    /// The error that the server returns. Without an answer, the outcome is unknown if the request
    /// `writes` and was sent.
    pub(crate) async fn send<T, E, F>(
        &self,
        writes: bool,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Box<Failed<E>>>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let deadline = self.deadline.unwrap_or(Instant::now() + self.timeout);
        let mut repeated = writes;
        let sending = async {
            let is_sent = || SENT.with(Cell::get);
            while Instant::now() < deadline {
                match timeout_at(deadline, without_items(request())).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(e)) if !repeated && broke_off(&e) => repeated = true,
                    Ok(Err(e)) => return Err(failed(e, &self.endpoint, writes && is_sent())),
                    Err(_) => break,
                }
            }
            let (endpoint, timeout) = (&self.endpoint, self.timeout);
            let why = match is_sent() {
                true => format!("{endpoint} did not answer within {timeout:?}"),
                false => format!(
                    "no request to {endpoint} was ready within {timeout:?}: do its credentials come in time?"
                ),
            };
            let error = unanswered(STORE, writes && is_sent(), &why);
            let answer = None;
            Err(Box::new(Failed { answer, error }))
        };
        SENT.scope(Cell::new(false), sending).await
    }

    /// The key of one of the cluster's items.
    pub(crate) fn key(&self, item: impl Into<String>) -> Item {
        let text = |value| AttributeValue::S(value);
        HashMap::from([
            (keys::CLUSTER.to_owned(), text(self.cluster.clone())),
            (keys::ITEM.to_owned(), text(item.into())),
        ])
    }
}

tokio::task_local! {
    /// Whether the request was sent: before that, its credentials may take their time.
    static SENT: Cell<bool>;
}

/// Notes that a request is sent.
#[derive(Debug)]
struct Sending;

impl Intercept for Sending {
    fn name(&self) -> &'static str {
        "sending"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        Ok(SENT.try_with(|sent| sent.set(true))?)
    }
}

/// Runs a request so that no item of it is logged: at level `trace` the SDK logs whole requests and
/// answers, and the cluster key is in the version row (clause T15). Where that level is on, the SDK
/// logs nothing during a request.
async fn without_items<F: Future>(request: F) -> F::Output {
    if enabled!(target: "aws_smithy_runtime::client::orchestrator", Level::TRACE)
        || enabled!(target: "aws_smithy_runtime::client::orchestrator::http", Level::TRACE)
    {
        SILENT.call_once(|| {
            tracing::warn!("the log of the AWS SDK is off during requests to the table: at level `trace` it would show the cluster key; choose level `debug` for aws_smithy_runtime to see the rest of it");
        });
        request.with_subscriber(NoSubscriber::default()).await
    } else {
        request.await
    }
}

/// Whether that was said.
static SILENT: Once = Once::new();

async fn builder(config: &DynamoConfig) -> Builder {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    // A server that is not Amazon's ignores the region, but requests are signed for one.
    let any_region = || {
        let (Some(_), Some(_)) = (&config.endpoint, &config.keys) else {
            return None;
        };
        Some("us-east-1".to_owned())
    };
    if let Some(region) = config.region.clone().or_else(any_region) {
        loader = loader.region(Region::new(region));
    }
    if let Some(profile) = &config.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(Credentials { user, password }) = &config.keys {
        loader = loader.credentials_provider(Keys::new(user, password, None, None, "membership"));
    }
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(config.timeouts.connect())
        .build();
    let builder = Builder::from(&loader.timeout_config(timeouts).load().await);
    match &config.endpoint {
        Some(endpoint) => builder.endpoint_url(endpoint),
        None => builder,
    }
}

/// A table, or one operation on it; clones share all but the deadline.
#[derive(Clone)]
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) cluster: ClusterName,
    pub(crate) config: Arc<DynamoConfig>,
    pub(crate) cache: Arc<SnapshotCache<FullRead>>,
}

impl Inner {
    /// Finds region and credentials; sends nothing.
    pub(crate) async fn open(
        config: DynamoConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        Ok(Self {
            client: Client::open(&config, &cluster).await?,
            cluster,
            config: Arc::new(config),
            cache: Arc::default(),
        })
    }

    /// Runs an operation; its error names it.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        operation.await.map_err(|e| e.during(during))
    }

    /// An operation that begins now, or has begun.
    pub(crate) fn begin(&self) -> Self {
        Self {
            client: self.client.begin(),
            ..self.clone()
        }
    }

    /// A commit on the cached snapshot succeeded.
    pub(crate) fn committed(&self, request: &CommitRequest, token: &VersionToken) {
        if let Some(seen) = self.cache.of(&request.expected) {
            let snapshot = request.apply_to(&seen.read, token.clone());
            self.cache.store(seen.changed(snapshot));
        }
    }
}
