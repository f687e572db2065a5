//! Transactions: operations that happen together or not at all. Clauses T2 to T4.

use membership_core::{TableError, TableErrorKind};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::codec::{Pair, encoded};
use crate::error::{denied, error, is_about_rights, shorten, wrong};
use crate::link::{Link, Request};

/// As many operations as servers of any version take; since 1.12 they take 128.
pub(crate) const MAX_OPERATIONS: usize = 64;
/// The largest request of a transaction that servers take unless they are told otherwise, in bytes.
pub(crate) const MAX_BYTES: usize = 512 * 1024;

/// One operation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Verb {
    verb: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
struct Op {
    kv: Verb,
}

/// A transaction that is being put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Txn(Vec<Op>);

impl Txn {
    fn with(
        mut self,
        verb: &'static str,
        key: String,
        value: Option<&str>,
        index: Option<u64>,
    ) -> Self {
        self.0.push(Op {
            kv: Verb {
                verb,
                key,
                value: value.map(encoded),
                index,
            },
        });
        self
    }

    /// Only if this key is there.
    pub(crate) fn there(self, key: String) -> Self {
        self.with("get", key, None, None)
    }

    /// Only if this key was written last at this index.
    pub(crate) fn unchanged(self, key: String, index: u64) -> Self {
        self.with("check-index", key, None, Some(index))
    }

    /// Makes this key, only if it is not there.
    pub(crate) fn make(self, key: String, text: &str) -> Self {
        self.replace(key, text, 0)
    }

    /// Writes this key, only if it was written last at this index; 0 means never.
    pub(crate) fn replace(self, key: String, text: &str, index: u64) -> Self {
        self.with("cas", key, Some(text), Some(index))
    }

    /// Writes this key, whatever it holds.
    pub(crate) fn put(self, key: String, text: &str) -> Self {
        self.with("set", key, Some(text), None)
    }

    /// Removes this key, if it is there.
    pub(crate) fn remove(self, key: String) -> Self {
        self.with("delete", key, None, None)
    }

    /// Removes everything that begins so.
    pub(crate) fn remove_tree(self, folder: String) -> Self {
        self.with("delete-tree", folder, None, None)
    }

    /// Reads everything that begins so.
    pub(crate) fn tree(self, folder: String) -> Self {
        self.with("get-tree", folder, None, None)
    }
}

/// What became of a transaction.
#[derive(Debug)]
pub(crate) enum Done {
    /// All of it happened; what its operations read.
    All(Vec<Pair>),
    /// Nothing of it did, and this is what the servers say.
    Nothing(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Results {
    /// Consul always says it, of nothing as `null` or `[]`. Who says nothing of it is not Consul.
    #[serde(deserialize_with = "Option::deserialize")]
    results: Option<Vec<One>>,
    #[serde(default)]
    errors: Option<Vec<Failed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct One {
    kv: Option<Pair>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    #[serde(default)]
    what: String,
}

impl Link {
    /// Carries out a transaction that writes.
    ///
    /// # Errors
    /// What the servers say; `PermissionDenied` too, which they say like a condition that failed; `LimitExceeded` before anything is sent.
    pub(crate) async fn write(&self, txn: &Txn, by: Instant) -> Result<Done, TableError> {
        self.transact(txn, "/v1/txn", true, by).await
    }

    /// Carries out a transaction that only reads: one moment of the leader, which makes sure that it still leads.
    ///
    /// # Errors
    /// What the servers say.
    pub(crate) async fn look(&self, txn: &Txn, by: Instant) -> Result<Vec<Pair>, TableError> {
        match self.transact(txn, "/v1/txn?consistent=", false, by).await? {
            Done::All(pairs) => Ok(pairs),
            Done::Nothing(why) => Err(error(
                TableErrorKind::Unavailable,
                format!("the servers do not read ({why})"),
            )
            .at(self.at())),
        }
    }

    async fn transact(
        &self,
        txn: &Txn,
        path: &str,
        writes: bool,
        by: Instant,
    ) -> Result<Done, TableError> {
        let body = serde_json::to_string(&txn.0).map_err(|e| {
            error(
                TableErrorKind::InvalidRequest,
                format!("this cannot be written as JSON ({e})"),
            )
        })?;
        if body.len() > MAX_BYTES || txn.0.len() > MAX_OPERATIONS {
            let (bytes, operations) = (body.len(), txn.0.len());
            let message = format!(
                "the transaction has {bytes} bytes and {operations} operations, Consul takes {MAX_BYTES} and {MAX_OPERATIONS} at once"
            );
            return Err(error(TableErrorKind::LimitExceeded, message));
        }
        let request = Request {
            method: Method::PUT,
            path: path.to_owned(),
            body: Some(body),
            writes,
        };
        let answer = self.ask(&request, &[200, 409], by).await?;
        let parsed: Result<Results, _> = serde_json::from_slice(&answer.body);
        let parsed = parsed.map(|both| Results {
            errors: both.errors.filter(|errors| !errors.is_empty()),
            ..both
        });
        match (answer.status, parsed) {
            // Each transaction that writes here has a condition or a value to set, and Consul says what became of those.
            (
                200,
                Ok(Results {
                    results,
                    errors: None,
                }),
            ) if !writes || results.as_ref().is_some_and(|all| !all.is_empty()) => Ok(Done::All(
                results
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(|one| one.kv)
                    .collect(),
            )),
            (
                409,
                Ok(Results {
                    errors: Some(errors),
                    ..
                }),
            ) => {
                let what: Vec<&str> = errors.iter().map(|failed| failed.what.as_str()).collect();
                match what.iter().find(|what| is_about_rights(what)) {
                    Some(what) => Err(denied(what).at(self.at())),
                    None => Ok(Done::Nothing(shorten(
                        what.first().copied().unwrap_or_default(),
                    ))),
                }
            }
            (status, _) if writes => {
                let message = format!(
                    "what answers there with the HTTP status {status} is not Consul's answer to a transaction"
                );
                Err(error(TableErrorKind::OutcomeUnknown, message).at(self.at()))
            }
            (status, _) => {
                let message = format!(
                    "what answers there with the HTTP status {status} is not Consul: check the address"
                );
                Err(wrong(message).at(self.at()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_what_consul_reads() {
        let txn = Txn::default()
            .there("a".to_owned())
            .make("b".to_owned(), "x")
            .put("c".to_owned(), "")
            .remove("d".to_owned());
        let txn = txn.remove_tree("e/".to_owned()).tree("f/".to_owned());
        assert_eq!(
            serde_json::to_string(&txn.0).unwrap(),
            "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"}},{\"KV\":{\"Verb\":\"cas\",\"Key\":\"b\",\"Value\":\"eA==\",\"Index\":0}},\
             {\"KV\":{\"Verb\":\"set\",\"Key\":\"c\",\"Value\":\"\"}},{\"KV\":{\"Verb\":\"delete\",\"Key\":\"d\"}},\
             {\"KV\":{\"Verb\":\"delete-tree\",\"Key\":\"e/\"}},{\"KV\":{\"Verb\":\"get-tree\",\"Key\":\"f/\"}}]"
        );
    }

    #[test]
    fn answers_are_understood() {
        let done: Results = serde_json::from_str(
            r#"{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":0,"Value":"eA==","CreateIndex":11,"ModifyIndex":11}}],"Errors":null}"#,
        )
        .unwrap();
        assert_eq!(
            done.results
                .unwrap()
                .into_iter()
                .filter_map(|one| one.kv)
                .map(|pair| pair.key)
                .collect::<Vec<_>>(),
            ["a"]
        );
        let refused: Results = serde_json::from_str(
            r#"{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"nope\" doesn't exist"}]}"#,
        )
        .unwrap();
        assert_eq!(
            refused.errors.unwrap()[0].what,
            "key \"nope\" doesn't exist"
        );
        assert!(
            serde_json::from_str::<Results>(r#"{"Results":null,"Errors":null}"#)
                .unwrap()
                .results
                .is_none()
        );
        for stranger in [
            "{}",
            r#"{"Errors":null}"#,
            r#"{"status":"ok"}"#,
            "null",
            "[]",
        ] {
            assert!(
                serde_json::from_str::<Results>(stranger).is_err(),
                "{stranger}"
            );
        }
    }
}
