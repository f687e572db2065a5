//! The requests that the table service takes: queries, transactions, single entities, the table.

use azure_core::http::{Method, Request};
use membership_core::{TableError, TableErrorKind};
use serde_json::Value;
use tokio::time::Instant;

use crate::batch::{self, MAX_BYTES, MAX_STEPS, Outcome, Properties, Refusal, Step, Target};
use crate::client::{Client, Next};
use crate::codec::Entity;
use crate::error::{error, refused};

/// Entities that a query found, in the order of their row keys.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) entities: Vec<Entity>,
    /// There may be more, also after a page without entities.
    pub(crate) next: Option<Next>,
    /// The table does not exist.
    pub(crate) no_table: bool,
}

/// The outcome of a request on one entity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Single {
    /// It happened; the new ETag.
    Done(Option<String>),
    /// The entity does not exist.
    Missing,
    /// It has another ETag.
    Stale,
    /// The table does not exist.
    NoTable,
}

impl Client {
    /// One page of a query in this table.
    pub(crate) async fn query(
        &self,
        deadline: Instant,
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
        let request = self.request(Method::Get, &format!("{}()", self.table_url), &query)?;
        let answer = self.send(deadline, request).await;
        let answer = answer.map_err(TableError::of_a_read)?;
        if answer.status != 200 {
            let refusal = answer.refusal();
            if refusal.code == "TableNotFound" {
                return Ok(Page {
                    no_table: true,
                    ..Page::default()
                });
            }
            return Err(refused(&refusal, &self.endpoint).of_a_read());
        }
        let entities = entities(&answer.body).ok_or_else(|| {
            let why = format!(
                "{} answers a query with something else than entities: is it a table service?",
                self.endpoint
            );
            error(TableErrorKind::Configuration, why)
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
        deadline: Instant,
        partition: &str,
        steps: &[Step],
    ) -> Result<Outcome, TableError> {
        let target = Target {
            table: &self.table_url,
            partition,
        };
        let (content_type, body) = batch::write(target, steps, self.nonce());
        if steps.len() > MAX_STEPS || body.len() > MAX_BYTES {
            let why = format!(
                "the transaction has {} operations and {} bytes; the service takes 100 and 4 MiB",
                steps.len(),
                body.len()
            );
            return Err(error(TableErrorKind::LimitExceeded, why));
        }
        let mut request = self.request(Method::Post, &format!("{}/$batch", self.service), &[])?;
        request.insert_header("content-type", content_type);
        request.set_body(body);
        let answer = self.send(deadline, request).await?;
        if answer.status != 202 {
            return Err(self.failed(&answer));
        }
        match batch::read(&answer.content_type, &answer.body, steps.len()) {
            Outcome::Unclear(why) => {
                let why = format!("{} answers a transaction unclearly: {why}", self.endpoint);
                Err(error(TableErrorKind::OutcomeUnknown, why))
            }
            Outcome::Refused(refusal) if !is_condition(&refusal) => {
                Err(refused(&refusal, &self.endpoint))
            }
            outcome => Ok(outcome),
        }
    }

    /// Changes some properties of one entity. With an ETag it must exist and have that one (`*`:
    /// any); without one it is created if it is missing.
    pub(crate) async fn merge(
        &self,
        deadline: Instant,
        partition: &str,
        row_key: &str,
        properties: &Properties,
        etag: Option<&str>,
    ) -> Result<Single, TableError> {
        let mut request = self.entity_request(Method::Patch, partition, row_key)?;
        request.insert_header("content-type", "application/json");
        request.set_body(batch::entity(partition, row_key, properties));
        self.single(deadline, request, etag).await
    }

    /// Removes one entity.
    pub(crate) async fn remove(
        &self,
        deadline: Instant,
        partition: &str,
        row_key: &str,
        etag: &str,
    ) -> Result<Single, TableError> {
        let request = self.entity_request(Method::Delete, partition, row_key)?;
        self.single(deadline, request, Some(etag)).await
    }

    /// Whether one entity exists; for the baseline.
    pub(crate) async fn get(
        &self,
        deadline: Instant,
        partition: &str,
        row_key: &str,
    ) -> Result<bool, TableError> {
        let request = self.entity_request(Method::Get, partition, row_key)?;
        let answer = self.send(deadline, request).await;
        let answer = answer.map_err(TableError::of_a_read)?;
        match (answer.status, answer.refusal().code.as_str()) {
            (200, _) => Ok(true),
            (404, "ResourceNotFound" | "EntityNotFound" | "TableNotFound") => Ok(false),
            _ => Err(self.failed(&answer).of_a_read()),
        }
    }

    fn entity_request(
        &self,
        method: Method,
        partition: &str,
        row_key: &str,
    ) -> Result<Request, TableError> {
        let keys = batch::keys(partition, row_key);
        self.request(method, &format!("{}{keys}", self.table_url), &[])
    }

    async fn single(
        &self,
        deadline: Instant,
        mut request: Request,
        etag: Option<&str>,
    ) -> Result<Single, TableError> {
        if let Some(etag) = etag {
            request.insert_header("if-match", etag.to_owned());
        }
        let answer = self.send(deadline, request).await?;
        if answer.status == 204 {
            return Ok(Single::Done(answer.etag));
        }
        let refusal = answer.refusal();
        match (refusal.code.as_str(), refusal.status) {
            ("TableNotFound", 404) => Ok(Single::NoTable),
            (_, 404) if is_condition(&refusal) => Ok(Single::Missing),
            (_, 412) if is_condition(&refusal) => Ok(Single::Stale),
            _ => Err(refused(&refusal, &self.endpoint)),
        }
    }

    /// Creates the table if it is missing.
    pub(crate) async fn create_table(&self, deadline: Instant) -> Result<(), TableError> {
        let mut request = self.request(Method::Post, &format!("{}/Tables", self.service), &[])?;
        request.insert_header("content-type", "application/json");
        request.insert_header("prefer", "return-no-content");
        request.set_body(serde_json::json!({ "TableName": self.table }).to_string());
        let answer = self.send(deadline, request).await?;
        match (answer.status, answer.refusal().code.as_str()) {
            (201 | 204, _) | (409, "TableAlreadyExists") => Ok(()),
            (401 | 403, code) => {
                let (table, endpoint) = (&self.table, &self.endpoint);
                let why = format!(
                    "there is no table `{table}` at {endpoint}, and the credential may not create it ({code}): create it, for example with `az storage table create --name {table}`"
                );
                Err(error(TableErrorKind::PermissionDenied, why))
            }
            _ => Err(self.failed(&answer)),
        }
    }
}

/// Whether a condition of the request did not hold. Every other refusal is no conflict (clause T4).
fn is_condition(refusal: &Refusal) -> bool {
    matches!(
        (refusal.status, refusal.code.as_str()),
        (409, "EntityAlreadyExists")
            | (412, "UpdateConditionNotSatisfied" | "ConditionNotMet")
            | (404, "ResourceNotFound" | "EntityNotFound")
    )
}

/// The entities in the answer to a query; none if it is another answer.
pub(crate) fn entities(body: &[u8]) -> Option<Vec<Entity>> {
    let Value::Object(mut answer) = serde_json::from_slice(body).ok()? else {
        return None;
    };
    let Value::Array(list) = answer.remove("value")? else {
        return None;
    };
    list.into_iter().map(Entity::from_answer).collect()
}
