//! The requests that read items. Clause T6.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::types::{Get, KeysAndAttributes, TransactGetItem};
use futures_util::future::try_join;
use membership_core::{TableError, TableErrorKind};

use crate::client::{Client, Item};
use crate::codec::{self, Items, Stored};
use crate::error::{error, malformed};
use crate::keys;

/// How many items DynamoDB reads in one transaction or in one batch.
const ITEMS_PER_REQUEST: usize = 100;
/// How often items that a batch left out are asked for again.
const LEFT_OUT: u32 = 8;

/// Which part of a partition a query asks for; `keys` has the order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Heartbeats, the version row, rows.
    All,
    /// The version row and rows.
    Rows,
    /// Heartbeats and the version row.
    Heartbeats,
}

/// Rows that were read again, with the version row.
pub(crate) struct Reread {
    pub(crate) version: Option<Stored>,
    pub(crate) rows: Vec<(String, Option<String>)>,
    /// Whether all of it was read in one transaction.
    pub(crate) exact: bool,
}

impl Client {
    /// A consistent query of this cluster's items.
    pub(crate) fn select(&self, condition: &str, values: &[(&str, &str)]) -> QueryFluentBuilder {
        let mut query = self
            .sdk()
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression(condition)
            .expression_attribute_names("#cluster", keys::CLUSTER)
            .expression_attribute_values(":cluster", codec::text(&self.cluster));
        // DynamoDB refuses names that the condition does not use.
        if condition.contains("#item") {
            query = query.expression_attribute_names("#item", keys::ITEM);
        }
        for (name, value) in values {
            query = query.expression_attribute_values(*name, codec::text(*value));
        }
        query
    }

    /// Every item of a part, in as many pages as it takes.
    pub(crate) async fn query(&self, part: Part) -> Result<Items, TableError> {
        let query = match part {
            Part::All => self.select("#cluster = :cluster", &[]),
            Part::Rows => self.select(
                "#cluster = :cluster AND begins_with(#item, :rows)",
                &[(":rows", keys::ROWS)],
            ),
            Part::Heartbeats => self.select(
                "#cluster = :cluster AND #item BETWEEN :from AND :to",
                &[(":from", keys::HEARTBEATS), (":to", keys::VERSION_ROW)],
            ),
        };
        let (mut all, mut after) = (Items::default(), None);
        loop {
            let page = async {
                let request = || query.clone().set_exclusive_start_key(after.clone()).send();
                Ok::<_, TableError>(self.send(false, request).await?)
            };
            // The version row lists sixteen commits, and a page takes its time. Both are asked for
            // at once: another round trip would let others commit meanwhile.
            let later = async {
                match all.version {
                    Some(_) => self.version().await.map(Some),
                    None => Ok(None),
                }
            };
            let (page, later) = try_join(page, later).await?;
            all.later.extend(later);
            all.extend(page.items.unwrap_or_default());
            after = page.last_evaluated_key.filter(|key| !key.is_empty());
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// The version row, and nothing else.
    pub(crate) async fn version(&self) -> Result<Option<Stored>, TableError> {
        let request = || {
            let get = self.sdk().get_item().table_name(&self.table);
            let get = get.consistent_read(true);
            get.set_key(Some(self.key(keys::VERSION_ROW))).send()
        };
        let answer = self.send(false, request).await?;
        Ok(answer.item.as_ref().map(Stored::new))
    }

    /// Whether there is a version row after all. Rows that came without one may be those of a
    /// cluster that was created between two requests, or between two items of one answer.
    pub(crate) async fn is_created_since(&self) -> Result<bool, TableError> {
        Ok(self.version().await?.is_some())
    }

    /// The key of any row, where there is one.
    pub(crate) async fn any_row(&self) -> Result<Option<String>, TableError> {
        let condition = "#cluster = :cluster AND begins_with(#item, :row)";
        let query = self.select(condition, &[(":row", keys::ROW)]).limit(1);
        let page = self.send(false, || query.clone().send()).await?;
        let mut found = Items::default();
        found.extend(page.items.unwrap_or_default());
        Ok(found.rows.into_iter().next().map(|(key, _)| key))
    }

    /// These items in one transaction. None where DynamoDB refused it, because another client
    /// writes one of them or because they are too large.
    pub(crate) async fn get_together(&self, names: &[String]) -> Result<Option<Items>, TableError> {
        let mut gets = Vec::with_capacity(names.len());
        for name in names {
            let get = Get::builder().table_name(&self.table);
            let get = get.set_key(Some(self.key(name))).build();
            let get = TransactGetItem::builder().get(get.map_err(malformed)?);
            gets.push(get.build());
        }
        let request = || {
            let request = self.sdk().transact_get_items();
            request.set_transact_items(Some(gets.clone())).send()
        };
        match self.send(false, request).await {
            Ok(answer) => {
                let mut all = Items::default();
                let responses = answer.responses.unwrap_or_default().into_iter();
                all.extend(responses.filter_map(|response| response.item));
                Ok(Some(all))
            }
            Err(failed) => match failed.answer {
                Some(TransactGetItemsError::TransactionCanceledException(_)) => Ok(None),
                _ => Err(failed.error),
            },
        }
    }

    /// These items, each by itself.
    pub(crate) async fn get_each(&self, names: &[String]) -> Result<Items, TableError> {
        let mut all = Items::default();
        for names in names.chunks(ITEMS_PER_REQUEST) {
            let mut left: Vec<Item> = names.iter().map(|name| self.key(name)).collect();
            for turn in 0.. {
                let keys = KeysAndAttributes::builder().consistent_read(true);
                let keys = keys.set_keys(Some(left.clone()));
                let keys = keys.build().map_err(malformed)?;
                let request = || {
                    let get = self.sdk().batch_get_item();
                    get.request_items(&self.table, keys.clone()).send()
                };
                let answer = self.send(false, request).await?;
                let tables = answer.responses.unwrap_or_default();
                all.extend(tables.into_values().flatten());
                let left_out = answer.unprocessed_keys.unwrap_or_default().into_values();
                left = left_out.flat_map(|keys| keys.keys).collect();
                if left.is_empty() {
                    break;
                }
                if turn == LEFT_OUT {
                    let why = format!("{} keeps leaving out items of a batch", self.endpoint);
                    return Err(error(TableErrorKind::Busy, why));
                }
                tokio::time::sleep(Duration::from_millis(1 << turn)).await;
            }
        }
        Ok(all)
    }

    /// These rows and the version row. `together`: in one transaction, if that is possible now.
    pub(crate) async fn get_rows(
        &self,
        keys: BTreeSet<String>,
        together: bool,
    ) -> Result<Reread, TableError> {
        let version_row = std::iter::once(keys::VERSION_ROW.to_owned());
        let names: Vec<String> = version_row
            .chain(keys.iter().map(|key| keys::row(key)))
            .collect();
        let found = if together && names.len() <= ITEMS_PER_REQUEST {
            self.get_together(&names).await?
        } else {
            None
        };
        let exact = found.is_some();
        let found = match found {
            Some(found) => found,
            None => self.get_each(&names).await?,
        };
        let mut bodies: HashMap<String, String> = found.rows.into_iter().collect();
        let rows = keys.into_iter().map(|key| {
            let body = bodies.remove(&key);
            (key, body)
        });
        Ok(Reread {
            version: found.version,
            rows: rows.collect(),
            exact,
        })
    }
}
