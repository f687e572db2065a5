//! One request to the table service and its answer, over the pipeline of `azure_core` without its retries: a request that is sent twice may
//! happen twice, and only the contract knows when it may be sent again (clause T5). Every request ends in time (clause T13).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azure_core::http::{
    ClientOptions, Context, Method, Pipeline, PipelineSendOptions, Request, RetryOptions,
    Transport, Url,
};
use membership_core::{TableError, TableErrorKind};
use serde_json::Value;
use tokio::time::Instant;

use crate::auth::Credential;
use crate::batch::{self, MAX_BYTES, MAX_STEPS, Outcome, Place, Properties, Refusal, Step};
use crate::config::AzureTableConfig;
use crate::entity::Entity;
use crate::error::{error, refused, unanswered, wrong};

/// The version of the service's interface that this is written for; Azurite and Cosmos DB know it, too.
const VERSION: &str = "2019-02-02";

/// Until when an operation must end, whatever requests it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    allowed: Duration,
}

/// The way to one table.
pub(crate) struct Link {
    pipeline: Pipeline,
    /// Address of the service, without a closing slash.
    service: String,
    /// Address of the table.
    table_address: String,
    table: String,
    /// A shared access signature.
    query: Option<String>,
    /// Who answers, in errors.
    shown: String,
    timeout: Duration,
    nonce: AtomicU64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("service", &self.service)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// What came back.
struct Answer {
    status: u16,
    code: Option<String>,
    content_type: String,
    etag: Option<String>,
    next: Option<Next>,
    body: Vec<u8>,
}

/// Where a query goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    partition: String,
    row: Option<String>,
}

/// Entities that a query found, in the order of their row keys.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) entities: Vec<Entity>,
    /// There may be more, also after a page without entities.
    pub(crate) next: Option<Next>,
    /// There is no such table.
    pub(crate) no_table: bool,
}

/// What a condition on one entity came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Single {
    /// It happened; the new ETag.
    Done(Option<String>),
    /// The entity is not there.
    Missing,
    /// It has another ETag.
    Stale,
    /// The table is not there.
    NoTable,
}

impl Link {
    pub(crate) fn new(config: &AzureTableConfig) -> Result<Self, TableError> {
        config.validate()?;
        let endpoint = config.endpoint_url()?;
        let transport = match &config.transport {
            Some(transport) => transport.clone(),
            None => Transport::new(Arc::new(client(config, &endpoint)?)),
        };
        let options = ClientOptions {
            transport: Some(transport),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        };
        let credential = config
            .credential
            .clone()
            .unwrap_or(Credential::Identity(crate::Identity::Default));
        // Credentials may try again: asking twice for a token changes nothing.
        let of_credentials = ClientOptions {
            retry: RetryOptions::default(),
            ..options.clone()
        };
        let policies = credential.policies(
            &config.account,
            config.client_id.as_deref(),
            &of_credentials,
        )?;
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
            // An emulator takes the addresses within a transaction only with their port.
            service = service.replacen(&format!("http://{host}"), &format!("http://{host}:80"), 1);
        }
        let query = match &credential {
            Credential::Sas(sas) => Some(sas.secret().to_owned()),
            _ => None,
        };
        let nonce = AtomicU64::new(u64::from(std::process::id()) << 32);
        Ok(Self {
            pipeline,
            table_address: format!("{service}/{}", config.table),
            service,
            table: config.table.clone(),
            query,
            shown: format!("{host}:{port}"),
            timeout: config.timeout(),
            nonce,
        })
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline {
            at: Instant::now() + self.timeout,
            allowed: self.timeout,
        }
    }

    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends one request; whatever is answered is an answer.
    async fn send(&self, by: Deadline, mut request: Request) -> Result<Answer, TableError> {
        request.insert_header("x-ms-version", VERSION);
        request.insert_header("dataserviceversion", "3.0");
        request.insert_header("maxdataserviceversion", "3.0;NetFx");
        request.insert_header("accept", "application/json;odata=minimalmetadata");
        let options = PipelineSendOptions {
            skip_checks: true,
            ..PipelineSendOptions::default()
        };
        let context = Context::new();
        let sent = tokio::time::timeout_at(
            by.at,
            self.pipeline.send(&context, &mut request, Some(options)),
        )
        .await;
        let raw = match sent {
            Ok(Ok(raw)) => raw,
            Ok(Err(failure)) => return Err(unanswered(&failure, &self.shown)),
            Err(_) => {
                return Err(error(
                    TableErrorKind::OutcomeUnknown,
                    format!("{} has not answered within {:?}", self.shown, by.allowed),
                ));
            }
        };
        let (status, headers, body) = raw.deconstruct();
        let header = |name: &'static str| {
            headers.get_optional_string(&azure_core::http::headers::HeaderName::from_static(name))
        };
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

    fn request(
        &self,
        method: Method,
        address: &str,
        query: &[(&str, &str)],
    ) -> Result<Request, TableError> {
        let mut all: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={}", batch::in_address(value)))
            .collect();
        all.extend(self.query.clone());
        let text = if all.is_empty() {
            address.to_owned()
        } else {
            format!("{address}?{}", all.join("&"))
        };
        let url =
            Url::parse(&text).map_err(|_| wrong("the endpoint and the table make no address"))?;
        Ok(Request::new(url, method))
    }

    fn refusal(answer: &Answer) -> Refusal {
        let mut refusal = batch::explained(answer.status, &answer.body);
        if refusal.code.is_empty() {
            refusal.code = answer.code.clone().unwrap_or_default();
        }
        refusal
    }

    /// The error that an answer is.
    fn failed(&self, answer: &Answer) -> TableError {
        refused(&Self::refusal(answer), &self.shown)
    }

    /// One page of a query within this table.
    pub(crate) async fn query(
        &self,
        by: Deadline,
        filter: &str,
        select: Option<&str>,
        top: Option<u32>,
        next: Option<&Next>,
    ) -> Result<Page, TableError> {
        let top = top.map(|top| top.to_string());
        let mut query = vec![("$filter", filter)];
        query.extend(select.map(|select| ("$select", select)));
        query.extend(top.as_deref().map(|top| ("$top", top)));
        if let Some(next) = next {
            query.push(("NextPartitionKey", &next.partition));
            query.extend(next.row.as_deref().map(|row| ("NextRowKey", row)));
        }
        let request = self.request(Method::Get, &format!("{}()", self.table_address), &query)?;
        let answer = self
            .send(by, request)
            .await
            .map_err(TableError::of_a_read)?;
        if answer.status != 200 {
            return match Self::refusal(&answer) {
                refusal if refusal.code == "TableNotFound" => Ok(Page {
                    no_table: true,
                    ..Page::default()
                }),
                refusal => Err(refused(&refusal, &self.shown).of_a_read()),
            };
        }
        let entities = entities(&answer.body).ok_or_else(|| {
            error(
                TableErrorKind::Configuration,
                format!(
                    "{} answers a query with what is no list of entities: is it a table service?",
                    self.shown
                ),
            )
        })?;
        Ok(Page {
            entities,
            next: answer.next,
            no_table: false,
        })
    }

    /// Changes several entities of one partition, all or none.
    pub(crate) async fn transaction(
        &self,
        by: Deadline,
        partition: &str,
        steps: &[Step],
    ) -> Result<Outcome, TableError> {
        let nanos = u64::from(
            std::time::UNIX_EPOCH
                .elapsed()
                .unwrap_or_default()
                .subsec_nanos(),
        );
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed) ^ (nanos << 24);
        let (content_type, body) = batch::write(
            Place {
                table: &self.table_address,
                partition,
            },
            steps,
            nonce,
        );
        if steps.len() > MAX_STEPS || body.len() > MAX_BYTES {
            let message = format!(
                "the transaction has {} operations and {} bytes; the service takes 100 and 4 MiB",
                steps.len(),
                body.len()
            );
            return Err(error(TableErrorKind::LimitExceeded, message));
        }
        let mut request = self.request(Method::Post, &format!("{}/$batch", self.service), &[])?;
        request.insert_header("content-type", content_type);
        request.set_body(body);
        let answer = self.send(by, request).await?;
        if answer.status != 202 {
            return Err(self.failed(&answer));
        }
        match batch::read(&answer.content_type, &answer.body, steps.len()) {
            Outcome::Unclear(why) => Err(error(
                TableErrorKind::OutcomeUnknown,
                format!("{} answers a transaction unclearly: {why}", self.shown),
            )),
            Outcome::Refused(refusal) if !is_condition(&refusal) => {
                Err(refused(&refusal, &self.shown))
            }
            told => Ok(told),
        }
    }

    /// Changes some properties of one entity: with an ETag only if it is there with that one (`*`: any), without one in any case.
    pub(crate) async fn merge(
        &self,
        by: Deadline,
        partition: &str,
        row_key: &str,
        properties: &Properties,
        etag: Option<&str>,
    ) -> Result<Single, TableError> {
        let mut request = self.request(
            Method::Patch,
            &format!("{}{}", self.table_address, batch::keys(partition, row_key)),
            &[],
        )?;
        request.insert_header("content-type", "application/json");
        request.set_body(batch::entity(partition, row_key, properties));
        self.single(by, request, etag).await
    }

    /// Removes one entity.
    pub(crate) async fn remove(
        &self,
        by: Deadline,
        partition: &str,
        row_key: &str,
        etag: &str,
    ) -> Result<Single, TableError> {
        let request = self.request(
            Method::Delete,
            &format!("{}{}", self.table_address, batch::keys(partition, row_key)),
            &[],
        )?;
        self.single(by, request, Some(etag)).await
    }

    async fn single(
        &self,
        by: Deadline,
        mut request: Request,
        etag: Option<&str>,
    ) -> Result<Single, TableError> {
        if let Some(etag) = etag {
            request.insert_header("if-match", etag.to_owned());
        }
        let answer = self.send(by, request).await?;
        let refusal = match answer.status {
            204 => return Ok(Single::Done(answer.etag)),
            _ => Self::refusal(&answer),
        };
        match (refusal.code.as_str(), refusal.status) {
            ("TableNotFound", 404) => Ok(Single::NoTable),
            (_, 404) if is_condition(&refusal) => Ok(Single::Missing),
            (_, 412) if is_condition(&refusal) => Ok(Single::Stale),
            _ => Err(refused(&refusal, &self.shown)),
        }
    }

    /// One entity by its keys, for the yardstick: whether it is there.
    pub(crate) async fn get(
        &self,
        by: Deadline,
        partition: &str,
        row_key: &str,
    ) -> Result<bool, TableError> {
        let request = self.request(
            Method::Get,
            &format!("{}{}", self.table_address, batch::keys(partition, row_key)),
            &[],
        )?;
        let answer = self
            .send(by, request)
            .await
            .map_err(TableError::of_a_read)?;
        match (answer.status, Self::refusal(&answer).code.as_str()) {
            (200, _) => Ok(true),
            (404, "ResourceNotFound" | "EntityNotFound" | "TableNotFound") => Ok(false),
            _ => Err(self.failed(&answer).of_a_read()),
        }
    }

    /// Makes the table where it is missing.
    pub(crate) async fn create_table(&self, by: Deadline) -> Result<(), TableError> {
        let mut request = self.request(Method::Post, &format!("{}/Tables", self.service), &[])?;
        request.insert_header("content-type", "application/json");
        request.insert_header("prefer", "return-no-content");
        request.set_body(serde_json::json!({ "TableName": self.table }).to_string());
        let answer = self.send(by, request).await?;
        match (answer.status, Self::refusal(&answer).code.as_str()) {
            (201 | 204, _) | (409, "TableAlreadyExists") => Ok(()),
            (401 | 403, code) => {
                let message = format!(
                    "there is no table `{}` at {}, and it may not be made ({code}): make it, for example by `az storage table create --name {}`",
                    self.table, self.shown, self.table
                );
                Err(error(TableErrorKind::PermissionDenied, message))
            }
            _ => Err(self.failed(&answer)),
        }
    }
}

/// A condition of ours did not hold. Everything else that is refused is no conflict (clause T4).
pub(crate) fn is_condition(refusal: &Refusal) -> bool {
    matches!(
        (refusal.status, refusal.code.as_str()),
        (409, "EntityAlreadyExists")
            | (412, "UpdateConditionNotSatisfied" | "ConditionNotMet")
            | (404, "ResourceNotFound" | "EntityNotFound")
    )
}

/// The entities of a query's answer; none when it is no such answer.
pub(crate) fn entities(body: &[u8]) -> Option<Vec<Entity>> {
    let Value::Object(mut answer) = serde_json::from_slice(body).ok()? else {
        return None;
    };
    let Value::Array(list) = answer.remove("value")? else {
        return None;
    };
    list.into_iter().map(Entity::from_answer).collect()
}

fn client(config: &AzureTableConfig, endpoint: &Url) -> Result<reqwest::Client, TableError> {
    // Two linked providers make rustls panic where nobody has chosen one.
    let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .http1_only()
        .connect_timeout(config.time_to_connect())
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        // Shorter than the service keeps them: it does not hang up on a request.
        .pool_idle_timeout(Duration::from_secs(50));
    let host = endpoint
        .host_str()
        .unwrap_or_default()
        .trim_matches(['[', ']']);
    if host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
    {
        builder = builder.no_proxy();
    }
    if let Some(path) = &config.tls_ca {
        let unreadable = |why: String| {
            wrong(format!(
                "the certificates of {} cannot be used: {why}",
                path.display()
            ))
        };
        let pem = std::fs::read(path).map_err(|why| unreadable(why.to_string()))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem)
            .map_err(|_| unreadable("it is no PEM".to_owned()))?;
        builder = builder.tls_certs_merge(certificates);
    }
    builder
        .build()
        .map_err(|why| wrong(format!("no HTTP client can be made: {}", why.without_url())))
}
