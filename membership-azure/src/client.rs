//! The connection to one table: one request and its answer, and the limits. Clauses T5, T13.
//!
//! Requests go through the pipeline of `azure_core` without its retries: a request that is sent
//! twice may happen twice, and only the contract knows when it may be sent again. Every request has
//! a deadline.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use azure_core::http::headers::HeaderName;
use azure_core::http::{
    AsyncRawResponse, ClientOptions, Context, HttpClient, Method, Pipeline, PipelineSendOptions,
    Request, RetryOptions, Transport, Url,
};
use membership_core::{
    ClusterName, Heartbeats, Operation, Snapshot, TableError, TableErrorKind, TableLimits,
    VersionToken,
};
use membership_provider::{
    FullRead, Replaceable, SnapshotCache, install_crypto_provider, read_file,
};
use tokio::time::{Instant, timeout_at};

use crate::STORE;
use crate::auth::{Credential, Identity, Tokens};
use crate::batch::{self, Refusal};
use crate::config::AzureTableConfig;
use crate::error::{self, error, refused, unanswered, wrong};
use crate::keys;

/// A transaction takes 100 operations. The version row is one, and a row that is inserted or
/// removed is two, because its heartbeat comes and goes with it. An entity takes 1 MiB, counted in
/// UTF-16; a request takes 4 MiB, in which quotes and non-ASCII characters take up to three times
/// their bytes.
pub(crate) const LIMITS: TableLimits = TableLimits::new(49, 256 << 10, 1 << 20, 20_000);

/// The version of the service's interface. Azurite and Cosmos DB support it, too.
const VERSION: &str = "2019-02-02";

/// The connection to one table.
pub(crate) struct Client {
    pipeline: Pipeline,
    /// None where a key or a signature authorizes requests.
    tokens: Option<Tokens>,
    /// None where the application gave a transport.
    http: Option<Arc<Http>>,
    /// URL of the service, without a closing slash.
    pub(crate) service: String,
    /// URL of the table.
    pub(crate) table_url: String,
    pub(crate) table: String,
    /// A shared access signature.
    signature: Option<String>,
    /// The server, as errors name it.
    pub(crate) endpoint: String,
    timeout: Duration,
    nonce: AtomicU64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("service", &self.service)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// The answer to a request, whatever its status.
pub(crate) struct Answer {
    pub(crate) status: u16,
    code: Option<String>,
    pub(crate) content_type: String,
    pub(crate) etag: Option<String>,
    pub(crate) next: Option<Next>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn refusal(&self) -> Refusal {
        let mut refusal = batch::explained(self.status, &self.body);
        if refusal.code.is_empty() {
            refusal.code = self.code.clone().unwrap_or_default();
        }
        refusal
    }
}

/// Where a query continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) partition: String,
    pub(crate) row: Option<String>,
}

impl Client {
    fn new(config: &AzureTableConfig) -> Result<Self, TableError> {
        config.validate()?;
        let endpoint = config.endpoint_url()?;
        let (transport, http) = match &config.transport {
            Some(transport) => (transport.clone(), None),
            None => {
                let http = Arc::new(Http {
                    client: Replaceable::new(http_client(config, &endpoint)?),
                    config: config.clone(),
                });
                (Transport::new(http.clone()), Some(http))
            }
        };
        let options = ClientOptions {
            transport: Some(transport),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        };
        // Credentials may retry: requesting a token twice changes nothing.
        let credential_options = ClientOptions {
            retry: RetryOptions::default(),
            ..options.clone()
        };
        let default = Credential::Identity(Identity::Default);
        let credential = config.credential.as_ref().unwrap_or(&default);
        let tokens = credential.tokens(config.client_id.as_deref(), &credential_options)?;
        let policies = credential.policies(&config.account);
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            options,
            Vec::new(),
            policies,
            None,
        );
        let mut service = endpoint.as_str().trim_end_matches('/').to_owned();
        let host = endpoint.host_str().unwrap_or_default();
        let port = endpoint.port_or_known_default().unwrap_or(443);
        if endpoint.scheme() == "http" && endpoint.port().is_none() {
            // An emulator needs the port in the URLs within a transaction.
            service = service.replacen(&format!("http://{host}"), &format!("http://{host}:80"), 1);
        }
        let signature = match credential {
            Credential::Sas(sas) => Some(sas.secret().to_owned()),
            _ => None,
        };
        Ok(Self {
            pipeline,
            tokens,
            http,
            table_url: format!("{service}/{}", config.table),
            service,
            table: config.table.clone(),
            signature,
            endpoint: format!("{host}:{port}"),
            timeout: config.timeouts.operation(),
            nonce: AtomicU64::new(u64::from(std::process::id()) << 32),
        })
    }

    /// From now on requests take new connections. Credentials and their tokens stay.
    ///
    /// # Errors
    /// `Configuration`
    pub(crate) fn reconnect(&self) -> Result<(), TableError> {
        self.http.as_deref().map_or(Ok(()), Http::renew)
    }

    /// When an operation that begins now must end, however many requests it takes.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// A number that differs from those of other requests.
    pub(crate) fn nonce(&self) -> u64 {
        let nanos = UNIX_EPOCH.elapsed().unwrap_or_default().subsec_nanos();
        self.nonce.fetch_add(1, Ordering::Relaxed) ^ (u64::from(nanos) << 24)
    }

    pub(crate) fn request(
        &self,
        method: Method,
        url: &str,
        query: &[(&str, &str)],
    ) -> Result<Request, TableError> {
        let parameter = |(name, value): &(&str, &str)| format!("{name}={}", batch::in_url(value));
        let mut all: Vec<String> = query.iter().map(parameter).collect();
        all.extend(self.signature.clone());
        let text = match all.is_empty() {
            true => url.to_owned(),
            false => format!("{url}?{}", all.join("&")),
        };
        let url = Url::parse(&text);
        let url = url.map_err(|_| wrong("the endpoint and the table's name make no URL"))?;
        Ok(Request::new(url, method))
    }

    /// Sends one request, once there is a token for it if it needs one.
    ///
    /// # Errors
    /// When there is no answer, or no token: then nothing was sent. A refusal is an answer.
    pub(crate) async fn send(
        &self,
        deadline: Instant,
        mut request: Request,
    ) -> Result<Answer, TableError> {
        request.insert_header("x-ms-version", VERSION);
        request.insert_header("dataserviceversion", "3.0");
        request.insert_header("maxdataserviceversion", "3.0;NetFx");
        request.insert_header("accept", "application/json;odata=minimalmetadata");
        if let Some(tokens) = &self.tokens {
            if request.url().scheme() != "https" {
                return Err(error::without_tls(&self.endpoint));
            }
            let token = match timeout_at(deadline, tokens.current()).await {
                Ok(token) => token.map_err(|why| error::no_token(&why, &self.endpoint))?,
                Err(_) => return Err(error::late_token(self.timeout, &self.endpoint)),
            };
            let token = format!("Bearer {}", token.secret());
            request.insert_header("authorization", token);
        }
        let options = PipelineSendOptions {
            skip_checks: true,
            ..PipelineSendOptions::default()
        };
        let context = Context::new();
        let sent = self.pipeline.send(&context, &mut request, Some(options));
        let raw = match timeout_at(deadline, sent).await {
            Ok(Ok(raw)) => raw,
            Ok(Err(failure)) => return Err(unanswered(&failure, &self.endpoint)),
            Err(_) => {
                let (endpoint, timeout) = (&self.endpoint, self.timeout);
                let why = format!("{endpoint} did not answer within {timeout:?}");
                return Err(error(TableErrorKind::OutcomeUnknown, why));
            }
        };
        let (status, headers, body) = raw.deconstruct();
        if let (Some(tokens), 401) = (&self.tokens, u16::from(status)) {
            tokens.forget();
        }
        let header =
            |name: &'static str| headers.get_optional_string(&HeaderName::from_static(name));
        let next = header("x-ms-continuation-nextpartitionkey").map(|partition| Next {
            partition,
            row: header("x-ms-continuation-nextrowkey").filter(|row| !row.is_empty()),
        });
        Ok(Answer {
            status: status.into(),
            code: header("x-ms-error-code"),
            content_type: header("content-type").unwrap_or_default(),
            etag: header("etag"),
            next,
            body: body.as_ref().to_vec(),
        })
    }

    /// The error that an answer means.
    pub(crate) fn failed(&self, answer: &Answer) -> TableError {
        refused(&answer.refusal(), &self.endpoint)
    }
}

/// The HTTP client under the pipeline and under the credentials.
#[derive(Debug)]
struct Http {
    client: Replaceable<reqwest::Client>,
    config: AzureTableConfig,
}

impl Http {
    /// A new client, which reads the file of authorities again.
    fn renew(&self) -> Result<(), TableError> {
        let client = http_client(&self.config, &self.config.endpoint_url()?)?;
        self.client.replace(client);
        Ok(())
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        match self.client.current().execute_request(request).await {
            // Nothing was sent. The file may have a newer authority.
            Err(e) if error::is_untrusted(&e) && self.renew().is_ok() => {
                self.client.current().execute_request(request).await
            }
            done => done,
        }
    }
}

fn http_client(config: &AzureTableConfig, endpoint: &Url) -> Result<reqwest::Client, TableError> {
    install_crypto_provider();
    let mut builder = reqwest::Client::builder()
        .http1_only()
        .connect_timeout(config.timeouts.connect())
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        // Shorter than the service's, so that it does not close a connection during a request.
        .pool_idle_timeout(Duration::from_secs(50));
    let host = endpoint.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|ip| ip.is_loopback()) {
        builder = builder.no_proxy();
    }
    if let Some(path) = &config.tls_ca {
        let pem = read_file(STORE, path)?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| {
            let path = path.display();
            wrong(format!("{path} holds no certificate in PEM form"))
        })?;
        builder = builder.tls_certs_merge(certificates);
    }
    let built = builder.build();
    built.map_err(|why| wrong(format!("no HTTP client can be made: {}", why.without_url())))
}

/// A cluster as of one version, with its heartbeats, which are as recent.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) snapshot: Snapshot,
    /// Rows that exist and were never counted, because they were inserted by hand.
    pub(crate) surplus: i64,
    pub(crate) heartbeats: Heartbeats,
}

impl Borrow<Snapshot> for Read {
    fn borrow(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// What all clones of a table share.
pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) partition: String,
    pub(crate) cluster: ClusterName,
    pub(crate) config: AzureTableConfig,
    pub(crate) cache: SnapshotCache<FullRead<Read>>,
}

impl Inner {
    /// Runs an operation; its error names it.
    pub(crate) async fn run<T>(
        &self,
        during: Operation,
        operation: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        operation.await.map_err(|e| e.during(during))
    }

    /// Sends nothing.
    pub(crate) fn open(config: AzureTableConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self {
            client: Arc::new(Client::new(&config)?),
            partition: keys::partition(&cluster),
            cluster,
            config,
            cache: SnapshotCache::default(),
        })
    }

    /// The last snapshot, if it has this version and only what changed since must be read.
    pub(crate) fn base(&self, token: &VersionToken) -> Option<FullRead<Read>> {
        self.cache.of(token).filter(|cached| !cached.is_due())
    }

    pub(crate) fn remember(&self, read: FullRead<Read>) {
        let mut cached = self.cache.lock();
        let new = &read.read.snapshot;
        // A slow read may end after a faster and newer one.
        let is_newer = |cached: &FullRead<Read>| {
            let old = &cached.read.snapshot;
            old.table_id() == new.table_id() && old.version() > new.version()
        };
        if !cached.as_ref().is_some_and(is_newer) {
            *cached = Some(read);
        }
    }
}
